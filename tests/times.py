"""Times as `query.progress` shows them."""

import numpy as np


def instant(text: str | None) -> int | None:
    """Return a time in microseconds since the epoch."""
    return None if text is None else int(np.datetime64(text.removesuffix("Z"), "us").astype(np.int64))
