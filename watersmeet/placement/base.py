"""The interface that every strategy of the papers answers: who keeps a tuple, and whom a partial result must visit.

A `Strategy` is what the user names. Before each batch it looks at the state and returns a `Placement`: a frozen, pure,
total function for that batch, which travels to every task. Tasks ask it two things: who keeps a new tuple, and at which
copy of a chunk a partial result probes it. Everything else about routes follows from these two.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from watersmeet.duration import microseconds
from watersmeet.errors import DefinitionError
from watersmeet.predicate.model import Column
from watersmeet.state.chunk import WHOLE, Bucket, Chunk

Ints = NDArray[np.int64]

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
    """

    span: int | None
    latest: int | None = None
    rows: int = 0
    advance: int = 0
    window: int | None = None
    rate: float = 0.0

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
        frozen: What the strategy itself kept from the batch before; empty after a change of strategy.
        usage: What each node used in the last batches, smoothed; empty before the first.
        ties: For each conjunct over two or more streams, the streams it reads.
        equalities: The pairs of columns that some conjunct asks to be equal.
        hops: What the hops of the last batches did.
        names: The streams' names, for people.
        machine: Where the join runs.
        batch: The batch to be planned.
    """

    streams: tuple[StreamView, ...]
    chunks: tuple[Chunk, ...] = ()
    frozen: Mapping[str, Any] = field(default_factory=dict)
    usage: tuple[Usage, ...] = ()
    ties: tuple[frozenset[int], ...] = ()
    equalities: tuple[tuple[Column, Column], ...] = ()
    hops: tuple[HopView, ...] = ()
    names: tuple[str, ...] = ()
    machine: Machine = Machine()
    batch: int = 0
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


class Placement(ABC):
    """A batch's answers; pure and total, so that the driver and every task agree without asking each other.

    Attributes:
        nodes: How many nodes there are.
        tracked: Streams whose members' times `groups` wants to see.
    """

    nodes: int
    tracked: tuple[int, ...] = ()

    # -- where a tuple is kept

    @abstractmethod
    def slice_length(self, stream: int) -> int:
        """Return the length of the stream's slices of time; slices start at multiples of it."""

    @abstractmethod
    def owners(self, stream: int, start: int, bucket: Bucket) -> tuple[int, ...]:
        """Return the nodes, each in 0..nodes-1, that keep this batch's tuples of a cell; also beyond any horizon."""

    def stored_by(self, stream: int) -> tuple[Column, ...]:
        """Return the columns by whose hash the stream is cut into buckets, once for each; none for one whole bucket."""
        return ()

    def starts(self, stream: int, ts: Ints) -> Ints:
        """Return the start of each tuple's slice."""
        length = self.slice_length(stream)
        return ts // length * length

    # -- whom a partial result visits

    def lead(self, origin: int) -> tuple[int, ...]:
        """Return the streams that a tuple of `origin` must probe first, in this order, whatever the join order says."""
        return ()

    def groups(self, origin: int, moment: Ints, times: Mapping[int, Ints]) -> Ints:
        """Return a number for each partial result; those of one number and at one node visit the same copies.

        Args:
            origin: The stream of the probing tuples.
            moment: Their event times.
            times: For tracked streams that are joined already, the times of the members.
        """
        return np.full(len(moment), ANYWHERE)

    def visit(self, group: int, target: int, owners: Sequence[int], here: int) -> int:
        """Return the one owner at which partial results probe a chunk.

        Args:
            group: Their group.
            target: The chunk's stream.
            owners: The nodes that hold a copy of the chunk.
            here: The node the partial results are on; ANYWHERE before the first hop.
        """
        return here if here in owners else owners[0]

    def probed_by(self, target: int, joined: frozenset[int]) -> tuple[Column, Column] | None:
        """Return a column that the target is stored by and the column joined that must equal it; None for all."""
        return None

    def stays_after(self) -> int | None:
        """Return after how many hops a partial result finds all it still has to probe where it is; None for never."""
        return 1 if self.nodes == 1 else None


class Strategy(ABC):
    """A strategy with its options; serialisable, and free to plan each batch anew."""

    nodes: int

    def named(self, streams: Sequence[str]) -> "Strategy":
        """Return the strategy for streams of these names, where an option names one of them."""
        return self

    def refusal(self, state: StateView) -> str | None:
        """Return why the strategy can't serve a join of these streams, as a sentence; None if it can."""
        return None

    @abstractmethod
    def plan(self, state: StateView) -> Placement:
        """Return the placement of the next batch."""

    def move(self, state: StateView, placement: Placement) -> dict[str, tuple[int, ...]]:
        """Return new owners for live chunks; only owners change, no rows are copied.

        Chunks that stay are left out. The default sees to it that every owner exists when `nodes` has shrunk.
        """
        nodes = placement.nodes
        gone = [owners for owners in set(map(attrgetter("owners"), state.chunks)) if max(owners) >= nodes]
        heirs = {owners: remapped(owners, nodes) for owners in gone}
        return {chunk.id: heirs[chunk.owners] for chunk in state.chunks if chunk.owners in heirs} if heirs else {}

    def freeze(self, placement: Placement, after: StateView) -> dict[str, Any]:
        """Return what the next batch's plan must know of this one's, as JSON can hold it.

        Args:
            placement: This batch's placement.
            after: The state after the batch; `after.frozen` is what the plan of this batch was given.
        """
        return {}

    def facts(self, placement: Placement, state: StateView) -> dict[str, Any]:
        """Return what people may want to know of a placement, for `progress` and `explain`."""
        return {}

    def history(self, state: StateView) -> list[str]:
        """Return what was decided before, the last things last, as sentences for `explain`."""
        return []

    def describe(self) -> str:
        """Return the strategy in words."""
        return f"{type(self).__name__}(nodes={self.nodes})"


def check_nodes(nodes: Any, limit: int = 4096) -> int:
    """Return the number of nodes.

    Raises:
        DefinitionError: If it isn't a whole number from 1 to the limit.
    """
    if not isinstance(nodes, int) or isinstance(nodes, bool) or not 1 <= nodes <= limit:
        raise DefinitionError(f"nodes={nodes!r}: a strategy runs on a whole number of nodes from 1 to {limit}.")
    return nodes


def check_above_zero(what: str, value: Any, most: float = inf) -> None:
    """Refuse what is no number above zero, or above `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        limit = "" if most == inf else f", at most {most:g}"
        raise DefinitionError(f"{what} is {value!r}: give a number above 0{limit}.")


def remapped(owners: Iterable[int], nodes: int) -> tuple[int, ...]:
    """Return owners that exist when there are fewer nodes than there were.

    >>> remapped((5, 1, 2), 4)
    (1, 2)
    """
    return tuple(dict.fromkeys(owner % nodes for owner in owners))


def moves(chunks: Iterable[Chunk], owners: Iterable[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the owners that each chunk is to have, without those chunks that have them already."""
    return {chunk.id: wanted for chunk, wanted in zip(chunks, owners, strict=True) if wanted != chunk.owners}


def segment_length(segment: str | timedelta | None) -> int | None:
    """Return a segment length in microseconds; None if it isn't given.

    Raises:
        DefinitionError: If it isn't longer than zero.
    """
    length = None if segment is None else microseconds(segment, "segment")
    if length is not None and length < 1:
        raise DefinitionError(f"segment={segment!r}: a segment must be longer than zero.")
    return length
