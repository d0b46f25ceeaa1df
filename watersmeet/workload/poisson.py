"""Arrival times of a Poisson process, as in the papers' experiments."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SECOND = 1_000_000
"""Event times are whole microseconds."""

START = 1_767_225_600 * SECOND
"""The default first moment of a workload: 2026-01-01 00:00:00 UTC."""

TIME = pa.timestamp("us", tz="UTC")
"""The Arrow type of an event time."""


def arrivals(rate: float, seconds: float, rng: np.random.Generator, start: int = START) -> NDArray[np.int64]:
    """Event times of a Poisson process, ascending, in microseconds since the epoch.

    Args:
        rate: Mean number of arrivals a second.
        seconds: Length of the stretch of event time.
        rng: Source of randomness; the same state gives the same times.
        start: First moment of the stretch; all times are in [start, start + seconds).

    >>> arrivals(2, 2, np.random.default_rng(1), start=0).tolist()
    [513984, 546338, 818398, 1287657, 1655405]
    """
    if not (rate >= 0 and seconds >= 0):
        raise ValueError(
            f"A Poisson process needs a rate and a length of at least 0, got {rate} a second, {seconds} s."
        )
    # Given their number, the arrivals of a Poisson process are independent and uniform.
    times = rng.integers(start, start + max(1, round(seconds * SECOND)), rng.poisson(rate * seconds))
    return np.sort(times)
