"""Sinks: how a batch's results, already materialised in the store, reach the user.

File sinks, side outputs and Delta receive each batch exactly once, even if it is replayed; anything else that Spark
writes to, and the user's own foreachBatch, at least once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession

from watersmeet.spark.checkpoint.paths import Location
from watersmeet.spark.output.files import Folder
from watersmeet.spark.run.frames import quote_name
from watersmeet.spark.run.workers import is_death, retry_after_death
from watersmeet.state.manifest.delivery import Delivery

SUMMARY = "_common_metadata"
"""The file of a Parquet folder that holds only the schema."""
FILE_FORMATS = {"parquet": ".parquet", "json": ".json", "csv": ".csv", "orc": ".orc"}


@dataclass(frozen=True, slots=True)
class Results:
    """A batch's results in the store.

    Attributes:
        spark: The session to read them with.
        batch: The batch; -1 for none.
        store: Where the store is.
        files: Parquet files in it; none if the batch had no results.
        read: Reads them as a frame in the output's schema.
        plain: Whether the files hold the output unchanged, so that a Parquet sink can take them over.
    """

    spark: SparkSession
    batch: int
    store: Location
    files: Sequence[str]
    read: Callable[[], DataFrame]
    plain: bool


class Sink(ABC):
    """Where results go."""

    @property
    def output(self) -> str | None:
        """Where results go, if two queries must not share it."""
        return None

    @property
    def layout(self) -> str | None:
        """A description of how results are laid out there, if that must not change."""
        return None

    def for_run(self, owner: str, run: str, durable: bool) -> "Sink":
        """Return the sink for writing by a run of a checkpoint's query."""
        return self

    def prepare(self, none: Callable[[], Results]) -> None:
        """Prepare the output for readers that come before the first results; called at each start, before any batch.

        Args:
            none: Returns results of no batch: one file without rows.
        """
        return None

    @abstractmethod
    def write(self, results: Results) -> tuple[Delivery, ...]:
        """Write a batch, or stage it and return the deliveries that must follow its commit.

        Called again for the same batch if a crash came before the commit.
        """

    def on_delivery(self, deliveries: Iterable[Delivery]) -> None:
        """React to the delivery of staged files; called again after a crash."""
        return None

    def on_start(self, batch: int, check: Callable[[], None]) -> None:
        """Prepare for the first batch of a run, which an earlier run may have written, along with later ones.

        Args:
            batch: The batch.
            check: Raises if another run has taken over, whose results must stay.
        """
        return None

    def retract(self, batch: int) -> None:
        """Discard a staged batch that another run has meanwhile committed."""
        return None


@dataclass(frozen=True, slots=True)
class FileSink(Sink):
    """Files in a folder, exactly once: staged aside, and moved in under the batch's name when it is committed.

    Attributes:
        format: One of `FILE_FORMATS`.
        folder: The folder.
        options: The format's own options.
        partition_by: The columns by which files are partitioned.
    """

    format: str
    folder: Folder
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """See Sink."""
        return self.folder.location.arrow

    @property
    def layout(self) -> str:
        """See Sink."""
        return " by ".join([self.format, *([", ".join(self.partition_by)] if self.partition_by else [])])

    def for_run(self, owner: str, run: str, durable: bool) -> "FileSink":
        """See Sink."""
        return replace(self, folder=self.folder.for_run(owner, run, durable))

    def prepare(self, none: Callable[[], Results]) -> None:
        """Make the folder, and in an empty one a file with the output's columns and no rows, if the format allows it.

        [!] In a partitioned folder only Parquet can show the columns, in the one file that readers use for nothing
        else: they would take any other file for rows outside all partitions, or for a whole partition.
        """
        if not (self.folder.make() and self._can_show_columns):
            return
        results = none()
        if not self.partition_by:
            deliveries = self.write(results)
        else:
            frame, last = results.read(), {name.lower() for name in self.partition_by}
            frame = frame.select(
                *sorted(map(quote_name, frame.columns), key=lambda name: name.strip("`").lower() in last)
            )
            deliveries = (self._write_frame(frame, results).rename(SUMMARY),)
        for delivery in deliveries:
            self.folder.deliver(delivery, results.store)

    @property
    def _can_show_columns(self) -> bool:
        """Whether a file without rows shows the columns."""
        options = {key.lower(): value.lower() for key, value in self.options.items()}
        has_header = self.format == "csv" and options.get("header") == "true"
        return self.format == "parquet" or (not self.partition_by and (self.format == "orc" or has_header))

    def write(self, results: Results) -> tuple[Delivery, ...]:
        """See Sink; stages files, unless those of the store can be delivered as they are."""
        if not results.files:
            return ()
        if self._takes_over(results):
            return (self.folder.delivery_of_files(results.files, results.store, results.batch),)
        return (retry_after_death(lambda: self._write_frame(results.read(), results, self.partition_by)),)

    def _write_frame(self, frame: DataFrame, results: Results, partition_by: Sequence[str] = ()) -> Delivery:
        """Write rows to a staging folder, and return their delivery; what a dead worker left there is discarded.

        Args:
            frame: The rows.
            results: The batch's results.
            partition_by: The columns by which files are partitioned.
        """
        staged = self.folder.staging(results.batch, results.store)
        writer = frame.write.format(self.format).options(**self.options)
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        try:
            writer.save(self.folder.locate_staged(staged, results.store).spark)
        except Exception as error:
            if is_death(error):
                self.folder.discard(staged, results.store)
            raise
        return self.folder.delivery_of_staged(staged, results.store, results.batch, FILE_FORMATS[self.format])

    def _takes_over(self, results: Results) -> bool:
        """Return whether the files of the store become the output's files unchanged."""
        is_local = self.folder.location.is_local and results.store.is_local
        return self.format == "parquet" and results.plain and is_local and not (self.partition_by or self.options)

    def on_start(self, batch: int, check: Callable[[], None]) -> None:
        """See Sink."""
        self.folder.withdraw(batch, check)

    def retract(self, batch: int) -> None:
        """See Sink."""
        self.folder.retract(batch)


@dataclass(frozen=True, slots=True)
class FrameSink(Sink):
    """Any consumer of a frame: the user's foreachBatch, tables, the console, other formats."""

    consume: Callable[[DataFrame, int], None]

    def write(self, results: Results) -> tuple[Delivery, ...]:
        """See Sink."""
        self.consume(results.read(), results.batch)
        return ()
