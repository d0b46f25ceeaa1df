"""Spark's batches: performs the actions of `watersmeet.runtime.commit_protocol` when Spark calls back."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any, NoReturn
from weakref import ref

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from watersmeet.caching import cached_property
from watersmeet.cost.parameters import Parameters, measure
from watersmeet.errors import PredicateError, StateError, WatersmeetError
from watersmeet.observe.explain import draw_join_tree, explain
from watersmeet.observe.lateness import LATE_SHARE
from watersmeet.observe.progress import format_progress
from watersmeet.observe.timing import describe_freshness
from watersmeet.runtime.commit_protocol import (
    BatchOffered,
    Commit,
    Deliver,
    JobsFinished,
    Protocol,
    Publish,
    QuietPeriod,
    ResultsPublished,
    Retract,
    RunJobs,
    StateLoaded,
    Warn,
    Withdraw,
)
from watersmeet.runtime.enact import Runtime
from watersmeet.runtime.tree import JoinTree
from watersmeet.spark.checkpoint.lease import Lease
from watersmeet.spark.checkpoint.offsets import Offsets
from watersmeet.spark.checkpoint.paths import Location
from watersmeet.spark.output.outputs import Outputs
from watersmeet.spark.output.sinks import Results
from watersmeet.spark.run.failures import describe_error, is_data_error
from watersmeet.spark.run.frame_tree import FrameTree
from watersmeet.spark.run.jobs import Jobs, job_description, report_figures
from watersmeet.spark.run.workers import is_death
from watersmeet.spark.sql.catalyst import error_sentence
from watersmeet.spilling.decisions import describe_spilling
from watersmeet.spilling.interface import PayAll, Spilling
from watersmeet.spilling.paying_tuples import unit_reaches
from watersmeet.state.manifest import history, rounds
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store

POLL_SECONDS = 0.1
"""Time between two checks whether an interrupted batch has finished."""
CLOSED = "closed for good: all results have been emitted, no state is left, and no more rows are accepted"
"""The description of a join after its final round."""


class BatchInterruption(Exception):
    """A stop of the query interrupted a batch; its message is the one by which Spark tells that from an error.

    [!] Spark looks for the message with a pattern that takes a frame of the JVM's stack for every character: in the
    traceback of the original error, which contains the JVM's own, the stack overflows, and users see that instead.
    """

    def __str__(self) -> str:
        """Return the message."""
        return "py4j.protocol.Py4JJavaError: An error occurred while calling the join: java.lang.InterruptedException"


class Clock:
    """The driver's clock: the time of day at the start plus the time since then; it never goes back."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Return seconds since the epoch."""
        return self._offset + time.monotonic()

    def latest(self) -> float:
        """Return this clock's time or the host's, whichever is later; event times are compared with it.

        [!] A host whose clock was behind at the start, or that slept meanwhile, is right later on, and this clock alone
        would never be.
        """
        return max(self(), time.time())


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A query's checkpoint.

    Attributes:
        place: The location of the store.
        name: The store's unique name.
        store: The join's part.
        lease: The lease by which the store is this run's.
        offsets: Spark's part: the offsets of its batches.
    """

    place: Location
    name: str
    store: Store
    lease: Lease
    offsets: Offsets


@dataclass
class BatchRunner(Runtime):
    """Runs the batches of one start of a query; Spark's foreachBatch calls it (see `callback`).

    Attributes:
        frames: The frames of the join, with its inner joins.
        tree: The operators of the same joins.
        checkpoint: The checkpoint.
        outputs: The sink and the side outputs.
        exchange: How partial results travel.
        due: The seconds from one batch to the next, if the trigger defines them.
        clock: The driver's clock.
        after: Called after each step of the protocol with its name; tests interrupt the run there.
        error: Why the query failed, as users see it.
        spilling: The controller of spilling, if units may be spilled.
        final: Whether everything is closed for good once the input has ended.
        observed: Whether the figures of batches are added to Spark's own progress.
        has_uncommitted_batch: Whether an uncommitted batch may have reached the sink: it must come before any round.
        closed: Whether no more batches may start.
        turn: Held by the thread that runs a batch or a round.
        times: When the last batch began, and when it ended, by this process's monotonic clock; None before that.
        _writing: Whether results have been handed to the sink: errors after that are not the input's.
        active: Tells whether Spark still runs batches; False while the query is being stopped.
        name: The user's name for the query, if any.
        late_share: See `Protocol`.
    """

    frames: FrameTree
    tree: JoinTree
    checkpoint: Checkpoint
    outputs: Outputs
    exchange: str
    due: float | None = None
    name: str | None = None
    late_share: float = LATE_SHARE
    clock: Clock = field(default_factory=Clock)
    after: Callable[[str], None] = lambda step: None
    error: BaseException | None = None
    spilling: Spilling | None = None
    final: bool = False
    observed: bool = False
    times: tuple[float | None, float | None] = (None, None)
    active: Callable[[], bool] = lambda: True
    has_uncommitted_batch: bool = False
    closed: bool = False
    store: Store = field(init=False)
    protocol: Protocol = field(init=False)
    _batch: DataFrame | None = None
    _writing: bool = False
    turn: RLock = field(default_factory=RLock)
    _checked: bool = False

    def __post_init__(self) -> None:
        self.store = self.checkpoint.store

    def open(self) -> None:
        """Read the state in the store, create the protocol, and finish the delivery of the store's last batch.

        Raises:
            StateError: If its newest manifest is damaged, or names files of another checkpoint, or Spark's part of the
                checkpoint is ahead of it.
        """
        manifest = self.checkpoint.offsets.load_state(self.store)  # [!] once more: now under the lease
        past = history.load(self.store, manifest.batch) if manifest else []
        state = manifest or self.tree.start()
        spilling = self.spilling or PayAll()
        self.protocol = Protocol(self.tree, state, past, self.exchange, self.due, spilling=spilling)
        self.protocol.name, self.protocol.late_share = self.name, self.late_share
        self.protocol.generation = self.checkpoint.lease.generation
        self.protocol.begun = rounds.read_intent(self.store, state.batch + 1)
        # [!] A batch that Spark has begun may have reached the sink, under the number that a round would take.
        self.has_uncommitted_batch = (
            self.protocol.begun is None and self.checkpoint.offsets.of(state.offered + 1) is not None
        )
        if self.has_rounds:
            _ = self._empty_batch  # in a session as it is now, like that of Spark's batches
        self.offer(self.protocol, StateLoaded())

    @property
    def has_rounds(self) -> bool:
        """Whether there may be rounds beside the batches."""
        protocol = self.protocol
        return self.spilling is not None or self.final or protocol.begun is not None or protocol.state.has_spilled_units

    def prepare(self, schemas: Sequence[tuple[str, pa.Schema]]) -> None:
        """Create the output folders, for readers that start before the first rows.

        Args:
            schemas: The streams, with the columns of their late and rejected rows.
        """
        self.outputs.prepare(self.frames, self.checkpoint.place, self.store, schemas)

    def explain(self) -> str:
        """Return a description of how the join runs now, inner joins included."""
        state = self.protocol.state
        joins = ((tree.operator, own) for tree, own in self.tree.states(state))
        plans = [explain(op.query, op.strategy, op.ordering, own, op.host) for op, own in joins]
        hints = [f"hint: {hint}" for progress in self.protocol.history for hint in progress.get("hints", ())]
        decision = state.progress.get("spilling")
        spilling = describe_spilling(decision) if decision else ()
        closed, last = [CLOSED] if state.final else [], describe_freshness(state.progress)
        return "\n".join([*closed, *draw_join_tree(self.tree, state), *plans, *hints, *last, *spilling])

    def parameters(self) -> Parameters:
        """Return the cost model's parameters as measured in the last batches."""
        return measure(self.tree.operator.view(self.protocol.state))

    # -- called by Spark

    def callback(self) -> Callable[[DataFrame, int], None]:
        """Return what Spark is to call with each batch; it raises BatchInterruption once the runner is gone.

        The lease of a running query keeps the runner alive. [!] A strong reference here would make a cycle through
        Python and the JVM, which neither's garbage collection sees: Spark's query holds what it calls, and the runner
        holds the query.
        """
        runner = ref(self)

        def run_batch(batch: DataFrame, number: int) -> None:
            running = runner()
            if running is None:
                raise BatchInterruption
            running(batch, number)

        return run_batch

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Run one batch, after any interrupted round, noting in `times` when; refuse it if the runner is closed.

        An error is kept in `error`, as users see it, and ends the query.

        Raises:
            BatchInterruption: If the query is being stopped, whatever the error is.
        """
        with self.turn:
            if self.closed:
                self._refuse()
            self.times = time.monotonic(), None
            try:
                began = self.clock()
                if not self._checked:
                    self.checkpoint.offsets.check_batch(number, self.protocol.state)
                    self._checked = True
                if self.protocol.begun is not None:
                    self._round(QuietPeriod(began))
                self._batch = without_adaptive_execution(batch)
                now, offsets = int(self.clock.latest() * 1e6), self.checkpoint.offsets.of(number) or ""
                rows = not self.protocol.state.final or not batch.isEmpty()
                self.offer(self.protocol, BatchOffered(number, began, now, offsets, rows))
                self.has_uncommitted_batch = False
                if self.observed:
                    zoned = self.tree.operator.query.streams[0].time_type.tz is not None
                    report_figures(self.frames.spark, format_progress(self.protocol.state.progress, zoned))
                if self.spilling is None and self.protocol.state.has_spilled_units:  # spilled by an earlier start
                    self._round(QuietPeriod(self.clock(), all=True))
            except BaseException as error:
                self.error = self._explain_error(error, number)
                if not self._is_active():
                    raise BatchInterruption from None
                if isinstance(error, Exception):
                    raise
                raise self.error from None  # [!] sys.exit() would end the thread that Spark waits for
            finally:
                self._batch = None
                self.times = self.times[0], time.monotonic()

    def close(self) -> None:
        """Wait for the batch that runs, and start no other.

        [!] Don't hold the turn while stopping the query: Spark would wait for a batch that waits for the turn.
        """
        with self.turn:
            self.closed = True

    def _refuse(self) -> NoReturn:
        """Wait until Spark knows that the query is being stopped, then refuse the batch; the next start runs it.

        Raises:
            BatchInterruption: Always.
        """
        while self._is_active():
            time.sleep(POLL_SECONDS)
        raise BatchInterruption

    def _is_active(self) -> bool:
        try:
            return self.active()
        except (Py4JError, PySparkException, OSError):  # Spark is gone
            return False

    # -- called between batches

    def round(self, seconds: float | None = None, all: bool = False, final: bool = False) -> bool:
        """Run a round, without new rows; return whether it did anything.

        It waits for a batch that runs. It does nothing if nothing is owed, or while a batch must come first.

        Args:
            seconds: Roughly how long it may take to pay what is owed.
            all: Whether all is paid, however long it takes.
            final: Whether everything is closed for good, once all is paid.

        Raises:
            WatersmeetError: If it fails; it is then run again before the next batch.
        """
        with self.turn:
            self._check_between()
            if self.error is not None or self.has_uncommitted_batch:
                return False
            before = self.protocol.state.batch
            try:
                self._round(QuietPeriod(self.clock(), all, seconds, final))
            except Exception as error:
                raise self._explain_error(error, before + 1) from None
            return self.protocol.state.batch > before

    def settle(self, active: Callable[[], bool]) -> None:
        """Pay all that is owed, after any interrupted batch.

        Args:
            active: Tells whether batches still run.

        Raises:
            WatersmeetError: If it fails.
        """
        self._check_between()
        while self.has_uncommitted_batch and self.error is None and active():
            time.sleep(POLL_SECONDS)
        while self.round(all=True):
            pass
        if self.owes and (self.has_uncommitted_batch or self.error is not None):
            raise self._batch_first("pay what is owed")

    def finish(self) -> None:
        """Pay all that is owed and close everything for good, unless that has been done.

        Raises:
            WatersmeetError: If it fails; the next start does it.
        """
        while self.round(final=True):
            pass
        if not self.protocol.state.final:
            raise self._batch_first("close it for good")

    def _batch_first(self, purpose: str) -> StateError:
        """Return the error that an interrupted batch must come first."""
        why = f" ({str(self.error).rstrip('.')})" if isinstance(self.error, WatersmeetError) else ""
        return StateError(f"The last batch was cut short{why}, and comes first: start the query again to {purpose}.")

    def _check_between(self) -> None:
        """Refuse to pay from within a batch.

        Raises:
            StateError: If this thread runs one.
        """
        if self.turn.acquire(blocking=False):  # succeeds during a batch only in its own thread
            try:
                if self._batch is not None:
                    raise StateError("What is owed can't be paid from within a batch: call settle() from elsewhere.")
            finally:
                self.turn.release()

    @property
    def owes(self) -> bool:
        """Whether results are owed."""
        states = self.tree.states(self.protocol.state)
        return any(own.ledger.owes(unit_reaches(join.operator.query, own.chunks.values())) for join, own in states)

    @cached_property
    def _empty_batch(self) -> DataFrame:
        """An empty batch, in a copy of the session, with the user's functions, as batches have one; made once."""
        session = self.frames.spark
        copy = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
        schema = self.frames.input(bool(self.outputs.sides)).schema
        return without_adaptive_execution(copy.createDataFrame([], schema))

    def _round(self, event: QuietPeriod) -> None:
        """Run a round over an empty batch, in place of one of Spark's; raises whatever fails."""
        try:
            self._batch = self._empty_batch
            self.offer(self.protocol, event)
        finally:
            self._batch = None

    def _explain_error(self, error: BaseException, number: int) -> BaseException:
        """Return the error that users are to see in place of one; records nothing, but may read the lease's files.

        The first that applies: the loss of the lease, as such a run may fail anywhere; our own errors, unchanged; the
        doubt about the last manifest; the release of the lease; a PredicateError if the input caused it; else a
        StateError, caused by `error`, that says whether the batch was not written or only not delivered.

        Args:
            error: The error.
            number: The batch that failed.
        """
        with suppress(OSError):  # if not even the lease can be read, the error itself says why
            if loss := self.checkpoint.lease.loss():
                return loss
        if isinstance(error, WatersmeetError):
            return error
        if self.protocol.in_doubt is not None:
            return self.protocol.in_doubt
        try:
            self.check_lease()
        except StateError as release:
            return release
        except OSError:
            pass
        if isinstance(error, PySparkException) and self._is_input_error(error):
            return PredicateError(f"Spark raised an error while reading new tuples: {error_sentence(error)}.")
        problem = f"Batch {number} was not written"
        if self.protocol.undelivered:
            problem = f"Batch {self.protocol.state.batch} is safe, but its files could not be moved to their folders"
        explanation = StateError(f"{problem}: {describe_error(error)}; start the query again once that is fixed.")
        explanation.__cause__ = error
        return explanation

    def _is_input_error(self, error: PySparkException) -> bool:
        """Tell whether the data, or a function of the user's, caused an error while tuples were read."""
        return not self._writing and not is_death(error) and is_data_error(str(error))

    # -- actions of the protocol

    def check_lease(self) -> None:
        """See Runtime."""
        self.checkpoint.lease.check()

    def run(self, action: RunJobs) -> JobsFinished:
        """Run the jobs of a batch on Spark; they write state and results to the store."""
        start, self._writing = self.clock(), False
        event = JobsFinished(self._jobs().run(action.plans), start, self.clock())
        self.after("reports")
        return event

    def _jobs(self) -> Jobs:
        assert self._batch is not None
        after, everything = partial(self.after, "job"), bool(self.outputs.sides)
        store = self.checkpoint.place, self.checkpoint.name
        return Jobs(self.frames, self._batch, *store, self.exchange, everything, self.clock, after)

    def withdraw(self, action: Withdraw) -> None:
        """Remove from the sink and side outputs what earlier runs left."""
        self.outputs.withdraw(action.first, self.check_lease)

    def publish(self, action: Publish) -> ResultsPublished:
        """Write results to the sink, or prepare their delivery, and that of rows for the side outputs.

        Removes temporary files from the store, except those that are to be delivered.

        Raises:
            StateError: If another run has taken over the store.
        """
        self.check_lease()
        self.has_uncommitted_batch = self.protocol.begun is None
        jobs, place = self._jobs(), self.checkpoint.place
        read = partial(jobs.read, self.frames, action.files, action.batch)
        results = Results(jobs.batch.sparkSession, action.batch, place, action.files, read, self.outputs.plain)
        self._writing = True
        with job_description(jobs.batch.sparkSession, f"batch {action.batch}: sink"):
            deliveries = self.outputs.write(results, action.sides)
        self.store.remove({*action.temporary_files}.difference(*(delivery.stored for delivery in deliveries)))
        self.after("sink")
        return ResultsPublished(self.clock(), time.time(), deliveries)

    def deliver(self, action: Deliver) -> None:
        """Move the files of a committed batch to their folders."""
        self.outputs.deliver(action.deliveries, self.checkpoint.place)
        self.after("delivery")

    def commit(self, action: Commit) -> Manifest | None:
        """Write the manifest and return it, if the store is still this run's; else None. Logs what spilling decided."""
        manifest = super().commit(action)
        if manifest is not None:
            decision = manifest.progress.get("spilling", {}).get("decision")
            if decision is not None:
                logging.getLogger("watersmeet").info("After batch %d: %s", manifest.batch, decision["why"])
            self.after("manifest")
        return manifest

    def retract(self, action: Retract) -> None:
        """Withdraw the prepared delivery of a batch that another run has committed.

        Raises:
            StateError: Always: the query ends with it.
        """
        self.outputs.retract(action.batch)
        self.check_lease()
        raise StateError(f"Another run has committed batch {action.batch} at {self.store.root}; stop that one.")

    def warn(self, action: Warn) -> None:
        """Log a warning."""
        logging.getLogger("watersmeet").warning(action.message)


def without_adaptive_execution(batch: DataFrame) -> DataFrame:
    """Return a batch; turns adaptive execution off in its session, so that plans don't change while they run."""
    batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
    return batch


def description(tree: FrameTree) -> dict[str, Any]:
    """Return what must not change between runs of one checkpoint, inner joins included."""
    inner = {f"join '{tree.query.streams[at].name}'": description(node) for at, node in tree.inner.items()}
    return tree.query.description() | inner
