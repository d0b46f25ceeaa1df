"""Tables as sinks: those of Spark's catalog that are folders of files are written as such, and Delta's, exactly once.

Each batch is one transaction of Delta's, identified by the checkpoint's name and the batch's number.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.errors import DefinitionError, StateError
from watersmeet.spark.output.sinks import FILE_FORMATS, FileSink, Results, Sink
from watersmeet.spark.run.frames import quote_name
from watersmeet.spark.run.versions import SPARK
from watersmeet.state.manifest.delivery import Delivery

CATALOG_PROPERTIES = ("path", "serialization.format")
"""Properties of a table in the catalog that are not options for writing its files."""
LOG = "org.apache.spark.sql.delta.DeltaLog"


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table whose rows are the files of a folder.

    Attributes:
        name: Its name.
        format: The format of its files.
        location: The folder.
        options: The options for writing them.
        partition_by: The columns by which they are partitioned.
        schema: Its columns.
        has_listed_partitions: Whether the catalog lists the partitions.
    """

    name: str
    format: str
    location: str
    options: Mapping[str, str]
    partition_by: tuple[str, ...]
    schema: T.StructType
    has_listed_partitions: bool

    def check(self, results: T.StructType) -> None:
        """Check that results have the columns of the table.

        Raises:
            DefinitionError: If they don't.
        """
        own = {field.name.lower(): field.dataType for field in self.schema}
        columns = {field.name.lower(): field.dataType for field in results}
        if set(own) != set(columns):
            raise DefinitionError(
                f"Table {self.name} has the columns {', '.join(self.schema.names)}, and the results have "
                f"{', '.join(results.names)}; choose them with select='...'."
            )
        for name, kind in columns.items():
            if kind.simpleString() != own[name].simpleString():
                raise DefinitionError(
                    f"Column '{name}' is {own[name].simpleString()} in table {self.name} and {kind.simpleString()} in "
                    "the results; cast it in select='...'."
                )


def exists(spark: SparkSession, name: str) -> bool:
    """Return whether a table exists.

    Raises:
        DefinitionError: If the name is invalid.
    """
    try:
        return spark.catalog.tableExists(name)
    except ParseException:
        raise DefinitionError(
            f"toTable({name!r}): that is not a table's name; write it like 'db.matches', and unusual names in "
            "backticks."
        ) from None


def file_table(spark: SparkSession, name: str) -> FileTable | None:
    """Return an existing table if it is a folder of files in Spark's own catalog; else None."""
    entry = spark.catalog.getTable(name)
    if entry.catalog != "spark_catalog" or entry.isTemporary or entry.tableType not in ("MANAGED", "EXTERNAL"):
        return None
    state: Any = spark._jsparkSession.sessionState()
    metadata = state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(name))
    format = str(metadata.provider().get()).lower() if metadata.provider().isDefined() else ""
    if format not in FILE_FORMATS or metadata.bucketSpec().isDefined():
        return None
    jvm: Any = spark._jvm
    properties = dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(metadata.storage().properties()))
    partitions = metadata.partitionColumnNames()
    return FileTable(
        name,
        format,
        str(jvm.org.apache.spark.sql.catalyst.catalog.CatalogUtils.URIToString(metadata.location())),
        {key: value for key, value in properties.items() if key.lower() not in CATALOG_PROPERTIES},
        tuple(str(partitions.apply(at)) for at in range(partitions.size())),
        spark.table(name).schema,
        bool(metadata.tracksPartitionsInCatalog()),
    )


@dataclass(frozen=True, slots=True)
class TableSink(FileSink):
    """A table that is a folder of files; the catalog is notified of new files.

    Attributes:
        table: The table.
        spark: The user's session, which reads it.
        listed: The partition folders that the catalog lists.
    """

    table: FileTable = field(kw_only=True)
    spark: SparkSession = field(kw_only=True)
    listed: set[str] = field(default_factory=set, kw_only=True)

    def write(self, results: Results) -> tuple[Delivery, ...]:
        """See Sink; columns are put in the table's order, by which CSV is read."""
        names = self.table.schema.names
        return FileSink.write(self, replace(results, read=lambda: arrange(results.read(), names)))

    def on_delivery(self, deliveries: Iterable[Delivery]) -> None:
        """See Sink; adds new partition folders to the catalog, and has Spark list the table's files anew."""
        folders = _folders(deliveries) - self.listed
        if folders and self.table.has_listed_partitions:
            self.spark.catalog.recoverPartitions(self.table.name)
        self.listed.update(folders)
        self.spark.catalog.refreshTable(self.table.name)


def _folders(deliveries: Iterable[Delivery]) -> set[str]:
    return {target.rpartition("/")[0] for delivery in deliveries for _, target in delivery.moves} - {""}


