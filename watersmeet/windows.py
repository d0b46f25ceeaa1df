"""The windows a user names; a plain duration is a sliding window."""

from datetime import timedelta

from watersmeet.duration import microseconds
from watersmeet.kernel.window import Count, Hopping


def count(rows: int) -> Count:
    """Return a window of a stream's last `rows` tuples, by arrival.

    >>> count(5000).describe()
    'last 5000 rows'
    """
    return Count(rows)


def hopping(size: str | timedelta, step: str | timedelta) -> Hopping:
    """Return windows of `size` that start every `step` since the epoch; tuples join if they share one.

    >>> hopping("60 seconds", "20 seconds").describe()
    'hopping 60 s every 20 s'
    """
    return Hopping(microseconds(size, "size of a hopping window"), microseconds(step, "step of a hopping window"))
