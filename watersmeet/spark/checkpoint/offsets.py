"""Spark's part of the checkpoint, and whether the join's part belongs to it.

Spark logs a batch's offsets before it runs the batch, and its commit after the join has committed it. It writes each
file under a hidden name first, and starts a new query only where its logs are empty: a kill during the first batch may
leave a hidden file, and Spark would then refuse the checkpoint for good.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watersmeet.errors import AFRESH, StateError
from watersmeet.spark.checkpoint.paths import Location
from watersmeet.spark.run.versions import SPARK
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.file_format import digest
from watersmeet.state.store.store import Store

LOGS = ("offsets", "commits")
_BATCH = re.compile(r"\w+/\d+")
_UNFINISHED = re.compile(r"\w+/\.{1,2}\d+\.([0-9a-f-]{36}(\.TID\d+)?\.tmp(\.crc)?|crc)")


_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_PLAIN_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_INITIALISATION = 2000
"""Milliseconds to wait for a query to open its sources."""
_starting = Lock()


def start_on(location: Location, writer: DataStreamWriter, spark: SparkSession) -> StreamingQuery:
    """Start a query whose part of a checkpoint is at a location; one on local files is written by plain renames.

    Spark's default for local files runs commands of the operating system for each of them, which takes longer than a
    small batch. Both ways write a hidden file, look whether the name is free, and rename; neither flushes to disk. So
    what a kill leaves behind is the same. A session that chooses itself keeps its choice.

    [!] A query takes the setting from the session of its frames, the user's own, as it starts and opens the logs of its
    sources. So it is set there, for one start at a time, and taken back. A start that another one waits for, such as in
    a listener, goes without. A query whose start is interrupted is stopped.
    """
    if SPARK < (4, 3) or not location.is_local or spark.conf.get(_FILE_MANAGER, None) is not None:
        return writer.start()
    if not _starting.acquire(timeout=_INITIALISATION / 1000):
        return writer.start()
    try:
        spark.conf.set(_FILE_MANAGER, _PLAIN_MANAGER)
        query = writer.start()
        try:
            with suppress(Py4JError, PySparkException):  # the query itself says why it ended at once
                query._jsq.streamingQuery().awaitInitialization(_INITIALISATION)
        except BaseException:
            query.stop()
            raise
    finally:
        _starting.release()
        with suppress(Py4JError, OSError):  # without Spark, there is nothing to take back
            if spark.conf.get(_FILE_MANAGER, None) == _PLAIN_MANAGER:
                spark.conf.unset(_FILE_MANAGER)
    return query


@dataclass(frozen=True, slots=True)
class Offsets:
    """Spark's logs of the batches that it has started and completed.

    Attributes:
        checkpoint: The folder that Spark keeps its part of the checkpoint in.
    """

    checkpoint: Store

    def of(self, batch: int) -> str | None:
        """Return a digest that identifies a batch's input; None if Spark no longer has it.

        [!] It covers the whole file, with the time at which Spark planned the batch: sources number their offsets, and
        one that lost its own log reuses the numbers for other input.
        """
        data = self.checkpoint.read(f"offsets/{batch}")
        return None if data is None else digest(data)

    def load_state(self, store: Store) -> Manifest | None:
        """Return the join's newest state, None before the first, with every batch that Spark has committed.

        Without new input, no batch would notice if some were missing.

        Args:
            store: The join's part of the checkpoint, which another run may be using.

        Raises:
            StateError: If it is damaged, or lacks a batch: its state is gone, or the checkpoint is that of another
                Spark query, which is no join.
        """
        matches = (re.fullmatch(r"commits/(\d+)", name) for name in self.checkpoint.names("commits"))
        committed = max((int(match[1]) for match in matches if match), default=-1)
        newest = manifests.last(store)  # [!] after the commits: a running query writes the manifest before the commit
        last = None if newest is None else newest.offered
        if committed > (-1 if last is None else last):
            if not store.names(""):
                raise self._no_join(committed)
            raise self._mismatch(f"Spark has finished batch {committed}, but the newest state is {_describe(last)}")
        return newest

    def check_batch(self, batch: int, newest: Manifest) -> None:
        """Check that a batch which Spark runs follows the newest state, or repeats it with the same input.

        Raises:
            StateError: If it doesn't.
        """
        if newest.offered not in (batch - 1, batch):
            last = newest.offered if newest.offered >= 0 else None
            raise self._mismatch(f"Spark runs batch {batch}, but the newest state is {_describe(last)}")
        if self.of(newest.offered) not in (newest.input, None):
            raise self._mismatch(f"Batch {newest.offered} was computed from different input than Spark now has for it")

    def remove_unfinished(self, check: Callable[[], None]) -> None:
        """Remove unfinished files from Spark's logs if they hold no batch.

        Args:
            check: Raises if another run has taken over, whose files must stay.
        """
        names = [name for log in LOGS for name in self.checkpoint.names(log)]
        check()  # [!] after the listing: a later run's files are not in it
        if not any(map(_BATCH.fullmatch, names)):
            self.checkpoint.remove(filter(_UNFINISHED.fullmatch, names))

    def _no_join(self, committed: int) -> StateError:
        return StateError(
            f"Spark has finished batch {committed} in the checkpoint at {self.checkpoint.root}, which holds no state "
            "of a join: it is that of another Spark query, so use a new checkpointLocation; or, if a join ran there, "
            "restore its folder 'watersmeet'."
        )

    def _mismatch(self, how: str) -> StateError:
        return StateError(
            f"{how}: Spark's part of the checkpoint at {self.checkpoint.root} and the join's do not belong together; "
            f"restore both or {AFRESH}."
        )


def in_the_way(checkpoint: Store) -> str | None:
    """Return a file because of which Spark refuses to start a new query in a checkpoint; None without one."""
    return next((name for log in (*LOGS, "state") for name in sorted(checkpoint.names(log))), None)


def _describe(batch: int | None) -> str:
    return "missing" if batch is None else f"of batch {batch}"
