"""The NumPy array types that signatures name, and how a column becomes a mask."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def to_mask(values: Any) -> Mask:
    """Return where a boolean column of Arrow is TRUE; NULL counts as FALSE."""
    mask: Mask = values.fill_null(False).to_numpy(zero_copy_only=False)
    return mask
