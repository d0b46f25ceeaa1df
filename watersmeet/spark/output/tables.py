"""Tables: those of Spark's own catalog that are folders of files are written as such, and hold each result once."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.errors import DefinitionError
from watersmeet.spark.output.sinks import FILE_FORMATS, FileSink, Results
from watersmeet.spark.run.frames import quoted
from watersmeet.state.manifest.delivery import Delivery

NOT_THE_WRITERS = ("path", "serialization.format")
"""What a catalog notes of a table's files that says nothing of how to write them."""


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table whose rows are the files of a folder.

    Attributes:
        name: Its name.
        format: The format of its files.
        location: The folder.
        options: How they are written.
        partition_by: The columns that they are laid out by.
        schema: Its columns.
        listed: Whether the catalog lists the folders that those columns make.
    """

    name: str
    format: str
    location: str
    options: Mapping[str, str]
    partition_by: tuple[str, ...]
    schema: T.StructType
    listed: bool

    def check(self, results: T.StructType) -> None:
        """Refuse results whose columns are not the table's.

        Raises:
            DefinitionError: If they aren't.
        """
        own = {field.name.lower(): field.dataType for field in self.schema}
        given = {field.name.lower(): field.dataType for field in results}
        if set(own) != set(given):
            raise DefinitionError(
                f"Table {self.name} has the columns {', '.join(self.schema.names)}, and the results have "
                f"{', '.join(results.names)}; choose them with select='...'."
            )
        for name, kind in given.items():
            if kind.simpleString() != own[name].simpleString():
                raise DefinitionError(
                    f"Column '{name}' is {own[name].simpleString()} in table {self.name} and {kind.simpleString()} in "
                    "the results; cast it in select='...'."
                )


def exists(spark: SparkSession, name: str) -> bool:
    """Tell whether there is a table.

    Raises:
        DefinitionError: If nothing can be called that.
    """
    try:
        return spark.catalog.tableExists(name)
    except ParseException:
        raise DefinitionError(
            f"toTable({name!r}): that is not a table's name; write it like 'db.matches', and unusual names in "
            "backticks."
        ) from None


def file_table(spark: SparkSession, name: str) -> FileTable | None:
    """Return a table that exists, if it is a folder of files in Spark's own catalog."""
    found = spark.catalog.getTable(name)
    if found.catalog != "spark_catalog" or found.isTemporary or found.tableType not in ("MANAGED", "EXTERNAL"):
        return None
    state: Any = spark._jsparkSession.sessionState()
    known = state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(name))
    format = str(known.provider().get()).lower() if known.provider().isDefined() else ""
    if format not in FILE_FORMATS or known.bucketSpec().isDefined():
        return None
    jvm: Any = spark._jvm
    properties = dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(known.storage().properties()))
    partitions = known.partitionColumnNames()
    return FileTable(
        name,
        format,
        str(jvm.org.apache.spark.sql.catalyst.catalog.CatalogUtils.URIToString(known.location())),
        {key: value for key, value in properties.items() if key.lower() not in NOT_THE_WRITERS},
        tuple(str(partitions.apply(at)) for at in range(partitions.size())),
        spark.table(name).schema,
        bool(known.tracksPartitionsInCatalog()),
    )


@dataclass(frozen=True, slots=True)
class TableSink(FileSink):
    """A table that is a folder of files; the catalog is told of what appears there.

    Attributes:
        table: The table.
        spark: The user's session, which reads it.
        known: The folders that the catalog has been told of.
    """

    table: FileTable = field(kw_only=True)
    spark: SparkSession = field(kw_only=True)
    known: set[str] = field(default_factory=set, kw_only=True)

    def write(self, results: Results) -> tuple[Delivery, ...]:
        """See Sink; columns are in the table's order, which is all that CSV goes by."""
        names = self.table.schema.names
        return FileSink.write(self, replace(results, read=lambda: arranged(results.read(), names)))

    def delivered(self, deliveries: Iterable[Delivery]) -> None:
        """See Sink."""
        folders = _folders(deliveries) - self.known
        if folders and self.table.listed:
            self.spark.catalog.recoverPartitions(self.table.name)
        self.known.update(folders)
        self.spark.catalog.refreshTable(self.table.name)


def _folders(deliveries: Iterable[Delivery]) -> set[str]:
    return {target.rpartition("/")[0] for delivery in deliveries for _, target in delivery.moves} - {""}


def arranged(frame: DataFrame, columns: Iterable[str]) -> DataFrame:
    """Return a frame with columns in this order, called so."""
    return frame.select(*(F.col(quoted(name)).alias(name) for name in columns))


def appending(spark: SparkSession, name: str) -> Callable[[DataFrame, int], None]:
    """Return what has Spark append each batch to a table, whatever it is.

    Args:
        spark: The user's session, which reads it.
        name: The table.
    """
    columns = spark.table(name).columns

    def append(frame: DataFrame, batch: int) -> None:
        arranged(frame, columns).write.insertInto(name)
        spark.catalog.refreshTable(name)  # it was another session that wrote

    return append


def made(frame: DataFrame, name: str, format: str, options: Mapping[str, str], partition_by: Sequence[str]) -> None:
    """Make a table for rows like those of an empty frame.

    Raises:
        DefinitionError: If there are files in its folder, and no table of that name.
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
