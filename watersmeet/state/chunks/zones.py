"""Zone maps: the smallest and largest value of a chunk's columns and their histograms, by which chunks are skipped."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.predicate.numbers import numbers

BINS = 64
"""Bins of a zone's histogram; columns of fewer values have none."""


class Zone(NamedTuple):
    """The smallest and largest value of a column in a chunk, as numbers; NaN is left out and flagged.

    [!] Arrow's min_max ignores NaN while Spark sorts it highest, hence the flag.

    Attributes:
        low: The smallest.
        high: The largest.
        nan: Whether there are NaNs.
        counts: An equi-width histogram over [low, high]; empty where there are too few values to be worth it.
    """

    low: float
    high: float
    nan: bool
    counts: tuple[int, ...] = ()

    def misses(self, low: float, high: float) -> bool:
        """Tell whether no value of the zone lies in [low, high]; a NaN counts as higher than everything."""
        return not (self.low <= high and (self.high >= low or self.nan))


def zone_of(values: pa.Array) -> Zone:
    """Return the zone map of a column; the widest zone is that of no values at all."""
    as_numbers = numbers(values.drop_null())
    nan = bool(np.isnan(as_numbers).any())
    as_numbers = as_numbers[~np.isnan(as_numbers)] if nan else as_numbers
    if not len(as_numbers):
        return Zone(np.inf, -np.inf, nan)
    low, high = float(as_numbers.min()), float(as_numbers.max())
    return Zone(low, high, nan, _counts(as_numbers, low, high))


def _counts(values: NDArray[np.float64], low: float, high: float) -> tuple[int, ...]:
    """Return how many values fall into each of BINS equal parts of [low, high]."""
    width = high - low
    if len(values) < BINS or not np.isfinite(width):
        return ()
    if width == 0:
        return (len(values),)
    bins = np.minimum(((values - low) / width * BINS).astype(np.int64), BINS - 1)
    return tuple(np.bincount(bins, minlength=BINS).tolist())
