"""The batch protocol, safe to cut anywhere: plan, job, sink, manifest, delivery, return. A pure state machine.

Events come in (a batch is offered, its jobs ran, its results are in the sink), actions come out (run these plans,
publish these files, write this manifest). Spark, `advise` and the tests enact them, each in its own way, and all drive
this one: see `watersmeet.runtime.enact`.

Between batches there may be rounds, which bring no rows and pay what is owed. Both are numbered in one sequence, no
number twice: sinks see these numbers, of which the source of the batches knows nothing.

The last of all may be a final round: no more rows will come, so that it closes everything and leaves no state. It can't
be taken back: batches that bring rows are refused from then on.

Files for output folders are made ready before the manifest, which names them, and appear after it. A replay after a
crash finds either no manifest of its batch, and does everything again (chunk names are new, no file has appeared), or
the manifest: then it delivers what is left of the files that it names, and returns.

Each start fences off the runs before it, which may only be suspended: see `watersmeet.state.manifest.leases`.
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
    """The state that an earlier run left is read."""


@dataclass(frozen=True, slots=True)
class BatchOffered:
    """A batch is there.

    Attributes:
        batch: Its number, as its source counts.
        at: When, by the driver's clock, in seconds since the epoch.
        now: The moment by which event times are believed, in microseconds; None to believe them all.
        input: What identifies its input.
        rows: Whether it brings rows; asked for only where everything has been closed for good.
    """

    batch: int
    at: float = 0.0
    now: int | None = None
    input: str = ""
    rows: bool = True


@dataclass(frozen=True, slots=True)
class QuietPeriod:
    """There is time for a round.

    Attributes:
        at: When, by the driver's clock, in seconds since the epoch.
        all: Whether all that is owed is to be paid.
        seconds: About how long it may take otherwise; None for as long as a batch.
        final: Whether no more rows will come: all that is owed is paid and, once nothing is, everything closed.
    """

    at: float = 0.0
    all: bool = False
    seconds: float | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class JobsFinished:
    """The jobs of a batch are done.

    Attributes:
        jobs: What each came to, by the join's path.
        began: When the first of them began.
        at: When the last one ended.
    """

    jobs: Mapping[str, Job]
    began: float = 0.0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ResultsPublished:
    """The results of a batch are where the user wants them, or ready to be delivered there.

    Attributes:
        at: When.
        host: The same by the clock of the host, to which tasks' clocks compare.
        deliveries: What is to appear in output folders once the manifest is written.
    """

    at: float = 0.0
    host: float = 0.0
    deliveries: tuple[Delivery, ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """A manifest is written.

    Attributes:
        manifest: The manifest, as it is read back; None if another run was quicker.
    """

    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class FilesDelivered:
    """The files of a batch are in their output folders."""

    batch: int


Event = StateLoaded | BatchOffered | QuietPeriod | JobsFinished | ResultsPublished | ManifestWritten | FilesDelivered

# -- actions


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Void what earlier runs publish from now on, before anything else is changed.

    Attributes:
        fence: From which batch on.
        round: A round that was begun, which stays what it is.
    """

    fence: Fence
    round: Round | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """Remove what earlier runs left in the store, but for the files that are needed."""

    needed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove files of the store that no manifest names any more."""

    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class RecordIntent:
    """Write down what a round is about to do, before it does anything."""

    round: Round
    generation: int = 0


@dataclass(frozen=True, slots=True)
class RunJobs:
    """Run the jobs of a batch, by the joins' paths, in this order; the answer is `JobsFinished`."""

    plans: Mapping[str, BatchPlan]


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove from the sink what earlier runs left of a batch and of later ones."""

    first: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Hand a batch's results to the sink; the answer is `ResultsPublished`.

    Attributes:
        batch: The batch.
        files: The files of the store that hold its results.
        sides: Those of rows that were not taken, by kind and stream.
        inner: Those of inner joins' results, which nobody needs any more.
    """

    batch: int
    files: tuple[str, ...]
    sides: Mapping[str, Mapping[str, list[str]]]
    inner: tuple[str, ...] = ()

    @property
    def written(self) -> list[str]:
        """All files that are of no use once the batch is published, wanted or not."""
        sides = [file for streams in self.sides.values() for files in streams.values() for file in files]
        return [*self.files, *self.inner, *sides]


