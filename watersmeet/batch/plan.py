"""The plan of a batch: all that tasks need to know, made on the driver before the batch's rows are seen."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, Literal, NamedTuple

from watersmeet.limits import Limits, limits
from watersmeet.metadata.denial import DeniedRows, load_denied_rows
from watersmeet.metadata.plan import MetadataPlan
from watersmeet.ordering import Given, JoinOrder
from watersmeet.placement import Layout, Placement
from watersmeet.predicate.datetimes import to_local_time
from watersmeet.probe.hop_steps import Step, steps
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import FOREVER, HORIZON
from watersmeet.spilling.owed import OwedBatches, roles
from watersmeet.spilling.plan import SpillingPlan
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.chunks.merging import Merge
from watersmeet.state.manifest.manifest import Manifest, StreamState
from watersmeet.state.manifest.view import Machine, RunningStatistics, StateView, StreamView
from watersmeet.state.store.store import Store

GIVEN = Given()
GROUPED = 4
"""As many slices make one of a unit: many small units cost more than they are worth."""
Course = tuple[Step, ...]
"""The hops of some tuples."""


class Host(NamedTuple):
    """Where a join runs; it may be another place after a restart, so that the manifest doesn't hold it.

    Attributes:
        slots: How many tasks run at once; None if that isn't known.
        cores: How many of them have a core.
        shared: Whether tasks share their state, so that no row is sent.
    """

    slots: int | None = None
    cores: int | None = None
    shared: bool = False


UNKNOWN = Host()


Kind = Literal["rows", "round", "final"]
"""What a batch is for: to join new rows; as a round, to pay what is owed; as the final round, to close everything."""


@dataclass(frozen=True)
class EventTimes:
    """How far event time had come before a batch; None for minus infinity.

    Attributes:
        watermark: What lateness is judged by.
        settled: The time before which no result to come can lie.
        latest: For each stream the latest event time so far.
        inner: How far the streams that are joins had come, by position.
    """

    watermark: int | None = None
    settled: int | None = None
    latest: tuple[int | None, ...] = ()
    inner: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class IntakePlan:
    """What intake needs to know beside event times and constraints.

    Attributes:
        arrived: For each stream how many tuples were accepted before the batch.
        believed: For each stream the latest event time that is accepted, None for any; empty if all are.
        exempt: The streams whose rows are never late: joins that may owe results, and tables.
        sides: Whether rows that are not accepted are written aside.
        repeatable: Whether the batch runs anew for every use of a static frame, several at once perhaps: its files are
            then named by what is in them, so that no use adds to what another wrote.
    """

    arrived: tuple[int, ...] = ()
    believed: tuple[int | None, ...] = ()
    exempt: frozenset[int] = frozenset()
    sides: bool = False
    repeatable: bool = False


@dataclass(frozen=True)
class ObservingPlan:
    """What tasks show of rows, for people.

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
        layout: What the strategy planned; tasks get only its placement.
        order: In which order streams are probed.
        kind: What the batch is for.
        chunks: The live chunks, with their owners for this batch; a chunk's number is its position.
        merges: Chunks to merge in this batch; the merged chunk is visible from the next.
        times: How far event time has come.
        intake: Which rows are accepted.
        metadata: The state of constraints.
        spilling: What is owed and paid.
        observing: What tasks show of rows.
        limits: Those of the driver, for its tasks.
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
        """Return what streams have denied up to the batch before."""
        return load_denied_rows(self.query, self.store, self.times.watermark, self.metadata.constraints)

    def closed(self) -> DeniedRows:
        """Return what is denied and can't be part of a result that is still owed, either."""
        return load_denied_rows(self.query, self.store, self.times.settled, self.metadata.constraints)

    @cached_property
    def owed(self) -> dict[int, OwedBatches]:
        """What was owed to each spilled unit before the batch, by number."""
        return {
            unit.number: OwedBatches(
                unit.since,
                unit.since if unit.pay is None else unit.pay,
                self.batch if unit.returns(self.batch) else self.batch + 1,
            )
            for unit in self.spilling.ledger.units
        }

    def is_read(self, chunk: Chunk) -> bool:
        """Tell whether tuples may ask a chunk in this batch."""
        owed = self.owed.get(chunk.unit)
        return owed is None or owed.paid > owed.since or owed.until <= self.batch

    def __getstate__(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name != "owed"}
        return fields | {"layout": Layout(self.placement)}

    @property
    def is_round(self) -> bool:
        """Whether it brings no rows."""
        return self.kind != "rows"

    @property
    def is_final(self) -> bool:
        """Whether no more rows will come: everything is closed, and no state is kept."""
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
        return tuple(steps(query, origin, led(order, lead)) for order in self.order.orders(origin))

    def payments(self, origin: int, query: Query) -> tuple[Course, ...]:
        """Return the courses of a stream's earlier tuples that pay what they owe, one for each stream asked for it."""
        if not self.spilling.ledger.paying():
            return ()
        lead, order = self.placement.lead(origin), self.order.orders(origin)[0]
        return tuple(
            tuple(replace(step, role=roles(paid, len(query.streams))[step.target]) for step in course)
            for paid in order
            for course in [steps(query, origin, led((paid, *(at for at in order if at != paid)), lead))]
        )

    @property
    def stages(self) -> int:
        """How many hops run as tasks of their own where rows travel; the last such task runs all hops that follow."""
        hops = len(self.query.streams) - 1
        return min(self.placement.stays_after() or hops, hops)


