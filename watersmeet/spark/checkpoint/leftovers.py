"""What a kill leaves of the first files of Spark's logs, for which Spark would refuse the checkpoint from then on.

Spark writes a file of a log under a hidden name first, and begins only where the folders of its logs are empty.
"""

import re

from watersmeet.state.store.store import Store

LOGS = ("offsets", "commits")
_BATCH = re.compile(r"\w+/\d+")
_UNFINISHED = re.compile(r"\w+/\.{1,2}\d+\.([0-9a-f-]{36}(\.TID\d+)?\.tmp(\.crc)?|crc)")


def clear(checkpoint: Store) -> None:
    """Remove what is unfinished in Spark's logs as long as they hold no batch; who does so must hold the lease.

    Args:
        checkpoint: The folder that Spark keeps its part of the checkpoint in.
    """
    names = [name for log in LOGS for name in checkpoint.names(log)]
    if not any(map(_BATCH.fullmatch, names)):
        checkpoint.remove(filter(_UNFINISHED.fullmatch, names))


def in_the_way(checkpoint: Store) -> str | None:
    """Return a file for which Spark does not begin; None without one."""
    return next((name for log in (*LOGS, "state") for name in sorted(checkpoint.names(log))), None)
