"""The sorted index and zone maps of a chunk, by which a probe skips rows; only columns looked up have sort orders.

A large chunk stores a sort order as a permutation `o_<column>`; a small one is sorted when it is first probed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Floats
from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.predicate.numbers import numbers

BINS = 64
"""Bins of a zone's histogram; columns of fewer values have none."""
PREFIX = "o_"


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
    return Zone(low, high, nan, _count_bins(as_numbers, low, high))


def _count_bins(values: Floats, low: float, high: float) -> tuple[int, ...]:
    """Return how many values fall into each of BINS equal parts of [low, high]; empty if too few, or infinite."""
    width = high - low
    if len(values) < BINS or not np.isfinite(width):
        return ()
    if width == 0:
        return (len(values),)
    bins = np.minimum(((values - low) / width * BINS).astype(np.int64), BINS - 1)
    return tuple(np.bincount(bins, minlength=BINS).tolist())


class SortedColumn(NamedTuple):
    """A column's values as numbers in rising order, and the row numbers in that order; NULLs are left out."""

    values: Floats
    order: NDArray[np.integer[Any]]

    @property
    def nbytes(self) -> int:
        """How many bytes both take."""
        return self.values.nbytes + self.order.nbytes


def add_sort_orders(rows: pa.RecordBatch, indexed: Sequence[Column]) -> pa.RecordBatch:
    """Return the rows with a permutation column per indexed column, unless they are few."""
    if rows.num_rows < limits().order_rows:
        return rows
    small = np.uint16 if rows.num_rows <= np.iinfo(np.uint16).max else np.uint32
    for column in indexed:
        order = np.argsort(numbers(rows.column(column.name)), kind="stable").astype(small)
        rows = rows.append_column(f"{PREFIX}{column.name}", pa.array(order))
    return rows


def drop_sort_orders(names: Sequence[str]) -> list[str]:
    """Return these names without those of columns that are stored sort orders."""
    return [name for name in names if not name.startswith(PREFIX)]


def sort_column(rows: pa.RecordBatch, column: Column, values: pa.Array) -> SortedColumn:
    """Return a column in rising order, by the permutation that the rows store or by sorting it now.

    Args:
        rows: All columns of the chunk.
        column: The column.
        values: Its values.
    """
    as_numbers, stored = numbers(values), f"{PREFIX}{column.name}"
    order = rows.column(stored).to_numpy() if stored in rows.schema.names else np.argsort(as_numbers, kind="stable")
    if values.null_count:
        order = order[pc.is_valid(values).to_numpy(zero_copy_only=False)[order]]
    return SortedColumn(as_numbers[order], order)
