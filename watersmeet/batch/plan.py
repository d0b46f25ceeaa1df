"""The plan of a batch: all that its tasks need to know, made on the driver before any row is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, NamedTuple

from watersmeet.caching import cached_property
from watersmeet.limits import Limits, limits
from watersmeet.metadata.denial import DeniedRows, load_denied_rows
from watersmeet.metadata.plan import MetadataPlan
from watersmeet.ordering import Given, JoinOrder
from watersmeet.placement import Layout, Placement
from watersmeet.predicate.datetimes import to_local_time
from watersmeet.probe.hop_steps import Step, steps
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import FOREVER, HORIZON
from watersmeet.spilling.plan import SpillingPlan
from watersmeet.spilling.units import OwedBatches, roles
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.chunks.merging import Merge
from watersmeet.state.manifest.manifest import Manifest, StreamState
from watersmeet.state.manifest.view import Machine, RunningStatistics, StateView, StreamView
from watersmeet.state.store.store import Store

GIVEN_ORDER = Given()
GROUPED = 4
"""The slices of time that a spilled unit spans: many small units cost more than they are worth."""
Course = tuple[Step, ...]
"""The hops that some tuples make, in order."""


class Host(NamedTuple):
    """The machine that a join runs on. It may be another after a restart, so the manifest doesn't hold it.

    Attributes:
        slots: How many tasks run at once; None if unknown.
        cores: How many of them have a core; None if unknown.
        shared: Whether tasks share their state, so that no row is sent.
    """

    slots: int | None = None
    cores: int | None = None
    shared: bool = False


UNKNOWN = Host()


Kind = Literal["rows", "round", "final"]
"""What a batch is for: new rows, a round that makes owed probes, or the final round, which closes everything."""


@dataclass(frozen=True)
class EventTimes:
    """How far event time had advanced before a batch; None for minus infinity.

    Attributes:
        watermark: The join's watermark; rows before it are late.
        settled: The time before which no later result can lie.
        latest: For each stream the latest event time so far.
        inner: The time up to which the streams that are joins were complete, by position.
    """

    watermark: int | None = None
    settled: int | None = None
    latest: tuple[int | None, ...] = ()
    inner: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class IntakePlan:
    """What intake needs beside event times and constraints.

    Attributes:
        arrived: For each stream how many tuples were accepted before the batch.
        latest_allowed: For each stream the latest event time that is not rejected as too far ahead, None for any; empty
            if no stream has such a limit.
        exempt: The streams whose rows are never late: joins that may owe results, and tables.
        sides: Whether rows that are not admitted are written to side outputs.
        repeatable: Whether the batch runs again for every use of a static frame, perhaps concurrently: files are
            then named by their content, so that no run adds to those of another.
    """

    arrived: tuple[int, ...] = ()
    latest_allowed: tuple[int | None, ...] = ()
    exempt: frozenset[int] = frozenset()
    sides: bool = False
    repeatable: bool = False


@dataclass(frozen=True)
class ObservingPlan:
    """What tasks show users of rows.

    Attributes:
        samples: The columns that samples show, in lower case; None for all. If empty, there are no samples.
        near_misses: How many near-misses are shown of each conjunct and hop.
    """

    samples: frozenset[str] | None = None
    near_misses: int = 0


@dataclass(frozen=True)
class BatchPlan:
    """A frozen description of one batch; travels to every task.

    Attributes:
        batch: The batch.
        run: Unique to this start of the query; part of every file name.
        query: The join.
        store: Where state and results are kept.
        layout: The strategy's plan; of it, tasks get only the placement.
        order: The join order.
        kind: What the batch is for.
        chunks: The live chunks, with their owners for this batch; a chunk's number is its position.
        merges: Chunks to merge in this batch; the merged chunk is visible from the next.
        times: How far event time has advanced.
        intake: Which rows are admitted.
        metadata: The state of constraints.
        spilling: The spilled units, and which owed probes are made.
        observing: What tasks show of rows.
        limits: The driver's limits, which its tasks adopt.
        seconds: CPU seconds that recent batches took, smoothed.
    """

    batch: int
    run: str
    query: Query
    store: Store
    layout: Layout[Placement]
    order: JoinOrder
    kind: Kind = "rows"
    chunks: tuple[Chunk, ...] = ()
    merges: tuple[Merge, ...] = ()
    times: EventTimes = field(default_factory=EventTimes)
    intake: IntakePlan = field(default_factory=IntakePlan)
    metadata: MetadataPlan = field(default_factory=MetadataPlan)
    spilling: SpillingPlan = field(default_factory=SpillingPlan)
    observing: ObservingPlan = field(default_factory=ObservingPlan)
    limits: Limits = field(default_factory=limits)
    seconds: float = 0.0

    def denied(self) -> DeniedRows:
        """Return what the streams' constraints deny after the batch before."""
        return load_denied_rows(self.query, self.store, self.times.watermark, self.metadata.constraints)

    def closed(self) -> DeniedRows:
        """Return the part of what is denied that no owed result can contain either."""
        return load_denied_rows(self.query, self.store, self.times.settled, self.metadata.constraints)

    @cached_property
    def owed(self) -> dict[int, OwedBatches]:
        """The batches whose tuples have not probed a spilled unit when this batch begins, and which of them pay now.

        By the unit's number. Includes this batch unless the unit returns in it. Units without an entry are owed
        nothing. Not sent to tasks: computed there.
        """
        return {
            unit.number: OwedBatches(
                unit.since,
                unit.since if unit.pay is None else unit.pay,
                self.batch if unit.returns(self.batch) else self.batch + 1,
            )
            for unit in self.spilling.ledger.units
        }

    def is_read(self, chunk: Chunk) -> bool:
        """Tell whether any tuple may probe a chunk in this batch."""
        owed = self.owed.get(chunk.unit)
        return owed is None or owed.paid > owed.since or owed.until <= self.batch

    def __getstate__(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name != "owed"}
        return fields | {"layout": Layout(self.placement)}

    @property
    def is_round(self) -> bool:
        """Whether it is a round: a batch without new rows."""
        return self.kind != "rows"

    @property
    def is_final(self) -> bool:
        """Whether it is the final round: it closes everything, and leaves no state."""
        return self.kind == "final"

    @property
    def placement(self) -> Placement:
        """Where tuples are kept."""
        return self.layout.placement

    @property
    def name(self) -> str:
        """The prefix of every file that the batch's tasks write."""
        return f"{self.run}-b{self.batch}"

    def courses(self, origin: int, query: Query) -> tuple[Course, ...]:
        """Return the courses of a stream's new tuples, with the conjuncts of `query`."""
        lead = self.placement.lead(origin)
        return tuple(steps(query, origin, with_lead(order, lead)) for order in self.order.orders(origin))

    def paying_courses(self, origin: int, query: Query) -> tuple[Course, ...]:
        """Return the courses on which earlier tuples of a stream make owed probes; none if this batch pays nothing.

        There is one for each other stream, whose chunks it pays for: each step has its role in that. That stream is
        probed first, except after those that the placement wants to lead.

        Args:
            origin: The stream.
            query: The join with the conjuncts in force, plain or careful.
        """
        if not self.spilling.ledger.paying():
            return ()
        lead, order = self.placement.lead(origin), self.order.orders(origin)[0]
        return tuple(
            tuple(replace(step, role=roles(spilled, len(query.streams))[step.target]) for step in course)
            for spilled in order
            for course in [steps(query, origin, with_lead((spilled, *(at for at in order if at != spilled)), lead))]
        )

    @property
    def stages(self) -> int:
        """How many stages a batch has if partial results travel: a hop each, but the last runs all remaining hops."""
        hops = len(self.query.streams) - 1
        return min(self.placement.stays_after() or hops, hops)


