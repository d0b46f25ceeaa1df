"""CTR's routes: in which order new tuples of a stream probe the others, and which nodes each hop visits."""

import heapq
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from watersmeet.cost.diffusion import ctr_overhead
from watersmeet.placement.owners import Owners
from watersmeet.placement.set_cover import Held, Load
from watersmeet.state.manifest.view import StateView

ALL_ORDERS, BEAM = 24, 4
"""Routes that are followed at each hop: with up to five streams that is every order, with more the best beginnings."""


class Route(NamedTuple):
    """The streams in the order they are probed, for each the nodes that cover it (V_k), and O_CTR,P by equation 3."""

    order: tuple[int, ...]
    covers: tuple[Owners, ...]
    overhead: float


def routes(state: StateView, held: Held, load: Load, lengths: Sequence[int]) -> Iterator[Route]:
    """Yield for each stream the route of its new tuples by which the fewest rows travel, of equals the least work."""
    sizes = [_window_rows(state, at) for at in range(len(state.streams))]
    beam = ALL_ORDERS if len(state.streams) <= 5 else BEAM
    for origin, stream in enumerate(state.streams):
        tuples = (stream.rate or 1.0) * lengths[origin] / 1e6
        begun = [PartialRoute((origin,), (), (), ())]
        for _ in state.streams[1:]:
            longer = [route.on(to, state, held, load, sizes) for route in begun for to in route.others(len(sizes))]
            begun = heapq.nsmallest(beam, longer, key=lambda route: (route.travelling(), route.work()))
        yield Route(begun[0].streams[1:], begun[0].covers, begun[0].overhead(tuples))


class PartialRoute(NamedTuple):
    """The beginning of a route.

    Attributes:
        streams: The streams joined, the new tuples' own first.
        covers: For each hop the nodes that cover its stream (V_k).
        moved: For each hop how many of them the hop before did not visit (|V'_k|).
        found: For each hop what one partial result becomes by it.
    """

    streams: tuple[int, ...]
    covers: tuple[Owners, ...]
    moved: tuple[int, ...]
    found: tuple[float, ...]

    def others(self, streams: int) -> Iterator[int]:
        """Yield the streams that it does not visit yet."""
        return (stream for stream in range(streams) if stream not in self.streams)

    def on(self, to: int, state: StateView, held: Held, load: Load, sizes: Sequence[float]) -> "PartialRoute":
        """Return the route with one more hop."""
        nodes, new = held.cover(to, self.covers[-1] if self.covers else (), load)
        found = state.expected_matches(frozenset(self.streams), to, sizes[to])
        return PartialRoute((*self.streams, to), (*self.covers, nodes), (*self.moved, new), (*self.found, found))

    def overhead(self, tuples: float) -> float:
        """Return the extra rows that a segment of so many tuples makes travel, by equation 3."""
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
