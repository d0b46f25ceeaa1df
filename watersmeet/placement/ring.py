"""The ring of PSP: how nodes join and leave it, and who has which chunk.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 5.5.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from watersmeet.state.view import ANYWHERE, Ints, StateView

Flags = NDArray[np.bool_]
Borders = tuple[tuple[int, ...], ...]


def resized(ring: Sequence[int], nodes: int) -> tuple[int, ...]:
    """Return the ring, from head to tail, with nodes added or removed so that 0..nodes-1 are on it.

    The j-th of M new nodes stands after the k-th of the N on the ring, k being the least with (M/N) k >= j. The paper
    has a strict >, by which one node finds no place on a ring of three.

    >>> resized((0, 1, 2), 5)
    (0, 1, 3, 2, 4)
    >>> resized((0, 1, 3, 2, 4), 4)
    (0, 1, 3, 2)
    """
    found, old, new = [node for node in ring if node < nodes], len(ring), nodes - len(ring)
    for j in range(new, 0, -1):
        found.insert(ceil(j * old / new), old + j - 1)
    return tuple(found)


def staying(state: StateView, pinned: Sequence[int | None]) -> Flags:
    """Tell which chunks stay where they are: those with a tuple from before the time that their stream is pinned to.

    Times are what counts, and not who wrote a chunk, since a merge writes old tuples anew.
    """
    if not pinned:
        return np.zeros(len(state.chunks), bool)
    until = np.array([np.iinfo(np.int64).min if time is None else time for time in pinned])
    return state.column("low") <= until[state.column("stream")]


def placed(state: StateView, ring: Sequence[int], borders: Borders, stay: Flags) -> Ints:
    """Return the node of each chunk."""
    streams, middles = state.column("stream"), (state.column("low") + state.column("high")) // 2
    places, nodes = state.homes().copy(), np.array(ring)
    for stream, cuts in enumerate(borders):
        mine = (streams == stream) & ~stay
        places[mine] = nodes[len(cuts) - np.searchsorted(cuts, middles[mine], "right")]
    return places


def handed(state: StateView, places: Ints) -> tuple[tuple[int, int, int], ...]:
    """Return how many rows go from which node to which; chunks that had several owners only lose copies."""
    homes = state.homes()
    going = np.flatnonzero((places != homes) & (homes != ANYWHERE))
    ways, which = np.unique(np.stack([homes[going], places[going]], axis=1), axis=0, return_inverse=True)
    rows = np.bincount(which.ravel(), state.column("rows")[going], len(ways)).astype(int)
    return tuple((source, to, count) for (source, to), count in zip(ways.tolist(), rows.tolist(), strict=True))
