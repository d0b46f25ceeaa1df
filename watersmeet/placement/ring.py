"""The ring of PSP: how nodes join and leave it, how tuples and their work lie along it, who has which chunk.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), sections 5.5 and 6. The
work that a tuple makes in a micro-batch is the part of the batch's probes that meet it: the batch's first probes meet
what expires in it, and only its last ones meet what came with it. With short batches that part is 1 for all of a
window, and to balance work is to balance counts, as the paper does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from watersmeet.state.view import ANYWHERE, Ints, StateView

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Borders = tuple[tuple[int, ...], ...]

LAST = 2**63 - 1
"""Of the times in microseconds."""
GRAIN = 64
"""Parts of what comes and of what expires in a batch, in each of which the work of tuples is taken to be even."""


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


@dataclass(frozen=True, slots=True)
class Curve:
    """A stream's tuples by their time, those that the batch to come will bring included.

    Attributes:
        origin: What times count from: near it floats tell parts of a microsecond apart.
        times: Rising times.
        counts: How many tuples lie before each.
        work: How much work those make in the batch.
    """

    origin: int
    times: Floats
    counts: Floats
    work: Floats

    @property
    def total(self) -> float:
        """All tuples."""
        return float(self.counts[-1])

    def balanced(self, parts: int) -> Floats:
        """Return how many of the newest tuples lie on the first node, the first two and so on, if all work alike."""
        wanted = self.work[-1] * np.arange(parts - 1, 0, -1) / parts
        older: Floats = np.interp(wanted, self.work, self.counts)
        return self.total - older

    def newer(self, times: Floats) -> Floats:
        """Return how many tuples are newer than each time, counted from the origin."""
        older: Floats = np.interp(times, self.times, self.counts)
        return self.total - older

    def borders(self, thresholds: Floats) -> tuple[int, ...]:
        """Return the rising times that so many of the newest tuples lie after; what is no time is cut to the last."""
        found = np.interp(self.total - thresholds, self.counts, self.times)
        return tuple(min(max(self.origin + int(time), -LAST), LAST) for time in found[::-1])


def curve(state: StateView, at: int) -> Curve | None:
    """Return the curve of a stream; None before its first tuple.

    Each chunk's tuples are taken to be spread evenly over its times; the coming batch to be like the last. Where no
    probe is expected, the counts stand for the work.
    """
    stream, mine = state.streams[at], state.column("stream") == at
    if stream.latest is None:
        return None
    now, advance = (state.latest or 0) - stream.latest, max(1, state.advance)  # probes go on as in the foremost stream
    coming = np.linspace(0, max(stream.advance, 1), GRAIN + 1)
    expiring = np.linspace(now, now + advance, GRAIN + 1) - (stream.window or 0)  # of no rows: work is not even there
    low = np.concatenate([state.column("low")[mine] - stream.latest, coming[:-1], expiring[:-1]])
    high = np.concatenate([state.column("high")[mine] + 1 - stream.latest, coming[1:], expiring[1:]])
    rows = np.concatenate([state.column("rows")[mine], np.full(GRAIN, stream.rows / GRAIN), np.zeros(GRAIN)])
    density = np.divide(rows, high - low, out=np.zeros_like(rows), where=high > low)
    ends = np.concatenate([low, high])
    order = np.argsort(ends, kind="stable")
    times, slopes = ends[order], np.cumsum(np.concatenate([density, -density])[order])
    between = np.maximum(slopes[:-1], 0.0) * np.diff(times)
    counts = np.append(0.0, np.cumsum(between))
    met = probed(times, now, advance, stream.window)
    work = np.append(0.0, np.cumsum(between * (met[:-1] + met[1:]) / 2))
    return Curve(stream.latest, times, counts, work if work[-1] > 0 else counts)


def probed(times: Floats, now: float, advance: float, window: float | None) -> Floats:
    """Return which part of a batch's probes meets a tuple of each time: a trapezoid.

    Args:
        times: The tuples' times.
        now: When the batch begins.
        advance: How long it lasts; its probes are taken to come evenly.
        window: A probe at t meets the tuples of (t - window, t]; None for all up to t.

    >>> probed(np.array([-9.0, -6.0, -2.0, 0.0, 3.0]), 0, 4, 8)
    array([0.  , 0.5 , 1.  , 1.  , 0.25])
    """
    end = now + advance
    last = np.full_like(times, end) if window is None else np.minimum(times + window, end)
    return np.clip((last - np.maximum(times, now)) / advance, 0.0, 1.0)


def eased(before: Floats, wanted: Floats, step: float, fresh: int) -> Floats:
    """Return thresholds on their way from those before to those wanted.

    A lower threshold hands tuples on beyond those that age, at most `step` of them. A higher one keeps tuples back,
    which moves nothing as long as no more are kept than came; beyond that at most `step` go back towards the head.

    >>> eased(np.array([40.0, 80.0]), np.array([20.0, 100.0]), 5, 10)
    array([35., 95.])
    """
    return np.clip(wanted, before - step, before + fresh + step)


# -- the chunks round a ring


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
