"""Segments of time: runs of one length on a repeating list of hosts, and ATR's eras, each of one master.

A host is a node under ATR, and the tuple of a segment's owners under CTR.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from watersmeet.arrays import Ints
from watersmeet.cost.load import smooth
from watersmeet.state.manifest.view import ANYWHERE, StateView

LOWEST, ENDLESS = -(1 << 61), 1 << 62
"""A time before any other, and a length greater than all time."""
STEPS, GAIN = 4, 0.02
"""The search changes the length by a STEPS-th of the first one as long as throughput gains at least this much."""

Host = TypeVar("Host")


class SegmentRun(NamedTuple, Generic[Host]):
    """Segments of one length on a repeating list of hosts, up to the start of the next run."""

    start: int
    length: int
    hosts: tuple[Host, ...]

    def host_at(self, time: int) -> Host:
        """Return the host of the segment that contains a time."""
        return self.hosts[max(0, time - self.start) // self.length % len(self.hosts)]


def run_index(runs: Sequence[SegmentRun[Host]], time: int) -> int:
    """Return the position of the run that contains a time; the first one reaches back without end."""
    return max(0, bisect_right(runs, time, key=attrgetter("start")) - 1)


def run_spans(runs: Sequence[SegmentRun[Host]], first: int = 0) -> Iterator[tuple[SegmentRun[Host], int]]:
    """Yield the runs from the `first` on, each with its end."""
    ends = (*(run.start for run in runs[first + 1 :]), ENDLESS)
    return zip(runs[first:], ends, strict=True)


def trim_runs(runs: Sequence[SegmentRun[Host]], low: int, end: int) -> tuple[SegmentRun[Host], ...]:
    """Return the runs from the one that contains `low` up to `end`, each with only the hosts that it uses.

    >>> trim_runs((SegmentRun(0, 10, (0, 1)), SegmentRun(40, 5, (2, 0, 1))), 12, 48)
    (SegmentRun(start=0, length=10, hosts=(0, 1)), SegmentRun(start=40, length=5, hosts=(2, 0)))
    """
    spans = [(run, min(stop, end)) for run, stop in run_spans(runs, run_index(runs, low)) if run.start < end]
    return tuple(run._replace(hosts=run.hosts[: -((run.start - stop) // run.length)]) for run, stop in spans)


class Leftover(NamedTuple):
    """Tuples of the master, from `low` to `high`, that an earlier strategy put on another node than their segment's."""

    low: int
    high: int
    node: int


