"""The commit protocol: plan, jobs, sink, manifest, delivery. A pure state machine that may be interrupted anywhere.

Events come in (a batch is offered, its jobs have finished, its results are in the sink), actions come out (run these
plans, publish these files, write this manifest). Spark, `advise` and the tests all drive this one protocol and perform
its actions in their own way: see `watersmeet.runtime.enact`.

Between batches there may be rounds, which have no new rows and make owed probes. Batches and rounds share one sequence
of numbers, each used once. Sinks see these numbers; the source of the batches counts its own.

The last round may be final: no more rows will come, so it closes everything and leaves no state. It is irrevocable:
afterwards, batches with rows are refused.

Files for output folders are prepared before the manifest, which names them, and delivered after it. A replay after a
crash finds either no manifest of its batch, and runs everything again (chunk names are new, and no file was delivered),
or the manifest: then it delivers the remaining files that it names, and is done.

Each start fences off earlier runs, which may be merely suspended: see `watersmeet.state.manifest.generations`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.batch.plan import BatchPlan
from watersmeet.errors import AFRESH, StateError
from watersmeet.observe.lateness import LATE_SHARE, warn_late_rows
from watersmeet.observe.timing import check_overdue, measure_latency, time_steps
from watersmeet.observe.warnings import Notice, news
from watersmeet.runtime.tree import Job, JoinTree
from watersmeet.spilling.interface import Spilling
from watersmeet.state.manifest import history, rounds
from watersmeet.state.manifest.delivery import Delivery
from watersmeet.state.manifest.generations import Fence
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import Round, SpillPlan

# -- events


@dataclass(frozen=True, slots=True)
class StateLoaded:
    """The state that an earlier run left has been read."""


@dataclass(frozen=True, slots=True)
class BatchOffered:
    """The source offers a batch.

    Attributes:
        batch: The source's number of the batch.
        at: When, by the driver's clock, in seconds since the epoch.
        now: The clock by which event times may be too far ahead, in microseconds; None if none are.
        input: Identifies its input.
        rows: Whether it has rows; only matters once everything has been closed for good.
    """

    batch: int
    at: float = 0.0
    now: int | None = None
    input: str = ""
    rows: bool = True


@dataclass(frozen=True, slots=True)
class QuietPeriod:
    """There is time for a round before the next batch.

    Attributes:
        at: When, by the driver's clock, in seconds since the epoch.
        all: Whether to make all owed probes.
        seconds: About how long the round may take otherwise; None for as long as a batch.
        final: Whether no more rows will come: all owed probes are made and, once none is left, everything is closed.
    """

    at: float = 0.0
    all: bool = False
    seconds: float | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class JobsFinished:
    """The jobs of a batch have finished.

    Attributes:
        jobs: The outcome of each, by the join's path.
        began: When the first of them began.
        at: When the last one ended.
    """

    jobs: Mapping[str, Job]
    began: float = 0.0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ResultsPublished:
    """The results of a batch are in the sink, or prepared for delivery.

    Attributes:
        at: When.
        host: When, by the host's clock, which can be compared with those of tasks.
        deliveries: The files to deliver to output folders once the manifest is written.
    """

    at: float = 0.0
    host: float = 0.0
    deliveries: tuple[Delivery, ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """A manifest has been written.

    Attributes:
        manifest: The manifest, as read back; None if another run wrote one first.
    """

    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class FilesDelivered:
    """The files of a batch have been moved to their output folders."""

    batch: int


Event = StateLoaded | BatchOffered | QuietPeriod | JobsFinished | ResultsPublished | ManifestWritten | FilesDelivered

# -- actions


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Void what earlier runs publish from now on, before changing anything else.

    Attributes:
        fence: Says from which batch on.
        round: A round that an earlier run began, whose intent stays valid.
    """

    fence: Fence
    round: Round | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """Remove all files that earlier runs left in the store, except those to keep."""

    keep: frozenset[str]


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove files of the store that are no longer needed."""

    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class RecordIntent:
    """Record what a round is about to do, before it does anything."""

    round: Round
    generation: str = ""


@dataclass(frozen=True, slots=True)
class RunJobs:
    """Run the jobs of a batch in this order, given by the joins' paths; answered by `JobsFinished`."""

    plans: Mapping[str, BatchPlan]


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove from the sink what earlier runs left of a batch and of all later ones."""

    first: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Hand a batch's results to the sink; answered by `ResultsPublished`.

    Attributes:
        batch: The batch.
        files: The files of the store that hold its results.
        sides: The files of side outputs, by kind and stream.
        inner: The files of inner joins' results, which are no longer needed.
    """

    batch: int
    files: tuple[str, ...]
    sides: Mapping[str, Mapping[str, list[str]]]
    inner: tuple[str, ...] = ()

    @property
    def temporary_files(self) -> list[str]:
        """All files of the store that are not needed once the batch is published."""
        sides = [file for streams in self.sides.values() for files in streams.values() for file in files]
        return [*self.files, *self.inner, *sides]


