"""The part of a batch that one task does: hops over the chunks of earlier batches and of this one."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.batch.arrival_order import Arrivals, arrivals, as_of_all
from watersmeet.batch.intake import IntakeReport, writer
from watersmeet.batch.meeting_nodes import Routes
from watersmeet.batch.optional_results import Outer
from watersmeet.batch.plan import BatchPlan, Course
from watersmeet.batch.report import TaskReport
from watersmeet.metadata import mark_files as tables
from watersmeet.metadata.dead_rows import newly_dead
from watersmeet.metadata.marking import Marking
from watersmeet.metadata.superseded import superseded
from watersmeet.observe.near_misses import render_samples
from watersmeet.predicate.model import Dialect
from watersmeet.probe.answer_cache import AnswerCache
from watersmeet.probe.chunk_table import ChunkTable, Target
from watersmeet.probe.entrants import entrants
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.hop import Hops
from watersmeet.probe.hop_steps import Step, entry_conjuncts
from watersmeet.probe.partials import Partials, regroup
from watersmeet.query.cases import CASE
from watersmeet.query.query import Query
from watersmeet.spilling.owed_tuples import Owing
from watersmeet.spilling.tallies import Tallies
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store import deletion_vectors as deleted
from watersmeet.state.store.address_space import save_space

Clock = Callable[[], float]
"""Returns seconds."""


class Worker:
    """What a worker process keeps between tasks: its DuckDB connections and the answers of Python predicates.

    Args:
        clock: Returns seconds.
        folder: Where it shares these answers with other processes, and DuckDB puts what it has no memory for; None if
            neither is to be there.
    """

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        save_space()
        self._clock = clock
        self._folder = folder
        self._cache = AnswerCache(None if folder is None else folder / "answers")
        self._ducks: dict[Dialect, Duck] = {}

    def hops(self, plan: BatchPlan, query: Query, table: ChunkTable, routes: Routes) -> Hops:
        """Return what runs the hops of a task over some chunks; about others nothing need be remembered."""
        chunks = table.chunks
        self._cache.keep(plan.run, {chunk.id for chunk in chunks})
        plan.store.keep(plan.run, (chunk for chunk in chunks if plan.is_read(chunk)))
        tables.forget_missing()
        deleted.forget_missing()
        duck = self.duck(query.dialect)
        return Hops(query, table, duck, self._cache, self._clock, routes, plan.run, plan.near_misses)

    def duck(self, dialect: Dialect) -> Duck:
        """Return the connection for a session's settings."""
        if dialect not in self._ducks:
            folder = None if self._folder is None else self._folder / f"duckdb-{os.getpid()}-{len(self._ducks)}"
            self._ducks[dialect] = Duck(dialect, folder)
        return self._ducks[dialect]


