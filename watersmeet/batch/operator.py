"""The operator of a join: plans a batch, and commits it by turning the reports of its tasks into the next state. Pure.

Spark's streaming joins, `advise` and the tests drive it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.batch.measurements import hop_work, update_statistics, usage
from watersmeet.batch.outer_joins import closing_mark
from watersmeet.batch.plan import (
    GIVEN_ORDER,
    UNKNOWN,
    BatchPlan,
    EventTimes,
    Host,
    IntakePlan,
    Kind,
    ObservingPlan,
    group_slice,
    latest_allowed_times,
    start,
    view,
)
from watersmeet.batch.report import IntakeReport, StreamIntake, TaskReport, total
from watersmeet.batch.watermark import advance_stream, inner_marks, join_settled, join_watermark, stream_marks
from watersmeet.caching import cached_property
from watersmeet.errors import StateError
from watersmeet.limits import limits
from watersmeet.metadata.closing import ClosingRules
from watersmeet.metadata.expiry import (
    ExpiryRule,
    Moment,
    TableRefreshExpiry,
    WindowExpiry,
    find_expired,
    superseding_columns,
)
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
    """A join and the settings that it runs with.

    Attributes:
        query: The join.
        strategy: Chooses where tuples are kept.
        store: Holds state and results.
        run: Unique to this start of the query; part of every file name.
        ordering: Chooses the join order.
        host: The machine that it runs on.
        sides: Whether late, rejected and denied rows are written.
        samples: The columns that samples of such rows show; None for all.
        near_misses: How many near-misses are shown of each conjunct and hop; none if there are no samples.
        backlog: Whether the query reads all there is and ends, so that its watermark moves as far as a batch reads.
        rules: Which chunks may leave the state.
        purge_every: After how many batches with news dead tuples are looked for again.
        remember: For how many microseconds of the watermark marks are remembered; None for ever.
        exempt: The streams whose rows are never late: joins that may owe results.
        tallies: Whether tasks count what each group of chunks contributes.
        partitions: Into how many partitions the state is divided if one attribute ties all streams.
    """

    query: Query
    strategy: Strategy
    store: Store
    run: str
    ordering: Ordering = GIVEN_ORDER
    host: Host = UNKNOWN
    sides: bool = False
    samples: frozenset[str] | None = None
    near_misses: int = 0
    backlog: bool = False
    rules: tuple[ExpiryRule, ...] = (WindowExpiry(), TableRefreshExpiry())
    purge_every: int = 1
    remember: int | None = None
    exempt: frozenset[int] = frozenset()
    tallies: bool = False
    partitions: int = 1

    @cached_property
    def _endless(self) -> frozenset[int]:
        """The streams whose tuples never expire by a window."""
        return frozenset(
            at
            for at, stream in enumerate(self.query.streams)
            if stream.window.span is None and stream.window.rows is None
        )

    @cached_property
    def _purgeable(self) -> bool:
        """Whether metadata may show some tuple to be dead, or a newer one may supersede it.

        [!] With optional streams, no metadata: a tuple without further partners may be a result for that very reason.
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
        """Return the state as the strategy sees it."""
        return view(self.query, state, self.host, self.partitions)

    def plan(self, before: Manifest, now: int | None = None, kind: Kind = "rows") -> BatchPlan:
        """Plan the batch after a state.

        Args:
            before: The state.
            now: The driver's clock, in microseconds; None for a batch in which no event time is too far ahead.
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
                () if now is None else latest_allowed_times(self.query, before, now),
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
            took: How long the batch's job took, in seconds; None if unknown.

        Raises:
            StateError: If a node's report is missing: the batch is not complete without it.
        """
        missing = set(range(plan.placement.nodes)) - {task.node for task in tasks}
        if missing:
            raise StateError(f"Batch {plan.batch}: no report from nodes {sorted(missing)}; the batch was not written.")
        batch = _FinishedBatch(before, plan, tasks, now, inner or {}, took)
        after = self._advance(batch)
        after, purged = self._retain(batch, after)
        after = self._account(batch, after)
        return self._learn(batch, after, purged)

    def _advance(self, batch: "_FinishedBatch") -> Manifest:
        """Step 1: return a state with event time advanced, and with the states of inner joins after the batch."""
        before, plan = batch.before, batch.plan
        now = None if plan.is_round else batch.now
        positions = zip(self.query.streams, before.streams, batch.stream_counts, strict=True)
        streams = tuple(advance_stream(spec, old, new, now) for spec, old, new in positions)
        marks = inner_marks(self.query, batch.inner)
        watermark = before.watermark if plan.is_round else join_watermark(before.watermark, self.query, streams, marks)
        after = before.follow(streams=streams, watermark=watermark, chunks=before.chunks, inner=batch.inner)
        return replace(after, final=before.final or plan.is_final)

    def _retain(self, batch: "_FinishedBatch", after: Manifest) -> tuple[Manifest, int]:
        """Step 2: add chunks and what is owed, drop what no later result needs; return the count of purged rows too."""
        before, plan, tasks = batch.before, batch.plan, batch.tasks
        chunks, ledger = _pay(plan, _merge(plan, tasks), batch.fresh, batch.now)
        reached = unit_reaches(self.query, chunks.values())
        settled = join_settled(before.settled, ledger.settled(after.watermark, reached), self.query, batch.inner)
        if self.query.optional:
            settled = closing_mark(plan, batch.intakes)
        arrived = ledger.arrived() or tuple(stream.arrived for stream in after.streams)
        moment = Moment(self.query, arrived, settled)
        expired = frozenset(chunks) if plan.is_final else find_expired(self.rules, chunks, moment)
        live = {key: chunk for key, chunk in chunks.items() if key not in expired and chunk.live}
        purged = _newly_dead(plan, tasks) + sum(
            chunks[key].live for key in expired if not self.query.streams[chunks[key].stream].refreshed
        )
        ledger = ledger.with_live_units(live.values())
        if self.tallies:
            ledger = ledger.with_closed({closed for intake in batch.intakes for closed in intake.closed}, reached)
        return replace(after, chunks=live, ledger=ledger, settled=settled), purged

    def _account(self, batch: "_FinishedBatch", after: Manifest) -> Manifest:
        """Step 3: return the state with what constraints deny now, and with the tallies of groups of chunks."""
        before, plan, tasks, ledger = batch.before, batch.plan, batch.tasks, after.ledger
        if self.tallies:
            groups = {group_of(chunk, plan.spilling.slice) for chunk in after.chunks.values()}
            ledger = ledger.with_worth(
                [_new_tuples(plan, batch.fresh), *(task.spilling.groups for task in tasks)], groups
            )
        constraints = next(
            (task.metadata.constraints for task in tasks if task.metadata.constraints), before.constraints
        )
        has_rows = any(stream.rows for stream in batch.stream_counts)
        has_news = has_rows or any(task.metadata.counts.get("inherited") for task in tasks)
        return replace(
            after,
            unpurged=(0 if plan.metadata.purge else before.unpurged) + has_news,
            constraints=() if plan.is_final else constraints,
            ledger=ledger,
        )

    def _learn(self, batch: "_FinishedBatch", after: Manifest, purged: int) -> Manifest:
        """Step 4: return the state with the progress of the batch, and with the statistics for the next."""
        before, plan, tasks, learned = batch.before, batch.plan, batch.tasks, batch.before.learned
        used, state = usage(plan, after.chunks.values(), tasks), self.view(after)
        progress = batch_progress(before, after, plan, batch.intakes, batch.stream_counts, tasks, purged, used)
        progress["placement"] = plan.layout.facts(state)
        progress["changes"] = changed_decisions(before.progress, progress)
        marks = stream_marks(self.query, after.streams, inner_marks(self.query, batch.inner))
        elapsed = 0 if learned.clock is None else batch.now - learned.clock
        warnings = notices(self.query, before, after, marks, batch.stream_counts, None if self.backlog else elapsed)
        progress["warnings"] = [notice.message for notice in warnings]
        orders = self.ordering.learn(learned.ordering.read_by(self.ordering), hop_work(tasks))
        learned = replace(
            learned if plan.is_round else update_statistics(learned, plan, tasks, used, self.host, batch.took),
            strategy=plan.layout.keep(state),
            ordering=StoredNotes(type(self.ordering).__name__, orders),
            warned=tuple(notice.kind for notice in warnings),
            clock=batch.now,
        )
        return replace(after, learned=learned, progress=progress)


