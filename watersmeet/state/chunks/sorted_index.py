"""The sorted index: per indexed column the row numbers of a chunk in rising order of the value.

Large chunks store it, as a permutation `o_<column>`; small ones are sorted when first probed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.predicate.numbers import numbers

PREFIX = "o_"


class SortedColumn(NamedTuple):
    """A column's values as numbers in rising order, and the row numbers in that order; NULLs are left out."""

    values: NDArray[np.float64]
    order: NDArray[np.integer[Any]]

    @property
    def nbytes(self) -> int:
        """How many bytes both take."""
        return self.values.nbytes + self.order.nbytes


def with_orders(rows: pa.RecordBatch, indexed: Sequence[Column]) -> pa.RecordBatch:
    """Return the rows with a permutation column per indexed column, unless they are few."""
    if rows.num_rows < limits().order_rows:
        return rows
    small = np.uint16 if rows.num_rows <= np.iinfo(np.uint16).max else np.uint32
    for column in indexed:
        order = np.argsort(numbers(rows.column(column.name)), kind="stable").astype(small)
        rows = rows.append_column(f"{PREFIX}{column.name}", pa.array(order))
    return rows


def without_orders(names: Sequence[str]) -> list[str]:
    """Return the names of columns that are no permutations."""
    return [name for name in names if not name.startswith(PREFIX)]


def sorted_column(rows: pa.RecordBatch, column: Column, values: pa.Array) -> SortedColumn:
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
