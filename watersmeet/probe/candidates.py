"""Candidates: a block probes a chunk, and an access path proposes the rows that may match each partial result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Floats, Ints, Mask
from watersmeet.predicate.model import Column, Operand, Operation
from watersmeet.probe.chunk_table import Target
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import Partials, references, uniform
from watersmeet.query.windows import Window
from watersmeet.state.chunks.chunk import Rows

GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples lie evenly between 0 and 1, however many they are."""

Seat = int | Ints
"""The node at which each partial result of a block probes a chunk, or one node for all; NOWHERE if it doesn't."""
Hashes = Callable[[Partials, Column], NDArray[np.uint64]]
"""Returns the hashes of a member's column, for a whole block."""


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
    if len(low) and len(rows) and low.max() <= rows.ts[0] and rows.ts[-1] <= high.min():
        return AccessPath(np.zeros(len(low), np.int64), np.full(len(low), len(rows)), None)
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


class Times(NamedTuple):
    """The earliest and the latest time that each partial result of a block looks for."""

    low: Ints
    high: Ints


@dataclass(frozen=True, slots=True)
class ProbeInput:
    """A block of partial results at its next hop: what all probes of the stream's chunks share.

    Attributes:
        block: The partial results.
        step: The hop.
        window: The window of the stream.
        times: The times that the windows of the members and of the stream admit.
        columns: The columns worth carrying: those of fixed width that this step or a later one reads.
        tracked: Whether the placement needs to see the stream's times.
    """

    block: Partials
    step: Step
    window: Window
    times: Times
    columns: frozenset[Column]
    tracked: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """The probe of one chunk by a block.

    Attributes:
        input: What the block looks for.
        target: The chunk.
        rows: Its rows.
        seat: The node at which each partial result probes it.
        mask: Which partial results take part; a single value stands for all.
        ranges: What access paths may look up in it.
    """

    input: ProbeInput
    target: Target
    rows: Rows
    seat: Seat
    mask: Mask | bool
    ranges: Sequence[Range] = ()

    @property
    def block(self) -> Partials:
        """The partial results."""
        return self.input.block

    @property
    def step(self) -> Step:
        """The hop."""
        return self.input.step

    def narrow(self) -> "Probe":
        """Return the probe without the partial results that take no part."""
        at = np.flatnonzero(np.broadcast_to(self.mask, len(self.block)))
        (low, high), seat = self.input.times, self.seat
        probe_input = replace(self.input, block=self.block.take(at), times=Times(low[at], high[at]))
        ranges = [range_.take(at) for range_ in self.ranges]
        return Probe(probe_input, self.target, self.rows, seat if isinstance(seat, int) else seat[at], True, ranges)

    def extend(self, partial: Ints, row: Ints, *, from_scan: bool = False) -> Partials:
        """Return pairs of a partial result and a row of the chunk as longer partial results.

        Args:
            partial: The positions of their partial results in the block.
            row: Their rows of the chunk.
            from_scan: Whether a scan found them, so that they have passed the plain SQL of the hop.
        """
        stream, ts, index = self.step.target, self.rows.ts[row], pa.array(row)
        partials = self.block.only(self.input.columns).take(partial)
        partials.from_scan = from_scan
        partials.joined = (*self.block.joined, stream)
        partials.rows[stream] = references(self.target.number, row)
        partials.here = uniform(self.seat, len(row)) if isinstance(self.seat, int) else self.seat[partial]
        if self.input.tracked:
            partials.times[stream] = ts
        partials.high = np.maximum(partials.high, ts)
        partials.deadline = np.minimum(partials.deadline, self.input.window.deadline(ts))
        added = (column for column in self.input.columns if column.stream == stream)
        partials.columns |= {column: self.rows.column(column).take(index) for column in added}
        return partials


class Router(Protocol):
    """Finds for each partial result and chunk the one node at which they meet."""

    tracked: tuple[int, ...]

    def seats(self, block: Partials, step: Step, hashes: Hashes) -> Callable[[Target], Seat]:
        """Return the seats of a block's partial results at each chunk of `step.target`."""
