"""Sinks: how a batch's results, already materialised in the store, reach the user.

File sinks, side outputs and Delta see each batch exactly once, replays included; whatever else Spark writes to, and the
user's own foreachBatch, at least once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession

from watersmeet.spark.checkpoint.paths import Place
from watersmeet.spark.output.files import Folder
from watersmeet.spark.run.frames import quoted
from watersmeet.spark.run.workers import is_death, survive
from watersmeet.state.manifest.delivery import Delivery

SUMMARY = "_common_metadata"
"""The file of a Parquet folder that holds columns alone."""
FILE_FORMATS = {"parquet": ".parquet", "json": ".json", "csv": ".csv", "orc": ".orc"}


@dataclass(frozen=True, slots=True)
class Results:
    """A batch's results in the store.

    Attributes:
        spark: The session to read them with.
        batch: The batch; -1 for none.
        store: Where the store is.
        files: Parquet files in it; none if the batch had no results.
        read: Returns them as a frame in the output's schema.
        plain: Whether the files hold the output as it is, so that a Parquet sink can take them over.
    """

    spark: SparkSession
    batch: int
    store: Place
    files: Sequence[str]
    read: Callable[[], DataFrame]
    plain: bool


class Sink(ABC):
    """Where results go."""

    @property
    def output(self) -> str | None:
        """The place that results are put in, if it has one that two queries must not take for their own."""
        return None

    @property
    def layout(self) -> str | None:
        """How results are laid out there, in words, if that must not change."""
        return None

    def written_by(self, owner: str, run: str, durable: bool) -> "Sink":
        """Return the sink as a run of a checkpoint's query writes to it."""
        return self

    def prepare(self, none: Callable[[], Results]) -> None:
        """Make what readers find who come before the first results; called at each start, before the first batch.

        Args:
            none: Returns results of no batch: one file, without rows.
        """
        return None

    @abstractmethod
    def write(self, results: Results) -> tuple[Delivery, ...]:
        """Write a batch, or make it ready and return what is to appear once it is committed.

        Called again for the same batch after a crash, in which nothing was committed.
        """

    def delivered(self, deliveries: Iterable[Delivery]) -> None:
        """Called when what was made ready has appeared; called again after a crash."""
        return None

    def restarted(self, batch: int, check: Callable[[], None]) -> None:
        """Called before the first batch of a run; a checkpoint that was restored may have written it and more.

        Args:
            batch: The batch.
            check: Raises if another run has taken over, whose results must stay.
        """
        return None

    def retract(self, batch: int) -> None:
        """Called if it turns out that another run has done a batch which this one has written or made ready."""
        return None


@dataclass(frozen=True, slots=True)
class FileSink(Sink):
    """Files in a folder, exactly once: made ready aside, and moved in under the batch's name when it is committed."""

    format: str
    folder: Folder
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """See Sink."""
        return self.folder.place.arrow

    @property
    def layout(self) -> str:
        """See Sink."""
        return " by ".join([self.format, *([", ".join(self.partition_by)] if self.partition_by else [])])

    def written_by(self, owner: str, run: str, durable: bool) -> "FileSink":
        """See Sink."""
        return replace(self, folder=self.folder.written_by(owner, run, durable))

    def prepare(self, none: Callable[[], Results]) -> None:
        """Make the folder, and in an empty one a file with the output's columns and no rows, if one can say them.

        [!] In a folder laid out by columns only Parquet can say which there are, in the one file that readers look at
        for nothing else: any other is either taken for rows outside all folders, or for the whole of one.
        """
        if not (self.folder.make() and self._says_columns):
            return
        results = none()
        if not self.partition_by:
            deliveries = self.write(results)
        else:
            frame, last = results.read(), {name.lower() for name in self.partition_by}
            frame = frame.select(*sorted(map(quoted, frame.columns), key=lambda name: name.strip("`").lower() in last))
            deliveries = (self._written(frame, results).rename(SUMMARY),)
        for delivery in deliveries:
            self.folder.deliver(delivery, results.store)

    @property
    def _says_columns(self) -> bool:
        """Whether a file without rows says which columns there are."""
        named = {key.lower(): value.lower() for key, value in self.options.items()}
        headed = self.format == "csv" and named.get("header") == "true"
        return self.format == "parquet" or (not self.partition_by and (self.format == "orc" or headed))

    def write(self, results: Results) -> tuple[Delivery, ...]:
        """See Sink."""
        if not results.files:
            return ()
        if self._takes_over(results):
            return (self.folder.given(results.files, results.store, results.batch),)
        return (survive(lambda: self._written(results.read(), results, self.partition_by)),)

    def _written(self, frame: DataFrame, results: Results, partition_by: Sequence[str] = ()) -> Delivery:
        """Write rows where they are made ready."""
        staged = self.folder.staging(results.batch, results.store)
        writer = frame.write.format(self.format).options(**self.options)
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        try:
            writer.save(self.folder.staged_at(staged, results.store).spark)
        except Exception as error:
            if is_death(error):
                self.folder.discard(staged, results.store)
            raise
        return self.folder.ready(staged, results.store, results.batch, FILE_FORMATS[self.format])

    def _takes_over(self, results: Results) -> bool:
        """Tell whether the files of the store are the output's as they are."""
        local = self.folder.place.is_local and results.store.is_local
        return self.format == "parquet" and results.plain and local and not (self.partition_by or self.options)

    def restarted(self, batch: int, check: Callable[[], None]) -> None:
        """See Sink."""
        self.folder.withdraw(batch, check)

    def retract(self, batch: int) -> None:
        """See Sink."""
        self.folder.retract(batch)


@dataclass(frozen=True, slots=True)
class FrameSink(Sink):
    """Anything that takes a frame: the user's foreachBatch, tables, the console, other formats."""

    consume: Callable[[DataFrame, int], None]

    def write(self, results: Results) -> tuple[Delivery, ...]:
        """See Sink."""
        self.consume(results.read(), results.batch)
        return ()