def arrange(frame: DataFrame, columns: Iterable[str]) -> DataFrame:
    """Return a frame with columns of these names, in this order."""
    return frame.select(*(F.col(quote_name(name)).alias(name) for name in columns))


def appender(spark: SparkSession, name: str) -> Callable[[DataFrame, int], None]:
    """Return a function with which Spark appends each batch to a table of any kind, and then lists its files anew.

    Args:
        spark: The user's session, which reads it.
        name: The table.
    """
    columns = spark.table(name).columns

    def append(frame: DataFrame, batch: int) -> None:
        arrange(frame, columns).write.insertInto(name)
        spark.catalog.refreshTable(name)  # another session has written

    return append


def create(frame: DataFrame, name: str, format: str, options: Mapping[str, str], partition_by: Sequence[str]) -> None:
    """Create a table with the columns of an empty frame, and no rows.

    Args:
        frame: The frame.
        name: The table's name.
        format: The format of its files, or any other that Spark writes.
        options: The options for it, `path` among them if the user gives its folder.
        partition_by: The columns by which it is partitioned.

    Raises:
        DefinitionError: If its folder contains files, but the table does not exist.
    """
    writer = frame.write.format(format).options(**options)
    try:
        (writer.partitionBy(*partition_by) if partition_by else writer).saveAsTable(name)
    except PySparkException as error:
        if not re.search("LOCATION_ALREADY_EXISTS|non-empty directory", str(error)):
            raise
        raise DefinitionError(
            f"There is no table {name}, but files are in the folder that it would have. If the query has run before, "
            "the session's catalog has forgotten its table, as Spark's own does when a program ends: use one that "
            "lasts (enableHiveSupport(), or a catalog of yours), or write to a folder with start(path)."
        ) from None


@dataclass(frozen=True, slots=True)
class DeltaSink(Sink):
    """A Delta table, exactly once: Delta skips a transaction that it already has.

    Attributes:
        spark: The session.
        path: Where the table is; it is created if missing.
        options: Delta's own options.
        partition_by: The columns by which files are partitioned.
        owner: The checkpoint to which the batches belong.
    """

    spark: SparkSession
    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    owner: str = ""

    @property
    def output(self) -> str:
        """See Sink."""
        return self.path

    def for_run(self, owner: str, run: str, durable: bool) -> "DeltaSink":
        """See Sink."""
        return replace(self, owner=f"watersmeet-{owner}")

    def write(self, results: Results) -> tuple[Delivery, ...]:
        """See Sink; appends in a transaction under the batch's number, which Delta skips if it has it."""
        once = {"txnAppId": self.owner, "txnVersion": str(results.batch)}
        writer = results.read().write.format("delta").mode("append").options(**self.options, **once)
        writer.partitionBy(*self.partition_by).save(self.path)
        return ()

    def on_start(self, batch: int, check: Callable[[], None]) -> None:
        """Reject a table that is ahead of the checkpoint: Delta would skip new results under old batch numbers.

        Raises:
            StateError: If it is.
        """
        last = self._last_batch()
        if last is not None and last > batch:
            raise StateError(
                f"The Delta table at {self.path} has this query's results up to batch {last}, and the checkpoint is at "
                f"batch {batch}: it is an older copy. Restore a newer one, or write to a new table from a new "
                "checkpoint."
            )

    def _last_batch(self) -> int | None:
        """Return the last batch in the table; None if it has none, or Delta isn't loaded."""
        jvm: Any = self.spark._jvm
        if _load_log_class(self.spark) is None:
            return None
        table = jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(self.spark._jsparkSession, self.path)
        last = table._2().transactions().get(self.owner)
        return int(last.get()) if last.isDefined() else None


def check_jars(spark: SparkSession) -> None:
    """Check that Delta's jars are for this version of Spark: others fail in the middle of a batch.

    Raises:
        DefinitionError: If they aren't.
    """
    kind = _load_log_class(spark)
    source = kind.getProtectionDomain().getCodeSource() if kind is not None else None
    check_jar(str(source.getLocation().getPath()) if source is not None else "")


def check_jar(path: str) -> None:
    """Check that the name of a jar names no other version of Spark.

    >>> check_jar("/jars/delta-spark_2.13-4.4.0.jar")  # the name doesn't say

    Raises:
        DefinitionError: If it does.
    """
    match = re.search(r"delta-spark_(\d+)\.(\d+)_\d[^/]*\.jar$", path)
    if match is not None and (int(match[1]), int(match[2])) != SPARK:
        raise DefinitionError(
            f"format('delta'): {match[0]} is for Spark {match[1]}.{match[2]}, and this is Spark {pyspark.__version__}. "
            "Use versions that go together: docs/versions.md lists them."
        )


def _load_log_class(spark: SparkSession) -> Any:
    """Return the class of Delta's log, if the session has Delta's open-source jars; else None."""
    jvm: Any = spark._jvm
    try:
        return jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(LOG)
    except Py4JError:
        return None
