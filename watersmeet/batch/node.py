"""One node of a join: it registers the chunks of new tuples, probes with them, and ships or emits the results.

`Node.handle` is the join on one screen: it takes an event and yields actions, lazily and in bounded blocks, since a
probe may have millions of matches. The driver of a node decides how partial results travel: within one task, by Spark's
shuffle from stage to stage, or around a ring (`watersmeet/exchange/`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints, Mask
from watersmeet.batch.arrival_order import Arrivals, arrivals
from watersmeet.batch.finish import Finish
from watersmeet.batch.meeting_nodes import Routes
from watersmeet.batch.outer_joins import OptionalResults
from watersmeet.batch.plan import BatchPlan, Course
from watersmeet.batch.probing_tuples import ProbingTuples
from watersmeet.batch.report import IntakeReport, TaskReport, WorkReport
from watersmeet.batch.worker import Clock, Worker
from watersmeet.observe import near_misses
from watersmeet.probe.chunk_table import ChunkTable, Target
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import Partials, regroup
from watersmeet.probe.work import Work
from watersmeet.query.cases import CASE
from watersmeet.query.query import Query
from watersmeet.spilling.plan import SpillingReport
from watersmeet.spilling.tallies import Tallies
from watersmeet.state.chunks.chunk import Chunk


class Arrived(NamedTuple):
    """New tuples have been stored as chunks.

    Attributes:
        intakes: The reports of the tasks that stored them.
        probe: Whether the node probes with its share of them; if not, other tasks have done so.
    """

    intakes: Sequence[IntakeReport]
    probe: bool = True


class Partial(NamedTuple):
    """Partial results of one course have arrived from other nodes.

    Attributes:
        origin: The stream of the tuples that probe.
        course: Which of its courses they follow.
        hop: The hop that they make next, from 0.
        blocks: The partial results, read lazily.
    """

    origin: int
    course: int
    hop: int
    blocks: Iterable[Partials]


class EndOfBatch(NamedTuple):
    """No more input arrives in this batch.

    Attributes:
        name: Unique to the task attempt; part of file names. None to store no state.
        cpu: Returns the CPU seconds that the process has used.
    """

    name: str | None
    cpu: Clock


class Ship(NamedTuple):
    """Send partial results to the nodes at which they make their next hop."""

    course: int
    hop: int
    block: Partials


class Emit(NamedTuple):
    """Emit complete combinations: results, and pending ones that Spark must decide."""

    results: Partials
    pending: Partials


class StateStored(NamedTuple):
    """The node has stored its state for the batch; the report says what it did."""

    report: TaskReport


Event = Arrived | Partial | EndOfBatch
Action = Ship | Emit | StateStored


class Share(NamedTuple):
    """The share of a batch's work that one task does.

    Attributes:
        number: Which share, from 0: every `of`-th tuple that probes or closes combinations.
        of: How many shares there are.
        node: The node to probe at; None to run all hops of these tuples, wherever they meet a chunk.
    """

    number: int = 0
    of: int = 1
    node: int | None = None


class Node:
    """A node, or several nodes that share a task, during one batch.

    `Arrived` must be the first event: it prepares what all the others need.

    Args:
        plan: The batch's plan.
        worker: The process's connections and caches.
        share: The share of the work that is done here.
    """

    def __init__(self, plan: BatchPlan, worker: Worker, share: Share) -> None:
        self._plan, self._worker, self._share = plan, worker, share
        self._stored = [Target(at, chunk, plan.owed.get(chunk.unit)) for at, chunk in enumerate(plan.chunks)]
        self._fresh: list[Target] = []
        self._intakes: list[IntakeReport] = []
        self._arrivals: dict[int, Arrivals] = {}
        self._ordinals: dict[str, Ints] = {}
        self._courses: dict[int, tuple[Course, ...]] = {}
        self._routes = Routes(plan.placement)
        self.query: Query = plan.query
        self.table = ChunkTable(plan.store, plan.query, self._stored)
        self._tallies = Tallies(plan, self.table)
        self._paid_rows = 0

    def handle(self, event: Event) -> Iterator[Action]:
        """Yield the actions that follow from an event, lazily; consume them all before passing the next event."""
        match event:
            case Arrived(intakes, probe):
                self._register(intakes)
                if probe and self.query.emits_combinations:
                    for origin in self._origins:
                        for course in range(len(self.courses(origin))):
                            yield from self._probe(origin, course, 0, self._start_course(origin, course))
            case Partial(origin, course, hop, blocks):
                yield from self._probe(origin, course, hop, blocks)
            case EndOfBatch(name, cpu):
                yield from map(self._emit, self._optional.results(self._share.number, self._share.of))
                if name is not None:
                    yield from map(StateStored, self._finish(name, cpu))

    # -- register

    def _register(self, intakes: Sequence[IntakeReport]) -> None:
        """Register the chunks of new tuples, number tuples of count-windowed streams by arrival, and prepare to probe.

        If a hidden column could not be computed for some tuple, the careful query is probed with from here on.
        """
        plan = self._plan
        self._intakes += intakes
        chunks = [pair for report in intakes for pair in report.numbered]
        self._fresh += [Target(at, chunk, plan.owed.get(chunk.unit)) for at, chunk in chunks]
        self._fresh.sort(key=lambda target: (target.chunk.stream, target.chunk.low, target.chunk.id))
        targets = [*self._stored, *self._fresh]
        self.table.assign(targets)
        self._courses = {}
        self.query = plan.query.careful_query() if any_flagged(plan.query, self.table.chunks) else plan.query
        self._hops = self._worker.hops(plan, self.query, self.table, self._routes)
        self._optional = OptionalResults(plan, self.query, self._hops, self._intakes, targets)
        for stream in plan.query.counted_streams:
            self._assign_ordinals(stream)
        self._tuples = ProbingTuples(
            plan, self.query, self._hops, self.table, self._stored, self._fresh, self._arrivals
        )

    def _assign_ordinals(self, stream: int) -> None:
        """Give the new tuples of a count-windowed stream their arrival ordinals, the same in every bucketing.

        They are kept in the chunk table, and for the files that the end of the batch writes.
        """
        bucketings: dict[int, list[Target]] = defaultdict(list)
        for target in self._fresh:
            if target.chunk.stream == stream:
                bucketings[target.chunk.bucket.field].append(target)
        rows = [[self.table.rows(target) for target in targets] for targets in bucketings.values()]
        keys = [[(chunk_rows.ts, chunk_rows.hashes) for chunk_rows in bucketing] for bucketing in rows]
        self._arrivals[stream] = arrivals(stream, self._plan.intake.arrived[stream], keys[0] if keys else [])
        for targets, keys_of_chunks in zip(bucketings.values(), keys, strict=True):
            for target, ordinals in zip(targets, self._arrivals[stream].ordinals(keys_of_chunks), strict=True):
                self.table.number(target, ordinals)
                self._ordinals[target.chunk.id] = ordinals

    # -- probe

    @property
    def _origins(self) -> Sequence[int]:
        """The streams whose tuples probe; tasks start with different ones, so that they share answers of predicates."""
        streams = range(len(self.query.streams))
        first = self._share.number % len(streams)
        return (*streams[first:], *streams[:first])

    def courses(self, origin: int) -> tuple[Course, ...]:
        """Return the courses of a stream's tuples: first of new tuples, then of earlier ones that make owed probes.

        They are remembered until more chunks are registered. A table's rows have none; nor has any stream if
        combinations of all streams are not results.
        """
        if not self.query.emits_combinations or self.query.streams[origin].table:
            return ()
        if origin not in self._courses:
            plan = self._plan
            self._courses[origin] = (*plan.courses(origin, self.query), *plan.paying_courses(origin, self.query))
        return self._courses[origin]

    def probing_tuples(self, origin: int, course: int) -> Iterator[Partials]:
        """Yield blocks of all tuples of one course that probe in this batch, wherever they do."""
        return self._tuples.entering(origin, course, self.courses(origin)[course])

    def _start_course(self, origin: int, course: int) -> Iterator[Partials]:
        """Yield blocks of the tuples of one course that probe in this share."""
        steps, share = self.courses(origin)[course], self._share
        if share.node is None:
            return self._tuples.entering(origin, course, steps, share.number, share.of)
        return self._select_visitors(self._tuples.entering(origin, course, steps), steps[0], share.node)

    def _select_visitors(self, blocks: Iterator[Partials], step: Step, node: int) -> Iterator[Partials]:
        """Yield of each block the tuples that must visit a node, and count them; node 0 counts the step's input."""
        for block in blocks:
            self.work.of(step).rows_in += len(block) if node == 0 else 0
            visitors = block.take(np.flatnonzero(self.visits(block, step)[:, node]))
            self.work.of(step).shuffled += len(visitors)
            if len(visitors):
                yield visitors

    def visits(self, block: Partials, step: Step) -> Mask:
        """Return a row per partial result and a column per node: whether it must visit that node for the step."""
        low = self._plan.query.streams[step.target].window.earliest(block.high)
        if not len(block):
            return np.zeros((0, self._plan.placement.nodes), dtype=bool)
        targets = self.table.overlapping(step.target, int(low.min()), int(block.deadline.max()))
        return self._routes.visits(block, step, targets, low, self.table.hashes)

    def _probe(self, origin: int, course: int, hop: int, blocks: Iterable[Partials]) -> Iterator[Ship | Emit]:
        """Make a hop and yield its results, to be shipped; if no later hop needs travel, make those too, and emit.

        Emitted ones that were last found in a chunk of another node are counted as stray.
        """
        steps, node = self.courses(origin)[course], self._share.node
        longer = regroup(self._hop(regroup(iter(blocks)), steps[hop], node))
        if node is not None and hop + 1 < self._plan.stages:
            yield from (Ship(course, hop + 1, block) for block in longer)
            return
        for step in steps[hop + 1 :]:
            longer = regroup(self._hop(longer, step))
        for block in longer:
            if node is not None:
                self.work.stray_probes += int(np.count_nonzero(block.here != node))
            yield self._emit(block)

    def _hop(self, blocks: Iterator[Partials], step: Step, node: int | None = None) -> Iterator[Partials]:
        """Yield the longer partial results that a step makes of blocks, probing only at `node`.

        If `node` is None, it probes at all nodes, and counts the step's input.
        """
        for block in blocks:
            if node is None:
                self.work.of(step).rows_in += len(block)
            yield from self._hops.hop(block, step, node)

    # -- emit

    def _emit(self, block: Partials) -> Emit:
        """Separate results from combinations that Spark must decide; count results, and credit them to their groups."""
        if not self.query.deferred_conjuncts:
            results, pending = block, block.slice(0, 0)
        else:
            later = np.ones(len(block), bool) if CASE in block.tags else self._hops.pending(block)
            results, pending = block.take(np.flatnonzero(~later)), block.take(np.flatnonzero(later))
        self._paid_rows += int(np.count_nonzero(results.batch < self._plan.batch))
        self._tallies.note(results)
        return Emit(results, pending)

    def answers(self, block: Partials) -> dict[str, pa.Array]:
        """Return the answers of Python predicates that Spark needs for its decision, by the calls' names."""
        return self._hops.answers(block)

    def traces(self, block: Partials) -> pa.Array:
        """Return for each result the groups that it came from, those of inner joins included."""
        return self._tallies.traces(block)

    # -- report

    @property
    def work(self) -> Work:
        """The counters of the work done so far; callers add to them."""
        return self._hops.work

    def report(self, node: int) -> TaskReport:
        """Return a report, in one node's name, of all work that this share has done so far."""
        work, plan = self.work, self._plan
        missed = near_misses.render_samples(self.query, self.table, self._hops.near_misses.hops, plan.observing.samples)
        return TaskReport(
            node,
            WorkReport(dict(work.hops), dict(work.node_pairs), dict(work.costs), work.stray_probes, missed),
            spilling=SpillingReport(
                work.paid,
                self._paid_rows,
                self._tallies.groups(work.chunk_pairs) if plan.spilling.counts_groups else {},
                dict(self._tallies.credits),
            ),
        )

    def _finish(self, name: str, cpu: Clock) -> Iterator[TaskReport]:
        """Merge and purge the state of this share's nodes, and yield their reports; the first contains all the work.

        Node 0 also updates the state of all constraints, and reports it with the new chunks. If there are more shares
        than nodes, those beyond have no state, and report their work under some node's number.
        """
        plan, share = self._plan, self._share
        if share.number >= plan.placement.nodes:
            yield self.report(share.number % plan.placement.nodes)
            return
        finish = Finish(plan, self._worker.duck(plan.query.dialect), name, cpu)
        for node in range(share.number, plan.placement.nodes, share.of):
            report = self.report(node) if node == share.number else TaskReport(node)
            report.state = finish.store(node)
            if node == 0:
                report.intakes = self._intakes
                report.state.fresh = finish.fresh((target.chunk for target in self._fresh), self._ordinals)
                report.metadata = finish.mark([intake.marks for intake in self._intakes])
                report.spilling.crossings = self._tallies.crossings(self._fresh)
            yield report


def any_flagged(query: Query, chunks: Iterable[Chunk]) -> bool:
    """Tell whether computing a hidden column raised for some tuple of these chunks."""
    flags = {(flag.stream, flag.name) for flag in query.flags}
    zones = (chunk.zones.get(name) for chunk in (chunks if flags else ()) for at, name in flags if at == chunk.stream)
    return any(zone is not None and zone.high > 0 for zone in zones)
