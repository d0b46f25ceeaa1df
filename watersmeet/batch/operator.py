"""A join at work: before a batch it plans, after it the reports of the tasks become the next state. Pure.

Whoever runs batches drives this: Spark's streaming joins, `advise`, and tests without Spark.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from watersmeet.batch.closed_combinations import closing_mark
from watersmeet.batch.intake import total
from watersmeet.batch.measurements import hop_work, measured, usage
from watersmeet.batch.plan import GIVEN, UNKNOWN, BatchPlan, Host, believed, group_slice, start, view
from watersmeet.batch.report import TaskReport
from watersmeet.batch.watermark import advanced, inner_marks, join_settled, join_watermark, stream_marks
from watersmeet.errors import StateError
from watersmeet.limits import limits
from watersmeet.metadata.closing import Closings
from watersmeet.metadata.expiry import ByWindow, Moment, Refreshed, Retention, leaving
from watersmeet.metadata.mark_eras import Recall
from watersmeet.metadata.superseded import superseding
from watersmeet.observe.progress import batch_progress, changed_decisions
from watersmeet.observe.warnings import notices
from watersmeet.ordering import Ordering
from watersmeet.placement import Strategy
from watersmeet.query.query import Query
from watersmeet.spilling.owed_tuples import reaches
from watersmeet.spilling.units import Group, Ledger, Taken, Tally, group_of
from watersmeet.state.chunks.chunk import HOT, Chunk
from watersmeet.state.chunks.merging import merges
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.notes import Kept
from watersmeet.state.manifest.view import StateView
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
    rules: tuple[Retention, ...] = (ByWindow(), Refreshed())
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
            return bool(superseding(self.query))
        closings = Closings(self.query)
        return any(map(closings.possible, range(len(self.query.streams))))

    @cached_property
    def _timely(self) -> frozenset[int]:
        """The streams whose rows are never late: joins that may owe results, and tables."""
        return self.exempt | {at for at, stream in enumerate(self.query.streams) if stream.table}

    def start(self) -> Manifest:
        """Return the state before the first batch."""
        return start(self.query)

    def view(self, state: Manifest) -> StateView:
        """Return what the strategy may know of the state."""
        return view(self.query, state, self.host, self.partitions)

    def plan(self, before: Manifest, now: int | None = None, round: bool = False, final: bool = False) -> BatchPlan:
        """Plan the batch after a state.

        Args:
            before: The state.
            now: The driver's clock, in microseconds; None for a batch in which every event time is believed.
            round: Whether it brings no rows, and only pays what is owed.
            final: Whether no more rows will come, so that everything is closed.
        """
        seen = self.view(before)
        layout, live = self.strategy.plan(seen), before.chunks.values()
        chunks = layout.owned(live)
        owes = before.ledger.owes(reaches(self.query, before.chunks.values()))
        purge = self._purgeable and before.unpurged >= self.purge_every and not (round or owes)
        return BatchPlan(
            batch=before.batch + 1,
            run=self.run,
            query=self.query,
            store=self.store,
            layout=layout,
            order=self.ordering.plan(self.query, chunks, before.learned.ordering.read_by(self.ordering)),
            chunks=chunks,
            watermark=before.watermark,
            arrived=tuple(stream.arrived for stream in before.streams),
            moved=sum(now.rows for old, now in zip(live, chunks, strict=True) if now is not old),
            seconds=sum(used.cpu for used in seen.usage) + _paying_seconds(before),
            merges=() if final else tuple(merges(chunks, before.batch + 1, before.settled, self._endless)),
            sides=self.sides,
            believed=() if now is None else believed(self.query, before, now),
            samples=self.samples,
            near_misses=0 if self.samples == frozenset() else self.near_misses,
            purge=purge,
            promises=before.promises,
            ledger=before.ledger,
            owes=owes,
            settled=before.settled,
            slice=group_slice(seen),
            exempt=self._timely,
            round=round,
            final=final,
            tallies=self.tallies,
            recall=Recall(self.remember, before.watermark, purge or not self._purgeable),
            latest=tuple(stream.latest for stream in before.streams),
            nested=inner_marks(self.query, before.inner),
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
        intakes = [intake for task in tasks for intake in task.intakes]
        taken = total(intakes, len(self.query.streams))
        named = zip(self.query.streams, before.streams, taken, strict=True)
        streams = tuple(advanced(spec, old, new, None if plan.round else now) for spec, old, new in named)
        nested = inner_marks(self.query, inner or {})
        watermark = before.watermark if plan.round else join_watermark(before.watermark, self.query, streams, nested)
        chunks, ledger = _paid(plan, _merged(plan, tasks), [chunk for task in tasks for chunk in task.chunks], now)
        reached = reaches(self.query, chunks.values())
        settled = join_settled(before.settled, ledger.settled(watermark, reached), self.query, inner or {})
        if self.query.optional:
            settled = closing_mark(plan, intakes)
        arrived = ledger.arrived() or tuple(stream.arrived for stream in streams)
        gone = frozenset(chunks) if plan.final else leaving(self.rules, chunks, Moment(self.query, arrived, settled))
        live = {key: chunk for key, chunk in chunks.items() if key not in gone and chunk.live}
        ledger = ledger.held(live.values())
        promises = () if plan.final else next((task.promises for task in tasks if task.promises), before.promises)
        brought = any(seen.rows for seen in taken) or any(task.told.get("inherited") for task in tasks)
        unpurged = (0 if plan.purge else before.unpurged) + brought
        after = before.follow(streams=streams, watermark=watermark, chunks=live, inner=inner or {})
        if self.tallies:
            groups = {group_of(chunk, plan.slice) for chunk in live.values()}
            ledger = ledger.closing({found for intake in intakes for found in intake.closed}, reached)
            ledger = ledger.valued([_given(plan, tasks), *(task.groups for task in tasks)], groups)
        after = replace(after, unpurged=unpurged, promises=promises, ledger=ledger, settled=settled)
        after = replace(after, final=before.final or plan.final)
        used = usage(plan, live.values(), tasks)
        dead = _newly_dead(plan, tasks) + sum(
            chunks[key].live for key in gone if not self.query.streams[chunks[key].stream].refreshed
        )
        shown = batch_progress(before, after, plan, intakes, taken, tasks, dead, used)
        seen = self.view(after)
        shown["placement"] = plan.layout.facts(seen)
        shown["changes"] = changed_decisions(before.progress, shown)
        marks = stream_marks(self.query, streams, nested)
        passed = 0 if before.learned.clock is None else now - before.learned.clock
        told = notices(self.query, before, after, marks, taken, passed)
        shown["warnings"] = [notice.message for notice in told]
        known = before.learned.ordering.read_by(self.ordering)
        learned = replace(
            before.learned if plan.round else measured(before.learned, plan, tasks, used, self.host, took),
            strategy=plan.layout.keep(seen),
            ordering=Kept(type(self.ordering).__name__, self.ordering.learn(known, hop_work(tasks))),
            warned=tuple(notice.kind for notice in told),
            clock=now,
        )
        return replace(after, learned=learned, progress=shown)


def _paying_seconds(before: Manifest) -> float:
    """Return about how long it takes to pay what the next batch pays: half of a unit's rows for each tuple."""
    rows: dict[int, int] = defaultdict(int)
    for chunk in before.chunks.values():
        rows[chunk.unit] += chunk.rows
    pairs = 0.0
    for unit in before.ledger.paying():
        paid = (was.rows for number, was in before.ledger.taken.items() if unit.since <= number < (unit.pay or 0))
        pairs += sum(paid) / unit.group.of * rows[unit.number] / 2
    return pairs * limits().pair


