"""What strategies and cost models may know of a join's state before a batch; no more, and no rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.predicate.model import Column
from watersmeet.state.chunks.chunk import WHOLE, Chunk

LONGEST_SLICE = 3_600_000_000
"""Slices of streams whose window says nothing about time are an hour long."""
SLICES = 4
"""Slices per span, where a strategy has no use for more: what expires leaves slice by slice."""
ANYWHERE = -1
"""The group of partial results that no node is meant for more than another; the place of those that are nowhere yet."""
MARGIN = 0.2
"""By which part something else must be better to be worth a change."""
TIED = 0.1
"""The part of a window that is taken to pass a conjunct, before anything is measured."""


class StoredNotes(NamedTuple):
    """Notes of a strategy or a join order for its next batch. A reader that can't use them starts anew.

    Attributes:
        by: The class that wrote them; no other reads them.
        notes: The notes, as JSON can hold them.
        version: The version of their form.
    """

    by: str = ""
    notes: Mapping[str, Any] = {}
    version: int = 0

    def read_by(self, reader: object) -> Mapping[str, Any]:
        """Return the notes if the reader's class wrote them; else none."""
        return self.notes if self.by == type(reader).__name__ else {}


@dataclass(frozen=True, slots=True)
class StreamView:
    """What a strategy knows of a stream before a batch.

    Attributes:
        span: How long a tuple stays, delay included, in microseconds; None if time alone never ends it.
        latest: The latest event time seen; None before the first tuple.
        rows: Tuples that the last batch brought.
        advance: How far event time advanced in the last batch.
        window: How far a result's time may lie behind a tuple's, in microseconds; None if time sets no limit.
        rate: Tuples a second of event time, smoothed over the batches so far.
        table: Whether it is a table, whose rows are looked up and probe nothing.
    """

    span: int | None
    latest: int | None = None
    rows: int = 0
    advance: int = 0
    window: int | None = None
    rate: float = 0.0
    table: bool = False

    @property
    def slice(self) -> int:
        """The length of its slices, where a strategy has no use for others."""
        return LONGEST_SLICE if self.span is None else max(1, self.span // SLICES)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a node used in a batch: seconds of CPU or of waiting predicates, bytes of state, rows that came to it."""

    cpu: float = 0.0
    memory: float = 0.0
    network: float = 0.0


@dataclass(frozen=True, slots=True)
class HopView:
    """What probing one stream from certain others did in the last batches, a batch on average, smoothed.

    Attributes:
        joined: The streams joined, in rising order.
        target: The stream probed.
        rows: Partial results that probed.
        pairs: Pairs in time that they met.
        matches: Pairs that passed all conjuncts decided there.
    """

    joined: tuple[int, ...]
    target: int
    rows: float = 0.0
    pairs: float = 0.0
    matches: float = 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """What a strategy knows of where the join runs.

    Attributes:
        slots: How many tasks run at once; infinite if that isn't known.
        row_seconds: What it took to send a row to a node in the last batches; None before the first.
        hop_seconds: How long a hop took beside its work, as a stage of tasks; None before the first batch.
        cores: How many of the slots have a core; fewer where tasks that wait are to overlap.
        overdue: For how many batches on end a batch has taken longer than the time until the next one was due.
        tasks: How many tasks probed in the last batch; none where it ran in the driver.
        shared: Whether tasks share their state, so that no row is sent.
    """

    slots: float = inf
    row_seconds: float | None = None
    hop_seconds: float | None = None
    cores: float = inf
    overdue: int = 0
    tasks: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class StateView:
    """What a strategy knows before a batch.

    Attributes:
        streams: Each stream.
        chunks: The live chunks.
        notes: The notes of the batch before.
        usage: What each node used in the last batches, smoothed; empty before the first.
        ties: For each conjunct over two or more streams, the streams it reads.
        equalities: The pairs of columns that some conjunct asks to be equal.
        hops: What the hops of the last batches did.
        names: The streams' names, for people.
        machine: Where the join runs.
        batch: The batch to be planned.
        partitions: Into how many parts the tuples of one attribute's values are to be cut, if a strategy cuts them so.
    """

    streams: tuple[StreamView, ...]
    chunks: tuple[Chunk, ...] = ()
    notes: StoredNotes = field(default_factory=StoredNotes)
    usage: tuple[Usage, ...] = ()
    ties: tuple[frozenset[int], ...] = ()
    equalities: tuple[tuple[Column, Column], ...] = ()
    hops: tuple[HopView, ...] = ()
    names: tuple[str, ...] = ()
    machine: Machine = Machine()
    batch: int = 0
    partitions: int = 1
    _columns: dict[str, Ints] = field(default_factory=dict, init=False, repr=False, compare=False)
    _taken: dict[tuple[tuple[int, ...], int], HopView] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_taken", {(hop.joined, hop.target): hop for hop in self.hops if hop.rows})

    # -- time

    @property
    def latest(self) -> int | None:
        """The latest event time seen; None before the first tuple."""
        return max((stream.latest for stream in self.streams if stream.latest is not None), default=None)

    @property
    def advance(self) -> int:
        """How far event time advanced in the last batch, in the stream in which it did most."""
        return max(stream.advance for stream in self.streams)

    @property
    def reach(self) -> int:
        """The longest window that has a limit; 0 if none has."""
        return max((stream.window for stream in self.streams if stream.window is not None), default=0)

    # -- hops

    def hop(self, joined: Iterable[int], target: int) -> HopView | None:
        """Return what a hop did in the last batches; None if it wasn't taken."""
        return self._taken.get((tuple(sorted(joined)), target))

    def becomes(self, joined: frozenset[int], target: int, held: float) -> float:
        """Return what one partial result becomes by a hop: as measured, else less for each conjunct that it decides.

        Args:
            joined: The streams joined.
            target: The stream probed.
            held: The tuples in its window.
        """
        hop = self.hop(joined, target)
        if hop is not None:
            return hop.matches / hop.rows
        decided = sum(target in tie and tie <= joined | {target} for tie in self.ties)
        return held * float(TIED**decided)

    # -- chunks

    def column(self, name: Literal["stream", "low", "high", "rows", "bytes"]) -> Ints:
        """Return a field of all live chunks, in their order; however often it is asked for, they are read once."""
        if name not in self._columns:
            self._columns[name] = np.fromiter(map(attrgetter(name), self.chunks), np.int64, len(self.chunks))
        return self._columns[name]

    def distinct(self) -> NDArray[np.bool_]:
        """Tell of each live chunk whether its rows count: of those that hold the same rows by different hashes, one."""
        buckets = list(map(attrgetter("bucket"), self.chunks))
        if buckets.count(WHOLE) == len(buckets):
            return np.ones(len(buckets), bool)
        return np.array([bucket.first for bucket in buckets])

    def homes(self) -> Ints:
        """Return the owner of each live chunk, in their order; ANYWHERE for one that has several."""
        if "home" not in self._columns:
            owners = list(map(attrgetter("owners"), self.chunks))
            every = list(chain.from_iterable(owners))
            if len(every) > len(owners):
                every = [nodes[0] if len(nodes) == 1 else ANYWHERE for nodes in owners]
            self._columns["home"] = np.array(every, np.int64)
        return self._columns["home"]
