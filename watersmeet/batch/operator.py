"""A join at work: before a batch it plans, and after it commits: the reports of tasks become the next state. Pure.

Spark's streaming joins, `advise` and the tests drive it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from watersmeet.batch.closed_combinations import closing_mark
from watersmeet.batch.intake import IntakeReport, StreamIntake, total
from watersmeet.batch.measurements import hop_work, measured, usage
from watersmeet.batch.plan import (
    GIVEN,
    UNKNOWN,
    BatchPlan,
    EventTimes,
    Host,
    IntakePlan,
    Kind,
    ObservingPlan,
    believed,
    group_slice,
    start,
    view,
)
from watersmeet.batch.report import TaskReport
from watersmeet.batch.watermark import advanced, inner_marks, join_settled, join_watermark, stream_marks
from watersmeet.errors import StateError
from watersmeet.limits import limits
from watersmeet.metadata.as_of_expiry import superseding_columns
from watersmeet.metadata.closing import ClosingRules
from watersmeet.metadata.expiry import ExpiryRule, Moment, TableRefreshExpiry, WindowExpiry, find_expired
from watersmeet.metadata.plan import MarkLifetime, MetadataPlan
from watersmeet.observe.progress import batch_progress, changed_decisions
from watersmeet.observe.warnings import notices
from watersmeet.ordering import Ordering
from watersmeet.placement import Strategy
from watersmeet.query.query import Query
from watersmeet.spilling.paying_tuples import unit_reaches
from watersmeet.spilling.plan import SpillingPlan
from watersmeet.spilling.units import Group, Ledger, OwingBatch, Tally, group_of
from watersmeet.state.chunks.chunk import HOT, Chunk
from watersmeet.state.chunks.merging import choose_merges
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.view import StateView, StoredNotes
from watersmeet.state.store.store import Store


@dataclass(frozen=True)
class Operator:
    """A join, and how it runs.

    Attributes:
        query: The join.
        strategy: Where tuples are kept.
        store: Where state and results are kept.
        run: Unique to this start of the query; part of every file name.
        ordering: What chooses the join orders.
        host: Where it runs.
        sides: Whether late and rejected rows are written.
        samples: The columns that samples of late and rejected rows show; None for all.
        near_misses: How many near-misses are shown of each conjunct and hop; none where there are no samples.
        rules: What may leave the state.
        purge_every: After how many batches that brought something dead tuples are looked for again.
        remember: For how many microseconds of the watermark marks are remembered; None for ever.
        exempt: The streams whose rows are never late: joins that may owe results.
        tallies: Whether tasks tell what each group of chunks is worth.
        partitions: Into how many partitions the state is cut where one attribute ties all streams.
    """

    query: Query
    strategy: Strategy
    store: Store
    run: str
    ordering: Ordering = GIVEN
    host: Host = UNKNOWN
    sides: bool = False
    samples: frozenset[str] | None = None
    near_misses: int = 0
    rules: tuple[ExpiryRule, ...] = (WindowExpiry(), TableRefreshExpiry())
    purge_every: int = 1
    remember: int | None = None
    exempt: frozenset[int] = frozenset()
    tallies: bool = False
    partitions: int = 1

    @cached_property
    def _endless(self) -> frozenset[int]:
        """The streams whose tuples no window ends."""
        return frozenset(
            at
            for at, stream in enumerate(self.query.streams)
            if stream.window.span is None and stream.window.rows is None
        )

    @cached_property
    def _purgeable(self) -> bool:
        """Whether metadata may show some tuple to be dead, or a newer one may supersede it.

        [!] No metadata where streams are optional: what can have no more partners may be a result for that very reason.
        """
        if self.query.optional:
            return bool(superseding_columns(self.query))
        closings = ClosingRules(self.query)
        return any(map(closings.can_have_dead_rows, range(len(self.query.streams))))

    @cached_property
    def _never_late(self) -> frozenset[int]:
        """The streams whose rows are never late: joins that may owe results, and tables."""
        return self.exempt | {at for at, stream in enumerate(self.query.streams) if stream.table}

    def start(self) -> Manifest:
        """Return the state before the first batch."""
        return start(self.query)

    def view(self, state: Manifest) -> StateView:
        """Return what the strategy may know of the state."""
        return view(self.query, state, self.host, self.partitions)

    def plan(self, before: Manifest, now: int | None = None, kind: Kind = "rows") -> BatchPlan:
        """Plan the batch after a state.

        Args:
            before: The state.
            now: The driver's clock, in microseconds; None for a batch in which every event time is believed.
            kind: What the batch is for.
        """
        state = self.view(before)
        layout, live = self.strategy.plan(state), before.chunks.values()
        chunks = layout.assign_owners(live)
        owes = before.ledger.owes(unit_reaches(self.query, live))
        merges = () if kind == "final" else choose_merges(chunks, before.batch + 1, before.settled, self._endless)
        purge = self._purgeable and before.unpurged >= self.purge_every and kind == "rows" and not owes
        return BatchPlan(
            batch=before.batch + 1,
            run=self.run,
            query=self.query,
            store=self.store,
            layout=layout,
            order=self.ordering.plan(self.query, chunks, before.learned.ordering.read_by(self.ordering)),
            kind=kind,
            chunks=chunks,
            merges=tuple(merges),
            times=EventTimes(
                before.watermark,
                before.settled,
                tuple(stream.latest for stream in before.streams),
                inner_marks(self.query, before.inner),
            ),
            intake=IntakePlan(
                tuple(stream.arrived for stream in before.streams),
                () if now is None else believed(self.query, before, now),
                self._never_late,
                self.sides,
            ),
            metadata=MetadataPlan(
                before.constraints, MarkLifetime(self.remember, before.watermark, purge or not self._purgeable), purge
            ),
            spilling=SpillingPlan(before.ledger, owes, group_slice(state), self.tallies),
            observing=ObservingPlan(self.samples, 0 if self.samples == frozenset() else self.near_misses),
            seconds=sum(used.cpu for used in state.usage) + _paying_seconds(before),
        )

    def commit(
        self,
        before: Manifest,
        plan: BatchPlan,
        tasks: Sequence[TaskReport],
        now: int,
        inner: Mapping[int, Manifest] | None = None,
        took: float | None = None,
    ) -> Manifest:
        """Return the state after a batch.

        Args:
            before: The state before it.
            plan: Its plan.
            tasks: What the tasks reported, at least one for each node.
            now: The driver's clock, in microseconds; only idle streams and warnings depend on it.
            inner: The new state of the joins that are streams of this one, by position.
            took: How long the batch's job took, in seconds, if that is known.

        Raises:
            StateError: If a node's report is missing: a batch without it is not done.
        """
        missing = set(range(plan.placement.nodes)) - {task.node for task in tasks}
        if missing:
            raise StateError(f"Batch {plan.batch}: no report from nodes {sorted(missing)}; the batch was not written.")
        done = _Batch(before, plan, tasks, now, inner or {}, took)
        after = self._advance(done)
        after, purged = self._retain(done, after)
        after = self._account(done, after)
        return self._learn(done, after, purged)

    def _advance(self, done: "_Batch") -> Manifest:
        """Step 1: move event time on."""
        before, plan = done.before, done.plan
        named = zip(self.query.streams, before.streams, done.taken, strict=True)
        streams = tuple(advanced(spec, old, new, None if plan.is_round else done.now) for spec, old, new in named)
        marks = inner_marks(self.query, done.inner)
        watermark = before.watermark if plan.is_round else join_watermark(before.watermark, self.query, streams, marks)
        after = before.follow(streams=streams, watermark=watermark, chunks=before.chunks, inner=done.inner)
        return replace(after, final=before.final or plan.is_final)

    def _retain(self, done: "_Batch", after: Manifest) -> tuple[Manifest, int]:
        """Step 2: keep the batch's chunks and what is owed, and let go what no result needs; return how many rows."""
        before, plan, tasks = done.before, done.plan, done.tasks
        chunks, ledger = _pay(plan, _merge(plan, tasks), done.fresh, done.now)
        reached = unit_reaches(self.query, chunks.values())
        settled = join_settled(before.settled, ledger.settled(after.watermark, reached), self.query, done.inner)
        if self.query.optional:
            settled = closing_mark(plan, done.intakes)
        arrived = ledger.arrived() or tuple(stream.arrived for stream in after.streams)
        gone = (
            frozenset(chunks)
            if plan.is_final
            else find_expired(self.rules, chunks, Moment(self.query, arrived, settled))
        )
        live = {key: chunk for key, chunk in chunks.items() if key not in gone and chunk.live}
        purged = _newly_dead(plan, tasks) + sum(
            chunks[key].live for key in gone if not self.query.streams[chunks[key].stream].refreshed
        )
        ledger = ledger.with_live_units(live.values())
        if self.tallies:
            ledger = ledger.with_closed({closed for intake in done.intakes for closed in intake.closed}, reached)
        return replace(after, chunks=live, ledger=ledger, settled=settled), purged

    def _account(self, done: "_Batch", after: Manifest) -> Manifest:
        """Step 3: bring constraints up to date, and what is known of groups of chunks."""
        before, plan, tasks, ledger = done.before, done.plan, done.tasks, after.ledger
        if self.tallies:
            groups = {group_of(chunk, plan.spilling.slice) for chunk in after.chunks.values()}
            ledger = ledger.with_worth(
                [_new_tuples(plan, done.fresh), *(task.spilling.groups for task in tasks)], groups
            )
        constraints = next(
            (task.metadata.constraints for task in tasks if task.metadata.constraints), before.constraints
        )
        news = any(stream.rows for stream in done.taken) or any(task.metadata.counts.get("inherited") for task in tasks)
        return replace(
            after,
            unpurged=(0 if plan.metadata.purge else before.unpurged) + news,
            constraints=() if plan.is_final else constraints,
            ledger=ledger,
        )

    def _learn(self, done: "_Batch", after: Manifest, purged: int) -> Manifest:
        """Step 4: record what the batch did, and what that teaches the next."""
        before, plan, tasks, learned = done.before, done.plan, done.tasks, done.before.learned
        used, state = usage(plan, after.chunks.values(), tasks), self.view(after)
        shown = batch_progress(before, after, plan, done.intakes, done.taken, tasks, purged, used)
        shown["placement"] = plan.layout.facts(state)
        shown["changes"] = changed_decisions(before.progress, shown)
        marks = stream_marks(self.query, after.streams, inner_marks(self.query, done.inner))
        passed = 0 if learned.clock is None else done.now - learned.clock
        warnings = notices(self.query, before, after, marks, done.taken, passed)
        shown["warnings"] = [notice.message for notice in warnings]
        orders = self.ordering.learn(learned.ordering.read_by(self.ordering), hop_work(tasks))
        learned = replace(
            learned if plan.is_round else measured(learned, plan, tasks, used, self.host, done.took),
            strategy=plan.layout.keep(state),
            ordering=StoredNotes(type(self.ordering).__name__, orders),
            warned=tuple(notice.kind for notice in warnings),
            clock=done.now,
        )
        return replace(after, learned=learned, progress=shown)


