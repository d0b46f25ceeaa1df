"""DSJ: all streams share slices of time; a slice goes to the least-loaded node and stays there.

Liu, Li, Fan and Chen, "Multi-Way Windowed Streams θ-Joins Using Cluster": the time-slice distribution method (TDM) of
section 3.1, algorithms 1 and 2, equations 1, 2, 5 and 7. Tuples of one slice are on one node whatever their stream, so
at least one of m parts of the partial results need not travel (theorem 2). The paper's route and mask, which travel
with a tuple, correspond to where a partial result is (`here`), its references to the tuples in it, and its class on the
wire: from these every task derives the remaining nodes and streams. The join method (TJM) is
`watersmeet.ordering.histogram`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Self

from watersmeet.arguments import is_whole
from watersmeet.caching import cached_property
from watersmeet.cost.cost_model import dsj_cost
from watersmeet.cost.equations import buffer_bound, slices_needed
from watersmeet.cost.load import ROW_SECONDS
from watersmeet.errors import DefinitionError
from watersmeet.placement.base import Layout, Notes, Owners, Placement, check_above_zero, plan_moves
from watersmeet.placement.priced_strategy import Basis, LoadBalanced, Pricer, Quote
from watersmeet.state.chunks.chunk import Bucket
from watersmeet.state.manifest.view import LONGEST_SLICE, StateView, StoredNotes

NODE_MEMORY = 4 << 30
"""The most bytes of state that a node is meant to hold (M in equation 7)."""
MOST_PER_NODE = 16
"""Slices of a window per node, at most; with more, chunks would be too small."""
REMEMBERED = 1024
"""Slices whose owners the manifest stores; older ones are assigned round-robin, like those without notes."""


@dataclass(frozen=True)
class DsjPlacement(Placement):
    """The owners of slices, shared by all streams.

    Attributes:
        nodes: How many nodes there are.
        length: The length of a slice.
        first: The number of the first slice in the table.
        table: The owners of the slices from `first` on.
    """

    nodes: int
    length: int
    first: int = 0
    table: tuple[int, ...] = ()

    def slice_length(self, stream: int) -> int:
        """Return the length that all streams share."""
        return self.length

    def owners(self, stream: int, start: int, bucket: Bucket) -> Owners:
        """Return the slice's owner, whatever the stream."""
        return (self.owner_at(start),)

    def owner_at(self, time: int) -> int:
        """Return the owner of the slice that contains a time.

        Slices before the table are assigned round-robin by their number, those after it by `turns`.
        """
        number = time // self.length
        at = number - self.first
        if at < 0 or not self.table:
            return number % self.nodes
        return self.table[at] if at < len(self.table) else self.turns[(at - len(self.table)) % self.nodes]

    @cached_property
    def turns(self) -> tuple[int, ...]:
        """The nodes in the order in which slices after the table are assigned: the last owner in the table comes last.

        Slices of one window thus stay on distinct nodes if the table keeps them on distinct ones.
        """
        last = {node: at for at, node in enumerate(self.table)}
        return tuple(sorted(range(self.nodes), key=lambda node: last.get(node, -1)))


