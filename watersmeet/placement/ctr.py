"""CTR: every stream is cut into segments of its own; a segment is kept where the tuples are that it has to join.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 4. A routing table
says which nodes keep a segment. A route for new tuples is a join order and, for each hop k, a set of nodes V_k that
together hold the window of the stream probed: a weighted set cover, by the greedy rule, that begins with the nodes of
the hop before (section 4.1). Of all routes the one by which the fewest rows travel is taken, and the segment is kept
on V_1 (Figure 6).

Where several nodes of V_k hold the same chunk, all probes but one are void (step 3): a chunk is probed where the
partial result is, else at the first node of the cover that has it. Routes are made anew for each batch and cover all
that is live and what the batch begins; the owners of a segment are settled once, when it begins.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from typing import Any, Self

import numpy as np

from watersmeet.arguments import fields_to_python, is_whole
from watersmeet.arrays import Ints
from watersmeet.cost.load import loads
from watersmeet.cost.model import ctr
from watersmeet.errors import DefinitionError
from watersmeet.placement.base import Layout, Placement
from watersmeet.placement.options import check_load, check_nodes, segment_length
from watersmeet.placement.owners import Owners
from watersmeet.placement.priced import Basis, Options, Priced, Pricer, Quote, Terms
from watersmeet.placement.routes import Route, routes
from watersmeet.placement.routing_table import Entries, Table, on_nodes, owners_at, stretch
from watersmeet.placement.segments import LOWEST
from watersmeet.placement.set_cover import Held, Load
from watersmeet.placement.strategy_notes import Notes
from watersmeet.state.chunks.chunk import Bucket
from watersmeet.state.manifest.notes import Kept
from watersmeet.state.manifest.view import LONGEST_SLICE, StateView, StreamView

SEGMENTS, MOST_SEGMENTS = 8, 64
"""Segments per window, where their length isn't given, and the most there are: more would slow the covers down."""
MOST_PLANNED = 4
"""Segments of a stream that one plan settles; those beyond repeat them."""
WARM_UP = 2
"""Copies of a segment, at the least, while some node holds nothing."""


@dataclass(frozen=True, slots=True)
class CtrPlacement(Placement):
    """The routing table and the routes of a batch.

    Attributes:
        nodes: How many nodes there are.
        lengths: The segment length of each stream.
        table: The routing table of each stream.
        routes: The route of each stream's new tuples.
    """

    nodes: int
    lengths: tuple[int, ...]
    table: tuple[Table, ...]
    routes: tuple[Route, ...]

    def slice_length(self, stream: int) -> int:
        """Return the length of the stream's segments."""
        return self.lengths[stream]

    def owners(self, stream: int, start: int, bucket: Bucket) -> Owners:
        """Return what the routing table says of the segment."""
        return owners_at(self.table[stream], start)

    def lead(self, origin: int) -> tuple[int, ...]:
        """Return the order of the stream's route, all of it: covers are made for it."""
        return self.routes[origin].order

    def groups(self, origin: int, moment: Ints, times: Mapping[int, Ints]) -> Ints:
        """Return the stream: all its new tuples take one route."""
        return np.full(len(moment), origin)

    def visit(self, group: int, target: int, owners: Sequence[int], here: int) -> int:
        """Return where the partial result is, or the first node of the cover that has the chunk (step 3)."""
        if here in owners:
            return here
        route = self.routes[group]
        return next((node for node in route.covers[route.order.index(target)] if node in owners), owners[0])


