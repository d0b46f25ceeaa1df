"""The handle of a running join: Spark's own, with progress, `why` and errors in one sentence."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.cost.parameters import Parameters
from watersmeet.errors import PredicateError, StateError, WatersmeetError
from watersmeet.observe.dashboard.build import build_view
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointSnapshot, Runner
from watersmeet.observe.dashboard.notebook import ProgressList, render_summary
from watersmeet.observe.progress import format_progress
from watersmeet.observe.why.answer import Answer
from watersmeet.observe.why.question import Values
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.api.why_running import merge_values, why_running
from watersmeet.spark.checkpoint.lease import LeaseLost, QueryStopped
from watersmeet.spark.run.batch import POLL_SECONDS, BatchRunner, description
from watersmeet.spark.run.failures import failure, is_data_error
from watersmeet.spark.run.round_scheduler import RoundScheduler
from watersmeet.spark.sql.catalyst import error_sentence

CONNECTION_ERRORS = (Py4JNetworkError, ConnectionError)
"""The errors that calls of Spark raise once its JVM has ended."""
NO_SPARK = "Spark is gone: its JVM has ended, perhaps for lack of memory. Start the program again; nothing is lost."
STOPPED = "The query has stopped. Start it again to pay what is owed; next time, stop it with stop(settle=True)."


def _describe_batch(last: Mapping[str, Any]) -> str:
    return (
        f"batch {last['batchId']}: {sum(last['inputRows'].values()):,} rows in, {last['outputRows']:,} results, "
        f"{last['durationMs']['total'] / 1000:.2f} s, watermark {last['watermark']} held by {last['heldBackBy']}"
    )


class JoinQuery:
    """A running join: Spark's own query handle, with `progress` and with errors in one sentence."""

    def __init__(self, query: StreamingQuery, join: JoinDefinition, runner: BatchRunner, ends: bool = False) -> None:
        """Wrap a query that has been started, and start its rounds, if any.

        The runner and the lease learn whether the query is active; the lease lasts as long, and stops it if it is lost.
        """
        self._query, self._join, self._runner = query, join, runner
        self._rounds = RoundScheduler(query, runner, ends) if runner.has_rounds else None
        self._settling = False
        self._failure: WatersmeetError | None = None
        self._loss: LeaseLost | None = None
        runner.checkpoint.lease.is_needed = lambda: self.isActive
        runner.checkpoint.lease.stop = self._stop_without_lease
        runner.active = lambda: query.isActive
        if self._rounds is not None:
            self._rounds.start()

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._query, name)
        except CONNECTION_ERRORS:
            raise StateError(NO_SPARK) from None

    def _stop_without_lease(self, loss: LeaseLost) -> None:
        """Stop at once, before Spark writes to a checkpoint that is another run's. Waits for no round: it may be long.

        Args:
            loss: What the handle is to say from now on.
        """
        self._loss = loss
        if self._rounds is not None:
            self._rounds.request_end()
        self._query.stop()

    @property
    def isActive(self) -> bool:
        """Whether the query goes on, even if only to pay what is owed or to close everything for good."""
        return self._is_spark_active() or self._settling or (self._rounds is not None and self._rounds.is_alive())

    def _is_spark_active(self) -> bool:
        try:
            return self._query.isActive
        except CONNECTION_ERRORS:
            return False

    def settle(self) -> None:
        """Pay all that is owed now, before the next batch; nothing to do without `spill=`.

        Raises:
            StateError: If the query has stopped: what is owed is paid once it is started again.
            WatersmeetError: If that fails, in one sentence.
        """
        if self.isActive:
            self._runner.settle(lambda: self._query.isActive)
        elif self._runner.owes:
            raise StateError(STOPPED)

    @property
    def progress(self) -> ProgressList:
        """What each of the last 500 batches did, oldest first, across restarts.

        A list of dicts. Event times in it are ISO 8601 text; `datetime.fromisoformat` reads them.
        """
        return ProgressList(map(self._format_batch, self._runner.protocol.history))

    def _format_batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        return format_progress(batch, self._runner.tree.operator.query.streams[0].time_type.tz is not None)

    def __repr__(self) -> str:
        name = f"'{self.name}'" if self.name else f"id {self.id}"
        batches = [_describe_batch(self._format_batch(batch)) for batch in self._runner.protocol.history[-1:]]
        ended = "closed for good" if self._runner.protocol.state.final else "stopped"
        return f"JoinQuery({name}, {'running' if self.isActive else ended}; {(*batches, 'no batch yet')[0]})"

    def _repr_html_(self) -> str:
        protocol, holder = self._runner.protocol, Runner(has_ended=not self.isActive)
        query = description(self._runner.frames)
        recorded = CheckpointSnapshot(self._runner.store.root, query, protocol.state, tuple(protocol.history), holder)
        return render_summary(build_view(recorded, int(time.time() * 1e6)))

    def why(self, tuples: Mapping[str, Values] | None = None, /, **streams: Values) -> Answer:
        """Return what became of tuples, and of their combination, as far as state, side outputs and results show.

        The query may be running. If the tuples have been purged, the answer says that it is no longer known. Python
        predicates may be called, and Spark jobs run.

        Args:
            tuples: The values by which to find the tuple of each stream, as a dict or as a text.
            streams: The same, by the names of the streams: `query.why(a={"id": 17}, b="id = 4")`.

        Raises:
            DefinitionError: If there is no such stream, column or value.
        """
        return why_running(self._join, self._runner, merge_values(tuples, streams))

    @property
    def parameters(self) -> Parameters:
        """The parameters of the cost model, measured in the last batches: rates, windows, times, selectivities."""
        return self._runner.parameters()

    def explain(self, extended: bool = False) -> None:
        """Print how the join runs now: strategy, join orders, expected and actual matches of hops.

        Args:
            extended: Whether to print Spark's own plan of the last batch as well.
        """
        print(self._runner.explain())
        if extended:
            self._query.explain(extended)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the query to end.

        If it ends by itself, that is after its last round.

        Args:
            timeout: How many seconds to wait at most; then the result says whether it has ended; else it is None.

        Raises:
            WatersmeetError: If the join failed, in one sentence.
        """
        with self._translate_errors():
            deadline = None if timeout is None else time.monotonic() + timeout
            ended = self._query.awaitTermination() if timeout is None else self._query.awaitTermination(timeout)  # type: ignore[arg-type]
            if self._rounds is not None and not self._query.isActive:
                self._rounds.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
                if self._rounds.is_alive():
                    return False
                self._check_loss()
                if self._rounds.error is not None and self._rounds.ends:
                    raise self._rounds.error
            while self._settling:  # another thread stops it, and pays first
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                time.sleep(POLL_SECONDS)
            self._check_loss()
            return ended

    def _check_loss(self) -> None:
        """Raise what the lease's thread has stopped the query for, if it has."""
        if self._loss is not None and not self.isActive:
            raise self._loss

    def processAllAvailable(self) -> None:
        """Wait until all current input has been joined; for tests."""
        with self._translate_errors():
            self._query.processAllAvailable()
            self._check_loss()

    def stop(self, settle: bool = False) -> None:
        """Stop the query; the checkpoint is then free for another.

        Args:
            settle: Whether to pay all that is owed first, however long it takes; otherwise, or if interrupted, the next
                start pays it.

        Raises:
            WatersmeetError: If what is owed can't be paid, in one sentence.
        """
        if settle and not self.isActive:
            self.settle()
            return
        self._settling = settle
        with self._translate_errors():
            try:
                if self._rounds is not None:
                    self._rounds.end()
                if settle:
                    self._runner.close()
                self._query.stop()
                if settle:
                    self._runner.settle(lambda: False)
            except BaseException:  # [!] such as Ctrl-C: the query must not go on without being settled
                with suppress(Exception):
                    self._query.stop()
                raise
            finally:
                self._settling = False

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise errors within the context in one sentence, and release the checkpoint at once if the query has ended.

        That a batch was cut short by stopping the query is no error.
        """
        try:
            yield
        except StreamingQueryException as error:
            if self._rounds is not None:
                self._rounds.end()  # [!] otherwise the checkpoint stays taken until the thread notices
            if not isinstance(self._runner.error, QueryStopped):
                translated = self._translate(error)
                raise translated from translated.__cause__
        except CONNECTION_ERRORS:
            raise StateError(NO_SPARK) from None
        finally:
            if not self.isActive:
                self._runner.checkpoint.lease.end()

    def exception(self) -> BaseException | None:
        """Return why the query failed, or None.

        The error says it in one sentence; there is none for a batch that was cut short by stopping the query.
        """
        try:
            error = self._query.exception()
        except CONNECTION_ERRORS:
            return StateError(NO_SPARK)
        if error is None and self._loss is not None:
            return self._loss
        if error is None and self._rounds is not None and self._rounds.ends and not self.isActive:
            return self._rounds.error
        if error is None or isinstance(self._runner.error, QueryStopped):
            return None
        return self._translate(error)

    def _translate(self, error: Exception) -> WatersmeetError:
        """Return our own error for one of Spark's, which may come from data or from a user's function at intake.

        What Spark raised outside of batches is explained once, by the checkpoint's files, and kept.
        """
        if isinstance(self._runner.error, WatersmeetError):
            return self._runner.error
        if self._runner.error is None and isinstance(error, PySparkException) and is_data_error(str(error)):
            return PredicateError(f"Spark raised an error while reading new tuples: {error_sentence(error)}.")
        if self._failure is None:
            checkpoint = self._runner.checkpoint
            self._failure = failure(error, checkpoint.offsets.checkpoint, checkpoint.lease)
            self._failure.__cause__ = error
        return self._failure
