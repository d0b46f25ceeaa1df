"""One node of a join: it stores the tuples that arrive, probes with them, and ships or emits what they become.

`Node.handle` is the join on one screen: it takes an event and yields actions, lazily and in bounded blocks, since a
probe may have millions of matches. Whoever drives it decides how partial results travel: within one task, or by
Spark's shuffle from stage to stage (`watersmeet/exchange/`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints, Mask
from watersmeet.batch.arrival_order import Arrivals, arrivals
from watersmeet.batch.finish import Finish
from watersmeet.batch.intake import IntakeReport
from watersmeet.batch.meeting_nodes import Routes
from watersmeet.batch.optional_results import OptionalResults
from watersmeet.batch.plan import BatchPlan, Course
from watersmeet.batch.probing_tuples import ProbingTuples
from watersmeet.batch.report import TaskReport, WorkReport
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
        probe: Whether the node probes with its part of them now; if not, others have done so.
    """

    intakes: Sequence[IntakeReport]
    probe: bool = True


class Partial(NamedTuple):
    """Partial results of one course have come from other nodes.

    Attributes:
        origin: The stream of the tuples that probe.
        course: Which of its courses they follow.
        hop: The hop that they are about to make, from 0.
        blocks: They themselves, read as the node takes them.
    """

    origin: int
    course: int
    hop: int
    blocks: Iterable[Partials]


class EndOfBatch(NamedTuple):
    """Nothing more arrives in this batch.

    Attributes:
        name: Unique to the task attempt; part of the names of files. None if no state is to be stored.
        cpu: Returns the CPU seconds that the process has used.
    """

    name: str | None
    cpu: Clock


class Ship(NamedTuple):
    """Partial results go on to the nodes at which they make a hop."""

    course: int
    hop: int
    block: Partials


class Emit(NamedTuple):
    """Combinations are complete: these are results, and of the others Spark has to decide that."""

    results: Partials
    pending: Partials


class Stored(NamedTuple):
    """A node has stored its state for the batch; the report says what it did."""

    report: TaskReport


Event = Arrived | Partial | EndOfBatch
Action = Ship | Emit | Stored


class Share(NamedTuple):
    """Which part of a batch's work is done here.

    Attributes:
        number: Which share, from 0: one in `of` of the tuples that probe, or of those that close combinations.
        of: How many shares there are.
        node: Where to probe; None to run all hops of these tuples, at whatever node they meet a chunk.
    """

    number: int = 0
    of: int = 1
    node: int | None = None