@dataclass(frozen=True)
class _Batch:
    """A batch that has run, on its way to being committed."""

    before: Manifest
    plan: BatchPlan
    tasks: Sequence[TaskReport]
    now: int
    inner: Mapping[int, Manifest]
    took: float | None

    @cached_property
    def intakes(self) -> list[IntakeReport]:
        """The reports of all intake tasks."""
        return [intake for task in self.tasks for intake in task.intakes]

    @cached_property
    def taken(self) -> list[StreamIntake]:
        """What the batch brought of each stream."""
        return total(self.intakes, len(self.plan.query.streams))

    @cached_property
    def fresh(self) -> list[Chunk]:
        """The chunks of its new tuples."""
        return [chunk for task in self.tasks for chunk in task.state.fresh]


def _paying_seconds(before: Manifest) -> float:
    """Return about how long it takes to pay what the next batch pays: half of a unit's rows for each tuple."""
    rows: dict[int, int] = defaultdict(int)
    for chunk in before.chunks.values():
        rows[chunk.unit] += chunk.rows
    pairs = 0.0
    for unit in before.ledger.paying():
        paid = (was.rows for number, was in before.ledger.batches.items() if unit.since <= number < (unit.pay or 0))
        pairs += sum(paid) / unit.group.of * rows[unit.number] / 2
    return pairs * limits().pair