@dataclass(frozen=True, slots=True)
class Commit:
    """Write a manifest, unless its batch has one; answered by `ManifestWritten`.

    Attributes:
        manifest: The state after the batch.
        before: The state before the batch, on which it builds.
        history: The progress of the batches before it.
        generation: The generation of the run.
    """

    manifest: Manifest
    before: Manifest
    history: tuple[Mapping[str, Any], ...]
    generation: str = ""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver the files of a committed batch that are not delivered yet; answered by `FilesDelivered`."""

    batch: int
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True, slots=True)
class Retract:
    """Remove what this run prepared for a batch that another run has committed meanwhile."""

    batch: int


@dataclass(frozen=True, slots=True)
class Warn:
    """Warn the user."""

    message: str


Action = TakeOver | Sweep | Remove | RecordIntent | RunJobs | Withdraw | Publish | Commit | Deliver | Retract | Warn

# -- the machine


@dataclass(slots=True)
class _RunningBatch:
    """The batch or round that is running."""

    batch: int
    event: BatchOffered | QuietPeriod
    plans: Mapping[str, BatchPlan]
    finished: JobsFinished | None = None
    after: Manifest | None = None


@dataclass
class Protocol:
    """The batches of one start of a query.

    Attributes:
        tree: The join, with its inner joins.
        state: The state after the last batch, or the state that an earlier run left.
        history: The progress of the last batches, oldest first.
        exchange: How partial results travel, for `progress`.
        due: The seconds from one batch to the next, if the trigger has an interval.
        fresh: Whether no batch was offered yet.
        spilling: Decides what is spilled and which owed probes are made; None if the join never spills.
        begun: A round that was begun and interrupted; it comes before anything else.
        name: The query's name, for `progress`; None if it has none.
        late_share: The share of a stream's rows above which late ones cause a warning.
        generation: Its generation (`watersmeet.state.manifest.generations`), by its lease; empty without one.
        in_doubt: The error to raise because it is unknown whether the last manifest counts; the protocol then stops.
    """

    tree: JoinTree
    state: Manifest
    history: list[Mapping[str, Any]] = field(default_factory=list)
    exchange: str = ""
    due: float | None = None
    fresh: bool = True
    spilling: Spilling | None = None
    begun: Round | None = None
    name: str | None = None
    late_share: float = LATE_SHARE
    generation: str = ""
    in_doubt: StateError | None = None
    _withdrawn: bool = False
    _delivered: int = -1
    _garbage: frozenset[str] = frozenset()
    _warned: frozenset[str] = frozenset()
    _running: _RunningBatch | None = None

    def handle(self, event: Event) -> list[Action]:
        """Process an event and return the actions that follow, to be performed in this order.

        The protocol's state changes with each event.

        Raises:
            StateError: If a node did not report, the batch has rows for a join that was closed for good, a round must
                be finished first, or it is unknown whether the last manifest counts.
        """
        if self.in_doubt is not None:
            raise self.in_doubt
        match event:
            case StateLoaded():
                return [*self._take_over(), *self._deliver_last()]
            case BatchOffered():
                return self._on_batch_offered(event)
            case QuietPeriod():
                return self._on_quiet_period(event)
            case JobsFinished():
                return self._on_jobs_finished(event)
            case ResultsPublished():
                return self._on_results_published(event)
            case ManifestWritten():
                return self._on_manifest_written(event)
            case FilesDelivered():
                self._delivered = event.batch
                return []

    @property
    def _fence(self) -> Fence:
        """The fence of this start; valid until its first commit."""
        return Fence(self.generation, self.state.batch + 1)

    def _take_over(self) -> list[Action]:
        """Return the action that fences off earlier runs; none without a lease."""
        return [TakeOver(self._fence, self.begun)] if self.generation else []

    def _on_batch_offered(self, offer: BatchOffered) -> list[Action]:
        """Plan the batch and start its jobs; one that is committed already is only cleared up after.

        Raises:
            StateError: If a round must be finished first, or the query was closed for good.
        """
        if self.begun is not None:
            raise StateError("A round that has begun must be finished before the next batch.")
        if self.state.final and offer.rows and offer.batch != self.state.offered:
            raise StateError(closed_for_good(self.tree.operator.store.root))
        clear = self._clear_last()
        if offer.batch == self.state.offered:
            return clear
        self._running = _RunningBatch(self.state.batch + 1, offer, self.tree.plan(self.state, offer.now))
        return [*clear, RunJobs(self._running.plans)]

    def _on_quiet_period(self, period: QuietPeriod) -> list[Action]:
        """Start a round, or resume one that was begun; if none is worthwhile, deliver what isn't delivered yet."""
        is_resumed = self.begun is not None
        round = self.begun or self._round(period)
        if round is None:
            return self._clear_last() if self.state.final else self._deliver_last()
        clear = self._clear_last()
        self.begun = round
        self._withdrawn = self._withdrawn and not is_resumed  # an interrupted round may have left something
        decided = self.tree.decided(self.state, round.choices)
        plans = self.tree.plan(decided, None, "final" if round.final else "round")
        self._running = _RunningBatch(round.batch, period, plans)
        # [!] Recorded again if the round was begun before: the first attempt may have failed.
        return [*clear, RecordIntent(round, self.generation), RunJobs(plans)]

    def _round(self, period: QuietPeriod) -> Round | None:
        """Return the round that is worthwhile now, the final one once nothing is owed; None if none is."""
        choices: Mapping[str, SpillPlan] = {}
        if self.spilling is not None:
            choices = self.spilling.round(self.tree, self.state, period.all or period.final, period.seconds)
        final = period.final and not choices and not self.state.final
        return Round(self.state.batch + 1, choices, final) if choices or final else None

    def _clear_last(self) -> list[Action]:
        """Return the actions that finish the last batch and remove what the next one doesn't need.

        The first time in a run, everything that the current state doesn't name is removed; later only what is known to
        be left over, which is then forgotten. Nothing before the current state is ever replayed.
        """
        deliveries = self._deliver_last()
        garbage, self._garbage = self._garbage, frozenset()
        if not self.fresh:
            return [*deliveries, Remove(garbage)] if garbage else deliveries
        self.fresh = False
        live = self.state
        keep = live.files | {*live.chain} | history.block_paths(live.batch)
        keep |= {self._fence.path} if self.generation else frozenset()
        keep |= {rounds.path_of(self.begun.batch, self.generation)} if self.begun is not None else frozenset()
        return [*deliveries, Sweep(keep)]

    @property
    def undelivered(self) -> bool:
        """Whether the last batch is committed, but its files are not all in their folders."""
        return bool(self._deliver_last())

    def _deliver_last(self) -> list[Action]:
        """Return the action that delivers the files of the last batch, unless that is done."""
        batch, deliveries = self.state.batch, self.state.deliveries
        return [Deliver(batch, deliveries)] if deliveries and batch != self._delivered else []

    def _on_jobs_finished(self, finished: JobsFinished) -> list[Action]:
        """Compute the state after the batch, and publish its results; its earlier attempt's are withdrawn first.

        Raises:
            StateError: If a node did not report.
        """
        running = self._running_batch()
        running.finished = finished
        after = self.tree.commit(self.state, running.plans, finished.jobs, int(running.event.at * 1e6))
        if isinstance(running.event, BatchOffered):
            after = replace(after, offered=running.event.batch, input=running.event.input)
        running.after = after
        own = finished.jobs[self.tree.path].files
        inner = tuple(file for path, job in finished.jobs.items() if path != self.tree.path for file in job.files)
        # [!] Only after the first job: if state turns out to be damaged, no results must have been removed.
        first = [] if self._withdrawn else [Withdraw(running.batch)]
        self._withdrawn = True
        return [*first, Publish(running.batch, tuple(own), self.tree.sides(finished.jobs), inner)]

    def _on_results_published(self, published: ResultsPublished) -> list[Action]:
        """Decide on spilling, complete the progress with timings, notices and hints, and write the manifest."""
        running = self._running_batch()
        assert running.finished is not None and running.after is not None
        took, offered = published.at - running.event.at, isinstance(running.event, BatchOffered)
        after, late = check_overdue(self.tree, self.state, running.after, self.due if offered else None, took)
        if self.spilling is not None:
            after = self.spilling.decide(self.tree, after, took, running.event.at, not offered)
        late_streams = warn_late_rows([*self.history, {**after.progress, "round": not offered}], self.late_share)
        notices = [*self.tree.notices(after), *late_streams, *_overload_notices(after)]
        new, self._warned = news(notices, self._warned)
        progress = {
            **after.progress,
            **time_steps(running.event.at, running.finished.began, running.finished.at, published.at),
            "latencyMs": measure_latency(
                [read for job in running.finished.jobs.values() for read in job.reads], published.host
            ),
            "strategy": self.tree.operator.strategy.describe(),
            "exchange": self.exchange,
            "name": self.name,
            "lateWarning": self.late_share,
            "round": not offered,
            "final": after.final,
            "triggerMs": None if self.due is None else 1000 * self.due,
            "warnings": [notice.message for notice in notices],
            "hints": [hint for hint in after.progress["hints"] if hint not in self._hinted],
        }
        manifest = replace(after, progress=progress, deliveries=published.deliveries)
        warnings = [Warn(message) for message in (*late, *(notice.message for notice in new))]
        return [*warnings, Commit(manifest, self.state, tuple(self.history), self.generation)]

    @property
    def _hinted(self) -> set[str]:
        """The hints of earlier batches; each hint is shown once."""
        return {hint for progress in self.history for hint in progress.get("hints", ())}

    def _on_manifest_written(self, committed: ManifestWritten) -> list[Action]:
        """Make the new state current and deliver; retract the batch if another process has written its manifest.

        Files that only the state before needed are removed with the next batch, or now if this is the last.
        """
        running, before, after = self._running_batch(), self.state, committed.manifest
        batch, finished, self._running, self.begun = running.batch, running.finished, None, None
        if after is None:
            return [Retract(batch)]
        # Removed once the next batch starts: until then, Spark's own commit may get lost and the batch be replayed.
        self._garbage = before.files - after.files | {*before.chain} - {*after.chain}
        self._garbage |= history.block_paths(before.batch) - history.block_paths(batch)
        self._garbage |= (
            {rounds.path_of(batch, self.generation)} if isinstance(running.event, QuietPeriod) else frozenset()
        )
        state_files = (job.state_files for job in finished.jobs.values()) if finished is not None else ()
        self._garbage |= frozenset[str]().union(*state_files) - after.files
        self.state = after
        self.history = [*self.history, after.progress][-history.HISTORY :]
        if not after.final:
            return self._deliver_last()
        garbage, self._garbage = self._garbage, frozenset()  # no later batch will remove it
        return [*self._deliver_last(), *([Remove(garbage)] if garbage else [])]

    def _running_batch(self) -> _RunningBatch:
        if self._running is None:
            raise StateError("No batch is in progress.")
        return self._running


def closed_for_good(root: str) -> str:
    """Return the message that a join takes no more rows.

    Args:
        root: Where its state is.
    """
    return (
        f"The checkpoint at {root} was closed for good with option('final', True) and accepts no more rows; those "
        f"that came later were not joined: to join them, {AFRESH}."
    )


def _overload_notices(state: Manifest) -> list[Notice]:
    """Return the warning that more is owed from batch to batch, if so."""
    message = state.progress.get("spilling", {}).get("overload")
    return [] if message is None else [Notice("debts", message)]