@dataclass(frozen=True, slots=True)
class DsjNotes(Notes):
    """The slices that have begun.

    Attributes:
        length: The length of a slice.
        first: The number of the first slice in the notes.
        owners: The owners of the slices from `first` on.
    """

    length: int
    first: int
    owners: tuple[int, ...]

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the notes from their fields."""
        return cls(plain["length"], plain["first"], tuple(plain["owners"]))


@dataclass(frozen=True, slots=True)
class DsjLayout(Layout[DsjPlacement]):
    """Slices for a batch."""

    def facts(self, state: StateView) -> dict[str, Any]:
        """Return the length of slices, and how many tuples of each stream buffers must hold."""
        bounds = dict(zip(state.names, buffer_bounds(state), strict=True))
        return {"sliceSeconds": self.placement.length / 1e6, "bufferRows": bounds}

    def keep(self, after: StateView) -> StoredNotes:
        """Return the slices that have begun, as this batch had them, from the oldest live one."""
        if after.latest is None:
            return StoredNotes()
        length, last = self.placement.length, after.latest // self.placement.length
        oldest = min((chunk.low // length for chunk in after.chunks), default=last)
        first = max(min(oldest, last), last - REMEMBERED + 1)
        owners = tuple(self.placement.owner_at(number * length) for number in range(first, last + 1))
        return DsjNotes(length, first, owners).kept()


@dataclass(frozen=True, slots=True)
class DSJ(LoadBalanced):
    """Distributed Streams Join: slices of time, shared by all streams, each on the node least loaded when it starts.

    Attributes:
        nodes: How many nodes.
        slices: The number of slices (m) in the longest time that tuples are kept; None for as many as equation 7
            requires, and at least one per node.
        weights: What CPU, memory and network count in a node's load (φ1..φ3 of equation 2).
        capacities: The capacity of each node, relative to the others; empty if all are alike.
        memory: The most bytes of state that a node is meant to hold (M of equation 7).

    >>> DSJ(nodes=4, slices=8).describe()
    'DSJ(nodes=4, slices=8)'
    """

    nodes: int = 4
    slices: int | None = None
    weights: tuple[float, float, float] = (1, 1, 1)
    capacities: tuple[float, ...] = ()
    memory: int = NODE_MEMORY

    def __post_init__(self) -> None:
        LoadBalanced.__post_init__(self)
        if self.slices is not None and not is_whole(self.slices):
            raise DefinitionError(f"slices={self.slices!r}: a window is cut into a whole number of slices, at least 1.")
        check_above_zero("memory", self.memory)

    def describe(self) -> str:
        """Return the strategy with its number of slices, if that is an option."""
        slices = "" if self.slices is None else f", slices={self.slices}"
        return f"DSJ(nodes={self.nodes}{slices})"

    @classmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return a pricer with one slice per node."""
        p = basis.parameters(None)
        return lambda nodes, options: Quote(p, dsj_cost(p, nodes))

    def plan(self, state: StateView) -> DsjLayout:
        """Return slices with their owners; those that have begun keep theirs, and another strategy's chunks move."""
        notes = DsjNotes.read(state.notes)
        placement = self._extend(state, self._restore(state, notes))
        if notes is not None:
            return DsjLayout(placement)
        owners = ((placement.owner_at((chunk.low + chunk.high) // 2),) for chunk in state.chunks)
        return DsjLayout(placement, moves=plan_moves(state.chunks, owners))

    def _restore(self, state: StateView, notes: DsjNotes | None) -> DsjPlacement:
        """Return the slices of the batch before, recut only if their length should be doubled, halved, or more."""
        best = max(1, retention(state) // self.slice_count(state))
        if notes is None:
            return DsjPlacement(self.nodes, best)
        length, owners = notes.length, tuple(owner % self.nodes for owner in notes.owners)
        before = DsjPlacement(self.nodes, length, notes.first, owners)
        near = self.slices is None and best < 2 * length and length < 2 * best
        return before if near or best == length else recut(before, best)

    def _extend(self, state: StateView, before: DsjPlacement) -> DsjPlacement:
        """Return the placement with the slices of the next batch assigned (algorithm 1, second stage of section 4.2).

        Each goes to the least-loaded node, including what was assigned before it; if there are enough nodes, to one
        that has no other slice of the same window.
        """
        now, length = state.latest, before.length
        if now is None:
            return before
        per_span = retention(state) // length
        horizon = min(max(state.advance // length, per_span), REMEMBERED) + 1
        first = before.first if before.table else now // length
        count = now // length + horizon - first - len(before.table)
        together = ceil(state.reach / length)
        apart = together - 1 if 1 < together <= self.nodes else 0
        node_loads = self.node_loads(state, max(retention(state), length) / length)
        new = node_loads.assign(max(count, 0), apart, before.table)
        return DsjPlacement(self.nodes, length, first, (*before.table, *new))

    def slice_count(self, state: StateView) -> int:
        """Return the number of slices (m) in the time that tuples are kept: the option, or by equation 7.

        By the equation, there is at least one per node, and at most `MOST_PER_NODE`.
        """
        if self.slices is not None:
            return self.slices
        calculation, transmission = _tuple_seconds(state)
        rows, size = int(state.column("rows").sum()), int(state.column("bytes").sum())
        count = slices_needed(
            calculation,
            transmission,
            [stream.rate for stream in state.streams],
            max(buffer_bounds(state)) * size / max(rows, 1),
            self.memory,
        )
        return min(max(count, self.nodes), MOST_PER_NODE * self.nodes)


def buffer_bounds(state: StateView) -> tuple[int, ...]:
    """Return how many tuples of each stream the buffers must be able to hold, by equation 1."""
    calculation, transmission = _tuple_seconds(state)
    return tuple(buffer_bound(s.rate, retention(state) / 1e6, calculation, transmission) for s in state.streams)


def retention(state: StateView) -> int:
    """Return the longest time, in microseconds, that a window of time keeps a tuple (T of equation 5).

    `LONGEST_SLICE` if there is no such window.
    """
    spans = [stream.span for stream in state.streams if stream.span is not None]
    return max(spans, default=LONGEST_SLICE)


def recut(before: DsjPlacement, length: int) -> DsjPlacement:
    """Return slices of another length, at most the last `REMEMBERED`, each with the owner of the one that it begins in.

    >>> recut(DsjPlacement(3, 10, 2, (1, 0, 2)), 5)
    DsjPlacement(nodes=3, length=5, first=4, table=(1, 1, 0, 0, 2, 2))
    """
    begin, end = before.first * before.length, (before.first + len(before.table)) * before.length
    first, last = -(-begin // length), (end - 1) // length
    first = max(first, last - REMEMBERED + 1)
    table = tuple(before.owner_at(number * length) for number in range(first, last + 1))
    return DsjPlacement(before.nodes, length, first, table)


def _tuple_seconds(state: StateView) -> tuple[float, float]:
    """Return the average seconds that a tuple of the last batches took to compute, and those that it took to send."""
    rows = max(sum(stream.rows for stream in state.streams), 1)
    cpu, network = (sum(getattr(usage, name) for usage in state.usage) for name in ("cpu", "network"))
    return cpu / rows, network * ROW_SECONDS / rows
