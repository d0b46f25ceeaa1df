"""CTR: every stream is cut into segments of its own; a segment is kept with the tuples that it has to join.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 4. A routing table
lists the nodes that keep each segment. A route for new tuples is a join order and, for each hop k, a set of nodes V_k
that together hold the window of the probed stream: a greedy weighted set cover that starts with the nodes of the
previous hop (section 4.1). CTR takes the route by which the fewest rows travel, and keeps the segment on V_1 (Figure
6).

Where several nodes of V_k hold the same chunk, all probes but one are void (step 3): a chunk is probed where the
partial result is, else at the first node of the cover that has it. Routes are planned for each batch and cover all live
segments and those that begin in it; the owners of a segment are decided once, when it begins.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, takewhile
from operator import mul
from typing import Any, NamedTuple, Self

import numpy as np

from watersmeet.arguments import is_whole
from watersmeet.arrays import Ints
from watersmeet.cost.cost_model import ctr_cost
from watersmeet.cost.equations import ctr_overhead
from watersmeet.cost.load import NodeLoads
from watersmeet.errors import DefinitionError
from watersmeet.placement.base import Layout, Notes, Owners, Placement, remap_owners, segment_length
from watersmeet.placement.priced_strategy import Basis, LoadBalanced, Pricer, Quote
from watersmeet.placement.segments import LOWEST, SegmentRun, run_index, trim_runs
from watersmeet.placement.set_cover import Holdings
from watersmeet.state.chunks.chunk import Bucket
from watersmeet.state.manifest.view import LONGEST_SLICE, StateView, StoredNotes, StreamView

ALL_ORDERS, BEAM = 24, 4
"""Routes that are followed at each hop: every order with up to five streams, only the best beginnings with more."""

Table = tuple[SegmentRun[Owners], ...]
"""The owners of a stream's segments for all time."""


def owners_at(table: Table, time: int) -> Owners:
    """Return the owners of the segment that contains a time."""
    return table[run_index(table, time)].host_at(time)


def remap_table(table: Table, nodes: int) -> Table:
    """Return the table on this many nodes; removed nodes hand on their segments as they do their chunks."""
    return tuple(run._replace(hosts=tuple(remap_owners(owners, nodes) for owners in run.hosts)) for run in table)


class Route(NamedTuple):
    """A complete route.

    Attributes:
        order: The streams in the order they are probed.
        covers: For each of them the nodes that cover it (V_k).
        overhead: O_CTR,P by equation 3.
    """

    order: tuple[int, ...]
    covers: tuple[Owners, ...]
    overhead: float


def plan_routes(state: StateView, holdings: Holdings, node_loads: NodeLoads, lengths: Sequence[int]) -> Iterator[Route]:
    """Yield for each stream the route by which its new tuples make the fewest rows travel; of equals the least work.

    With more than five streams only the best beginnings are followed.

    Args:
        state: The state before the batch.
        holdings: What each node holds, with the segments that begin in the batch as far as they are assigned.
        node_loads: The load of each node, by which covers are chosen.
        lengths: The segment length of each stream, in microseconds.
    """
    sizes = [_window_rows(state, at) for at in range(len(state.streams))]
    width = ALL_ORDERS if len(state.streams) <= 5 else BEAM
    for origin, stream in enumerate(state.streams):
        tuples = (stream.rate or 1.0) * lengths[origin] / 1e6
        beam = [PartialRoute((origin,), (), (), ())]
        for _ in state.streams[1:]:
            longer = [
                route.extend(to, state, holdings, node_loads, sizes)
                for route in beam
                for to in route.others(len(sizes))
            ]
            beam = heapq.nsmallest(width, longer, key=lambda route: (route.extra_rows(), route.work()))
        yield Route(beam[0].streams[1:], beam[0].covers, beam[0].overhead(tuples))


