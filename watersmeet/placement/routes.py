"""CTR's routing table and routes: which nodes keep a segment, and in which order and where new tuples probe."""

import heapq
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from watersmeet.cost.equations import ctr_overhead
from watersmeet.cost.load import NodeLoads
from watersmeet.placement.base import Owners, remap_owners
from watersmeet.placement.segments import SegmentRun, run_index
from watersmeet.placement.set_cover import Holdings
from watersmeet.state.manifest.view import StateView

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
    """Yield for each stream the route by which its new tuples make the fewest rows travel; of equals the least work."""
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
        """Return the route with one more hop."""
        nodes, new = holdings.cover(to, self.covers[-1] if self.covers else (), node_loads)
        matches = state.expected_matches(frozenset(self.streams), to, sizes[to])
        streams, covers = (*self.streams, to), (*self.covers, nodes)
        return PartialRoute(streams, covers, (*self.new_nodes, new), (*self.matches, matches))

    def overhead(self, tuples: float) -> float:
        """Return the extra rows that a segment of so many tuples makes travel, by equation 3."""
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
