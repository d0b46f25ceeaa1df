"""The segments of ATR's master: runs of one length on a list of nodes, and eras, each of one master."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from watersmeet.arrays import Ints
from watersmeet.state.manifest.view import ANYWHERE

LOWEST, ENDLESS = -(1 << 61), 1 << 62
"""Earlier than any time, and longer than all time."""


class Run(NamedTuple):
    """Segments of one length on a repeating list of nodes, up to the start of the next run."""

    start: int
    length: int
    nodes: tuple[int, ...]


class Leftover(NamedTuple):
    """Tuples of the master, from `low` to `high`, that an earlier strategy put on another node than the segment."""

    low: int
    high: int
    node: int


class Era(NamedTuple):
    """A master and its segments.

    Attributes:
        master: The stream.
        start: From when on it is the master; its segments say what becomes of its earlier tuples.
        runs: Its segments for all time: the first reaches back, the last forward without end. A run on the node
            ANYWHERE begins where another stream takes over.
    """

    master: int
    start: int
    runs: tuple[Run, ...]

    def hosts(self, times: Ints) -> Ints:
        """Return the node of each time's segment."""
        run, segment = self._located(times)
        sizes = np.array([len(run.nodes) for run in self.runs])
        nodes = np.concatenate([np.array(run.nodes, np.int64) for run in self.runs])
        found: Ints = nodes[(np.cumsum(sizes) - sizes)[run] + segment % sizes[run]]
        return found

    def borders(self, times: Ints) -> Ints:
        """Return the start of each time's segment."""
        run, segment = self._located(times)
        starts, lengths = (np.array(ends, np.int64) for ends in list(zip(*self.runs, strict=True))[:2])
        return np.where(times < starts[0], LOWEST, starts[run] + segment * lengths[run])

    def _located(self, times: Ints) -> tuple[Ints, Ints]:
        """Return each time's run, and which segment of the run it lies in."""
        starts, lengths = (np.array(ends, np.int64) for ends in list(zip(*self.runs, strict=True))[:2])
        run = np.maximum(np.searchsorted(starts, times, "right") - 1, 0)
        return run, np.maximum(times - starts[run], 0) // lengths[run]

    def between(self, low: int, high: int) -> Iterator[int]:
        """Yield the nodes of all segments that hold a time from `low` to `high`."""
        low, high = max(low, self.runs[0].start), max(high, self.runs[0].start)
        at = bisect_right(self.runs, low, key=_start) - 1
        for run, end in self._spans(at):
            if run.start > high:
                return
            first, last = ((time - run.start) // run.length for time in (max(low, run.start), min(high, end - 1)))
            for segment in range(first, min(last + 1, first + len(run.nodes))):
                if run.nodes[segment % len(run.nodes)] != ANYWHERE:
                    yield run.nodes[segment % len(run.nodes)]

    def counts(self, low: int, high: int, nodes: int) -> list[int]:
        """Return how many segments from `low` to `high` each node has."""
        found = [0] * nodes
        for run, end in self._spans():
            first, last = ((t - run.start) // run.length for t in (max(low, run.start), min(high, end - 1)))
            for at, node in enumerate(run.nodes if last >= first else ()):
                rounds = [(segment - at) // len(run.nodes) for segment in (first - 1, last)]
                found[node] += rounds[1] - rounds[0] if node != ANYWHERE else 0
        return found

    def end_of(self, time: int) -> int:
        """Return the end of a time's segment."""
        at = max(0, bisect_right(self.runs, time, key=_start) - 1)
        run, end = next(self._spans(at))
        return min(end, run.start + (max(0, time - run.start) // run.length + 1) * run.length)

    def on(self, nodes: int) -> "Era":
        """Return the era on so many nodes; those that are gone hand their segments on as they do their chunks."""
        return self._replace(runs=tuple(run._replace(nodes=_remapped(run.nodes, nodes)) for run in self.runs))

    def _spans(self, at: int = 0) -> Iterator[tuple[Run, int]]:
        ends = (*(run.start for run in self.runs[at + 1 :]), ENDLESS)
        return zip(self.runs[at:], ends, strict=True)

    def kept(self, low: int, end: int) -> "Era":
        """Return the era with the runs from `low` up to `end`, shortened to the nodes that they use."""
        first = max(0, bisect_right(self.runs, low, key=_start) - 1)
        spans = [(run, min(stop, end)) for run, stop in self._spans(first) if run.start < end]
        return self._replace(
            runs=tuple(run._replace(nodes=run.nodes[: -((run.start - e) // run.length)]) for run, e in spans)
        )


def _start(run: Run) -> int:
    return run.start


def _remapped(hosts: Iterable[int], nodes: int) -> tuple[int, ...]:
    return tuple(host if host == ANYWHERE else host % nodes for host in hosts)