@dataclass(frozen=True, slots=True)
class Commit:
    """Write a manifest, unless its batch has one; the answer is `ManifestWritten`.

    Attributes:
        manifest: The state after the batch.
        before: The state that it builds on.
        history: The progress of the batches before it.
        generation: The number of the lease under which it is written.
    """

    manifest: Manifest
    before: Manifest
    history: tuple[Mapping[str, Any], ...]
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Deliver:
    """Make the files of a batch that has its manifest appear, as far as they have not; answered by `FilesDelivered`."""

    batch: int
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True, slots=True)
class Retract:
    """Remove what this run has made ready of a batch, which another run has done meanwhile."""

    batch: int


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell people something."""

    says: str


Action = TakeOver | Sweep | Remove | RecordIntent | RunJobs | Withdraw | Publish | Commit | Deliver | Retract | Warn

# -- the machine


@dataclass(slots=True)
class _BatchUnderWay:
    """A batch or a round under way."""

    batch: int
    event: BatchOffered | QuietPeriod
    plans: Mapping[str, BatchPlan]
    ran: JobsFinished | None = None
    after: Manifest | None = None


@dataclass
class Protocol:
    """The batches of one start of a query.

    Attributes:
        tree: The join, with its inner joins.
        state: The state so far: that of the last batch, or what an earlier run left.
        history: The progress of the last batches, oldest first.
        exchange: How partial results travel, for `progress`.
        due: The seconds from one batch to the next, if the trigger says so.
        fresh: Whether no batch was offered yet.
        spilling: Decides what is spilled and paid, if anything may be.
        begun: A round that was begun and cut; it comes before anything else.
        name: What the user calls the query, for `progress`; None if it has no name.
        late_share: The share of a stream's rows from which on late ones are warned of.
        generation: The number of the lease that it runs under; 0 without one.
        in_doubt: Why it is not known whether the last manifest counts; nothing can be done then.
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
    generation: int = 0
    in_doubt: StateError | None = None
    _withdrawn: bool = False
    _delivered: int = -1
    _garbage: frozenset[str] = frozenset()
    _warned: frozenset[str] = frozenset()
    _doing: _BatchUnderWay | None = None

    def handle(self, event: Event) -> list[Action]:
        """Take in what happened; return what to do, in this order.

        Raises:
            StateError: If a node did not report, another run has done the batch, it brings rows for a join that was
                closed for good, or it is not known whether the last manifest counts.
        """
        if self.in_doubt is not None:
            raise self.in_doubt
        match event:
            case StateLoaded():
                return [*self._take_over(), *self._undelivered()]
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
        """The fence of this start, as long as it has committed nothing."""
        return Fence(self.generation, self.state.batch + 1)

    def _take_over(self) -> list[Action]:
        """Return how to fence off the runs before; without a lease there are none."""
        return [TakeOver(self._fence, self.begun)] if self.generation else []

    def _on_batch_offered(self, offer: BatchOffered) -> list[Action]:
        if self.begun is not None:
            raise StateError("A round that was begun must be finished before the next batch.")
        if self.state.final and offer.rows and offer.batch != self.state.offered:
            raise StateError(closed_for_good(self.tree.operator.store.root))
        clear = self._clear()
        if offer.batch == self.state.offered:
            return clear
        self._doing = _BatchUnderWay(self.state.batch + 1, offer, self.tree.plan(self.state, offer.now))
        return [*clear, RunJobs(self._doing.plans)]

    def _on_quiet_period(self, lull: QuietPeriod) -> list[Action]:
        known = self.begun is not None
        round = self.begun or self._round(lull)
        if round is None:
            return self._clear() if self.state.final else self._undelivered()
        clear = self._clear()
        self.begun, self._withdrawn = round, self._withdrawn and not known  # what was cut may have left something
        decided = self.tree.decided(self.state, round.choices)
        plans = self.tree.plan(decided, None, "final" if round.final else "round")
        self._doing = _BatchUnderWay(round.batch, lull, plans)
        # [!] Written down again, if it was begun: that may have failed.
        return [*clear, RecordIntent(round, self.generation), RunJobs(plans)]

    def _round(self, lull: QuietPeriod) -> Round | None:
        """Return the round that is worth while now, if any; the final one comes when nothing is owed."""
        choices: Mapping[str, SpillPlan] = {}
        if self.spilling is not None:
            choices = self.spilling.round(self.tree, self.state, lull.all or lull.final, lull.seconds)
        final = lull.final and not choices and not self.state.final
        return Round(self.state.batch + 1, choices, final) if choices or final else None

    def _clear(self) -> list[Action]:
        """Return how to finish the batch before, and to remove what the one to come can't need.

        Nobody replays what lies before the state.
        """
        left = self._undelivered()
        garbage, self._garbage = self._garbage, frozenset()
        if not self.fresh:
            return [*left, Remove(garbage)] if garbage else left
        self.fresh = False
        live = self.state
        needed = live.files | {*live.chain} | history.block_paths(live.batch)
        needed |= {self._fence.path} if self.generation else frozenset()
        needed |= {rounds.path_of(self.begun.batch, self.generation)} if self.begun is not None else frozenset()
        return [*left, Sweep(needed)]

    @property
    def undelivered(self) -> bool:
        """Whether the last batch is committed, but its files are not all in their folders."""
        return bool(self._undelivered())

    def _undelivered(self) -> list[Action]:
        """Return how to deliver the files of the last batch, unless that is done."""
        batch, left = self.state.batch, self.state.deliveries
        return [Deliver(batch, left)] if left and batch != self._delivered else []

    def _on_jobs_finished(self, ran: JobsFinished) -> list[Action]:
        doing = self._under_way()
        doing.ran = ran
        after = self.tree.commit(self.state, doing.plans, ran.jobs, int(doing.event.at * 1e6))
        if isinstance(doing.event, BatchOffered):
            after = replace(after, offered=doing.event.batch, input=doing.event.input)
        doing.after = after
        own = ran.jobs[self.tree.path].files
        inner = tuple(file for path, job in ran.jobs.items() if path != self.tree.path for file in job.files)
        # [!] Not before the first job is done: state that turns out to be damaged must not have cost results.
        first = [] if self._withdrawn else [Withdraw(doing.batch)]
        self._withdrawn = True
        return [*first, Publish(doing.batch, tuple(own), self.tree.sides(ran.jobs), inner)]

    def _on_results_published(self, published: ResultsPublished) -> list[Action]:
        doing = self._under_way()
        assert doing.ran is not None and doing.after is not None
        took, offered = published.at - doing.event.at, isinstance(doing.event, BatchOffered)
        after, late = check_overdue(self.tree, self.state, doing.after, self.due if offered else None, took)
        if self.spilling is not None:
            after = self.spilling.decide(self.tree, after, took, doing.event.at, not offered)
        late_streams = warn_late_rows([*self.history, after.progress], self.late_share)
        found = [*self.tree.notices(after), *late_streams, *_growing(after)]
        new, self._warned = news(found, self._warned)
        progress = {
            **after.progress,
            **time_steps(doing.event.at, doing.ran.began, doing.ran.at, published.at),
            "latencyMs": measure_latency(
                [read for job in doing.ran.jobs.values() for read in job.read], published.host
            ),
            "strategy": self.tree.operator.strategy.describe(),
            "exchange": self.exchange,
            "name": self.name,
            "lateWarning": self.late_share,
            "round": not offered,
            "final": after.final,
            "triggerMs": None if self.due is None else 1000 * self.due,
            "warnings": [notice.message for notice in found],
            "hints": [hint for hint in after.progress["hints"] if hint not in self._hinted],
        }
        manifest = replace(after, progress=progress, deliveries=published.deliveries)
        warnings = [Warn(says) for says in (*late, *(notice.message for notice in new))]
        return [*warnings, Commit(manifest, self.state, tuple(self.history), self.generation)]

    @property
    def _hinted(self) -> set[str]:
        """The hints that were given before; each is given once."""
        return {hint for progress in self.history for hint in progress.get("hints", ())}

    def _on_manifest_written(self, committed: ManifestWritten) -> list[Action]:
        doing, before, after = self._under_way(), self.state, committed.manifest
        batch, ran, self._doing, self.begun = doing.batch, doing.ran, None, None
        if after is None:
            return [Retract(batch)]
        # Still needed if Spark's own commit gets lost; gone once the next batch starts.
        self._garbage = before.files - after.files | {*before.chain} - {*after.chain}
        self._garbage |= history.block_paths(before.batch) - history.block_paths(batch)
        self._garbage |= (
            {rounds.path_of(batch, self.generation)} if isinstance(doing.event, QuietPeriod) else frozenset()
        )
        written = (job.kept for job in ran.jobs.values()) if ran is not None else ()
        self._garbage |= frozenset[str]().union(*written) - after.files
        self.state = after
        self.history = [*self.history, after.progress][-history.HISTORY :]
        if not after.final:
            return self._undelivered()
        garbage, self._garbage = self._garbage, frozenset()  # nothing will begin that could remove it
        return [*self._undelivered(), *([Remove(garbage)] if garbage else [])]

    def _under_way(self) -> _BatchUnderWay:
        if self._doing is None:
            raise StateError("There is no batch under way.")
        return self._doing


def closed_for_good(root: str) -> str:
    """Return why a join takes no more rows.

    Args:
        root: Where its state was kept.
    """
    return (
        f"The checkpoint at {root} was closed for good with option('final', True) and takes no more rows; those that "
        f"came after it were not joined: to join them, {AFRESH}."
    )


def _growing(state: Manifest) -> list[Notice]:
    """Return the warning that what is owed keeps growing, if it does."""
    says = state.progress.get("spilling", {}).get("overload")
    return [] if says is None else [Notice("debts", says)]
