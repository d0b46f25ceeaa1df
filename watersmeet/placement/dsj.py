"""DSJ: all streams share slices of time; a slice goes to the least-loaded node and stays there.

Liu, Li, Fan and Chen, "Multi-Way Windowed Streams θ-Joins Using Cluster": the time-slice distribution method (TDM) of
section 3.1, algorithms 1 and 2, equations 1, 2, 5 and 7. Since tuples of one slice are on one node whatever their
stream, at least one of m parts of the partial results need not travel (theorem 2). The paper's route and mask, which
travel with a tuple, are here where a partial result is (`here`), its references to the tuples it holds, and its class
on the wire: from these every task finds the nodes and streams that are left. The join method (TJM) is
`watersmeet.ordering.histogram`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, Self

from watersmeet.arguments import fields_to_python, is_whole
from watersmeet.cost.load import ROW_SECONDS, loads
from watersmeet.cost.model import dsj
from watersmeet.cost.slices import buffer_bound, slices_needed
from watersmeet.errors import DefinitionError
from watersmeet.placement.base import Layout, Placement
from watersmeet.placement.options import check_above_zero, check_load, check_nodes
from watersmeet.placement.owners import moves
from watersmeet.placement.priced import Basis, Options, Priced, Pricer, Quote, Terms
from watersmeet.placement.strategy_notes import Notes
from watersmeet.state.chunks.chunk import Bucket
from watersmeet.state.manifest.notes import Kept
from watersmeet.state.manifest.view import LONGEST_SLICE, StateView

NODE_MEMORY = 4 << 30
"""Bytes of state that a node is to hold at most (M in equation 7)."""
MOST_PER_NODE = 16
"""Slices of a window per node beyond which chunks would be crumbs."""
REMEMBERED = 1024
"""Slices whose owners the manifest keeps; older ones follow the rule for slices that nothing is known of."""


@dataclass(frozen=True)
class DsjPlacement(Placement):
    """The owners of slices; those of every stream at once.

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

    def owners(self, stream: int, start: int, bucket: Bucket) -> tuple[int, ...]:
        """Return the slice's owner, whatever the stream."""
        return (self.node(start),)

    def node(self, time: int) -> int:
        """Return the owner of the slice that holds a time.

        Before the table slices go round by their number; beyond it, by `turns`.
        """
        number = time // self.length
        at = number - self.first
        if at < 0 or not self.table:
            return number % self.nodes
        return self.table[at] if at < len(self.table) else self.turns[(at - len(self.table)) % self.nodes]

    @cached_property
    def turns(self) -> tuple[int, ...]:
        """The nodes in the order in which they go on after the table: who had a slice last has the next one last.

        So slices of one window stay on distinct nodes wherever the table keeps them so.
        """
        last = {node: at for at, node in enumerate(self.table)}
        return tuple(sorted(range(self.nodes), key=lambda node: last.get(node, -1)))