def led(order: tuple[int, ...], lead: tuple[int, ...]) -> tuple[int, ...]:
    """Return an order that begins as the placement wants it.

    >>> led((1, 2, 3), (3,))
    (3, 1, 2)
    """
    return (*lead, *(stream for stream in order if stream not in lead))


def start(query: Query) -> Manifest:
    """Return the state before the first batch."""
    return Manifest(batch=-1, streams=tuple(StreamState() for _ in query.streams))


def view(query: Query, manifest: Manifest, host: Host = UNKNOWN, partitions: int = 1) -> StateView:
    """Return what a strategy may know of the state."""
    learned = manifest.learned
    streams = tuple(
        StreamView(
            span=_kept_for(query, spec),
            latest=_seen(state.latest),
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
    """Return the length of the slices of time that units are cut by: several of those by which state leaves."""
    return GROUPED * max(stream.slice for stream in state.streams)


def _seen(time: int | None) -> int | None:
    return None if time is None else max(-HORIZON, min(HORIZON, time))


def _within_horizon(chunk: Chunk) -> Chunk:
    """Return a chunk with its times as placements see them."""
    if chunk.low >= -HORIZON and chunk.high <= HORIZON:
        return chunk
    low, high = max(-HORIZON, min(HORIZON, chunk.low)), max(-HORIZON, min(HORIZON, chunk.high))
    return replace(chunk, low=low, high=high)


def _machine(learned: RunningStatistics, host: Host) -> Machine:
    return Machine(
        slots=host.slots or inf,
        row_seconds=None if learned.shipping is None else learned.shipping.per_row,
        hop_seconds=learned.hop_seconds,
        cores=host.cores or inf,
        overdue=learned.overdue,
        tasks=learned.tasks,
        shared=host.shared,
    )


def _kept_for(query: Query, stream: StreamSpec) -> int | None:
    """Return how long a stream's tuples are kept: their window, and as long as the watermark lags behind them."""
    lag = max(spec.delay for spec in query.streams if not spec.table)
    return None if stream.window.span is None else stream.window.span + lag


def believed(query: Query, manifest: Manifest, now: int) -> tuple[int | None, ...]:
    """Return for each stream the latest event time that a batch believes; None for any.

    Args:
        query: The join.
        manifest: The state before the batch.
        now: The driver's clock, in microseconds.
    """
    zoned = query.streams[0].time_type.tz is not None
    clock = now if zoned else to_local_time(now, query.dialect)
    latest = max((clock, *(state.latest for state in manifest.streams if state.latest is not None)))
    return tuple(None if spec.ahead is None else min(latest + spec.ahead, FOREVER) for spec in query.streams)
