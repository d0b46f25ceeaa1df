"""A probe: the partial results of one block look for matches in one chunk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints, Mask
from watersmeet.predicate.model import Column
from watersmeet.probe.candidates import Range
from watersmeet.probe.chunk_table import Target
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import Partials, references
from watersmeet.query.windows import Window
from watersmeet.state.chunks.rows import Rows

Seat = int | Ints
"""The node at which each partial result of a block probes a chunk, or one node for all; NOWHERE if it doesn't."""
Hashes = Callable[[Partials, Column], NDArray[np.uint64]]
"""Returns the hashes of a member's column, for a whole block."""


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
        partials.here = np.full(len(row), self.seat) if isinstance(self.seat, int) else self.seat[partial]
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