@dataclass(frozen=True, slots=True)
class DsjNotes(Notes):
    """The slices that have begun.

    Attributes:
        length: The length of a slice.
        first: The number of the first slice noted.
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
        """Return how long slices are, and how many tuples of each stream buffers must hold."""
        bounds = dict(zip(state.names, buffers(state), strict=True))
        return {"sliceSeconds": self.placement.length / 1e6, "bufferRows": bounds}

    def keep(self, after: StateView) -> Kept:
        """Return the slices that have begun, as this batch had them, from the oldest that is live."""
        if after.latest is None:
            return Kept()
        length, last = self.placement.length, after.latest // self.placement.length
        oldest = min((chunk.low // length for chunk in after.chunks), default=last)
        first = max(min(oldest, last), last - REMEMBERED + 1)
        owners = tuple(self.placement.node(number * length) for number in range(first, last + 1))
        return DsjNotes(length, first, owners).kept()


@dataclass(frozen=True, slots=True)
class DSJ(Priced):
    """Distributed Streams Join: slices of time, shared by all streams, each on the node least loaded when it starts.

    Attributes:
        nodes: How many nodes.
        slices: Into how many slices the longest time that tuples are kept is cut (m); None for as many as equation 7
            asks for, and at least one a node.
        weights: What CPU, memory and network count in a node's load (φ1..φ3 of equation 2).
        capacities: How strong each node is, relative to the others; empty for all alike.
        memory: Bytes of state that a node is to hold at most (M of equation 7).

    >>> DSJ(nodes=4, slices=8).describe()
    'DSJ(nodes=4, slices=8)'
    """

    nodes: int = 4
    slices: int | None = None
    weights: tuple[float, float, float] = (1, 1, 1)
    capacities: tuple[float, ...] = ()
    memory: int = NODE_MEMORY

    def __post_init__(self) -> None:
        fields_to_python(self)
        check_nodes(self.nodes)
        if self.slices is not None and not is_whole(self.slices):
            raise DefinitionError(f"slices={self.slices!r}: a window is cut into a whole number of slices, at least 1.")
        check_above_zero("memory", self.memory)
        check_load(self.nodes, self.weights, self.capacities)

    def describe(self) -> str:
        """Return the strategy with its slices, if they were given."""
        cut = "" if self.slices is None else f", slices={self.slices}"
        return f"DSJ(nodes={self.nodes}{cut})"

    @classmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return the cost with one slice a node."""
        p = basis.parameters(None)
        return lambda nodes, options: Quote(p, dsj(p, nodes))

    @classmethod
    def chosen(cls, nodes: int, options: Options, terms: Terms) -> "DSJ":
        """Return slices that go by the load of nodes as it is weighed."""
        return cls(nodes, weights=terms.weights, capacities=terms.capacities[:nodes])

    def plan(self, state: StateView) -> DsjLayout:
        """Return slices of which those that began keep their owners, and chunks of another strategy moved to theirs."""
        notes = DsjNotes.read(state.kept)
        placement = self._extended(state, self._known(state, notes))
        if notes is not None:
            return DsjLayout(placement)
        wanted = ((placement.node((chunk.low + chunk.high) // 2),) for chunk in state.chunks)
        return DsjLayout(placement, moves=moves(state.chunks, wanted))

    def _extended(self, state: StateView, known: DsjPlacement) -> DsjPlacement:
        """Return the slices known and those to come, given out one after the other."""
        now = state.latest
        if now is None:
            return known
        count = kept_for(state) // known.length
        horizon = min(max(state.advance // known.length, count), REMEMBERED) + 1
        first = known.first if known.table else now // known.length
        begun = list(known.table)
        wanted = now // known.length + horizon - first - len(begun)
        given = self._given(state, begun, max(wanted, 0), known.length)
        return DsjPlacement(self.nodes, known.length, first, (*begun, *given))

    def cut(self, state: StateView) -> int:
        """Return into how many slices (m) the time that tuples are kept is cut: as given, or by equation 7."""
        if self.slices is not None:
            return self.slices
        calculation, transmission = _spent(state)
        rows, size = int(state.column("rows").sum()), int(state.column("bytes").sum())
        needed = slices_needed(
            calculation,
            transmission,
            [stream.rate for stream in state.streams],
            max(buffers(state)) * size / max(rows, 1),
            self.memory,
        )
        return min(max(needed, self.nodes), MOST_PER_NODE * self.nodes)

    def _known(self, state: StateView, notes: DsjNotes | None) -> DsjPlacement:
        """Return what the batch before left: its slices, cut anew only where twice or half as many are wanted."""
        kept = kept_for(state)
        wanted = max(1, kept // self.cut(state))
        if notes is None:
            return DsjPlacement(self.nodes, wanted)
        length, owners = notes.length, tuple(owner % self.nodes for owner in notes.owners)
        known = DsjPlacement(self.nodes, length, notes.first, owners)
        near = self.slices is None and wanted < 2 * length and length < 2 * wanted
        return known if near or wanted == length else recut(known, wanted)

    def _given(self, state: StateView, begun: Sequence[int], count: int, length: int) -> list[int]:
        """Return the owners of the next slices (algorithm 1, and the second stage of section 4.2).

        Each goes to the node of least load, what was given before it counted in; where there are nodes enough, to one
        that has no other slice of the same window.
        """
        found = loads(state.usage, self.nodes, self.weights, self.capacities)
        strength = self.capacities or (1.0,) * self.nodes
        share = (sum(found) or 1.0) * length / max(kept_for(state), length)
        together = ceil(state.reach / length)
        apart = together - 1 if 1 < together <= self.nodes else 0
        given: list[int] = []
        for _ in range(count):
            taken = set([*begun[-apart:], *given][-apart:]) if apart else set()
            free = [node for node in range(self.nodes) if node not in taken]
            best = min(free, key=lambda node: (found[node], node))
            found[best] += share / strength[best]
            given.append(best)
        return given


def buffers(state: StateView) -> tuple[int, ...]:
    """Return how many tuples of each stream the buffers must be able to hold, by equation 1."""
    calculation, transmission = _spent(state)
    return tuple(buffer_bound(s.rate, kept_for(state) / 1e6, calculation, transmission) for s in state.streams)


def kept_for(state: StateView) -> int:
    """Return the longest time that time alone keeps a tuple (T of equation 5), in microseconds."""
    spans = [stream.span for stream in state.streams if stream.span is not None]
    return max(spans, default=LONGEST_SLICE)


def recut(known: DsjPlacement, length: int) -> DsjPlacement:
    """Return slices of another length, each with the owner of the old slice that it begins in.

    >>> recut(DsjPlacement(3, 10, 2, (1, 0, 2)), 5)
    DsjPlacement(nodes=3, length=5, first=4, table=(1, 1, 0, 0, 2, 2))
    """
    begin, end = known.first * known.length, (known.first + len(known.table)) * known.length
    first, last = -(-begin // length), (end - 1) // length
    first = max(first, last - REMEMBERED + 1)
    table = tuple(known.node(number * length) for number in range(first, last + 1))
    return DsjPlacement(known.nodes, length, first, table)


def _spent(state: StateView) -> tuple[float, float]:
    """Return what a tuple of the last batches took to compute and to send, in seconds."""
    rows = max(sum(stream.rows for stream in state.streams), 1)
    cpu, sent = sum(used.cpu for used in state.usage), sum(used.network for used in state.usage)
    return cpu / rows, sent * ROW_SECONDS / rows
