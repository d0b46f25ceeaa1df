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
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, chain, takewhile
from operator import attrgetter, mul
from typing import Any, NamedTuple

import numpy as np

from watersmeet.cost.diffusion import ctr_overhead
from watersmeet.cost.load import loads
from watersmeet.errors import DefinitionError
from watersmeet.placement.atr import LOWEST
from watersmeet.placement.base import Placement, Strategy, remapped
from watersmeet.placement.options import check_load, check_nodes, segment_length
from watersmeet.state.chunk import Bucket
from watersmeet.state.view import LONGEST_SLICE, Ints, StateView, StreamView

SEGMENTS, MOST_SEGMENTS = 8, 64
"""Segments per window, where their length isn't given, and the most there are: more would slow the covers down."""
MOST_PLANNED = 4
"""Segments of a stream that one plan settles; those beyond repeat them."""
WARM_UP = 2
"""Copies of a segment, at the least, while some node holds nothing."""
ALL_ORDERS, BEAM = 24, 4
"""Routes that are followed at each hop: with up to five streams that is every order, with more the best beginnings."""
IDLE = 0.1
"""What a node costs in a cover at the least, relative to the average load: another hop's copy is never free."""

Owners = tuple[int, ...]


class Entries(NamedTuple):
    """A stretch of the routing table: the owners of segments of one length, repeated up to the next stretch."""

    start: int
    length: int
    owners: tuple[Owners, ...]


Table = tuple[Entries, ...]


class Route(NamedTuple):
    """The streams in the order they are probed, for each the nodes that cover it (V_k), and O_CTR,P by equation 3."""

    order: tuple[int, ...]
    covers: tuple[Owners, ...]
    overhead: float


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
        """See Placement."""
        return self.lengths[stream]

    def owners(self, stream: int, start: int, bucket: Bucket) -> Owners:
        """See Placement."""
        return owners_at(self.table[stream], start)

    def lead(self, origin: int) -> tuple[int, ...]:
        """See Placement; the order belongs to the route."""
        return self.routes[origin].order

    def groups(self, origin: int, moment: Ints, times: Mapping[int, Ints]) -> Ints:
        """See Placement; all new tuples of a stream take its route."""
        return np.full(len(moment), origin)

    def visit(self, group: int, target: int, owners: Sequence[int], here: int) -> int:
        """See Placement; the annotations of step 3."""
        if here in owners:
            return here
        route = self.routes[group]
        return next((node for node in route.covers[route.order.index(target)] if node in owners), owners[0])