class PartialRoute(NamedTuple):
    """The beginning of a route.

    Attributes:
        streams: The joined streams, starting with that of the new tuples.
        covers: For each hop the nodes that cover its stream (V_k).
        new_nodes: For each hop how many of them the hop before did not visit (|V'_k|).
        matches: For each hop the expected matches of one partial result.
    """

    streams: tuple[int, ...]
    covers: tuple[Owners, ...]
    new_nodes: tuple[int, ...]
    matches: tuple[float, ...]

    def others(self, streams: int) -> Iterator[int]:
        """Return the streams that it does not visit yet."""
        return (stream for stream in range(streams) if stream not in self.streams)

    def extend(
        self, to: int, state: StateView, holdings: Holdings, node_loads: NodeLoads, sizes: Sequence[float]
    ) -> "PartialRoute":
        """Return the route with one more hop, to the stream `to`; `sizes` are the tuples in each stream's window."""
        nodes, new = holdings.cover(to, self.covers[-1] if self.covers else (), node_loads)
        matches = state.expected_matches(frozenset(self.streams), to, sizes[to])
        streams, covers = (*self.streams, to), (*self.covers, nodes)
        return PartialRoute(streams, covers, (*self.new_nodes, new), (*self.matches, matches))

    def overhead(self, tuples: float) -> float:
        """Return the extra rows that a segment of this many tuples makes travel, by equation 3."""
        return ctr_overhead(tuples, max(1, len(self.covers[0])), self.new_nodes[1:], self.matches[:-1])

    def extra_rows(self) -> float:
        """Return the extra rows that a tuple makes travel.

        Equation 3 counts the nodes that the hop before did not visit, as if a partial result were on all that it did;
        it is on only one of them, and travels to the others as well.
        """
        total, partials = len(self.covers[0]) - 1.0, 1.0
        for before, nodes, matches in zip(self.covers, self.covers[1:], self.matches, strict=False):
            partials *= matches
            total += partials * (len(nodes) - len(set(before).intersection(nodes)) / max(1, len(before)))
        return total

    def work(self) -> float:
        """Return the partial results that a tuple produces on the way, all hops together."""
        return float(sum(accumulate(self.matches, mul)))


def _window_rows(state: StateView, at: int) -> float:
    """Return the tuples in a stream's window (r W), or all stored ones where time sets no limit; at least one."""
    stream = state.streams[at]
    if stream.window is not None:
        return max(1.0, stream.rate * stream.window / 1e6)
    return max(1.0, float(sum(chunk.rows for chunk in state.chunks if chunk.stream == at)))


SEGMENTS, MOST_SEGMENTS = 8, 64
"""Segments per window if their length is not given, and at most: more would slow down the covers."""
MOST_PLANNED = 4
"""Segments of a stream that one plan assigns; those beyond repeat them."""
WARM_UP = 2
"""The least number of copies of a segment while some node holds nothing."""


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
        """Return the routing table's entry for the segment."""
        return owners_at(self.table[stream], start)

    def lead(self, origin: int) -> tuple[int, ...]:
        """Return the complete order of the stream's route, for which its covers are planned."""
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
            tuple(SegmentRun(start, length, tuple(map(tuple, owners))) for start, length, owners in runs)
            for runs in plain["table"]
        )
        return cls(tuple(table), tuple(plain["ends"]), tuple(plain["first"]))