def with_lead(order: tuple[int, ...], lead: tuple[int, ...]) -> tuple[int, ...]:
    """Return an order with the streams first that the placement wants to lead.

    >>> with_lead((1, 2, 3), (3,))
    (3, 1, 2)
    """
    return (*lead, *(stream for stream in order if stream not in lead))


def start(query: Query) -> Manifest:
    """Return the state before the first batch."""
    return Manifest(batch=-1, streams=tuple(StreamState() for _ in query.streams))


def view(query: Query, manifest: Manifest, host: Host = UNKNOWN, partitions: int = 1) -> StateView:
    """Return the state as strategies see it, with all times within the horizon."""
    learned = manifest.learned
    streams = tuple(
        StreamView(
            span=_retention(query, spec),
            latest=None if state.latest is None else _clip(state.latest),
            rows=state.rows,
            advance=state.advance,
            window=spec.window.span,
            rate=state.rate,
            table=spec.table,
        )
        for spec, state in zip(query.streams, manifest.streams, strict=True)
    )
    return StateView(
        streams,
        tuple(map(_within_horizon, manifest.chunks.values())),
        learned.strategy,
        learned.usage,
        tuple(conjunct.streams for conjunct in query.conjuncts if len(conjunct.streams) > 1),
        query.equalities,
        learned.hops,
        tuple(stream.name for stream in query.streams),
        _machine(learned, host),
        manifest.batch + 1,
        partitions,
    )


def group_slice(state: StateView) -> int:
    """Return the length of a spilled unit's slice of time: several of the slices by which state expires."""
    return GROUPED * max(stream.slice for stream in state.streams)


def _clip(time: int) -> int:
    return max(-HORIZON, min(HORIZON, time))


def _within_horizon(chunk: Chunk) -> Chunk:
    """Return a chunk with its times clipped to the horizon, as placements see them."""
    if chunk.low >= -HORIZON and chunk.high <= HORIZON:
        return chunk
    return replace(chunk, low=_clip(chunk.low), high=_clip(chunk.high))


def _machine(learned: RunningStatistics, host: Host) -> Machine:
    """Return the machine as the cost model sees it, from what was measured and the host's limits."""
    return Machine(
        slots=host.slots or inf,
        row_seconds=None if learned.shipping is None else learned.shipping.per_row,
        hop_seconds=learned.hop_seconds,
        cores=host.cores or inf,
        overdue=learned.overdue,
        tasks=learned.tasks,
        shared=host.shared,
    )


def _retention(query: Query, stream: StreamSpec) -> int | None:
    """Return how long a stream's tuples are kept: their window plus the lag of the watermark; None without a limit."""
    lag = max(spec.delay for spec in query.streams if not spec.table)
    return None if stream.window.span is None else stream.window.span + lag


def latest_allowed_times(query: Query, manifest: Manifest, now: int) -> tuple[int | None, ...]:
    """Return for each stream the latest event time that is not too far ahead in a batch; None for any.

    Args:
        query: The join.
        manifest: The state before the batch.
        now: The driver's clock, in microseconds.
    """
    zoned = query.streams[0].time_type.tz is not None
    clock = now if zoned else to_local_time(now, query.dialect)
    latest = max((clock, *(state.latest for state in manifest.streams if state.latest is not None)))
    return tuple(None if spec.ahead is None else min(latest + spec.ahead, FOREVER) for spec in query.streams)
