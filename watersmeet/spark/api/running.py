"""The handle of a running join: Spark's own, with progress, answers and errors in one sentence."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

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
from watersmeet.spark.api.asking import given_by, why_running
from watersmeet.spark.checkpoint.lease import Stopped
from watersmeet.spark.run.batch import WAITED, BatchRunner, description, is_data_error
from watersmeet.spark.run.failures import failure
from watersmeet.spark.run.lulls import Lulls
from watersmeet.spark.sql.catalyst import said

if TYPE_CHECKING:
    from watersmeet.spark.api.join import Join

GONE = (Py4JNetworkError, ConnectionError)
"""What asking Spark raises once its JVM has ended."""
NO_SPARK = "Spark is gone: its JVM has ended, perhaps for lack of memory. Start the program again; nothing is lost."
STOPPED = "The query has stopped. Start it again to pay what is owed; next time, stop it with stop(settle=True)."


def _told(last: Mapping[str, Any]) -> str:
    return (
        f"batch {last['batchId']}: {sum(last['inputRows'].values()):,} rows in, {last['outputRows']:,} results, "
        f"{last['durationMs']['total'] / 1000:.2f} s, watermark {last['watermark']} held by {last['heldBackBy']}"
    )


class JoinQuery:
    """A running join: Spark's own query handle, with `progress` and with errors in one sentence."""

    def __init__(self, query: StreamingQuery, join: "Join", runner: BatchRunner, ends: bool = False) -> None:
        self._query, self._join, self._runner = query, join, runner
        self._lulls = Lulls(query, runner, ends) if runner.has_rounds else None
        self._settling = False
        self._failure: WatersmeetError | None = None
        runner.checkpoint.lease.needed = lambda: self.isActive
        runner.active = lambda: query.isActive
        if self._lulls is not None:
            self._lulls.start()

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._query, name)
        except GONE:
            raise StateError(NO_SPARK) from None

    @property
    def isActive(self) -> bool:
        """Whether the query goes on, be it only to pay what is owed or to close everything for good."""
        return self._is_run() or self._settling or (self._lulls is not None and self._lulls.is_alive())

    def _is_run(self) -> bool:
        try:
            return self._query.isActive
        except GONE:
            return False

    def settle(self) -> None:
        """Pay all that is owed now, before the next batch; nothing to do without `spill=`.

        Raises:
            StateError: If the query has stopped: what is owed is paid once it is started again.
            WatersmeetError: If it could not be done, in one sentence.
        """
        if self.isActive:
            self._runner.settle(lambda: self._query.isActive)
        elif self._runner.owes:
            raise StateError(STOPPED)

    @property
    def progress(self) -> ProgressList:
        """What each of the last batches did, oldest first; kept across restarts for the last 500 batches.

        A list of dicts. Event times in it are ISO 8601 text; `datetime.fromisoformat` reads them.
        """
        return ProgressList(map(self._readable, self._runner.protocol.history))

    def _readable(self, told: Mapping[str, Any]) -> dict[str, Any]:
        return format_progress(told, self._runner.tree.operator.query.streams[0].time_type.tz is not None)

    def __repr__(self) -> str:
        name = f"'{self.name}'" if self.name else f"id {self.id}"
        last = "".join(_told(self._readable(told)) for told in self._runner.protocol.history[-1:]) or "no batch yet"
        ended = "closed for good" if self._runner.protocol.state.final else "stopped"
        return f"JoinQuery({name}, {'running' if self.isActive else ended}; {last})"

    def _repr_html_(self) -> str:
        protocol, holder = self._runner.protocol, Runner(has_ended=not self.isActive)
        described = description(self._runner.frames)
        told = CheckpointSnapshot(self._runner.store.root, described, protocol.state, tuple(protocol.history), holder)
        return render_summary(build_view(told, int(time.time() * 1e6)))

    def why(self, tuples: Mapping[str, Values] | None = None, /, **streams: Values) -> Answer:
        """Return what became of tuples, and of their combination, as far as state, side outputs and results tell.

        The query may be running. What was purged can't be told any more, and the answer says so.

        Args:
            tuples: For streams that are asked about the values by which to find their tuples, as a dict or as a text.
            streams: The same, by the names of the streams: `query.why(a={"id": 17}, b="id = 4")`.

        Raises:
            DefinitionError: If there is no such stream, column or value.
        """
        return why_running(self._join, self._runner, given_by(tuples, streams))

    @property
    def parameters(self) -> Parameters:
        """The parameters of the cost model as the last batches measured them: rates, windows, times, selectivities."""
        return self._runner.parameters()

    def explain(self, extended: bool = False) -> None:
        """Print how the join runs now: strategy, join orders, what hops are expected to find and did find.

        Args:
            extended: Whether to print Spark's own plan of the last batch as well.
        """
        print(self._runner.explained())
        if extended:
            self._query.explain(extended)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the query to end.

        Raises:
            WatersmeetError: If the join failed, in one sentence.
        """
        with self._told():
            until = None if timeout is None else time.monotonic() + timeout
            ended = self._query.awaitTermination() if timeout is None else self._query.awaitTermination(timeout)  # type: ignore[arg-type]
            if self._lulls is not None and not self._query.isActive:
                self._lulls.join(None if until is None else max(0.0, until - time.monotonic()))
                if self._lulls.is_alive():
                    return False
                if self._lulls.error is not None and self._lulls.ends:
                    raise self._lulls.error
            while self._settling:  # another thread stops it, and pays first
                if until is not None and time.monotonic() >= until:
                    return False
                time.sleep(WAITED)
            return ended

    def processAllAvailable(self) -> None:
        """Wait until all that is there now has been joined; for tests."""
        with self._told():
            self._query.processAllAvailable()

    def stop(self, settle: bool = False) -> None:
        """Stop the query; the checkpoint is then free for another.

        Args:
            settle: Whether all that is owed is paid first, however long it takes; else, or if it is interrupted, the
                next start pays it.
        """
        if settle and not self.isActive:
            self.settle()
            return
        self._settling = settle
        with self._told():
            try:
                if self._lulls is not None:
                    self._lulls.end()
                if settle:
                    self._runner.close()
                self._query.stop()
                if settle:
                    self._runner.settle(lambda: False)
            except BaseException:  # [!] such as Ctrl-C: a query that nobody pays for must not go on
                with suppress(Exception):
                    self._query.stop()
                raise
            finally:
                self._settling = False

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say errors in one sentence, and give the checkpoint back at once if the query has ended."""
        try:
            yield
        except StreamingQueryException as error:
            if self._lulls is not None:
                self._lulls.end()  # [!] until it notices by itself, the checkpoint would not be free
            if not isinstance(self._runner.error, Stopped):
                told = self._ours(error)
                raise told from told.__cause__
        except GONE:
            raise StateError(NO_SPARK) from None
        finally:
            if not self.isActive:
                self._runner.checkpoint.lease.end()

    def exception(self) -> BaseException | None:
        """Return why the query failed, or None."""
        try:
            error = self._query.exception()
        except GONE:
            return StateError(NO_SPARK)
        if error is None and self._lulls is not None and self._lulls.ends and not self.isActive:
            return self._lulls.error
        if error is None or isinstance(self._runner.error, Stopped):
            return None
        return self._ours(error)

    def _ours(self, error: Exception) -> WatersmeetError:
        """Return an error of ours; what data or a function of the user's make of a condition at intake is one, too."""
        if isinstance(self._runner.error, WatersmeetError):
            return self._runner.error
        if self._runner.error is None and isinstance(error, PySparkException) and is_data_error(str(error)):
            return PredicateError(f"Spark raised an error while reading new tuples: {said(error)}.")
        if self._failure is None:
            checkpoint = self._runner.checkpoint
            self._failure = failure(error, checkpoint.offsets.checkpoint, checkpoint.lease)
            self._failure.__cause__ = error
        return self._failure