def _new_tuples(plan: BatchPlan, fresh: Sequence[Chunk]) -> dict[Group, Tally]:
    """Return how many tuples a batch added to each group."""
    tallies: dict[Group, Tally] = {}
    for chunk in (chunk for chunk in fresh if chunk.bucket.first):
        group = group_of(chunk, plan.spilling.slice)
        tallies[group] = tallies.get(group, Tally()).plus(Tally(tuples=chunk.rows))
    return tallies


def _pay(
    plan: BatchPlan, chunks: Mapping[str, Chunk], new: Sequence[Chunk], now: int
) -> tuple[dict[str, Chunk], Ledger]:
    """Return the chunks after a batch that paid as planned, and what is owed then."""
    rows = sum(chunk.rows for chunk in new if chunk.bucket.first)
    taken = OwingBatch(min((chunk.low for chunk in new), default=None), plan.intake.arrived, rows, now)
    ledger, found = plan.spilling.ledger.after(plan.batch, taken), unit_reaches(plan.query, chunks.values())
    mark = plan.times.settled  # no tuple that is still to come is earlier
    over = {number for number, reach in found.items() if mark is not None and reach.deadline < mark}
    done = [u.number for u in ledger.units if u.number in over and not ledger.owing_batches(u, found[u.number])]
    ledger = ledger.without(done)
    cold = {unit.number for unit in ledger.units}
    warm = {key: chunk.in_unit(HOT) for key, chunk in chunks.items() if chunk.unit not in cold and chunk.unit != HOT}
    return {**chunks, **warm}, ledger


def _merge(plan: BatchPlan, tasks: Sequence[TaskReport]) -> dict[str, Chunk]:
    """Return the chunks there are after a batch: those before it, the batch's own, and merged ones for their parts."""
    chunks = {chunk.id: chunk for chunk in (*plan.chunks, *(chunk for task in tasks for chunk in task.state.fresh))}
    chunks |= {chunk.id: chunk for task in tasks for chunk in task.state.purged}
    for task in tasks:
        for chunk, replaced in task.state.merged:
            chunks[chunk.id] = chunk
            for key in replaced:
                del chunks[key]
    return chunks


def _newly_dead(plan: BatchPlan, tasks: Sequence[TaskReport]) -> int:
    """Return how many rows were found dead in a batch, those left out by its merges included."""
    live = {chunk.id: chunk.live for chunk in plan.chunks}
    purged = sum(live[chunk.id] - chunk.live for task in tasks for chunk in task.state.purged)
    merged = (sum(live[key] for key in parts) - chunk.rows for task in tasks for chunk, parts in task.state.merged)
    return purged + sum(merged)
