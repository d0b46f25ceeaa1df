"""Probing within one task: all hops of its share of the new tuples, over chunks that the task can open itself."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from watersmeet.engine.arrival import Arrivals, arrivals, as_of_all
from watersmeet.engine.intake import writer
from watersmeet.engine.plan import BatchPlan
from watersmeet.kernel.calls import Cost, Memory
from watersmeet.kernel.duck import Duck
from watersmeet.kernel.hop import BLOCK, Prober
from watersmeet.kernel.partials import Partials, references, regroup
from watersmeet.kernel.steps import Step, entry_conjuncts
from watersmeet.kernel.table import ChunkTable, Target
from watersmeet.predicate.model import Dialect
from watersmeet.query import Query
from watersmeet.state.chunk import Chunk
from watersmeet.state.write import Writer


@dataclass(slots=True)
class HopWork:
    """What a hop did."""

    rows_in: int = 0
    rows_shuffled: int = 0
    pairs: int = 0
    matches: int = 0


@dataclass(slots=True)
class TaskReport:
    """What a probing task tells the driver.

    Attributes:
        node: The task's number.
        hops: Work per hop.
        node_pairs: Pairs tested, by the node that owns the chunk.
        costs: What each Python predicate cost.
        rows: Results written.
        files: Where they are.
        chunks: The batch's fresh chunks, as this task saw them; each is reported by one task.
        merged: Chunks this task made, each with the ids of those it replaces.
        seconds: CPU seconds used.
    """

    node: int
    hops: dict[int, HopWork] = field(default_factory=lambda: defaultdict(HopWork))
    node_pairs: dict[int, int] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    rows: int = 0
    files: list[str] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    merged: list[tuple[Chunk, tuple[str, ...]]] = field(default_factory=list)
    seconds: float = 0.0


class Worker:
    """What a worker process keeps between tasks: its DuckDB connections and the answers of Python predicates."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._memory = Memory()
        self._ducks: dict[Dialect, Duck] = {}

    def prober(self, query: Query, table: ChunkTable) -> Prober:
        """Return what runs the hops of a task over some chunks."""
        if query.dialect not in self._ducks:
            self._ducks[query.dialect] = Duck(query.dialect)
        return Prober(query, table, self._ducks[query.dialect], self._memory, self._clock)


class Probe:
    """One task's probing over old and fresh chunks.

    Args:
        plan: The batch's plan.
        fresh: The batch's fresh chunks that the task can open.
        worker: The process's connections.
    """

    def __init__(self, plan: BatchPlan, fresh: Sequence[Chunk], worker: Worker) -> None:
        self.plan = plan
        self.fresh = sorted(fresh, key=lambda chunk: (chunk.stream, chunk.low, chunk.id))
        old = [Target(at, chunk, False, chunk.copies[0].node) for at, chunk in enumerate(plan.chunks)]
        self._fresh = [Target(len(old) + at, chunk, True, chunk.copies[0].node) for at, chunk in enumerate(self.fresh)]
        self.table = ChunkTable(plan.store, plan.query, [*old, *self._fresh])
        self.prober = worker.prober(plan.query, self.table)
        self._arrivals: dict[int, Arrivals] = {}
        self._ordinals: dict[str, NDArray[np.int64]] = {}
        for stream in plan.query.counted:
            self._number(stream)

    def _number(self, stream: int) -> None:
        """Give the fresh tuples of a count-windowed stream their arrival ordinals."""
        targets = [target for target in self._fresh if target.chunk.stream == stream]
        opened = [self.table.rows(target) for target in targets]
        keys = [(rows.ts, rows.hashes) for rows in opened]
        self._arrivals[stream] = arrivals(stream, self.plan.arrived[stream], keys)
        for target, rows, found in zip(targets, opened, self._arrivals[stream].ordinals(keys), strict=False):
            rows.ordinals = found
            self._ordinals[target.chunk.id] = found

    def results(self, share: int, shares: int) -> Iterator[Partials]:
        """Yield the results whose last-arrived member is in this task's share of the fresh tuples.

        The share is a run of each chunk's rows. Rows stand in canonical order, so that a task that runs again, over
        chunks written again, takes the same tuples.
        """
        for stream in range(len(self.plan.query.streams)):
            blocks = regroup(self._probing(stream, share, shares), BLOCK)
            yield from self._hops(blocks, self.plan.steps(stream))

    def _probing(self, stream: int, share: int, shares: int) -> Iterator[Partials]:
        conjuncts = entry_conjuncts(self.plan.query, stream)
        window = self.plan.query.streams[stream].window
        for target in self._fresh:
            if target.chunk.stream != stream:
                continue
            size = target.chunk.rows
            rows = np.arange(size * share // shares, size * (share + 1) // shares)
            ts = self.table.rows(target).ts[rows]
            block = Partials(
                joined=(stream,),
                rows={stream: references(target.number, rows)},
                moment=ts,
                high=ts,
                deadline=window.deadline(ts),
                asof=as_of_all(self._arrivals, stream, ts),
            )
            block = self.prober.enter(block, conjuncts)
            if len(block):
                yield block

    def _hops(self, blocks: Iterator[Partials], steps: Sequence[Step]) -> Iterator[Partials]:
        for step in steps:
            blocks = regroup(self._hop(blocks, step), BLOCK)
        return blocks

    def _hop(self, blocks: Iterator[Partials], step: Step) -> Iterator[Partials]:
        for block in blocks:
            yield from self.prober.hop(block, step)

    def report(self, node: int, name: str, keeper: bool) -> TaskReport:
        """Do the task's merges and return its report.

        Args:
            node: The task's number, and the node whose chunks it merges.
            name: Unique to the task attempt.
            keeper: Whether this task is the one that reports the fresh chunks.
        """
        write = writer(self.plan, name)
        report = TaskReport(node, merged=merged(self.plan, node, write))
        if keeper:
            report.chunks = [
                write.write_ordinals(chunk, self._ordinals[chunk.id]) if chunk.id in self._ordinals else chunk
                for chunk in self.fresh
            ]
        work = self.prober.work
        for hop in set(work.rows_in) | set(work.pairs):
            report.hops[hop] = HopWork(work.rows_in[hop], 0, work.pairs[hop], work.matches[hop])
        report.node_pairs, report.costs = dict(work.node_pairs), dict(work.costs)
        return report


def merged(plan: BatchPlan, node: int, write: Writer) -> list[tuple[Chunk, tuple[str, ...]]]:
    """Do a node's merges of a batch; return each new chunk with the ids of those it replaces."""
    mine = [merge for merge in plan.merges if merge.node == node]
    return [(write.merge(merge, at), tuple(chunk.id for chunk in merge.chunks)) for at, merge in enumerate(mine)]


def finished(report: TaskReport, rows: int, files: list[str], seconds: float) -> TaskReport:
    """Return a report with what fusing added."""
    return replace(report, rows=rows, files=files, seconds=seconds)