@dataclass(frozen=True, slots=True)
class CtrLayout(Layout[CtrPlacement]):
    """A routing table and routes for a batch.

    Attributes:
        ends_before: Where each stream's next segment began before the batch; None before its first tuple.
    """

    ends_before: tuple[int | None, ...]

    def facts(self, state: StateView) -> dict[str, Any]:
        """Return the routes, and the extra rows a second by equation 3."""
        routes, lengths = self.placement.routes, self.placement.lengths
        covers = {
            state.names[at]: {state.names[to]: list(nodes) for to, nodes in zip(r.order, r.covers, strict=True)}
            for at, r in enumerate(routes)
        }
        extra = sum(route.overhead / length for route, length in zip(routes, lengths, strict=True))
        return {"routes": covers, "expectedExtraRows": round(1e6 * extra, 1)}

    def keep(self, after: StateView) -> StoredNotes:
        """Return the segments that have begun, without those that no live chunk needs."""
        oldest: dict[int, int] = {}
        for chunk in after.chunks:
            oldest[chunk.stream] = min(chunk.low, oldest.get(chunk.stream, chunk.low))
        latest = [stream.latest for stream in after.streams]
        ends = tuple(
            end if t is None else max((t // length + 1) * length, LOWEST if end is None else end)
            for t, length, end in zip(latest, self.placement.lengths, self.ends_before, strict=True)
        )
        table = tuple(
            runs if end is None else trim_runs(runs, oldest.get(at, end - 1), end)
            for at, (runs, end) in enumerate(zip(self.placement.table, ends, strict=True))
        )
        return CtrNotes(table, ends, tuple(route.order[0] for route in self.placement.routes)).kept()


@dataclass(frozen=True, slots=True)
class CTR(LoadBalanced):
    """Coordinated tuple routing.

    Args:
        nodes: How many nodes there are.
        segment: The segment length of every stream; None for an eighth of the stream's window.
        copies: On how many nodes a segment is kept, whatever V_1 is; None for all of V_1.
        weights: What CPU, memory and network count in a node's load.
        capacities: The capacity of each node, relative to the others; empty if all are alike.

    >>> CTR(nodes=4).describe()
    'CTR(nodes=4)'
    """

    nodes: int = 4
    segment: str | timedelta | None = None
    copies: int | None = None
    weights: tuple[float, float, float] = (1, 1, 1)
    capacities: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        LoadBalanced.__post_init__(self)
        segment_length(self.segment)
        if self.copies is not None and (not is_whole(self.copies) or self.copies > self.nodes):
            raise DefinitionError(f"copies={self.copies!r}: a segment is kept on 1 to {self.nodes} nodes.")

    @classmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return a pricer with covers of the size at which they stabilise."""
        p = basis.parameters(None)
        return lambda nodes, options: Quote(p, ctr_cost(p, nodes))

    def plan(self, state: StateView) -> CtrLayout:
        """Return the routing table with the segments that begin in the batch, and routes that cover all of it."""
        notes = CtrNotes.read(state.notes)
        lengths = tuple(self._length(stream) for stream in state.streams)
        holdings = self.holdings(state)
        node_loads = self.node_loads(state, max(1, sum(holdings.copies)))
        table, ends = self._restore(state, notes, lengths)
        first = notes.first if notes else [r.order[0] for r in plan_routes(state, holdings, node_loads, lengths)]
        new: dict[int, list[Owners]] = defaultdict(list)
        for _, stream in self._new_segments(state, lengths, ends):
            owners = self._choose_owners(holdings, first[stream], node_loads)
            new[stream].append(owners)
            holdings.add(stream, owners)
            node_loads.add(owners)
        for stream, hosts in new.items():
            table[stream] = (*table[stream], SegmentRun(ends[stream] or 0, lengths[stream], tuple(hosts)))
        routes = tuple(plan_routes(state, holdings, node_loads, lengths))
        placement = CtrPlacement(self.nodes, lengths, tuple(table), routes)
        return CtrLayout(placement, notes.ends if notes else (None,) * len(lengths))

    def holdings(self, state: StateView) -> Holdings:
        """Return what each node holds before the batch."""
        return Holdings(state, self.nodes)

    def _length(self, stream: StreamView) -> int:
        length = segment_length(self.segment)
        if stream.window is None:
            return length or LONGEST_SLICE
        return max(1, length or stream.window // SEGMENTS, stream.window // MOST_SEGMENTS)

    def _restore(
        self, state: StateView, notes: CtrNotes | None, lengths: Sequence[int]
    ) -> tuple[list[Table], list[int | None]]:
        """Return the routing table so far, and where each stream's next segment begins; None before its first tuple."""
        if notes is not None:
            return [remap_table(table, self.nodes) for table in notes.table], list(notes.ends)
        latest = [stream.latest for stream in state.streams]
        ends = [None if t is None else (t // n + 1) * n for t, n in zip(latest, lengths, strict=True)]
        return [(self._warm_up(length, at),) for at, length in enumerate(lengths)], ends

    def _warm_up(self, length: int, stream: int) -> SegmentRun[Owners]:
        """Return round-robin owners, for the time before anything is measured."""
        copies = min(self.nodes, self.copies or WARM_UP)
        turns = [tuple((at + k) % self.nodes for k in range(copies)) for at in range(stream, stream + self.nodes)]
        return SegmentRun(LOWEST // length * length, length, tuple(turns))

    def _new_segments(
        self, state: StateView, lengths: Sequence[int], ends: Sequence[int | None]
    ) -> Iterator[tuple[int, int]]:
        """Yield the start and stream of the segments that begin in the next batch, in order of their start."""

        def of(stream: int, start: int) -> Iterator[tuple[int, int]]:
            view, length = state.streams[stream], lengths[stream]
            segments = ((start + at * length, stream) for at in range(MOST_PLANNED))
            horizon = (view.latest or 0) + view.advance + length
            return takewhile(lambda segment: segment[0] <= max(start, horizon), segments)

        return heapq.merge(*(of(stream, start) for stream, start in enumerate(ends) if start is not None))

    def _choose_owners(self, holdings: Holdings, target: int, node_loads: NodeLoads) -> Owners:
        """Return the nodes that keep a new segment: V_1, and the least-loaded one while some node holds nothing.

        With the option `copies`, as many as that. `target` is the stream that the segment's tuples probe first.
        """
        ranking, (cover, _) = node_loads.least_first(), holdings.cover(target, (), node_loads)
        spare = 0 if all(holdings.copies) else 1
        copies = self.copies or min(self.nodes, max(len(cover) + spare, WARM_UP if spare else 1))
        of_cover = cover if len(cover) + spare <= copies else [n for n in ranking if n in cover][: copies - spare]
        return (*of_cover, *[node for node in ranking if node not in of_cover][: copies - len(of_cover)])
