"""The ring of PSP: which node has which tuples and chunks, and how nodes join and leave.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 5.5.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple, Self

import numpy as np

from watersmeet.arrays import Floats, Ints, Mask
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
        interleaved: See `Placement`.
    """

    nodes: int
    ring: tuple[int, ...]
    slices: tuple[int, ...]
    borders: Borders
    interleaved: int | None = None

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
        """Return the ring, each node's share of the state, and what moved before the batch; nothing without state."""
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
    """Return the node of each chunk: its own if it stays, else that between whose borders its middle is."""
    streams, middles = state.column("stream"), (state.column("low") + state.column("high")) // 2
    places, nodes = state.homes().copy(), np.array(ring)
    for stream, cuts in enumerate(borders):
        own = (streams == stream) & ~stay
        places[own] = nodes[len(cuts) - np.searchsorted(cuts, middles[own], "right")]
    return places


def rows_between(state: StateView, places: Ints) -> tuple[tuple[int, int, int], ...]:
    """Return the source, destination and rows of moves between nodes; chunks with several owners only lose copies."""
    homes = state.homes()
    moving = np.flatnonzero((places != homes) & (homes != ANYWHERE))
    pairs, which = np.unique(np.stack([homes[moving], places[moving]], axis=1), axis=0, return_inverse=True)
    rows = np.bincount(which.ravel(), state.column("rows")[moving], len(pairs)).astype(int)
    return tuple((source, to, count) for (source, to), count in zip(pairs.tolist(), rows.tolist(), strict=True))


def new_owners(state: StateView, places: Ints) -> dict[str, Owners]:
    """Return the new owner of each chunk that moves."""
    moving = np.flatnonzero(places != state.homes())
    return {state.chunks[at].id: (node,) for at, node in zip(moving.tolist(), places[moving].tolist(), strict=True)}


LAST = 2**63 - 1
"""The last time, in microseconds."""
GRAIN = 64
"""Parts of the tuples that arrive or expire in a batch; within each part their work is assumed to be even."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A stream's tuples by their time, including those expected in the next batch.

    Attributes:
        origin: The origin of times; near it floats resolve fractions of a microsecond.
        times: Ascending times.
        counts: How many tuples are before each.
        work: How much work those cause in the batch.
    """

    origin: int
    times: Floats
    counts: Floats
    work: Floats

    @property
    def total(self) -> float:
        """The number of tuples."""
        return float(self.counts[-1])

    def balance(self, parts: int) -> Floats:
        """Return how many of the newest tuples are on the first node, the first two and so on if all do equal work."""
        work = self.work[-1] * np.arange(parts - 1, 0, -1) / parts
        older: Floats = np.interp(work, self.work, self.counts)
        return self.total - older

    def count_newer(self, times: Floats) -> Floats:
        """Return how many tuples are newer than each time, counted from the origin."""
        older: Floats = np.interp(times, self.times, self.counts)
        return self.total - older

    def borders(self, thresholds: Floats) -> tuple[int, ...]:
        """Return, in ascending order, the times after which the given numbers of newest tuples lie.

        They are clipped to valid times.
        """
        times = np.interp(self.total - thresholds, self.counts, self.times)
        return tuple(min(max(self.origin + int(time), -LAST), LAST) for time in times[::-1])


def build_curve(state: StateView, at: int) -> Curve | None:
    """Return the curve of a stream; None before its first tuple.

    It assumes that each chunk's tuples are spread evenly over its times, and that the next batch is like the last. If
    no probe is expected, counts are used as work.
    """
    stream, own = state.streams[at], state.column("stream") == at
    if stream.latest is None:
        return None
    now, advance = (state.latest or 0) - stream.latest, max(1, state.advance)  # probes go on as in the foremost stream
    coming = np.linspace(0, max(stream.advance, 1), GRAIN + 1)
    expiring = np.linspace(now, now + advance, GRAIN + 1) - (stream.window or 0)  # of no rows: work is not even there
    low = np.concatenate([state.column("low")[own] - stream.latest, coming[:-1], expiring[:-1]])
    high = np.concatenate([state.column("high")[own] + 1 - stream.latest, coming[1:], expiring[1:]])
    rows = np.concatenate([state.column("rows")[own], np.full(GRAIN, stream.rows / GRAIN), np.zeros(GRAIN)])
    density = np.divide(rows, high - low, out=np.zeros_like(rows), where=high > low)
    ends = np.concatenate([low, high])
    order = np.argsort(ends, kind="stable")
    times, slopes = ends[order], np.cumsum(np.concatenate([density, -density])[order])
    between = np.maximum(slopes[:-1], 0.0) * np.diff(times)
    counts = np.append(0.0, np.cumsum(between))
    share = probed_share(times, now, advance, stream.window)
    work = np.append(0.0, np.cumsum(between * (share[:-1] + share[1:]) / 2))
    return Curve(stream.latest, times, counts, work if work[-1] > 0 else counts)


def probed_share(times: Floats, now: float, advance: float, window: float | None) -> Floats:
    """Return the share of a batch's probes that meet a tuple of each time: a trapezoid.

    Args:
        times: The tuples' times, in microseconds from any origin, which all others share.
        now: When the batch begins.
        advance: How long it lasts; probes are assumed to be spread evenly over it.
        window: A probe at t meets the tuples of (t - window, t]; None for all up to t.

    >>> probed_share(np.array([-9.0, -6.0, -2.0, 0.0, 3.0]), 0, 4, 8)
    array([0.  , 0.5 , 1.  , 1.  , 0.25])
    """
    end = now + advance
    last = np.full_like(times, end) if window is None else np.minimum(times + window, end)
    return np.clip((last - np.maximum(times, now)) / advance, 0.0, 1.0)


def ease(before: Floats, goal: Floats, step: float, fresh: int) -> Floats:
    """Return thresholds on the way from those before to the goal, given the `fresh` tuples of the last batch.

    A lower threshold hands on more tuples than those that age, at most `step` of them. A higher one holds tuples back,
    which moves nothing as long as no more are held back than arrived; beyond that at most `step` go back towards the
    head.

    >>> ease(np.array([40.0, 80.0]), np.array([20.0, 100.0]), 5, 10)
    array([35., 95.])
    """
    return np.clip(goal, before - step, before + fresh + step)