class Era(NamedTuple):
    """A master and its segments.

    Attributes:
        master: The stream.
        start: When it becomes the master; its segments also say where results with earlier tuples of it belong.
        runs: Its segments for all time: the first run reaches back, the last one forward without end. A run on the
            node ANYWHERE begins where another stream takes over.
    """

    master: int
    start: int
    runs: tuple[SegmentRun[int], ...]

    def nodes_at(self, times: Ints) -> Ints:
        """Return the node of each time's segment."""
        run, segment = self._locate(times)
        sizes = np.array([len(run.hosts) for run in self.runs])
        nodes = np.concatenate([np.array(run.hosts, np.int64) for run in self.runs])
        nodes_at: Ints = nodes[(np.cumsum(sizes) - sizes)[run] + segment % sizes[run]]
        return nodes_at

    def segment_starts(self, times: Ints) -> Ints:
        """Return the start of each time's segment; LOWEST before the first run."""
        run, segment = self._locate(times)
        starts, lengths = self._starts_and_lengths()
        return np.where(times < starts[0], LOWEST, starts[run] + segment * lengths[run])

    def _locate(self, times: Ints) -> tuple[Ints, Ints]:
        """Return each time's run, and the number of its segment within the run."""
        starts, lengths = self._starts_and_lengths()
        run = np.maximum(np.searchsorted(starts, times, "right") - 1, 0)
        return run, np.maximum(times - starts[run], 0) // lengths[run]

    def _starts_and_lengths(self) -> tuple[Ints, Ints]:
        return np.array([run.start for run in self.runs], np.int64), np.array([run.length for run in self.runs])

    def nodes_between(self, low: int, high: int) -> Iterator[int]:
        """Yield the nodes of all segments that contain a time from `low` to `high`."""
        low, high = max(low, self.runs[0].start), max(high, self.runs[0].start)
        for run, end in run_spans(self.runs, run_index(self.runs, low)):
            if run.start > high:
                return
            first, last = ((time - run.start) // run.length for time in (max(low, run.start), min(high, end - 1)))
            for segment in range(first, min(last + 1, first + len(run.hosts))):
                if run.hosts[segment % len(run.hosts)] != ANYWHERE:
                    yield run.hosts[segment % len(run.hosts)]

    def segment_counts(self, low: int, high: int, nodes: int) -> list[int]:
        """Return how many segments from `low` to `high` each node has; those at ANYWHERE don't count."""
        counts = [0] * nodes
        for run, end in run_spans(self.runs):
            first, last = ((t - run.start) // run.length for t in (max(low, run.start), min(high, end - 1)))
            for at, node in enumerate(run.hosts if last >= first else ()):
                rounds = [(segment - at) // len(run.hosts) for segment in (first - 1, last)]
                counts[node] += rounds[1] - rounds[0] if node != ANYWHERE else 0
        return counts

    def segment_end(self, time: int) -> int:
        """Return the end of a time's segment."""
        run, end = next(run_spans(self.runs, run_index(self.runs, time)))
        return min(end, run.start + (max(0, time - run.start) // run.length + 1) * run.length)

    def remap(self, nodes: int) -> "Era":
        """Return the era on this many nodes; removed nodes hand on their segments as they do their chunks."""
        return self._replace(
            runs=tuple(
                run._replace(hosts=tuple(node if node == ANYWHERE else node % nodes for node in run.hosts))
                for run in self.runs
            )
        )

    def trim(self, low: int, end: int) -> "Era":
        """Return the era with the runs from `low` up to `end`, each with only the nodes that it uses."""
        return self._replace(runs=trim_runs(self.runs, low, end))


class SegmentSearch(NamedTuple):
    """The search for the segment length T* of the best throughput, a step at a time while the join runs.

    Gu, Yu and Wang, section 3, segment length adaptation.

    Attributes:
        segment: The length that new segments get.
        since: The time from which on they have it.
        step: The next change of the length; 0 once the search is over.
        best: The best length so far.
        score: The throughput at the best length; 0 before it is measured.
        rows: The rows of a batch, smoothed like the usage of nodes.
    """

    segment: int
    since: int
    step: int
    best: int
    score: float = 0.0
    rows: float = 0.0

    def observe(self, state: StateView, end: int) -> "SegmentSearch":
        """Return the search after one more batch: with the next length, once all state has segments of the last one.

        Throughput is rows per CPU second of the busiest node, since both copies and imbalance raise the latter.

        Args:
            state: The state after the batch.
            end: Where the segments assigned so far end, and those of another length would begin.
        """
        rows = smooth(self.rows, sum(stream.rows for stream in state.streams))
        search = self._replace(rows=rows)
        busiest = max((usage.cpu for usage in state.usage), default=0.0)
        latest = state.latest
        is_full = latest is not None and latest >= self.since + state.reach + self.segment
        return search if not self.step or not is_full or not busiest else search._advance(rows / busiest, end)

    def _advance(self, score: float, end: int) -> "SegmentSearch":
        if score > self.score * (1 + GAIN):
            better = self._replace(best=self.segment, score=score)
            return better._try_step(self.step, end)
        return self._try_step(-self.step if self.step > 0 else 0, end)

    def _try_step(self, step: int, end: int) -> "SegmentSearch":
        step = step if self.best + step > 0 else 0
        return self._replace(segment=self.best + step, since=end, step=step)
