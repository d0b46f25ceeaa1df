"""Spark's batches: enacts the batch protocol (`watersmeet.runtime.protocol`) whenever Spark calls back."""

import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import RLock
from typing import Any, NoReturn

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from watersmeet.cost.parameters import Parameters, measure
from watersmeet.errors import PredicateError, StateError, WatersmeetError
from watersmeet.observe.explain import draw_join_tree, explain
from watersmeet.observe.lateness import LATE_SHARE
from watersmeet.observe.progress import format_progress
from watersmeet.observe.timing import describe_freshness
from watersmeet.runtime.enact import Runtime
from watersmeet.runtime.protocol import (
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
from watersmeet.runtime.tree import JoinTree
from watersmeet.spark.checkpoint.lease import Lease
from watersmeet.spark.checkpoint.offsets import Offsets
from watersmeet.spark.checkpoint.paths import Location
from watersmeet.spark.output.outputs import Outputs
from watersmeet.spark.output.sinks import Results
from watersmeet.spark.run import observed
from watersmeet.spark.run.clock import Clock
from watersmeet.spark.run.jobs import Jobs
from watersmeet.spark.run.naming import named
from watersmeet.spark.run.tree import FrameTree
from watersmeet.spark.run.versions import misfit
from watersmeet.spark.run.workers import is_death
from watersmeet.spark.sql.catalyst import said
from watersmeet.spilling.decisions import lines
from watersmeet.spilling.owed_tuples import reaches
from watersmeet.spilling.paying import Paying
from watersmeet.spilling.spilling import Spilling
from watersmeet.state.manifest import history, rounds
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store

WAITED = 0.1
"""Seconds between two looks at whether a batch that was cut is done."""
CLOSED = "closed for good: all results are out, no state is left, and no more rows are taken"
"""How a join is shown after its final round."""
DATA_ERROR = r"SQLSTATE: (22|38|39|P0)|PythonException|Python worker"
"""How errors look that come of the data, or of functions of the user's."""
DISK_ERROR = r"No space left on device|Disk quota exceeded|Read-only file system"
"""How errors of a disk look, in a task's as well."""


class Interrupted(Exception):
    """A batch was cut by a stop of the query; says so in the words by which Spark knows it from an error.

    [!] Spark looks for them with a pattern that takes a frame of the JVM's stack for every character: in the traceback
    of the error itself, with the JVM's own in it, the stack overflows, and that is what people then see.
    """

    def __str__(self) -> str:
        """Return the words."""
        return "py4j.protocol.Py4JJavaError: An error occurred while calling the join: java.lang.InterruptedException"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a query keeps what must survive it.

    Attributes:
        place: Where the store is.
        name: The store's name, which no other has.
        store: The join's part.
        lease: What says that the store is this run's.
        offsets: Spark's part: the offsets of its batches.
    """

    place: Location
    name: str
    store: Store
    lease: Lease
    offsets: Offsets


@dataclass
class BatchRunner(Runtime):
    """Runs the batches of one start of a query; what Spark's foreachBatch calls.

    Attributes:
        frames: The frames of the join, with its inner joins.
        tree: The same joins, as the protocol takes them.
        checkpoint: Where state is kept.
        outputs: Where results go.
        exchange: How partial results travel.
        due: The seconds from one batch to the next, if the trigger says so.
        clock: The driver's clock.
        after: Called at each step of the protocol with its name; tests cut the run there.
        error: Why the query failed, as people are told it.
        spilling: What decides on work that is put off, if some may be.
        final: Whether everything is closed for good once the input has ended.
        observed: Whether Spark's own progress is to carry the figures of batches.
        cut: Whether a batch may have reached the sink that is not committed: it must come before any round.
        closed: Whether no more batches are to begin.
        turn: Whoever runs a batch or a round holds it.
        times: When the last batch began, and when it ended, by a clock of this process; None before it did.
        _writing: Whether results have been handed to the sink: what raises then is not the input.
        active: Tells whether Spark still runs batches; not once the query is being stopped.
        name: What the user calls the query, if anything.
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
    cut: bool = False
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
        """Read the state that the store holds, and deliver what its last batch left to deliver.

        Raises:
            StateError: If its newest manifest is damaged.
        """
        found = manifests.last(self.store)
        told = history.load(self.store, found.batch) if found else []
        state = found or self.tree.start()
        decides = self.spilling or Paying()
        self.protocol = Protocol(self.tree, state, told, self.exchange, self.due, spilling=decides)
        self.protocol.name, self.protocol.late_share = self.name, self.late_share
        self.protocol.generation = self.checkpoint.lease.number
        self.protocol.begun = rounds.read_intent(self.store, state.batch + 1)
        # [!] What Spark has begun may have reached the sink, under the number that a round would take.
        self.cut = self.protocol.begun is None and self.checkpoint.offsets.of(state.offered + 1) is not None
        if self.has_rounds:
            _ = self._nothing  # in a session as it is now, like that of Spark's batches
        self.offer(self.protocol, StateLoaded())

    @property
    def has_rounds(self) -> bool:
        """Whether there may be rounds beside the batches."""
        protocol = self.protocol
        return self.spilling is not None or self.final or protocol.begun is not None or protocol.state.has_spilled_units

    def prepare(self, schemas: Sequence[tuple[str, pa.Schema]]) -> None:
        """Make the output folders, for readers who come before the first rows.

        Args:
            schemas: The streams, with the columns that rows have which are not taken.
        """
        self.outputs.prepare(self.frames, self.checkpoint.place, self.store, schemas)

    def explained(self) -> str:
        """Return how the join runs now, inner joins included."""
        state = self.protocol.state
        parts = ((tree.operator, own) for tree, own in self.tree.states(state))
        shown = [explain(op.query, op.strategy, op.ordering, own, op.host) for op, own in parts]
        hints = [f"hint: {hint}" for progress in self.protocol.history for hint in progress.get("hints", ())]
        told = state.progress.get("spilling")
        closed, last = [CLOSED] if state.final else [], describe_freshness(state.progress)
        return "\n".join(
            [*closed, *draw_join_tree(self.tree, state), *shown, *hints, *last, *(lines(told) if told else ())]
        )

    def parameters(self) -> Parameters:
        """Return what the last batches measured, as the cost model takes it."""
        return measure(self.tree.operator.view(self.protocol.state))

    # -- called by Spark

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Run one batch; first of all a round that was cut."""
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
                self._batch = calm(batch)
                now, offsets = int(self.clock.latest() * 1e6), self.checkpoint.offsets.of(number) or ""
                rows = not self.protocol.state.final or not batch.isEmpty()
                self.offer(self.protocol, BatchOffered(number, began, now, offsets, rows))
                self.cut = False
                if self.observed:
                    zoned = self.tree.operator.query.streams[0].time_type.tz is not None
                    observed.tell(self.frames.spark, format_progress(self.protocol.state.progress, zoned))
                if self.spilling is None and self.protocol.state.has_spilled_units:  # an earlier start put it off
                    self._round(QuietPeriod(self.clock(), all=True))
            except BaseException as error:
                self.error = self._said(error, number)
                if not self._goes_on():
                    raise Interrupted from None
                if isinstance(error, Exception):
                    raise
                raise self.error from None  # [!] sys.exit() would end the thread that Spark waits for
            finally:
                self._batch = None
                self.times = self.times[0], time.monotonic()

    def close(self) -> None:
        """Let the batch under way end, and begin no other.

        [!] Who stops the query must not keep the turn meanwhile: Spark waits for a batch that waits for it.
        """
        with self.turn:
            self.closed = True

    def _refuse(self) -> NoReturn:
        """Refuse a batch of a query that is about to be stopped, as soon as Spark knows; the next start begins it."""
        while self._goes_on():
            time.sleep(WAITED)
        raise Interrupted

    def _goes_on(self) -> bool:
        try:
            return self.active()
        except (Py4JError, PySparkException, OSError):  # Spark is gone
            return False

    # -- called between batches

    def round(self, seconds: float | None = None, all: bool = False, final: bool = False) -> bool:
        """Run a round, without new rows; return whether there was something to do, and it could be done now.

        Args:
            seconds: About how long it may take to pay what is owed.
            all: Whether all is to be paid, however long it takes.
            final: Whether everything is closed for good, once all is paid.

        Raises:
            WatersmeetError: If it could not be done; it is then done before the next batch.
        """
        with self.turn:
            self._check_between()
            if self.error is not None or self.cut:
                return False
            before = self.protocol.state.batch
            try:
                self._round(QuietPeriod(self.clock(), all, seconds, final))
            except Exception as error:
                raise self._said(error, before + 1) from None
            return self.protocol.state.batch > before

    def settle(self, active: Callable[[], bool]) -> None:
        """Pay all that is owed; a batch that was cut comes first.

        Args:
            active: Tells whether batches are still run.

        Raises:
            WatersmeetError: If it could not be done.
        """
        self._check_between()
        while self.cut and self.error is None and active():
            time.sleep(WAITED)
        while self.round(all=True):
            pass
        if self.owes and (self.cut or self.error is not None):
            raise self._cut_short("pay what is owed")

    def finish(self) -> None:
        """Pay all that is owed and close everything for good; nothing to do where that has been done.

        Raises:
            WatersmeetError: If it could not be done; the next start does it.
        """
        while self.round(final=True):
            pass
        if not self.protocol.state.final:
            raise self._cut_short("close it for good")

    def _cut_short(self, purpose: str) -> StateError:
        """Return that a batch which was cut must come first."""
        why = f" ({str(self.error).rstrip('.')})" if isinstance(self.error, WatersmeetError) else ""
        return StateError(f"The last batch was cut short{why}, and comes first: start the query again to {purpose}.")

    def _check_between(self) -> None:
        """Refuse to pay from within a batch, whose turn it is.

        Raises:
            StateError: If this thread runs one.
        """
        if self.turn.acquire(blocking=False):  # only who has it may take it again
            try:
                if self._batch is not None:
                    raise StateError("What is owed can't be paid from within a batch: call settle() from elsewhere.")
            finally:
                self.turn.release()

    @property
    def owes(self) -> bool:
        """Whether some tuple has not asked all it should."""
        states = self.tree.states(self.protocol.state)
        return any(own.ledger.owes(reaches(join.operator.query, own.chunks.values())) for join, own in states)

    @cached_property
    def _nothing(self) -> DataFrame:
        """An empty batch, in a session like those of batches: a copy, with the user's functions."""
        session = self.frames.spark
        copy = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
        return calm(copy.createDataFrame([], self.frames.input(bool(self.outputs.sides)).schema))

    def _round(self, lull: QuietPeriod) -> None:
        """Run a round over an empty batch."""
        try:
            self._batch = self._nothing
            self.offer(self.protocol, lull)
        finally:
            self._batch = None

    def _said(self, error: BaseException, number: int) -> BaseException:
        """Return an error as people are told of it: who has lost the lease may find files gone, whatever it does."""
        if isinstance(error, WatersmeetError):
            return error
        if self.protocol.in_doubt is not None:
            return self.protocol.in_doubt
        try:
            self.check_lease()
        except StateError as lost:
            return lost
        except OSError:  # where not even the lease can be looked at, the error itself says why
            pass
        if isinstance(error, PySparkException) and self._is_of_data(error):
            return PredicateError(f"Spark raised an error while reading new tuples: {said(error)}.")
        says = f"Batch {number} was not written"
        if self.protocol.undelivered:
            says = f"Batch {self.protocol.state.batch} is safe, but its files could not be put into their folders"
        told = StateError(f"{says}: {what(error)}; start the query again once that is fixed.")
        told.__cause__ = error
        return told

    def _is_of_data(self, error: PySparkException) -> bool:
        """Tell whether an error comes of the data, or of a function of the user's that raised, as tuples were read."""
        return not self._writing and not is_death(error) and is_data_error(str(error))

    # -- asked for by the protocol

    def check_lease(self) -> None:
        """See Runtime."""
        self.checkpoint.lease.check()

    def run(self, action: RunJobs) -> JobsFinished:
        """Run the jobs of a batch on Spark."""
        began, self._writing = self.clock(), False
        done = JobsFinished(self._jobs().run(action.plans), began, self.clock())
        self.after("reports")
        return done

    def _jobs(self) -> Jobs:
        assert self._batch is not None
        done, everything = partial(self.after, "job"), bool(self.outputs.sides)
        where = self.checkpoint.place, self.checkpoint.name
        return Jobs(self.frames, self._batch, *where, self.exchange, everything, self.clock, done)

    def withdraw(self, action: Withdraw) -> None:
        """Remove from sink and side outputs what earlier runs left."""
        self.outputs.withdraw(action.first, self.check_lease)

    def publish(self, action: Publish) -> ResultsPublished:
        """Write results to the sink, or make them ready, as are rows for the side outputs."""
        self.check_lease()
        self.cut = self.protocol.begun is None
        jobs, place = self._jobs(), self.checkpoint.place
        read = partial(jobs.read, self.frames, action.files, action.batch)
        results = Results(jobs.batch.sparkSession, action.batch, place, action.files, read, self.outputs.plain)
        self._writing = True
        with named(jobs.batch.sparkSession, f"batch {action.batch}: sink"):
            deliveries = self.outputs.write(results, action.sides)
        self.store.remove({*action.written}.difference(*(delivery.stored for delivery in deliveries)))
        self.after("sink")
        return ResultsPublished(self.clock(), time.time(), deliveries)

    def deliver(self, action: Deliver) -> None:
        """Let files of a committed batch appear in their folders."""
        self.outputs.deliver(action.deliveries, self.checkpoint.place)
        self.after("delivery")

    def commit(self, action: Commit) -> Manifest | None:
        """Write the manifest, if the store is still this run's."""
        published = super().commit(action)
        if published is not None:
            decision = published.progress.get("spilling", {}).get("decision")
            if decision is not None:
                logging.getLogger("watersmeet").info("After batch %d: %s", published.batch, decision["why"])
            self.after("manifest")
        return published

    def retract(self, action: Retract) -> None:
        """Take back what was made ready of a batch that another run has done.

        Raises:
            StateError: That it is so.
        """
        self.outputs.retract(action.batch)
        self.check_lease()
        raise StateError(f"Another run has committed batch {action.batch} at {self.store.root}; stop that one.")

    def warn(self, action: Warn) -> None:
        """Log what people are to be told."""
        logging.getLogger("watersmeet").warning(action.says)


def calm(batch: DataFrame) -> DataFrame:
    """Return a batch whose session does not change plans while they run."""
    batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
    return batch


def is_data_error(text: str) -> bool:
    """Tell whether an error comes of the data, or of functions of the user's; a task that has no space looks alike."""
    return bool(re.search(DATA_ERROR, text)) and not re.search(DISK_ERROR, text)


def what(error: BaseException) -> str:
    """Return what an error says, of files those that it was about."""
    if isinstance(error, OSError):
        files = [name for name in (error.filename, error.filename2) if name]
        return f"{error.strerror or error}{f' ({files[-1]})' if files else ''}"
    if isinstance(error, PySparkException | Py4JError):
        return misfit(error) or re.sub(r"^java[\w.]*: ", "", said(error))
    return f"{type(error).__name__}: {error}"


def description(tree: FrameTree) -> dict[str, Any]:
    """Return what must not change between two runs of one checkpoint, inner joins included."""
    inner = {f"join '{tree.query.streams[at].name}'": description(node) for at, node in tree.inner.items()}
    return tree.query.description() | inner
