"""PSP: the state of each stream is cut by age into disjoint slices round a ring of nodes, newest at the head.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), sections 3-5. A tuple
is kept once; a probe visits every node that holds part of its range. Build tuples that travel from head to tail
(section 4.1) are here chunks that change owner: no row is copied. Borders follow tuple counts, so that each node holds
about the same number of tuples (sections 5.5 and 6, workload smoothing).
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from watersmeet.placement.base import LONGEST_SLICE, Placement, StateView, Strategy, StreamView, check_nodes, moves
from watersmeet.state.chunk import Bucket

SLICES_PER_NODE = 2
"""Slices of time per node and window: the grain at which state moves along the ring."""
FEWEST_ROWS = 100
"""Where slices would hold fewer rows than this there is one per node: files have a fixed part."""


@dataclass(frozen=True, slots=True)
class PspPlacement(Placement):
    """Borders of age round the ring.

    Attributes:
        nodes: The ring's length.
        lengths: The slice length of each stream.
        borders: For each stream, rising times: what lies before borders[0] belongs to the tail, node N-1; what lies at
            or after the last border to the head, node 0.
    """

    nodes: int
    lengths: tuple[int, ...]
    borders: tuple[tuple[int, ...], ...]

    def slice_length(self, stream: int) -> int:
        """See Placement."""
        return self.lengths[stream]

    def owners(self, stream: int, start: int, bucket: Bucket) -> tuple[int, ...]:
        """See Placement."""
        borders = self.borders[stream]
        return (len(borders) - bisect_right(borders, start),)


@dataclass(frozen=True, slots=True)
class PSP(Strategy):
    """Pipelined State Partitioning on a ring of `nodes`.

    >>> PSP(nodes=4).describe()
    'PSP(nodes=4)'
    """

    nodes: int = 4

    def __post_init__(self) -> None:
        check_nodes(self.nodes)

    def plan(self, state: StateView) -> Placement:
        """See Strategy; the borders are set for the state as it will be after a batch like the last one."""
        return PspPlacement(
            self.nodes,
            tuple(self._length(stream) for stream in state.streams),
            tuple(_borders(state, at, self.nodes) for at in range(len(state.streams))),
        )

    def move(self, state: StateView, placement: Placement) -> dict[str, tuple[int, ...]]:
        """See Strategy; a chunk belongs where the middle of its times lies."""
        assert isinstance(placement, PspPlacement)
        streams, middles = state.column("stream"), (state.column("low") + state.column("high")) // 2
        nodes = np.zeros_like(streams)
        for stream, borders in enumerate(placement.borders):
            mine = streams == stream
            nodes[mine] = len(borders) - np.searchsorted(borders, middles[mine], "right")
        return moves(state.chunks, ((node,) for node in nodes.tolist()))

    def _length(self, stream: StreamView) -> int:
        if stream.span is None:
            return LONGEST_SLICE
        slices = SLICES_PER_NODE * self.nodes
        crumbs = 0 < stream.rate * stream.span / 1e6 / slices < FEWEST_ROWS
        return max(1, stream.span // (self.nodes if crumbs else slices))


def _borders(state: StateView, at: int, nodes: int) -> tuple[int, ...]:
    """Return the N-1 times that cut a stream's tuples into N parts of equal count, the batch to come included."""
    stream, mine = state.streams[at], state.column("stream") == at
    if stream.latest is None or nodes == 1:
        return ()
    # Each source of tuples is spread evenly over its own times; what the next batch lets expire is left out.
    horizon = stream.latest + max(stream.advance, 1)
    low = np.append(state.column("low")[mine], stream.latest).astype(np.float64)
    high = np.append(state.column("high")[mine] + 1, horizon).astype(np.float64)
    rows = np.append(state.column("rows")[mine], stream.rows)
    times, which = np.unique(np.concatenate([low, high]), return_inverse=True)
    density = rows / (high - low)
    slopes = np.maximum(np.cumsum(np.bincount(which, np.concatenate([density, -density]))), 0.0)
    totals = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(times))])
    expired = 0.0 if stream.span is None else np.interp(horizon - stream.span, times, totals)
    wanted = expired + (totals[-1] - expired) * np.arange(1, nodes) / nodes
    return tuple(int(border) for border in np.interp(wanted, totals, times))
