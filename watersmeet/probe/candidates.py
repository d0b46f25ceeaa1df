"""Candidates: the rows of a chunk that an access path proposes for each partial result."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Floats, Ints
from watersmeet.predicate.model import Column, Operand, Operation
from watersmeet.state.chunks.rows import Rows

GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples lie evenly between 0 and 1, however many they are."""


@dataclass(frozen=True, slots=True)
class Range:
    """The values of a column that partial results look for: one interval each, both ends included, as numbers.

    Attributes:
        column: The column.
        low: The lower ends.
        high: The upper ends.
        equal: Whether the conjunct is an equality, so that DuckDB can also join by hash.
        operations: The operations of the conjunct that may overflow.
        operands: The values of their operands, except for the column itself.
        extremes: The smallest and the largest of each operand's values, NULLs left out.
    """

    column: Column
    low: Floats
    high: Floats
    equal: bool
    operations: tuple[Operation, ...] = ()
    operands: Mapping[Operand, Floats] = field(default_factory=dict)
    extremes: Mapping[Operand, tuple[float, float]] = field(default_factory=dict)

    def take(self, at: Ints) -> "Range":
        """Return the range of some of the partial results."""
        operands = {operand: values[at] for operand, values in self.operands.items()}
        return replace(self, low=self.low[at], high=self.high[at], operands=operands)


@dataclass(frozen=True, slots=True)
class AccessPath:
    """An access path into one chunk: for each partial result a run of `count` rows from `first`.

    Attributes:
        first: Where each run starts.
        count: How long it is.
        order: The rows' order that the runs refer to; None for the chunk's own order, by time.
    """

    first: Ints
    count: Ints
    order: NDArray[np.integer[Any]] | None

    @property
    def pairs(self) -> int:
        """How many pairs the path proposes."""
        return int(self.count.sum())


def time_path(rows: Rows, low: Ints, high: Ints) -> AccessPath:
    """Return the rows whose time lies in [low, high]."""
    first = np.searchsorted(rows.ts, low, "left")
    last = np.searchsorted(rows.ts, high, "right")
    return AccessPath(first, np.maximum(last - first, 0), None)


def value_path(rows: Rows, range_: Range, by_time: AccessPath) -> AccessPath:
    """Return the rows whose value lies in the range; NaN is looked up as the highest value, as Spark sorts it.

    Partial results without rows in time get an empty run.

    [!] It is a superset: `abs(x - y) < 0.3` as a range misses pairs by one rounding, so the conjunct stays as residual.
    """
    values, order = rows.order(range_.column)
    first = np.searchsorted(values, range_.low, "left")
    last = np.searchsorted(values, range_.high, "right")
    return AccessPath(first, np.where(by_time.count > 0, np.maximum(last - first, 0), 0), order)


def expand_pairs(path: AccessPath, block: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield (position of the partial result, row of the chunk) in blocks of at most `block` pairs."""
    ends = np.cumsum(path.count)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, block):
        yield _pairs_between(path, ends, start, min(start + block, total))


def sample_pairs(path: AccessPath, most: int) -> tuple[Ints, Ints]:
    """Return at most `most` of a path's pairs, evenly spread, as `expand_pairs` does.

    [!] Not every n-th: if all runs were of the same length, each partial result would meet the same row of its run.
    """
    ends = np.cumsum(path.count)
    total = int(ends[-1]) if len(ends) else 0
    at = np.arange(min(most, total))
    if total > most:
        at = np.unique((at * GOLDEN % 1.0 * total).astype(np.int64))
    partial = np.searchsorted(ends, at, "right")
    row = path.first[partial] + at - (ends - path.count)[partial]
    return partial, row if path.order is None else path.order[row].astype(np.int64)


def _pairs_between(path: AccessPath, ends: Ints, start: int, stop: int) -> tuple[Ints, Ints]:
    """Return pairs by their numbers, `start` to `stop`, among all that an access path leads to."""
    from_partial = int(np.searchsorted(ends, start, "right"))
    to_partial = int(np.searchsorted(ends, stop - 1, "right")) + 1
    begins = ends[from_partial:to_partial] - path.count[from_partial:to_partial]
    counts = np.minimum(ends[from_partial:to_partial], stop) - np.maximum(begins, start)
    partial = np.repeat(np.arange(from_partial, to_partial), counts)
    offsets = path.first[from_partial:to_partial] - begins
    row = np.arange(start, stop) + np.repeat(offsets, counts)
    return partial, row if path.order is None else path.order[row].astype(np.int64)
