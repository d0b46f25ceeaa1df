"""Rounds between batches: they pay what is owed in quiet periods, and before a query that ends by itself ends.

If such a query is to be closed for good, the final round follows.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.errors import StateError, WatersmeetError
from watersmeet.spark.checkpoint.lease import LeaseLost
from watersmeet.spark.run.batch import BatchRunner

POLL_SECONDS = 0.05
"""Time between two checks whether a batch is running."""
IDLE_SECONDS = 0.3
"""Once no batch has come for so long, none is expected soon, if the trigger doesn't say when the next one is due."""
ROUND_SECONDS = 2.0
"""How long a round may take while there is no new input."""
MIN_SECONDS = 0.8
"""A shorter time until the next batch is due isn't worth a round: half of it would be spent on starting it."""


class RoundScheduler(threading.Thread):
    """Runs rounds beside a query.

    Args:
        query: The query.
        runner: Runs its batches and rounds.
        ends: Whether the query ends by itself; then all that is owed is paid before it does.
    """

    def __init__(self, query: StreamingQuery, runner: BatchRunner, ends: bool) -> None:
        super().__init__(name="watersmeet-rounds", daemon=True)
        self._query, self._runner, self.ends = query, runner, ends
        self._stop_requested, self._start_time, self._idle_batch = threading.Event(), time.monotonic(), -1
        self.error: WatersmeetError | None = None

    def request_end(self) -> None:
        """Start no more rounds, not even those that are due when the query ends."""
        self._stop_requested.set()

    def end(self) -> None:
        """Start no more rounds, and wait for the one that runs."""
        self.request_end()
        if self is not threading.current_thread():
            self.join()

    def run(self) -> None:
        """Run rounds in quiet periods until the query is over or `end` is called.

        If the query ends by itself, without an error, pay all that is owed then.
        """
        while not self._stop_requested.wait(POLL_SECONDS):
            if not self._query.isActive:
                if self.ends and self._query.exception() is None:
                    self._try(self._settle)
                return
            seconds = self._quiet_seconds()
            if seconds >= MIN_SECONDS and self._runner.protocol.state.batch != self._idle_batch:
                self._try(partial(self._pay, seconds))

    def _settle(self) -> None:
        """Pay all that is owed, and close everything for good if the query is to be closed.

        Raises:
            StateError: If it can't be closed because there may be rows left to read.
        """
        if not self._runner.final:
            if self._runner.error is None:
                self._runner.settle(lambda: False)
        elif has_read_everything(self._query):
            self._runner.finish()
        else:
            raise StateError(
                "The query was stopped before it had read all input, so it was not closed: start it again to continue."
            )

    def _pay(self, seconds: float) -> None:
        """Run a round; if there is nothing to pay, don't try again before the next batch."""
        if not self._runner.round(seconds):
            self._idle_batch = self._runner.protocol.state.batch

    def _quiet_seconds(self) -> float:
        """Return for about how many seconds no batch is expected; 0 while one runs, or may come at any moment."""
        began, ended = self._runner.times
        if self._query.status["isTriggerActive"] or (began is not None and ended is None):
            return 0.0  # [!] between two calls Spark plans and commits: a round would hold up the next batch
        now, due = time.monotonic(), self._runner.due
        if began is None or ended is None:  # the first batch of this start would have come: there is nothing new
            began = ended = self._start_time
        elif due is not None and now < began + due:
            return began + due - now
        quiet = now - max(ended, began + (due or 0.0)) > IDLE_SECONDS  # the next one would have come by now
        return max(ROUND_SECONDS, due or 0.0) if quiet else 0.0

    def _try(self, pay: Callable[[], object]) -> None:
        """Pay; log an error, and keep it in `error` until a later round succeeds. Without its lease, start no more.

        A failed round is run again before the next batch, and stops the query if it fails there. After an error, waits
        a second.
        """
        try:
            pay()
            self.error = None
        except LeaseLost as error:  # no later round can succeed
            self.error = error
            self.request_end()
        except WatersmeetError as error:
            self.error = error
            logging.getLogger("watersmeet").warning("A round was not written: %s", error)
            self._stop_requested.wait(1.0)


def has_read_everything(query: StreamingQuery) -> bool:
    """Tell whether a query with availableNow has ended because there was nothing left to read.

    [!] A query that is stopped, as by `spark.streams`, has the same status and exception.
    """
    try:
        return bool(query._jsq.streamingQuery().noNewData())
    except (Py4JError, PySparkException, OSError):  # Spark is gone
        return False
