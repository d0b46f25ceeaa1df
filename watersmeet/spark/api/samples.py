"""The sample of each stream that `wm.advise` reads: a frame, files, or what the stream's own source holds now."""

import os
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.errors import DefinitionError
from watersmeet.exchange.tasks import STREAM
from watersmeet.predicate.scope import TABLE_TIME
from watersmeet.query.query import Query
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.api.stream import table_time
from watersmeet.spark.run.frames import HiddenValues, check_frame, quote_name, tag_rows, union

MOST_ROWS, MOST_BYTES = 50_000, 256 << 20
"""The most that is read of a sample."""
PEEK = 20
"""Rows from which the width of a stream's rows is estimated."""
MOST_TABLE_ROWS = 200_000
"""The most rows that are read of a table; of a larger one they are drawn at random."""
POLLED = 0.1
"""Seconds between two checks of whether enough has been read."""
FORMATS = {".parquet": "parquet", ".orc": "orc", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}
"""The format of a file, by the ending of its name."""

SampleSource = DataFrame | str | os.PathLike[str]
"""A sample: a static frame, or the path of its files."""


class TableRows(NamedTuple):
    """Rows of a table, as a batch reads them: all, or a random share of a large table.

    Attributes:
        rows: The rows.
        size: How many rows the table has.
    """

    rows: pa.Table
    size: int


class SampleRows(NamedTuple):
    """The rows that a join is run over.

    Attributes:
        rows: The earliest rows of all streams, by event time.
        tables: The rows of its tables, by position.
    """

    rows: pa.Table
    tables: Mapping[int, TableRows]


def sample_rows(join: JoinDefinition, sources: Mapping[str, SampleSource]) -> SampleRows:
    """Read the earliest rows of all streams together, by event time, and the rows of tables; runs Spark jobs.

    No more are read than `MOST_ROWS`, or than take about `MOST_BYTES`.

    Args:
        join: The join.
        sources: Samples by stream; a stream without one is read from its own source.

    Raises:
        DefinitionError: If a stream or table has no rows, or none in the period that is read, or lacks a column.
    """
    query, computed = join.query, join.hidden_columns()
    frames = [sample_frame(join, at, sources.get(stream.name)) for at, stream in enumerate(query.streams)]
    widths = [_width(query, at, frame, computed[at]) for at, frame in enumerate(frames)]
    moment = F.coalesce(*(F.col(f"s{at}_{stream.time}") for at, stream in enumerate(query.streams)))
    most = min(MOST_ROWS, int(MOST_BYTES // max(widths)))
    moving = [None if query.streams[at].table else frame for at, frame in enumerate(frames)]
    rows = union(query, moving, False, computed).where(moment.isNotNull()).orderBy(moment).limit(most).toArrow()
    present = set(pc.unique(rows.column(STREAM)).to_pylist())
    absent = [stream.name for at, stream in enumerate(query.streams) if at not in present and not stream.table]
    if absent:
        raise DefinitionError(
            f"No rows of stream '{absent[0]}' are among the first {rows.num_rows:,} of all samples by event time: "
            "give samples that cover the same period."
        )
    tables = [at for at, stream in enumerate(query.streams) if stream.table]
    table_rows = {at: _table_rows(query, at, frames[at], computed[at], widths[at]) for at in tables}
    return SampleRows(_make_nullable(rows), table_rows)


def _make_nullable(rows: pa.Table) -> pa.Table:
    """Return rows with nullable columns, so that those of streams and tables can be concatenated."""
    return rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))