class JoinTask:
    """One task's share of a batch's hops.

    Args:
        plan: The batch's plan.
        intakes: What the intake tasks wrote.
        worker: The process's connections.
    """

    def __init__(self, plan: BatchPlan, intakes: Sequence[IntakeReport], worker: Worker) -> None:
        self._plan, self._intakes, self._worker = plan, intakes, worker
        old = [Target(at, chunk, plan.owed.get(chunk.unit)) for at, chunk in enumerate(plan.chunks)]
        numbered = [found for report in intakes for found in report.numbered]
        self._fresh = [Target(number, chunk, plan.owed.get(chunk.unit)) for number, chunk in numbered]
        self._fresh.sort(key=lambda target: (target.chunk.stream, target.chunk.low, target.chunk.id))
        self._routes = Routes(plan.placement)
        self.table = ChunkTable(plan.store, plan.query, [*old, *self._fresh])
        raised = computing_raised(plan.query, [*plan.chunks, *(target.chunk for target in self._fresh)])
        self.query = plan.query.wary() if raised else plan.query
        self._hops = worker.hops(plan, self.query, self.table, self._routes)
        self.work = self._hops.work
        self._tracked = self._routes.tracked
        self._owing = Owing(plan, self.table, old)
        self._outer = Outer(plan, self.query, self._hops, intakes, [*old, *self._fresh])
        self._courses: dict[int, tuple[Course, ...]] = {}
        self._tallies = Tallies(plan, self.table)
        self._paid_rows = 0
        self._arrivals: dict[int, Arrivals] = {}
        self._ordinals: dict[str, Ints] = {}
        for stream in plan.query.counted:
            self._number(stream)

    def courses(self, origin: int) -> tuple[Course, ...]:
        """Return the courses of a stream's tuples: those of new ones, then those of earlier ones that pay.

        There are none where combinations of all streams are no results, and none of a table's rows.
        """
        if not self.query.paired or self.query.streams[origin].table:
            return ()
        if origin not in self._courses:
            plan = self._plan
            self._courses[origin] = (*plan.courses(origin, self.query), *plan.payments(origin, self.query))
        return self._courses[origin]

    def _number(self, stream: int) -> None:
        """Give the fresh tuples of a count-windowed stream their arrival ordinals, the same in every bucketing."""
        bucketings: dict[int, list[Target]] = defaultdict(list)
        for target in self._fresh:
            if target.chunk.stream == stream:
                bucketings[target.chunk.bucket.field].append(target)
        opened = [[self.table.rows(target) for target in targets] for targets in bucketings.values()]
        keys = [[(rows.ts, rows.hashes) for rows in found] for found in opened]
        self._arrivals[stream] = arrivals(stream, self._plan.arrived[stream], keys[0] if keys else [])
        for targets, mine in zip(bucketings.values(), keys, strict=True):
            for target, ordinals in zip(targets, self._arrivals[stream].ordinals(mine), strict=True):
                self.table.number(target, ordinals)
                self._ordinals[target.chunk.id] = ordinals

    def results(self, share: int, shares: int) -> Iterator[Partials]:
        """Yield the results whose last-arrived member is in this task's share of the tuples that probe.

        The share is one in `shares` of each chunk's rows: later ones have more to look at. Rows stand in canonical
        order, so that a task that runs again, over chunks written again, takes the same tuples. Tasks begin with
        different streams: what one asks of a Python predicate, another finds answered when it comes there.
        """
        streams = range(len(self._plan.query.streams))
        for origin in (*streams[share % len(streams) :], *streams[: share % len(streams)]):
            for course, steps in enumerate(self.courses(origin)):
                yield from self.hops(regroup(self.entering(origin, course, share, shares)), steps)
        yield from self.outer(share, shares)

    def outer(self, share: int, shares: int) -> Iterator[Partials]:
        """Yield this task's share of the results that follow from what optional streams have, or lack."""
        return self._outer.results(share, shares)

    def entering(self, origin: int, course: int, share: int = 0, shares: int = 1) -> Iterator[Partials]:
        """Yield the tuples of a stream and course that pass the conjuncts over their own stream alone."""
        conjuncts, pays = entry_conjuncts(self.query, origin), self.courses(origin)[course][0].role.old
        for block in self._owed(origin, share, shares) if pays else self._new(origin, share, shares):
            block = self._hops.enter(block, conjuncts)
            block = block if pays else self._on_course(block, course)
            if len(block):
                yield block

    def _new(self, origin: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield a share of a stream's new tuples."""
        for target in self._fresh:
            if target.chunk.stream == origin and target.chunk.bucket.first:
                rows = np.arange(share, target.chunk.rows, shares)
                ts = self.table.rows(target).ts[rows]
                asof = as_of_all(self._arrivals, origin, ts)
                batch = np.full(len(ts), self._plan.batch)
                yield entrants(self.query, target, rows, ts, batch, asof, self._tracked)

    def _owed(self, origin: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield a share of a stream's earlier tuples that pay now."""
        for target, rows, batch in self._owing.tuples(origin):
            rows, batch = rows[share::shares], batch[share::shares]
            ts = self.table.rows(target).ts[rows]
            yield entrants(self.query, target, rows, ts, batch, self._owing.as_of(origin, ts, batch), self._tracked)

    def _on_course(self, block: Partials, course: int) -> Partials:
        order = self._plan.order
        columns = order.reads(block.origin)
        if not columns or not len(block):
            return block
        courses = order.courses(block.origin, {c: block.column(c, self.table.gather) for c in columns})
        return block.take(np.flatnonzero(courses == course))

    def hops(self, blocks: Iterator[Partials], steps: Sequence[Step], node: int | None = None) -> Iterator[Partials]:
        """Yield what partial results become by some steps, probing at one node, or None for at all of them."""
        for step in steps:
            blocks = regroup(self._hop(blocks, step, node))
        return blocks

    def _hop(self, blocks: Iterator[Partials], step: Step, node: int | None) -> Iterator[Partials]:
        for block in blocks:
            if node is None:
                self.work.of(step).rows_in += len(block)
            yield from self._hops.hop(block, step, node)

    def visits(self, block: Partials, step: Step) -> NDArray[np.bool_]:
        """Return a row per partial result and a column per node: whether it must be visited for the step."""
        low = self._plan.query.streams[step.target].window.earliest(block.high)
        if not len(block):
            return np.zeros((0, self._plan.placement.nodes), dtype=bool)
        targets = self.table.overlapping(step.target, int(low.min()), int(block.deadline.max()))
        return self._routes.visits(block, step, targets, low, self.table.hashes)

    def visiting(self, blocks: Iterator[Partials], step: Step, node: int) -> Iterator[Partials]:
        """Yield the new tuples that must visit a node for the step; node 0 counts them all."""
        for block in blocks:
            self.work.of(step).rows_in += len(block) if node == 0 else 0
            mine = block.take(np.flatnonzero(self.visits(block, step)[:, node]))
            self.work.of(step).shuffled += len(mine)
            if len(mine):
                yield mine

    def divided(self, block: Partials) -> tuple[Partials, Partials]:
        """Return the results of a block, and the combinations that Spark has to decide."""
        if not self.query.deferred:
            return block, block.slice(0, 0)
        later = np.ones(len(block), bool) if CASE in block.noted else self._hops.undecided(block)
        return block.take(np.flatnonzero(~later)), block.take(np.flatnonzero(later))

    def answers(self, block: Partials) -> dict[str, pa.Array]:
        """Return what Python predicates answer that Spark needs to decide."""
        return self._hops.answers(block)

    def report(self, node: int) -> TaskReport:
        """Return what the task did so far, as that of a node."""
        work = self._hops.work
        report = TaskReport(node, dict(work.hops), dict(work.node_pairs), dict(work.costs), work.strays, work.paid)
        report.groups = self._tallies.groups(work.chunk_pairs) if self._plan.tallies else {}
        report.missed = render_samples(self.query, self.table, self._hops.missed.hops, self._plan.samples)
        report.credits, report.paid_rows = dict(self._tallies.credits), self._paid_rows
        return report

    def tally(self, results: Partials) -> None:
        """Note how many results had been owed, which groups their members are in, and what they came from within."""
        self._paid_rows += int(np.count_nonzero(results.batch < self._plan.batch))
        self._tallies.note(results)

    def traces(self, block: Partials) -> pa.Array:
        """Return for each result all groups that it came from, those of inner joins included."""
        return self._tallies.traces(block)

    def reports(self, share: int, shares: int, name: str, cpu: Clock) -> list[TaskReport]:
        """Do the merges of the nodes that fall to one of several tasks, and return their reports; the first says all.

        Args:
            share: Which task.
            shares: How many there are; more than nodes, or fewer.
            name: Unique to the task attempt.
            cpu: Returns the CPU seconds that the process has used.
        """
        nodes = self._plan.placement.nodes
        mine = range(share, nodes, shares)
        found = [self.report(share % nodes), *(TaskReport(node) for node in mine[1:])]
        for report in found if mine else ():
            self.keep(report, f"{name}n{report.node}", cpu)
        return found

    def keep(self, report: TaskReport, name: str, cpu: Clock) -> None:
        """Do a node's merges and purge its chunks; as node 0, also say what the batch wrote.

        Args:
            report: The node's report, to be added to.
            name: Unique to the task attempt.
            cpu: Returns the CPU seconds that the process has used.
        """
        write, dead = writer(self._plan, name), self._dead(report, cpu) if self._plan.purge else {}
        mine = [merge for merge in self._plan.merges if merge.node == report.node]
        made = [(write.merge(merge, at, dead), merge.chunks) for at, merge in enumerate(mine)]
        report.merged = [(chunk, tuple(old.id for old in parts)) for chunk, parts in made if chunk is not None]
        if dead:
            self._bury(report, dead, name, cpu)
        if report.node == 0:
            report.intakes = list(self._intakes)
            report.crossings = self._tallies.crossings(self._fresh)
            fresh = [target.chunk for target in self._fresh]
            numbers = self._ordinals
            report.chunks = [write.write_ordinals(c, numbers[c.id]) if c.id in numbers else c for c in fresh]
            if self._plan.query.promised and (self._plan.final or not self._plan.round):
                marking = Marking(self._plan, name, self._worker.duck(self._plan.query.dialect))
                report.promises = marking.marked([intake.heard for intake in self._intakes])
                report.sides, report.told, report.samples = marking.sides, marking.counts, marking.samples
                report.handed = marking.handed

    def _dead(self, report: TaskReport, cpu: Clock) -> dict[str, Ints]:
        """Return the rows of a node's chunks that are dead from now on, by the chunks' ids."""
        plan, duck, began = self._plan, self._worker.duck(self._plan.query.dialect), cpu()
        mine = [chunk for chunk in plan.chunks if chunk.owners[0] == report.node]
        if plan.query.optional:
            dead = superseded(plan.query, plan.store, plan.chunks, mine, plan.settled)
        else:
            dead = newly_dead(plan.query, plan.store, plan.chunks, mine, plan.closed(), duck)
        report.purging += cpu() - began
        return dead

    def _bury(self, report: TaskReport, dead: Mapping[str, Ints], name: str, cpu: Clock) -> None:
        """Write down which rows are dead, but of chunks that were merged: these were left out there."""
        began, store, unique = cpu(), self._plan.store, f"{self._plan.name}-{name}"
        replaced = {key for _, parts in report.merged for key in parts}
        rest = [chunk for chunk in self._plan.chunks if chunk.id in dead and chunk.id not in replaced]
        report.purged = deleted.with_dead(store, rest, unique, dead)
        report.purging += cpu() - began


def computing_raised(query: Query, chunks: Iterable[Chunk]) -> bool:
    """Tell whether computing a hidden column raised for some tuple that is in a chunk."""
    flags = {(flag.stream, flag.name) for flag in query.flags}
    zones = (chunk.zones.get(name) for chunk in (chunks if flags else ()) for at, name in flags if at == chunk.stream)
    return any(zone is not None and zone.high > 0 for zone in zones)