class Node:
    """A node, or some nodes that share a task, during a batch.

    Args:
        plan: The batch's plan.
        worker: The process's connections and caches.
        share: Which part of the work is done here.
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
        """Yield what follows from an event; the caller consumes it before it hands over the next event."""
        match event:
            case Arrived(intakes, probe):
                self._store(intakes)
                if probe and self.query.emits_combinations:
                    for origin in self._origins:
                        for course in range(len(self.courses(origin))):
                            yield from self._probe(origin, course, 0, self._entering(origin, course))
            case Partial(origin, course, hop, blocks):
                yield from self._probe(origin, course, hop, blocks)
            case EndOfBatch(name, cpu):
                yield from map(self._emit, self._optional.results(self._share.number, self._share.of))
                if name is not None:
                    yield from map(Stored, self._finish(name, cpu))

    # -- store

    def _store(self, intakes: Sequence[IntakeReport]) -> None:
        """Take in the chunks of new tuples, and number those of count-windowed streams by arrival."""
        plan = self._plan
        self._intakes += intakes
        numbered = [pair for report in intakes for pair in report.numbered]
        self._fresh += [Target(number, chunk, plan.owed.get(chunk.unit)) for number, chunk in numbered]
        self._fresh.sort(key=lambda target: (target.chunk.stream, target.chunk.low, target.chunk.id))
        targets = [*self._stored, *self._fresh]
        self.table.assign(targets)
        self._courses = {}
        self.query = plan.query.careful_query() if any_flagged(plan.query, self.table.chunks) else plan.query
        self._hops = self._worker.hops(plan, self.query, self.table, self._routes)
        self._optional = OptionalResults(plan, self.query, self._hops, self._intakes, targets)
        for stream in plan.query.counted_streams:
            self._number(stream)
        self._tuples = ProbingTuples(
            plan, self.query, self._hops, self.table, self._stored, self._fresh, self._arrivals
        )

    def _number(self, stream: int) -> None:
        """Give the fresh tuples of a count-windowed stream their arrival ordinals, the same in every bucketing."""
        bucketings: dict[int, list[Target]] = defaultdict(list)
        for target in self._fresh:
            if target.chunk.stream == stream:
                bucketings[target.chunk.bucket.field].append(target)
        chunks = [[self.table.rows(target) for target in targets] for targets in bucketings.values()]
        keys = [[(rows.ts, rows.hashes) for rows in bucketing] for bucketing in chunks]
        self._arrivals[stream] = arrivals(stream, self._plan.intake.arrived[stream], keys[0] if keys else [])
        for targets, own in zip(bucketings.values(), keys, strict=True):
            for target, ordinals in zip(targets, self._arrivals[stream].ordinals(own), strict=True):
                self.table.number(target, ordinals)
                self._ordinals[target.chunk.id] = ordinals

    # -- probe

    @property
    def _origins(self) -> Sequence[int]:
        """The streams whose tuples probe; tasks begin with different ones, so that they share answers of predicates."""
        streams = range(len(self.query.streams))
        first = self._share.number % len(streams)
        return (*streams[first:], *streams[:first])

    def courses(self, origin: int) -> tuple[Course, ...]:
        """Return the courses of a stream's tuples: those of new ones, then those of earlier ones that pay.

        There are none where combinations of all streams are no results, and none of a table's rows.
        """
        if not self.query.emits_combinations or self.query.streams[origin].table:
            return ()
        if origin not in self._courses:
            plan = self._plan
            self._courses[origin] = (*plan.courses(origin, self.query), *plan.payments(origin, self.query))
        return self._courses[origin]

    def probing_tuples(self, origin: int, course: int) -> Iterator[Partials]:
        """Yield all tuples of one course that probe in this batch, wherever they do."""
        return self._tuples.entering(origin, course, self.courses(origin)[course])

    def _entering(self, origin: int, course: int) -> Iterator[Partials]:
        """Yield the tuples of one course that probe here."""
        steps, share = self.courses(origin)[course], self._share
        if share.node is None:
            return self._tuples.entering(origin, course, steps, share.number, share.of)
        return self._visiting(self._tuples.entering(origin, course, steps), steps[0], share.node)

    def _visiting(self, blocks: Iterator[Partials], step: Step, node: int) -> Iterator[Partials]:
        """Yield the tuples that must visit a node for a step; node 0 counts them all."""
        for block in blocks:
            self.work.of(step).rows_in += len(block) if node == 0 else 0
            visitors = block.take(np.flatnonzero(self.visits(block, step)[:, node]))
            self.work.of(step).shuffled += len(visitors)
            if len(visitors):
                yield visitors

    def visits(self, block: Partials, step: Step) -> Mask:
        """Return a row per partial result and a column per node: whether the step must be made there."""
        low = self._plan.query.streams[step.target].window.earliest(block.high)
        if not len(block):
            return np.zeros((0, self._plan.placement.nodes), dtype=bool)
        targets = self.table.overlapping(step.target, int(low.min()), int(block.deadline.max()))
        return self._routes.visits(block, step, targets, low, self.table.hashes)

    def _probe(self, origin: int, course: int, hop: int, blocks: Iterable[Partials]) -> Iterator[Ship | Emit]:
        """Make a hop here, and all later ones from which on partial results need not travel."""
        steps, node = self.courses(origin)[course], self._share.node
        longer = regroup(self._hop(regroup(iter(blocks)), steps[hop], node))
        if node is not None and hop + 1 < self._plan.stages:
            yield from (Ship(course, hop + 1, block) for block in longer)
            return
        for step in steps[hop + 1 :]:
            longer = regroup(self._hop(longer, step))
        for block in longer:
            if node is not None:
                self.work.strays += int(np.count_nonzero(block.here != node))
            yield self._emit(block)

    def _hop(self, blocks: Iterator[Partials], step: Step, node: int | None = None) -> Iterator[Partials]:
        """Yield what partial results become by a step, probing at one node, or at all."""
        for block in blocks:
            if node is None:
                self.work.of(step).rows_in += len(block)
            yield from self._hops.hop(block, step, node)

    # -- emit

    def _emit(self, block: Partials) -> Emit:
        """Tell results from combinations that Spark has to decide, and count results for their groups."""
        if not self.query.deferred_conjuncts:
            results, pending = block, block.slice(0, 0)
        else:
            later = np.ones(len(block), bool) if CASE in block.tags else self._hops.pending(block)
            results, pending = block.take(np.flatnonzero(~later)), block.take(np.flatnonzero(later))
        self._paid_rows += int(np.count_nonzero(results.batch < self._plan.batch))
        self._tallies.note(results)
        return Emit(results, pending)

    def answers(self, block: Partials) -> dict[str, pa.Array]:
        """Return what Python predicates answer that Spark needs to decide."""
        return self._hops.answers(block)

    def traces(self, block: Partials) -> pa.Array:
        """Return for each result the groups that it came from, those of inner joins included."""
        return self._tallies.traces(block)

    # -- report

    @property
    def work(self) -> Work:
        """What was done so far, to be added to."""
        return self._hops.work

    def report(self, node: int) -> TaskReport:
        """Return the work done so far, as that of a node."""
        work, plan = self.work, self._plan
        missed = near_misses.render_samples(self.query, self.table, self._hops.near_misses.hops, plan.observing.samples)
        return TaskReport(
            node,
            WorkReport(dict(work.hops), dict(work.node_pairs), dict(work.costs), work.strays, missed),
            spilling=SpillingReport(
                work.paid,
                self._paid_rows,
                self._tallies.groups(work.chunk_pairs) if plan.spilling.counts_groups else {},
                dict(self._tallies.credits),
            ),
        )

    def _finish(self, name: str, cpu: Clock) -> Iterator[TaskReport]:
        """Merge and purge the nodes of this share, and yield their reports: the first has all the work.

        Shares may be more than nodes: then some only report.
        """
        plan, share = self._plan, self._share
        nodes = range(share.number, plan.placement.nodes, share.of)
        finish = Finish(plan, self._worker.duck(plan.query.dialect), name, cpu)
        for at, node in enumerate(nodes or [share.number % plan.placement.nodes]):
            report = TaskReport(node) if at else self.report(node)
            if nodes:
                report.state = finish.store(node)
            if nodes and node == 0:
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