def _given(plan: BatchPlan, tasks: Sequence[TaskReport]) -> dict[Group, Tally]:
    """Return how many rows a batch gave each group."""
    found: dict[Group, Tally] = {}
    for chunk in (chunk for task in tasks for chunk in task.chunks if chunk.bucket.first):
        group = group_of(chunk, plan.slice)
        found[group] = found.get(group, Tally()).plus(Tally(tuples=chunk.rows))
    return found


def _paid(
    plan: BatchPlan, chunks: Mapping[str, Chunk], new: Sequence[Chunk], now: int
) -> tuple[dict[str, Chunk], Ledger]:
    """Return the chunks after a batch that paid as planned, and what is owed then."""
    rows = sum(chunk.rows for chunk in new if chunk.bucket.first)
    taken = Taken(min((chunk.low for chunk in new), default=None), plan.arrived, rows, now)
    ledger, found = plan.ledger.after(plan.batch, taken), reaches(plan.query, chunks.values())
    mark = plan.settled  # no tuple that is still to come is earlier
    over = {number for number, reach in found.items() if mark is not None and reach.deadline < mark}
    done = [u.number for u in ledger.units if u.number in over and not ledger.owing(u, found[u.number])]
    ledger = ledger.without(done)
    cold = {unit.number for unit in ledger.units}
    warm = {key: chunk.in_unit(HOT) for key, chunk in chunks.items() if chunk.unit not in cold and chunk.unit != HOT}
    return {**chunks, **warm}, ledger


def _merged(plan: BatchPlan, tasks: Sequence[TaskReport]) -> dict[str, Chunk]:
    """Return the chunks there are after a batch: those before it, the batch's own, and merged ones for their parts."""
    chunks = {chunk.id: chunk for chunk in (*plan.chunks, *(chunk for task in tasks for chunk in task.chunks))}
    chunks |= {chunk.id: chunk for task in tasks for chunk in task.purged}
    for task in tasks:
        for chunk, replaced in task.merged:
            chunks[chunk.id] = chunk
            for key in replaced:
                del chunks[key]
    return chunks


def _newly_dead(plan: BatchPlan, tasks: Sequence[TaskReport]) -> int:
    """Return how many rows were found dead in a batch, those left out by its merges included."""
    live = {chunk.id: chunk.live for chunk in plan.chunks}
    purged = sum(live[chunk.id] - chunk.live for task in tasks for chunk in task.purged)
    merged = (sum(live[key] for key in parts) - chunk.rows for task in tasks for chunk, parts in task.merged)
    return purged + sum(merged)
