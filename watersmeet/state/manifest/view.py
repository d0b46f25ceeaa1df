"""Views: what strategies and cost models see of a join's state before a batch. They contain no rows."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.predicate.model import Column
from watersmeet.state.chunks.chunk import WHOLE, Chunk

LONGEST_SLICE = 3_600_000_000
"""Slices of streams without a time window are an hour long."""
SLICES = 4
"""Slices per span, if a strategy needs no more: state expires slice by slice."""
ANYWHERE = -1
"""The group of partial results that no node is meant for more than another; the place of those that are nowhere yet."""
MARGIN = 0.2
"""The part by which an alternative must be better to be worth a change."""
TIED = 0.1
"""The part of a window that is assumed to pass a conjunct, before anything is measured."""


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
    """What a strategy knows about a stream before a batch.

    Attributes:
        span: How long a tuple stays, delay included, in microseconds; None if time alone never ends it.
        latest: The latest event time so far; None before the first tuple.
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
        """The length of its slices, unless a strategy needs others."""
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
    """What a strategy knows about where the join runs.

    Attributes:
        slots: How many tasks run at once; infinite if unknown.
        row_seconds: What sending a row to a node took in the last batches; None before the first.
        hop_seconds: The overhead of a hop as a stage of tasks; None before the first batch.
        cores: How many of the slots have a core; fewer if waiting tasks are to overlap.
        overdue: For how many batches in a row a batch has taken longer than the time until the next one was due.
        tasks: How many tasks probed in the last batch; 0 if it ran in the driver.
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
        equalities: The pairs of columns that a conjunct requires to be equal.
        hops: What the hops of the last batches did.
        names: The streams' names, for messages.
        machine: Where the join runs.
        batch: The batch to be planned.
        partitions: Into how many partitions a strategy that partitions by values divides them.
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
    _hop_by_streams: dict[tuple[tuple[int, ...], int], HopView] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hop_by_streams", {(hop.joined, hop.target): hop for hop in self.hops if hop.rows})

    # -- time

    @property
    def latest(self) -> int | None:
        """The latest event time so far; None before the first tuple."""
        return max((stream.latest for stream in self.streams if stream.latest is not None), default=None)

    @property
    def advance(self) -> int:
        """How far event time advanced in the last batch, in the stream that advanced most."""
        return max(stream.advance for stream in self.streams)

    @property
    def reach(self) -> int:
        """The longest limited window; 0 if there is none."""
        return max((stream.window for stream in self.streams if stream.window is not None), default=0)

    # -- hops

    def hop(self, joined: Iterable[int], target: int) -> HopView | None:
        """Return the measurements of a hop in the last batches; None if it wasn't taken."""
        return self._hop_by_streams.get((tuple(sorted(joined)), target))

    def expected_matches(self, joined: frozenset[int], target: int, rows: float) -> float:
        """Return how many partial results one becomes by a hop: measured, or estimated from the conjuncts it decides.

        Args:
            joined: The streams joined.
            target: The stream probed.
            rows: The tuples in its window.
        """
        hop = self.hop(joined, target)
        if hop is not None:
            return hop.matches / hop.rows
        conjuncts = sum(target in tie and tie <= joined | {target} for tie in self.ties)
        return rows * float(TIED**conjuncts)

    # -- chunks

    def column(self, name: Literal["stream", "low", "high", "rows", "bytes"]) -> Ints:
        """Return a field of all live chunks, in their order; it is computed once."""
        if name not in self._columns:
            self._columns[name] = np.fromiter(map(attrgetter(name), self.chunks), np.int64, len(self.chunks))
        return self._columns[name]

    def distinct(self) -> Mask:
        """Return which live chunks count: of those that hold the same rows by different hashes, only one."""
        buckets = list(map(attrgetter("bucket"), self.chunks))
        if buckets.count(WHOLE) == len(buckets):
            return np.ones(len(buckets), bool)
        return np.array([bucket.first for bucket in buckets])

    def homes(self) -> Ints:
        """Return the owner of each live chunk, in their order, computed once; ANYWHERE for one that has several."""
        if "home" not in self._columns:
            owners = list(map(attrgetter("owners"), self.chunks))
            every = list(chain.from_iterable(owners))
            if len(every) > len(owners):
                every = [nodes[0] if len(nodes) == 1 else ANYWHERE for nodes in owners]
            self._columns["home"] = np.array(every, np.int64)
        return self._columns["home"]


class Shipping(NamedTuple):
    """What sending rows cost per batch, smoothed: CPU seconds, and the number of rows."""

    seconds: float = 0.0
    rows: float = 0.0

    @property
    def per_row(self) -> float | None:
        """The seconds per row; None if none was sent."""
        return self.seconds / self.rows if self.rows else None


@dataclass(frozen=True, slots=True)
class RunningStatistics:
    """What the batches so far have taught.

    Attributes:
        strategy: The notes of the strategy.
        ordering: The notes of the join order.
        usage: What each node used, smoothed; empty before the first batch that probed.
        hops: What the hops did, smoothed.
        shipping: What sending rows cost.
        hop_seconds: How long a hop took beside its work and the start of its tasks, smoothed; None if not known.
        tasks: How many tasks probed in the last batch; none where it ran in the driver.
        overdue: For how many batches in a row a batch has taken longer than it may.
        warned: The kinds of the last batch's warnings.
        clock: The driver's clock at the last batch, in microseconds; None before the first.
    """

    strategy: StoredNotes = field(default_factory=StoredNotes)
    ordering: StoredNotes = field(default_factory=StoredNotes)
    usage: tuple[Usage, ...] = ()
    hops: tuple[HopView, ...] = ()
    shipping: Shipping | None = None
    hop_seconds: float | None = None
    tasks: int = 0
    overdue: int = 0
    warned: tuple[str, ...] = ()
    clock: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return them as the manifest stores them."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return plain | {"usage": list(map(astuple, self.usage)), "hops": list(map(astuple, self.hops))}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "RunningStatistics":
        """Return the statistics that `to_json` wrote."""
        return cls(
            strategy=StoredNotes(*plain["strategy"]),
            ordering=StoredNotes(*plain["ordering"]),
            usage=tuple(Usage(*usage) for usage in plain["usage"]),
            hops=tuple(HopView(tuple(joined), *rest) for joined, *rest in plain["hops"]),
            shipping=None if plain["shipping"] is None else Shipping(*plain["shipping"]),
            hop_seconds=plain["hop_seconds"],
            tasks=plain["tasks"],
            overdue=plain["overdue"],
            warned=tuple(plain["warned"]),
            clock=plain["clock"],
        )
