"""Lulls: while no batch is under way, what is owed is paid in rounds.

So it is before a query ends that ends by itself; if it is to be closed for good, the final round follows.
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
from watersmeet.spark.run.batch import BatchRunner

LOOKED = 0.05
"""Seconds between two looks at whether a batch is under way."""
IDLE = 0.3
"""Where the trigger doesn't say when the next batch is due, one is not expected soon after so many seconds."""
QUIET = 2.0
"""How long a round may take while nothing new comes, in seconds."""
LEAST = 0.8
"""A shorter time until the next batch is due isn't worth a round, in seconds: half of it would go into beginning."""


class Lulls(threading.Thread):
    """Runs rounds beside a query.

    Args:
        query: The query.
        runner: What runs its batches, and rounds.
        ends: Whether the query ends by itself; then all that is owed is paid first, and closed what is to be.
    """

    def __init__(self, query: StreamingQuery, runner: BatchRunner, ends: bool) -> None:
        super().__init__(name="watersmeet-lulls", daemon=True)
        self._query, self._runner, self.ends = query, runner, ends
        self._stopped, self._since, self._vain = threading.Event(), time.monotonic(), -1
        self.error: WatersmeetError | None = None

    def end(self) -> None:
        """Begin no more rounds, and wait for the one under way."""
        self._stopped.set()
        if self is not threading.current_thread():
            self.join()

    def run(self) -> None:
        """Look for lulls until the query is over."""
        while not self._stopped.wait(LOOKED):
            if not self._query.isActive:
                if self.ends and self._query.exception() is None:
                    self._try(self._end)
                return
            seconds = self._slack()
            if seconds >= LEAST and self._runner.protocol.state.batch != self._vain:
                self._try(partial(self._pay, seconds))

    def _end(self) -> None:
        """Pay all that is owed; if that is asked for, close everything for good.

        Raises:
            StateError: If it can't be closed, since there may be rows left to read.
        """
        if not self._runner.final:
            if self._runner.error is None:
                self._runner.settle(lambda: False)
        elif has_read_everything(self._query):
            self._runner.finish()
        else:
            raise StateError(
                "The query was stopped before it had read all there is, and was not closed: start it again to go on."
            )

    def _pay(self, seconds: float) -> None:
        """Run a round; where there is nothing to pay, there won't be before the next batch."""
        if not self._runner.round(seconds):
            self._vain = self._runner.protocol.state.batch

    def _slack(self) -> float:
        """Return for about how many seconds no batch is expected."""
        began, ended = self._runner.times
        if self._query.status["isTriggerActive"] or (began is not None and ended is None):
            return 0.0  # [!] between two calls Spark plans and commits: a round would hold up the next batch
        now, due = time.monotonic(), self._runner.due
        if began is None or ended is None:  # the first batch of this start would have come: there is nothing new
            began = ended = self._since
        elif due is not None and now < began + due:
            return began + due - now
        quiet = now - max(ended, began + (due or 0.0)) > IDLE  # the next one would have come: there is nothing new
        return max(QUIET, due or 0.0) if quiet else 0.0

    def _try(self, pay: Callable[[], object]) -> None:
        """Pay; what fails is tried again before the next batch, and stops the query if it fails there."""
        try:
            pay()
            self.error = None
        except WatersmeetError as error:
            self.error = error
            logging.getLogger("watersmeet").warning("A round was not written: %s", error)
            self._stopped.wait(1.0)


def has_read_everything(query: StreamingQuery) -> bool:
    """Tell whether a query with availableNow has ended because there was nothing left to read.

    [!] One that is stopped, as by `spark.streams`, ends as quietly: its status and its exception are the same.
    """
    try:
        return bool(query._jsq.streamingQuery().noNewData())
    except (Py4JError, PySparkException, OSError):  # Spark is gone
        return False