@dataclass(frozen=True)
class _FinishedBatch:
    """A batch that has run and is to be committed."""

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
    def stream_counts(self) -> list[StreamIntake]:
        """The counts of each stream's rows in the batch."""
        return total(self.intakes, len(self.plan.query.streams))

    @cached_property
    def fresh(self) -> list[Chunk]:
        """The chunks of its new tuples."""
        return [chunk for task in self.tasks for chunk in task.state.fresh]


def _paying_seconds(before: Manifest) -> float:
    """Estimate the seconds of the owed probes that the next batch makes: each tuple probes half of a unit's rows."""
    rows: dict[int, int] = defaultdict(int)
    for chunk in before.chunks.values():
        rows[chunk.unit] += chunk.rows
    pairs = 0.0
    for unit in before.ledger.paying():
        first, end = unit.since, unit.pay or 0
        probing = sum(batch.rows for number, batch in before.ledger.batches.items() if first <= number < end)
        pairs += probing / unit.group.of * rows[unit.number] / 2
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
    """Return the chunks and the ledger after a batch that made owed probes as planned.

    Units that come back, or have expired and are owed nothing, leave the ledger; their chunks become hot.

    Args:
        plan: The batch's plan.
        chunks: The chunks after the batch.
        new: Those of them with tuples of the batch, in every bucketing.
        now: The driver's clock, in microseconds.
    """
    rows = sum(chunk.rows for chunk in new if chunk.bucket.first)
    batch = OwingBatch(min((chunk.low for chunk in new), default=None), plan.intake.arrived, rows, now)
    ledger, reached = plan.spilling.ledger.after(plan.batch, batch), unit_reaches(plan.query, chunks.values())
    mark = plan.times.settled  # no later tuple is earlier than that
    expired = {number for number, reach in reached.items() if mark is not None and reach.deadline < mark}
    settled = [u.number for u in ledger.units if u.number in expired and not ledger.owing_batches(u, reached[u.number])]
    ledger = ledger.without(settled)
    units = {HOT, *(unit.number for unit in ledger.units)}
    returning = {key: chunk.in_unit(HOT) for key, chunk in chunks.items() if chunk.unit not in units}
    return {**chunks, **returning}, ledger


def _merge(plan: BatchPlan, tasks: Sequence[TaskReport]) -> dict[str, Chunk]:
    """Return the chunks after a batch by id: earlier ones, as purged, and new ones; merged ones replace their parts."""
    chunks = {chunk.id: chunk for chunk in (*plan.chunks, *(chunk for task in tasks for chunk in task.state.fresh))}
    chunks |= {chunk.id: chunk for task in tasks for chunk in task.state.purged}
    for task in tasks:
        for chunk, replaced in task.state.merged:
            chunks[chunk.id] = chunk
            for key in replaced:
                del chunks[key]
    return chunks


def _newly_dead(plan: BatchPlan, tasks: Sequence[TaskReport]) -> int:
    """Return how many rows a batch found dead, including those that its merges dropped."""
    live = {chunk.id: chunk.live for chunk in plan.chunks}
    purged = sum(live[chunk.id] - chunk.live for task in tasks for chunk in task.state.purged)
    merged = (sum(live[key] for key in parts) - chunk.rows for task in tasks for chunk, parts in task.state.merged)
    return purged + sum(merged)
