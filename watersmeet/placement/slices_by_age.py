"""The ring of PSP: which node has which tuples and chunks, and how nodes join and leave.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 5.5.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple, Self

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.placement.base import Layout, Notes, Owners, Placement
from watersmeet.state.chunks.chunk import Bucket
from watersmeet.state.manifest.view import ANYWHERE, StateView, StoredNotes

Borders = tuple[tuple[int, ...], ...]


class Handover(NamedTuple):
    """The rows that a plan moves between nodes.

    Attributes:
        kind: `ageing`, `smoothing`, `passive` or `aggressive`.
        why: The reason, as a sentence.
        between: The source, the destination and the number of rows, for each pair of nodes.
    """

    kind: str
    why: str
    between: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PspPlacement(Placement):
    """Borders of age round the ring.

    Attributes:
        nodes: How many nodes there are, including those that only wait for their tuples to expire.
        ring: The nodes from head to tail.
        slices: The slice length of each stream.
        borders: For each stream, ascending times: what is before borders[0] belongs to the last node that the stream
            uses; what is at or after the last border to the head.
    """

    nodes: int
    ring: tuple[int, ...]
    slices: tuple[int, ...]
    borders: Borders

    def slice_length(self, stream: int) -> int:
        """Return the grain at which the stream's state moves along the ring."""
        return self.slices[stream]

    def owners(self, stream: int, start: int, bucket: Bucket) -> Owners:
        """Return the node between whose borders the middle of the slice is."""
        borders = self.borders[stream]
        return (self.ring[len(borders) - bisect_right(borders, start + self.slices[stream] // 2)],)


@dataclass(frozen=True, slots=True)
class PspNotes(Notes):
    """The ring and its thresholds.

    Attributes:
        ring: The nodes from head to tail.
        lengths: For each stream, how many nodes of the ring it uses, starting at the head.
        thresholds: For each stream, how many of the newest tuples are after each border, starting at the head.
        pinned: For each stream the time up to which chunks stay where they are; empty if all follow the ring.
        since: The batch before which the ring last changed; None if it never did.
    """

    ring: tuple[int, ...]
    lengths: tuple[int, ...]
    thresholds: Borders
    pinned: tuple[int | None, ...] = ()
    since: int | None = None

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the notes from their fields."""
        ring, lengths, pinned = (tuple(plain[name]) for name in ("ring", "lengths", "pinned"))
        return cls(ring, lengths, tuple(map(tuple, plain["thresholds"])), pinned, plain["since"])


@dataclass(frozen=True, slots=True)
class PspLayout(Layout[PspPlacement]):
    """A ring for a batch.

    Attributes:
        notes: The ring for the next batch.
        handover: What moves, and why.
    """

    notes: PspNotes
    handover: Handover

    def facts(self, state: StateView) -> dict[str, Any]:
        """Return the ring, each node's share of the state, and what moved before the batch."""
        if not state.chunks:
            return {}
        rows = np.bincount(np.maximum(state.homes(), 0), state.column("rows"), self.placement.nodes)
        ring = {
            "ring": list(self.placement.ring),
            "lengths": dict(zip(state.names, self.notes.lengths, strict=False)),
            "shares": (rows / rows.sum()).round(3).tolist(),
        }
        kind, why, between = self.handover
        if not between and kind != "passive":
            return ring
        by_pair = {f"{source}->{to}": rows for source, to, rows in between}
        return ring | {"moved": {"rows": sum(by_pair.values()), "kind": kind, "between": by_pair, "why": why}}

    def keep(self, after: StateView) -> StoredNotes:
        """Return the ring and its thresholds, from which the next batch's borders start."""
        return self.notes.kept()


# -- nodes that come and go


def resize_ring(ring: Sequence[int], nodes: int) -> tuple[int, ...]:
    """Return the ring, from head to tail, with nodes added or removed so that 0..nodes-1 are on it.

    The j-th of M new nodes is inserted after the k-th of the N on the ring, with the least k for which (M/N) k >= j.
    The paper has a strict >, which leaves no place for one new node on a ring of three.

    >>> resize_ring((0, 1, 2), 5)
    (0, 1, 3, 2, 4)
    >>> resize_ring((0, 1, 3, 2, 4), 4)
    (0, 1, 3, 2)
    """
    new_ring, old, new = [node for node in ring if node < nodes], len(ring), nodes - len(ring)
    for j in range(new, 0, -1):
        new_ring.insert(ceil(j * old / new), old + j - 1)
    return tuple(new_ring)


# -- the chunks on a ring


def pinned_chunks(state: StateView, pinned: Sequence[int | None]) -> Mask:
    """Return a mask of the chunks that stay where they are: those with a tuple up to their stream's pinned time.

    It goes by time, not by the batch that wrote a chunk, since a merge rewrites old tuples.
    """
    if not pinned:
        return np.zeros(len(state.chunks), bool)
    until = np.array([np.iinfo(np.int64).min if time is None else time for time in pinned])
    return state.column("low") <= until[state.column("stream")]


def place_chunks(state: StateView, ring: Sequence[int], borders: Borders, stay: Mask) -> Ints:
    """Return the node of each chunk."""
    streams, middles = state.column("stream"), (state.column("low") + state.column("high")) // 2
    places, nodes = state.homes().copy(), np.array(ring)
    for stream, cuts in enumerate(borders):
        own = (streams == stream) & ~stay
        places[own] = nodes[len(cuts) - np.searchsorted(cuts, middles[own], "right")]
    return places


def rows_between(state: StateView, places: Ints) -> tuple[tuple[int, int, int], ...]:
    """Return how many rows move from which node to which; chunks that had several owners only lose copies."""
    homes = state.homes()
    moving = np.flatnonzero((places != homes) & (homes != ANYWHERE))
    pairs, which = np.unique(np.stack([homes[moving], places[moving]], axis=1), axis=0, return_inverse=True)
    rows = np.bincount(which.ravel(), state.column("rows")[moving], len(pairs)).astype(int)
    return tuple((source, to, count) for (source, to), count in zip(pairs.tolist(), rows.tolist(), strict=True))


def new_owners(state: StateView, places: Ints) -> dict[str, Owners]:
    """Return the new owner of each chunk that moves."""
    moving = np.flatnonzero(places != state.homes())
    return {state.chunks[at].id: (node,) for at, node in zip(moving.tolist(), places[moving].tolist(), strict=True)}