def _table_rows(query: Query, at: int, frame: DataFrame, computed: HiddenValues, width: float) -> TableRows:
    """Read the rows of a table or, if there are too many, a random sample of them; runs Spark jobs.

    Args:
        query: The join.
        at: The table.
        frame: Its frame.
        computed: How its hidden columns are computed.
        width: The mean bytes of a row.
    """
    size, most = frame.count(), min(MOST_TABLE_ROWS, int(MOST_BYTES // width))
    rows = tag_rows(query, at, frame if size <= most else frame.sample(fraction=most / size, seed=0), False, computed)
    return TableRows(_make_nullable(rows.toArrow()), size)


def _width(query: Query, at: int, frame: DataFrame, computed: HiddenValues) -> float:
    """Return the mean bytes of a stream's row, from a few that a Spark job reads.

    Raises:
        DefinitionError: If there are none.
    """
    rows = tag_rows(query, at, frame, False, computed).limit(PEEK).toArrow()
    if not rows.num_rows:
        stream = query.streams[at]
        raise DefinitionError(f"The sample of {stream.noun} '{stream.name}' has no rows.")
    return max(1.0, float(rows.nbytes / rows.num_rows))


# -- frames


def sample_frame(join: JoinDefinition, at: int, source: SampleSource | None) -> DataFrame:
    """Return a static frame with the rows of a stream's sample and the stream's columns.

    Args:
        join: The join.
        at: The stream.
        source: Its sample; None to read the stream's own source now, by a query if it is streaming.

    Raises:
        DefinitionError: If there is no sample, it is streaming, it lacks a column, or the source holds no rows.
    """
    stream, own = join.query.streams[at], join.frames[at]
    what = f"The sample of {stream.noun} '{stream.name}'"
    kind = T.StructType([field for field in join.kinds[at] if field.name != TABLE_TIME])
    if isinstance(source, str | os.PathLike):
        frame = read(join.spark, os.fspath(source), kind, what)
    elif source is not None:
        frame = check_frame(what, source)
    elif own is None:
        raise DefinitionError(
            f"Stream '{stream.name}' is a join of streams, whose results aren't known yet: give a sample of them, "
            f'such as samples={{"{stream.name}": spark.read.parquet(...)}}.'
        )
    else:
        frame = read_source(stream.name, own, stream.schema.names[stream.time]) if own.isStreaming else own
    if frame.isStreaming:
        raise DefinitionError(f"{what} is streaming; give a static frame, or none to read the stream's own source.")
    missing = [column for column in kind.names if column not in frame.columns]
    if missing:
        raise DefinitionError(f"{what} has no column '{missing[0]}', which the {stream.noun} has.")
    if stream.table and TABLE_TIME not in frame.columns:
        frame = frame.withColumn(TABLE_TIME, table_time(join.kinds[at][TABLE_TIME].dataType))
    return frame.select(*(frame[quote_name(column)] for column in stream.schema.names))


# -- files


def read(spark: SparkSession, path: str, kind: T.StructType, what: str) -> DataFrame:
    """Return a frame of files, in the format that their names imply, or of a Delta table, known by its log.

    Args:
        spark: The session.
        path: A file or a folder, as Spark reads it.
        kind: The columns, for formats that don't contain them.
        what: How errors call the sample.

    Raises:
        DefinitionError: If there are no files, or none whose name implies a format.
    """
    if _is_delta(spark, path):
        return spark.read.format("delta").load(path)
    names = [PurePosixPath(file).name for file in spark.read.text(path).inputFiles()]
    format = next(
        (FORMATS[ending] for name in names for ending in PurePosixPath(name).suffixes if ending in FORMATS), None
    )
    if format is None:
        raise DefinitionError(
            f"{what}: {path} holds no file whose name ends in one of {', '.join(FORMATS)}, and is not a Delta table."
        )
    if format == "csv":
        return _csv(spark, path, kind)
    return spark.read.schema(kind).json(path) if format == "json" else spark.read.format(format).load(path)


def _is_delta(spark: SparkSession, path: str) -> bool:
    log = spark._jvm.org.apache.hadoop.fs.Path(path, "_delta_log")  # type: ignore[union-attr]
    return bool(log.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).exists(log))


def _csv(spark: SparkSession, path: str, kind: T.StructType) -> DataFrame:
    """Return a frame of CSV files, with columns by the names in the first line, which a Spark job reads.

    If it doesn't have all of them, they are read by position. What can't be cast to its column's type is NULL.
    """
    first = spark.read.csv(path).first()
    if first is None or not set(kind.names) <= set(first):
        return spark.read.schema(kind).csv(path)
    rows = spark.read.option("header", True).csv(path)
    return rows.select(*(rows[quote_name(field.name)].try_cast(field.dataType).alias(field.name) for field in kind))


# -- a source


def read_source(name: str, frame: DataFrame, time: str) -> DataFrame:
    """Run a query that reads what the source of a streaming frame holds now, or enough of it; return the rows.

    The source is not changed. Of each of its batches the earliest rows are kept.

    Args:
        name: The stream's name, for errors.
        frame: The streaming frame.
        time: Its time column.

    Raises:
        DefinitionError: If it holds no rows.
    """
    tables: list[pa.Table] = []

    def keep(batch: DataFrame, number: int) -> None:
        """Keep the earliest rows of a micro-batch, for which it runs Spark jobs, while there is room."""
        if _room(tables):
            first = batch.limit(PEEK).toArrow()
            if first.num_rows:
                fits = _room(tables, first.nbytes / first.num_rows)
                tables.append(batch.orderBy(quote_name(time)).limit(fits).toArrow())

    query = frame.writeStream.foreachBatch(keep).trigger(availableNow=True).start()
    try:
        while not query.awaitTermination(POLLED) and _room(tables):  # type: ignore[arg-type]
            pass
    finally:
        query.stop()
    if not tables:
        raise DefinitionError(
            f"The source of stream '{name}' holds no rows now: give a sample, "
            f'such as samples={{"{name}": spark.read.parquet(...)}}.'
        )
    return frame.sparkSession.createDataFrame(pa.concat_tables(tables), frame.schema)


def _room(tables: list[pa.Table], width: float = 1.0) -> int:
    """Return how many more rows of a width may be read."""
    rows, size = sum(int(table.num_rows) for table in tables), sum(int(table.nbytes) for table in tables)
    return max(0, min(MOST_ROWS - rows, int((MOST_BYTES - size) // max(1.0, width))))