@dataclass(frozen=True, slots=True)
class CtrNotes(Notes):
    """The segments that have begun.

    Attributes:
        table: The routing table of each stream, up to where its next segment begins.
        ends: Where that is; None before the stream's first tuple.
        first: The stream that each stream's route begins with.
    """

    table: tuple[Table, ...]
    ends: tuple[int | None, ...]
    first: tuple[int, ...]

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the notes from their fields."""
        table = (
            tuple(Entries(start, length, tuple(map(tuple, owners))) for start, length, owners in entries)
            for entries in plain["table"]
        )
        return cls(tuple(table), tuple(plain["ends"]), tuple(plain["first"]))


@dataclass(frozen=True, slots=True)
class CtrLayout(Layout[CtrPlacement]):
    """A routing table and routes for a batch.

    Attributes:
        begun: Where each stream's next segment began before the batch; None before its first tuple.
    """

    begun: tuple[int | None, ...]

    def facts(self, state: StateView) -> dict[str, Any]:
        """Return the routes, and the extra rows a second by equation 3."""
        found, lengths = self.placement.routes, self.placement.lengths
        told = {
            state.names[at]: {state.names[to]: list(nodes) for to, nodes in zip(r.order, r.covers, strict=True)}
            for at, r in enumerate(found)
        }
        extra = sum(route.overhead / length for route, length in zip(found, lengths, strict=True))
        return {"routes": told, "expectedExtraRows": round(1e6 * extra, 1)}

    def keep(self, after: StateView) -> Kept:
        """Return the segments that have begun, without those that no stream needs any more."""
        oldest: dict[int, int] = {}
        for chunk in after.chunks:
            oldest[chunk.stream] = min(chunk.low, oldest.get(chunk.stream, chunk.low))
        latest = [stream.latest for stream in after.streams]
        ends = tuple(
            end if t is None else max((t // length + 1) * length, LOWEST if end is None else end)
            for t, length, end in zip(latest, self.placement.lengths, self.begun, strict=True)
        )
        table = tuple(
            entries if end is None else stretch(entries, oldest.get(at, end - 1), end)
            for at, (entries, end) in enumerate(zip(self.placement.table, ends, strict=True))
        )
        return CtrNotes(table, ends, tuple(route.order[0] for route in self.placement.routes)).kept()


@dataclass(frozen=True, slots=True)
class CTR(Priced):
    """Coordinated tuple routing.

    Args:
        nodes: How many nodes there are.
        segment: The segment length of every stream; None for an eighth of the stream's window.
        copies: On how many nodes a segment is kept, whatever V_1 is; None for all of V_1.
        weights: What CPU, memory and network count in a node's load.
        capacities: What each node can do, relative to the others; all alike if not given.

    >>> CTR(nodes=4).describe()
    'CTR(nodes=4)'
    """

    nodes: int = 4
    segment: str | timedelta | None = None
    copies: int | None = None
    weights: tuple[float, float, float] = (1, 1, 1)
    capacities: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        fields_to_python(self)
        check_nodes(self.nodes)
        segment_length(self.segment)
        if self.copies is not None and (not is_whole(self.copies) or self.copies > self.nodes):
            raise DefinitionError(f"copies={self.copies!r}: a segment is kept on 1 to {self.nodes} nodes.")
        check_load(self.nodes, self.weights, self.capacities)

    @classmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return the cost with covers of the size that they settle at."""
        p = basis.parameters(None)
        return lambda nodes, options: Quote(p, ctr(p, nodes))

    @classmethod
    def chosen(cls, nodes: int, options: Options, terms: Terms) -> "CTR":
        """Return covers that go by the load of nodes as it is weighed."""
        return cls(nodes, weights=terms.weights, capacities=terms.capacities[:nodes])

    def plan(self, state: StateView) -> CtrLayout:
        """Return the routing table with the segments that begin in the batch, and routes that cover all of it."""
        notes = CtrNotes.read(state.kept)
        lengths = tuple(self._length(stream) for stream in state.streams)
        held = self.held(state)
        load = Load(loads(state.usage, self.nodes, self.weights, self.capacities), held.copies, self.capacities)
        table, ends = self._known(state, notes, lengths)
        first = notes.first if notes else [route.order[0] for route in routes(state, held, load, lengths)]
        settled: dict[int, list[Owners]] = defaultdict(list)
        for _, stream in self._beginning(state, lengths, ends):
            chosen = self._stored(held, first[stream], load)
            settled[stream].append(chosen)
            held.add(stream, chosen)
            load.add(chosen)
        for stream, owners in settled.items():
            table[stream] = (*table[stream], Entries(ends[stream] or 0, lengths[stream], tuple(owners)))
        placement = CtrPlacement(self.nodes, lengths, tuple(table), tuple(routes(state, held, load, lengths)))
        return CtrLayout(placement, notes.ends if notes else (None,) * len(lengths))

    def held(self, state: StateView) -> Held:
        """Return who holds what before the batch."""
        return Held(state, self.nodes)

    def _length(self, stream: StreamView) -> int:
        wanted = segment_length(self.segment)
        if stream.window is None:
            return wanted or LONGEST_SLICE
        return max(1, wanted or stream.window // SEGMENTS, stream.window // MOST_SEGMENTS)

    def _known(
        self, state: StateView, notes: CtrNotes | None, lengths: Sequence[int]
    ) -> tuple[list[Table], list[int | None]]:
        """Return the routing table so far, and where each stream's next segment begins; None before its first tuple."""
        if notes is not None:
            return [on_nodes(table, self.nodes) for table in notes.table], list(notes.ends)
        latest = [stream.latest for stream in state.streams]
        begun = [None if t is None else (t // n + 1) * n for t, n in zip(latest, lengths, strict=True)]
        return [(self._warm_up(length, at),) for at, length in enumerate(lengths)], begun

    def _warm_up(self, length: int, stream: int) -> Entries:
        """Return a table by turns, for the time before anything is known."""
        copies = min(self.nodes, self.copies or WARM_UP)
        turns = [tuple((at + k) % self.nodes for k in range(copies)) for at in range(stream, stream + self.nodes)]
        return Entries(LOWEST // length * length, length, tuple(turns))

    def _beginning(
        self, state: StateView, lengths: Sequence[int], ends: Sequence[int | None]
    ) -> Iterator[tuple[int, int]]:
        """Return the segments that begin in the next batch, by start and stream."""

        def of(stream: int, start: int) -> Iterator[tuple[int, int]]:
            view, length = state.streams[stream], lengths[stream]
            segments = ((start + at * length, stream) for at in range(MOST_PLANNED))
            horizon = (view.latest or 0) + view.advance + length
            return takewhile(lambda segment: segment[0] <= max(start, horizon), segments)

        return heapq.merge(*(of(stream, start) for stream, start in enumerate(ends) if start is not None))

    def _stored(self, held: Held, target: int, load: Load) -> Owners:
        """Return the nodes that keep a new segment: V_1, and while some node holds nothing the least loaded as well."""
        ranked, (cover, _) = load.least_first(), held.cover(target, (), load)
        spare = 0 if all(held.copies) else 1
        copies = self.copies or min(self.nodes, max(len(cover) + spare, WARM_UP if spare else 1))
        kept = cover if len(cover) + spare <= copies else [node for node in ranked if node in cover][: copies - spare]
        return (*kept, *[node for node in ranked if node not in kept][: copies - len(kept)])