@dataclass(frozen=True, slots=True)
class CTR(Strategy):
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
        check_nodes(self.nodes)
        segment_length(self.segment)
        if self.copies is not None and (type(self.copies) is not int or not 1 <= self.copies <= self.nodes):
            raise DefinitionError(f"copies={self.copies!r}: a segment is kept on 1 to {self.nodes} nodes.")
        check_load(self.nodes, self.weights, self.capacities)

    def plan(self, state: StateView) -> Placement:
        """See Strategy."""
        lengths = tuple(self._length(stream) for stream in state.streams)
        held = self.held(state)
        load = Load(loads(state.usage, self.nodes, self.weights, self.capacities), held.copies, self.capacities)
        table, ends = self._known(state, lengths)
        first = state.frozen.get("first") or [route.order[0] for route in routes(state, held, load, lengths)]
        settled: dict[int, list[Owners]] = defaultdict(list)
        for _, stream in self._beginning(state, lengths, ends):
            chosen = self._stored(held, first[stream], load)
            settled[stream].append(chosen)
            held.add(stream, chosen)
            load.add(chosen)
        for stream, owners in settled.items():
            table[stream] = (*table[stream], Entries(ends[stream] or 0, lengths[stream], tuple(owners)))
        return CtrPlacement(self.nodes, lengths, tuple(table), tuple(routes(state, held, load, lengths)))

    def held(self, state: StateView) -> "Held":
        """Return who holds what before the batch."""
        return Held(state, self.nodes)

    def _length(self, stream: StreamView) -> int:
        wanted = segment_length(self.segment)
        if stream.window is None:
            return wanted or LONGEST_SLICE
        return max(1, wanted or stream.window // SEGMENTS, stream.window // MOST_SEGMENTS)

    def _known(self, state: StateView, lengths: Sequence[int]) -> tuple[list[Table], list[int | None]]:
        """Return the routing table so far, and where each stream's next segment begins; None before its first tuple."""
        if state.frozen:
            found = [
                tuple(
                    Entries(at, length, tuple(remapped(each, self.nodes) for each in owners))
                    for at, length, owners in entries
                )
                for entries in state.frozen["table"]
            ]
            return found, list(state.frozen["ends"])
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

    def _stored(self, held: "Held", target: int, load: "Load") -> Owners:
        """Return the nodes that keep a new segment: V_1, and while some node holds nothing the least loaded as well."""
        ranked, (cover, _) = load.least_first(), held.cover(target, (), load)
        spare = 0 if all(held.copies) else 1
        copies = self.copies or min(self.nodes, max(len(cover) + spare, WARM_UP if spare else 1))
        kept = cover if len(cover) + spare <= copies else [node for node in ranked if node in cover][: copies - spare]
        return (*kept, *[node for node in ranked if node not in kept][: copies - len(kept)])

    def freeze(self, placement: Placement, after: StateView) -> dict[str, Any]:
        """See Strategy: the segments that have begun, without those that no stream needs any more."""
        assert isinstance(placement, CtrPlacement)
        oldest: dict[int, int] = {}
        for chunk in after.chunks:
            oldest[chunk.stream] = min(chunk.low, oldest.get(chunk.stream, chunk.low))
        before = after.frozen.get("ends", [None] * len(after.streams))
        latest = [stream.latest for stream in after.streams]
        ends = [
            end if t is None else max((t // length + 1) * length, LOWEST if end is None else end)
            for t, length, end in zip(latest, placement.lengths, before, strict=True)
        ]
        kept = [
            entries if end is None else _kept(entries, oldest.get(at, end - 1), end)
            for at, (entries, end) in enumerate(zip(placement.table, ends, strict=True))
        ]
        first = [route.order[0] for route in placement.routes]
        return {"table": [[list(part) for part in entries] for entries in kept], "ends": ends, "first": first}

    def facts(self, placement: Placement, state: StateView) -> dict[str, Any]:
        """See Strategy; the extra rows a second are those of equation 3."""
        assert isinstance(placement, CtrPlacement)
        routes = {
            state.names[at]: {state.names[to]: list(nodes) for to, nodes in zip(r.order, r.covers, strict=True)}
            for at, r in enumerate(placement.routes)
        }
        extra = sum(r.overhead / length for r, length in zip(placement.routes, placement.lengths, strict=True))
        return {"routes": routes, "expectedExtraRows": round(1e6 * extra, 1)}


# -- the routing table


def owners_at(table: Table, time: int) -> Owners:
    """Return the owners of the segment that holds a time."""
    start, length, owners = table[max(0, bisect_right(table, time, key=attrgetter("start")) - 1)]
    return owners[max(0, time - start) // length % len(owners)]


def _kept(table: Table, low: int, end: int) -> Table:
    """Return the table from `low` up to `end`."""
    first = max(0, bisect_right(table, low, key=attrgetter("start")) - 1)
    stops = (*(entries.start for entries in table[first + 1 :]), end)
    return tuple(
        entries._replace(owners=entries.owners[: -((entries.start - min(stop, end)) // entries.length)])
        for entries, stop in zip(table[first:], stops, strict=True)
        if entries.start < end
    )


# -- loads and covers


class Load:
    """The load of each node (equation 1), with what is given to it while a batch is planned."""

    def __init__(self, known: Sequence[float], copies: Sequence[int], capacities: Sequence[float]) -> None:
        self._load = list(known)
        share = sum(known) / max(1, sum(copies)) or 1.0
        self._unit = [share / capacity for capacity in capacities or [1.0] * len(known)]

    def add(self, owners: Owners) -> None:
        """Count one more segment on some nodes."""
        for node in owners:
            self._load[node] += self._unit[node]

    def least_first(self) -> list[int]:
        """Return the nodes, the least loaded first."""
        return sorted(range(len(self._load)), key=self._load.__getitem__)

    def costs(self) -> list[float]:
        """Return what each node costs in a cover."""
        least = IDLE * sum(self._load) / len(self._load) or 1.0
        return [max(load, least) for load in self._load]


class Held:
    """Who holds what, and which nodes together hold all of it.

    Attributes:
        sets: For each stream the distinct sets of owners, and how many chunks and new segments have each.
        copies: How many chunks and new segments each node holds.
    """

    def __init__(self, state: StateView, nodes: int) -> None:
        self.sets: list[Counter[Owners]] = [Counter() for _ in state.streams]
        self._known: dict[tuple[int, Owners], tuple[Owners, int]] = {}
        self.copies = [0] * nodes
        for (stream, owners), count in Counter(map(attrgetter("stream", "owners"), state.chunks)).items():
            self.add(stream, owners if max(owners) < nodes else remapped(owners, nodes), count)

    def add(self, stream: int, owners: Owners, count: int = 1) -> None:
        """Note chunks or a new segment."""
        self.sets[stream][owners] += count
        self._known.clear()
        for node in owners:
            self.copies[node] += count

    def cover(self, stream: int, before: Owners, load: "Load") -> tuple[Owners, int]:
        """Return V_k for a stream, and how many of its nodes are new (|V'_k|), given the nodes of the hop before.

        What those hold is taken out; the rest is covered by the node of the least load per segment, again and again.
        """
        key = stream, before
        if key not in self._known:
            there = set(before)
            missing = {owners: count for owners, count in self.sets[stream].items() if there.isdisjoint(owners)}
            added = tuple(_greedy(missing, load.costs()))
            reused = there.intersection(chain.from_iterable(self.sets[stream])) if before else ()
            self._known[key] = (*(node for node in before if node in reused), *added), len(added)
        return self._known[key]


def _greedy(sets: Mapping[Owners, int], costs: Sequence[float]) -> Iterator[int]:
    """Yield nodes that together hold all: always that of the least cost per segment not yet covered (section 4.1)."""
    gain: dict[int, int] = defaultdict(int)
    holding: dict[int, list[Owners]] = defaultdict(list)
    for owners, count in sets.items():
        for node in owners:
            gain[node] += count
            holding[node].append(owners)
    heap = [(costs[node] / covered, node) for node, covered in gain.items()]
    heapq.heapify(heap)
    left = dict(sets)
    while left:
        price, node = heapq.heappop(heap)
        if gain[node] and costs[node] / gain[node] > price:  # others have covered part of what it holds
            heapq.heappush(heap, (costs[node] / gain[node], node))
        elif gain[node]:
            yield node
            for owners in holding[node]:
                count = left.pop(owners, 0)
                for other in owners if count else ():
                    gain[other] -= count


# -- routes


def routes(state: StateView, held: Held, load: Load, lengths: Sequence[int]) -> Iterator[Route]:
    """Yield for each stream the route of its new tuples by which the fewest rows travel, of equals the least work."""
    sizes = [_window_rows(state, at) for at in range(len(state.streams))]
    beam = ALL_ORDERS if len(state.streams) <= 5 else BEAM
    for origin, stream in enumerate(state.streams):
        tuples = (stream.rate or 1.0) * lengths[origin] / 1e6
        begun = [_Way((origin,), (), (), ())]
        for _ in state.streams[1:]:
            ways = [way.on(to, state, held, load, sizes) for way in begun for to in _others(way, len(sizes))]
            begun = heapq.nsmallest(beam, ways, key=lambda way: (way.travelling(), way.work()))
        yield Route(begun[0].streams[1:], begun[0].covers, begun[0].overhead(tuples))


def _others(way: "_Way", streams: int) -> Iterator[int]:
    return (stream for stream in range(streams) if stream not in way.streams)


class _Way(NamedTuple):
    """The beginning of a route."""

    streams: tuple[int, ...]
    covers: tuple[Owners, ...]
    moved: tuple[int, ...]
    found: tuple[float, ...]

    def on(self, to: int, state: StateView, held: Held, load: Load, sizes: Sequence[float]) -> "_Way":
        """Return the way with one more hop."""
        nodes, new = held.cover(to, self.covers[-1] if self.covers else (), load)
        found = state.becomes(frozenset(self.streams), to, sizes[to])
        return _Way((*self.streams, to), (*self.covers, nodes), (*self.moved, new), (*self.found, found))

    def overhead(self, tuples: float) -> float:
        return ctr_overhead(tuples, max(1, len(self.covers[0])), self.moved[1:], self.found[:-1])

    def travelling(self) -> float:
        """Return the extra rows that a tuple makes travel.

        Equation 3 counts the nodes that the hop before did not visit, as if a partial result were on all that it did;
        it is on one of them, and travels to the others as well.
        """
        total, partial = len(self.covers[0]) - 1.0, 1.0
        for before, nodes, found in zip(self.covers, self.covers[1:], self.found, strict=False):
            partial *= found
            total += partial * (len(nodes) - len(set(before).intersection(nodes)) / max(1, len(before)))
        return total

    def work(self) -> float:
        """Return the partial results that a tuple becomes on the way, all hops together."""
        return float(sum(accumulate(self.found, mul)))


def _window_rows(state: StateView, at: int) -> float:
    """Return the tuples in a stream's window (r W), or all that is kept where time sets no limit; at least one."""
    stream = state.streams[at]
    if stream.window is not None:
        return max(1.0, stream.rate * stream.window / 1e6)
    return max(1.0, float(sum(chunk.rows for chunk in state.chunks if chunk.stream == at)))
