"""How a stream's tuples, and the work that they cause in a batch, are distributed over time; where to cut them evenly.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 6. The work
that a tuple causes in a micro-batch is the share of the batch's probes that meet it: the first probes meet what expires
in the batch, and only the last ones meet what arrives in it. With short batches that share is 1 for all of a window,
and balancing work is balancing counts, as the paper does.
"""

from dataclasses import dataclass

import numpy as np

from watersmeet.arrays import Floats
from watersmeet.state.manifest.view import StateView

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
        """Return the ascending times after which so many of the newest tuples are, clipped to valid times."""
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
        times: The tuples' times.
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
    """Return thresholds on the way from those before to the goal.

    A lower threshold hands on more tuples than those that age, at most `step` of them. A higher one holds tuples back,
    which moves nothing as long as no more are held back than arrived; beyond that at most `step` go back towards the
    head.

    >>> ease(np.array([40.0, 80.0]), np.array([20.0, 100.0]), 5, 10)
    array([35., 95.])
    """
    return np.clip(goal, before - step, before + fresh + step)
