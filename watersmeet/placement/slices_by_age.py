"""The ring of PSP: who has which tuples and chunks on it, and how nodes join and leave it.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 5.5.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple, Self

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.placement.base import Layout, Placement
from watersmeet.placement.owners import Owners
from watersmeet.placement.strategy_notes import Notes
from watersmeet.state.chunks.chunk import Bucket
from watersmeet.state.manifest.view import ANYWHERE, StateView, StoredNotes

Borders = tuple[tuple[int, ...], ...]


class Moved(NamedTuple):
    """What a plan moves.

    Attributes:
        kind: `ageing`, `smoothing`, `passive` or `aggressive`.
        why: Why, as a sentence.
        between: The nodes, from and to, and how many rows.
    """

    kind: str
    why: str
    between: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PspPlacement(Placement):
    """Borders of age round the ring.

    Attributes:
        nodes: How many nodes there are, those included that only wait for their tuples to expire.
        ring: The nodes from head to tail.
        slices: The slice length of each stream.
        borders: For each stream, rising times: what lies before borders[0] belongs to the last node that the stream
            uses; what lies at or after the last border to the head.
    """

    nodes: int
    ring: tuple[int, ...]
    slices: tuple[int, ...]
    borders: Borders

    def slice_length(self, stream: int) -> int:
        """Return the grain at which the stream's state moves along the ring."""
        return self.slices[stream]

    def owners(self, stream: int, start: int, bucket: Bucket) -> Owners:
        """Return the node between whose borders the middle of the slice lies."""
        borders = self.borders[stream]
        return (self.ring[len(borders) - bisect_right(borders, start + self.slices[stream] // 2)],)


@dataclass(frozen=True, slots=True)
class PspNotes(Notes):
    """The ring as it is.

    Attributes:
        ring: The nodes from head to tail.
        lengths: For each stream, how many nodes of the ring it uses, from the head on.
        thresholds: For each stream, how many of the newest tuples lie after each border, from the head on.
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
        notes: The ring as the next batch finds it.
        moved: What moves, and why.
    """

    notes: PspNotes
    moved: Moved

    def facts(self, state: StateView) -> dict[str, Any]:
        """Return the ring, each node's share of the state, and what moved before the batch."""
        if not state.chunks:
            return {}
        rows = np.bincount(np.maximum(state.homes(), 0), state.column("rows"), self.placement.nodes)
        told = {
            "ring": list(self.placement.ring),
            "lengths": dict(zip(state.names, self.notes.lengths, strict=False)),
            "shares": (rows / rows.sum()).round(3).tolist(),
        }
        if not self.moved.between and self.moved.kind != "passive":
            return told
        between = {f"{source}->{to}": rows for source, to, rows in self.moved.between}
        moved = {"rows": sum(between.values()), "kind": self.moved.kind, "between": between, "why": self.moved.why}
        return told | {"moved": moved}

    def keep(self, after: StateView) -> StoredNotes:
        """Return the ring and its thresholds: the next batch's borders start from them."""
        return self.notes.kept()


# -- nodes that come and go


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


# -- the chunks round a ring


def staying(state: StateView, pinned: Sequence[int | None]) -> Mask:
    """Tell which chunks stay where they are: those with a tuple from before the time that their stream is pinned to.

    Times are what counts, and not who wrote a chunk, since a merge writes old tuples anew.
    """
    if not pinned:
        return np.zeros(len(state.chunks), bool)
    until = np.array([np.iinfo(np.int64).min if time is None else time for time in pinned])
    return state.column("low") <= until[state.column("stream")]


def placed(state: StateView, ring: Sequence[int], borders: Borders, stay: Mask) -> Ints:
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


def given(state: StateView, places: Ints) -> dict[str, Owners]:
    """Return the new owner of each chunk that changes place."""
    going = np.flatnonzero(places != state.homes())
    return {state.chunks[at].id: (node,) for at, node in zip(going.tolist(), places[going].tolist(), strict=True)}
