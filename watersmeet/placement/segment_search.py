"""The search for the segment length of the best throughput, a step at a time while the join runs (ATR, section 3)."""

from typing import NamedTuple

from watersmeet.cost.load import smoothed
from watersmeet.state.manifest.view import StateView

STEPS, GAIN = 4, 0.02
"""The search goes by a STEPS-th of the first length, as long as throughput gains this much."""


class Search(NamedTuple):
    """Where the search for the best segment length T* stands (section 3, segment length adaptation).

    Attributes:
        segment: The length that new segments get.
        since: The time from which on they have it.
        step: What the length is changed by next; 0 when the search is over.
        best: The best length so far.
        score: The throughput that it gave; 0 before it is known.
        rows: The rows of a batch, smoothed as the usage of nodes is.
    """

    segment: int
    since: int
    step: int
    best: int
    score: float = 0.0
    rows: float = 0.0

    def sampled(self, state: StateView, end: int) -> "Search":
        """Return the search after one more batch: the next length, once all state lies in segments of the last one.

        Throughput is counted in rows by the CPU time of the busiest node, which both copies and imbalance raise.
        """
        rows = smoothed(self.rows, sum(stream.rows for stream in state.streams))
        found = self._replace(rows=rows)
        busiest = max((used.cpu for used in state.usage), default=0.0)
        latest = state.latest
        settled = latest is not None and latest >= self.since + state.reach + self.segment
        return found if not self.step or not settled or not busiest else found._next(rows / busiest, end)

    def _next(self, score: float, end: int) -> "Search":
        if score > self.score * (1 + GAIN):
            better = self._replace(best=self.segment, score=score)
            return better._tries(self.step, end)
        return self._tries(-self.step if self.step > 0 else 0, end)

    def _tries(self, step: int, end: int) -> "Search":
        step = step if self.best + step > 0 else 0
        return self._replace(segment=self.best + step, since=end, step=step)
