"""Routes: which nodes a partial result must visit to see every chunk of the next stream that may hold a match.

Chunks of earlier batches are visited at the owners the manifest gives them, this batch's cells at those the placement
gives. A node too many costs a wasted visit; a node too few would lose results, so every doubt adds one.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from watersmeet.engine.plan import BatchPlan

Ints = NDArray[np.int64]
Visits = NDArray[np.bool_]

MOST_SLICES = 256
"""Where an interval spans more slices than this, every node is visited rather than each slice asked for its owners."""


class Router:
    """Routes of one batch to one target stream.

    Args:
        plan: The batch's plan.
        target: The stream to be probed next.
    """

    def __init__(self, plan: BatchPlan, target: int) -> None:
        self._placement, self._target = plan.placement, target
        self._chunks = [chunk for chunk in plan.chunks if chunk.stream == target]
        self._owners = lru_cache(maxsize=65536)(self._owners_between)

    def visits(self, low: Ints, high: Ints, here: int, segments: Ints) -> Visits:
        """Return a row per partial result and a column per node: whether it must be visited.

        Args:
            low: The earliest time that each partial result asks for.
            high: The latest.
            here: The node they are on.
            segments: The slice of each one's probing tuple.
        """
        found = np.zeros((len(low), self._placement.nodes), dtype=bool)
        for chunk in self._chunks:
            touched = np.flatnonzero((low <= chunk.high) & (high >= chunk.low))
            self._mark(found, touched, chunk.owners, here, segments)
        length = self._placement.slice_length(self._target)
        spans, inverse = np.unique(np.stack([low // length, high // length]), axis=1, return_inverse=True)
        for at, (first, last) in enumerate(spans.T.tolist()):
            touched = np.flatnonzero(inverse.ravel() == at)
            for owners in self._owners(first, last):
                self._mark(found, touched, owners, here, segments)
        return found

    def _mark(self, found: Visits, rows: Ints, owners: tuple[int, ...], here: int, segments: Ints) -> None:
        """Note for some partial results the one owner they visit; with several, it may depend on the segment."""
        if len(owners) == 1:
            found[rows, owners[0]] = True
            return
        for segment in np.unique(segments[rows]).tolist():
            mine = rows[segments[rows] == segment]
            found[mine, self._placement.visit(owners, here, segment)] = True

    def _owners_between(self, first: int, last: int) -> tuple[tuple[int, ...], ...]:
        if last - first > MOST_SLICES:
            return tuple((node,) for node in range(self._placement.nodes))
        length = self._placement.slice_length(self._target)
        return tuple({self._placement.owners(self._target, at * length, 0) for at in range(first, last + 1)})
