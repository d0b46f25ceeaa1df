"""A probe: the partial results of one block look for matches in one chunk."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.predicate.model import Column
from watersmeet.probe.candidates import Range
from watersmeet.probe.chunk_table import Target
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import Partials, references
from watersmeet.probe.routing import Seat
from watersmeet.query.windows import Window
from watersmeet.state.chunks.rows import Rows


class Times(NamedTuple):
    """For each partial result of a block the earliest and the latest time of what it asks for."""

    low: Ints
    high: Ints


@dataclass(frozen=True, slots=True)
class Sought:
    """What a block of partial results looks for in the stream of its next hop, the same in each of its chunks.

    Attributes:
        block: The partial results.
        step: The hop.
        window: The window of the stream.
        times: Which of its times the windows admit, those of the members and the stream's own.
        carried: The columns that are worth carrying: those of fixed width that this step or a later one reads.
        tracked: Whether the placement needs to see the stream's times.
    """

    block: Partials
    step: Step
    window: Window
    times: Times
    carried: frozenset[Column]
    tracked: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """One look of a block at one chunk.

    Attributes:
        sought: What is looked for.
        target: The chunk.
        rows: Its rows.
        seat: The node at which each partial result probes it.
        mine: Which of them do so in this probe; one answer may stand for all.
        ranges: What access paths may look up in it.
    """

    sought: Sought
    target: Target
    rows: Rows
    seat: Seat
    mine: NDArray[np.bool_] | bool
    ranges: Sequence[Range] = ()

    @property
    def block(self) -> Partials:
        """The partial results."""
        return self.sought.block

    @property
    def step(self) -> Step:
        """The hop."""
        return self.sought.step

    def narrowed(self) -> "Probe":
        """Return the probe of those partial results alone that do probe."""
        at = np.flatnonzero(np.broadcast_to(self.mine, len(self.block)))
        (low, high), seat = self.sought.times, self.seat
        sought = replace(self.sought, block=self.block.take(at), times=Times(low[at], high[at]))
        ranges = [asked.take(at) for asked in self.ranges]
        return Probe(sought, self.target, self.rows, seat if isinstance(seat, int) else seat[at], True, ranges)

    def longer(self, partial: Ints, row: Ints, *, scanned: bool = False) -> Partials:
        """Return pairs of a partial result and a row of the chunk as longer partial results."""
        stream, ts, index = self.step.target, self.rows.ts[row], pa.array(row)
        made = self.block.only(self.sought.carried).take(partial)
        made.scanned = scanned
        made.joined = (*self.block.joined, stream)
        made.rows[stream] = references(self.target.number, row)
        made.here = np.full(len(row), self.seat) if isinstance(self.seat, int) else self.seat[partial]
        if self.sought.tracked:
            made.times[stream] = ts
        made.high = np.maximum(made.high, ts)
        made.deadline = np.minimum(made.deadline, self.sought.window.deadline(ts))
        mine = (column for column in self.sought.carried if column.stream == stream)
        made.carried |= {column: self.rows.column(column).take(index) for column in mine}
        return made
