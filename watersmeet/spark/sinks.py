"""Sinks: how a batch's results, already materialised in the store, reach the user.

File sinks, side outputs and Delta see each batch exactly once, replays included; whatever else Spark writes to, and the
user's own foreachBatch, at least once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from watersmeet.spark.files import Folder
from watersmeet.spark.paths import Place

FILE_FORMATS = {"parquet": ".parquet", "json": ".json", "csv": ".csv", "orc": ".orc"}


@dataclass(frozen=True, slots=True)
class Results:
    """A batch's results in the store.

    Attributes:
        spark: The session to read them with.
        batch: The batch.
        files: Parquet files; none if the batch had no results.
        read: Returns them as a frame in the output's schema.
        plain: Whether the files hold the output as it is, so that a Parquet sink can take them over.
    """

    spark: SparkSession
    batch: int
    files: Sequence[Place]
    read: Callable[[], DataFrame]
    plain: bool


class Sink(ABC):
    """Where results go."""

    @property
    def output(self) -> str | None:
        """The place that results are put in, if it has one that two queries must not take for their own."""
        return None

    def written_by(self, owner: str, run: str, durable: bool) -> "Sink":
        """Return the sink as a run of a checkpoint's query writes to it."""
        return self

    @abstractmethod
    def write(self, results: Results) -> None:
        """Write a batch; called again for the same batch after a crash, and must then replace it if it can."""

    def restarted(self, batch: int) -> None:
        """Called before the first batch of a run; an earlier run may have written some of it, or of later ones."""
        return None

    def retract(self, batch: int) -> None:
        """Called if it turns out that another run has done a batch which this one has written."""
        return None


@dataclass(frozen=True, slots=True)
class FileSink(Sink):
    """Files in a folder, exactly once: written aside, then renamed in under the batch's name."""

    format: str
    folder: Folder
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """See Sink."""
        return self.folder.place.arrow

    def written_by(self, owner: str, run: str, durable: bool) -> "FileSink":
        """See Sink."""
        return replace(self, folder=self.folder.written_by(owner, run, durable))

    def write(self, results: Results) -> None:
        """See Sink."""
        if not results.files:
            return
        if self.format == "parquet" and results.plain and not self.partition_by and self._takes_over(results):
            self.folder.take(results.files, results.batch)
            return
        staged = self.folder.staging(results.batch)
        writer = results.read().write.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(staged.spark)
        self.folder.publish(staged, results.batch, FILE_FORMATS[self.format])

    def _takes_over(self, results: Results) -> bool:
        local = all(file.is_local and Path(file.arrow).exists() for file in results.files)
        return not self.options and self.folder.place.is_local and local

    def restarted(self, batch: int) -> None:
        """See Sink."""
        self.folder.withdraw(batch)

    def retract(self, batch: int) -> None:
        """See Sink."""
        self.folder.retract(batch)


@dataclass(frozen=True, slots=True)
class FrameSink(Sink):
    """Anything that takes a frame: the user's foreachBatch, tables, the console, other formats."""

    consume: Callable[[DataFrame, int], None]

    def write(self, results: Results) -> None:
        """See Sink."""
        self.consume(results.read(), results.batch)
