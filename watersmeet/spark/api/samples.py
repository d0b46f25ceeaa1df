"""What `wm.advise` reads of each stream: a frame, files, or what the stream's own source holds now."""

import os
from collections.abc import Mapping
from pathlib import PurePosixPath

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from watersmeet.errors import DefinitionError
from watersmeet.predicate.scope import TABLE_TIME
from watersmeet.spark.api.join import Join
from watersmeet.spark.api.stream import table_time
from watersmeet.spark.run.frames import check_frame, quoted

MOST_ROWS, MOST_BYTES = 50_000, 256 << 20
"""As much of a sample is read."""
PEEK = 20
"""Rows by which the width of a stream's rows is judged."""
WAITED = 0.1
"""Seconds between two looks at whether enough has been read."""
FORMATS = {".parquet": "parquet", ".orc": "orc", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}
"""What a file holds, by how its name ends."""

Given = DataFrame | str | os.PathLike[str]
"""A sample: a static frame, or where its files are."""


def samples_of(join: Join, given: Mapping[str, Given]) -> list[DataFrame]:
    """Return a static frame for each stream, with the stream's columns.

    Raises:
        DefinitionError: If there is none, it holds nothing, or it lacks a column.
    """
    return [sample_of(join, at, given.get(stream.name)) for at, stream in enumerate(join.query.streams)]


def sample_of(join: Join, at: int, given: Given | None) -> DataFrame:
    """Return a static frame for one stream; see `samples_of`."""
    stream, own = join.query.streams[at], join.frames[at]
    what = f"The sample of {stream.noun} '{stream.name}'"
    kind = T.StructType([field for field in join.kinds[at] if field.name != TABLE_TIME])
    if isinstance(given, str | os.PathLike):
        frame = read(join.spark, os.fspath(given), kind, what)
    elif given is not None:
        frame = check_frame(what, given)
    elif own is None:
        raise DefinitionError(
            f"Stream '{stream.name}' is a join of streams, whose results aren't known yet: give a sample of them, "
            f'such as samples={{"{stream.name}": spark.read.parquet(...)}}.'
        )
    else:
        frame = drawn(stream.name, own, stream.schema.names[stream.time]) if own.isStreaming else own
    if frame.isStreaming:
        raise DefinitionError(f"{what} is streaming; give a static frame, or none to read the stream's own source.")
    missing = [column for column in kind.names if column not in frame.columns]
    if missing:
        raise DefinitionError(f"{what} has no column '{missing[0]}', which the {stream.noun} has.")
    if stream.table and TABLE_TIME not in frame.columns:
        frame = frame.withColumn(TABLE_TIME, table_time(join.kinds[at][TABLE_TIME].dataType))
    return frame.select(*(frame[quoted(column)] for column in stream.schema.names))


# -- files


def read(spark: SparkSession, path: str, kind: T.StructType, what: str) -> DataFrame:
    """Return what files hold, in the format that their names tell; Delta by its log.

    Args:
        spark: The session.
        path: A file or a folder, as Spark reads it.
        kind: The columns, for formats that don't say them.
        what: How an error calls it.

    Raises:
        DefinitionError: If there are no files, or none whose names tell.
    """
    if _is_delta(spark, path):
        return spark.read.format("delta").load(path)
    names = [PurePosixPath(file).name for file in spark.read.text(path).inputFiles()]
    found = next(
        (FORMATS[ending] for name in names for ending in PurePosixPath(name).suffixes if ending in FORMATS), None
    )
    if found is None:
        raise DefinitionError(
            f"{what}: {path} holds no file whose name ends in one of {', '.join(FORMATS)}, and is no Delta table."
        )
    if found == "csv":
        return _csv(spark, path, kind)
    return spark.read.schema(kind).json(path) if found == "json" else spark.read.format(found).load(path)


def _is_delta(spark: SparkSession, path: str) -> bool:
    log = spark._jvm.org.apache.hadoop.fs.Path(path, "_delta_log")  # type: ignore[union-attr]
    return bool(log.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).exists(log))


def _csv(spark: SparkSession, path: str, kind: T.StructType) -> DataFrame:
    """Return rows by the names in the first line, if it has those of all columns; else by position."""
    first = spark.read.csv(path).first()
    if first is None or not set(kind.names) <= set(first):
        return spark.read.schema(kind).csv(path)
    rows = spark.read.option("header", True).csv(path)
    return rows.select(*(rows[quoted(field.name)].try_cast(field.dataType).alias(field.name) for field in kind))


# -- a source


def drawn(name: str, frame: DataFrame, time: str) -> DataFrame:
    """Return what the source of a streaming frame holds now, or enough of it; the source itself is not changed.

    Raises:
        DefinitionError: If it holds nothing.
    """
    kept: list[pa.Table] = []

    def keep(batch: DataFrame, number: int) -> None:
        if _room(kept):
            peeked = batch.limit(PEEK).toArrow()
            if peeked.num_rows:
                fits = _room(kept, peeked.nbytes / peeked.num_rows)
                kept.append(batch.orderBy(quoted(time)).limit(fits).toArrow())

    query = frame.writeStream.foreachBatch(keep).trigger(availableNow=True).start()
    try:
        while not query.awaitTermination(WAITED) and _room(kept):  # type: ignore[arg-type]
            pass
    finally:
        query.stop()
    if not kept:
        raise DefinitionError(
            f"The source of stream '{name}' holds no rows now: give a sample, "
            f'such as samples={{"{name}": spark.read.parquet(...)}}.'
        )
    return frame.sparkSession.createDataFrame(pa.concat_tables(kept), frame.schema)


def _room(kept: list[pa.Table], width: float = 1.0) -> int:
    """Return how many more rows of a width are to be read."""
    rows, size = sum(int(table.num_rows) for table in kept), sum(int(table.nbytes) for table in kept)
    return max(0, min(MOST_ROWS - rows, int((MOST_BYTES - size) // max(1.0, width))))
