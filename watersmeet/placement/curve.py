"""How a stream's tuples, and the work that they make in a batch, lie along time; where to cut them for nodes alike.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 6. The work
that a tuple makes in a micro-batch is the part of the batch's probes that meet it: the batch's first probes meet what
expires in it, and only its last ones meet what came with it. With short batches that part is 1 for all of a window, and
to balance work is to balance counts, as the paper does.
"""

from dataclasses import dataclass

import numpy as np

from watersmeet.arrays import Floats
from watersmeet.state.manifest.view import StateView

LAST = 2**63 - 1
"""Of the times in microseconds."""
GRAIN = 64
"""Parts of what comes and of what expires in a batch, in each of which the work of tuples is taken to be even."""


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
