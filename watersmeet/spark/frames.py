"""Input frames: pruned, tagged with their stream, hashed, and made one, since a batch is one frame."""

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from watersmeet.engine.plan import Host
from watersmeet.errors import DefinitionError
from watersmeet.query import Query
from watersmeet.spark.content import content_hash

STREAM = "_stream"
HASH = "_hash"


def check_frame(name: str, frame: Any) -> DataFrame:
    """Return a classic Spark frame.

    Raises:
        DefinitionError: If it is something else, a Spark Connect frame among them.
    """
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise DefinitionError(
            f"Stream '{name}' is a Spark Connect frame; Watersmeet needs a classic session for now "
            "(SparkSession.builder.master(...), without remote(...))."
        )
    if not isinstance(frame, DataFrame):
        raise DefinitionError(f"Stream '{name}' needs a Spark DataFrame, static or streaming; got {_kind(frame)}.")
    return frame


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return a frame's schema in Arrow's terms; every field may be NULL, as it may once streams are unioned."""
    try:
        schema = to_arrow_schema(_nullable(frame.schema), timezone="UTC")
    except Exception as error:
        raise DefinitionError(f"A column has no type in Arrow: {error}") from None
    return schema


def spark_schema(schema: pa.Schema) -> T.StructType:
    """Return an Arrow schema in Spark's terms."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _nullable(kind: Any) -> Any:
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _nullable(field.dataType), True) for field in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, T.MapType):
        return T.MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def union(query: Query, frames: Sequence[DataFrame | None], everything: bool) -> DataFrame:
    """Return all inputs as one frame: the stream's position, a content hash, each stream's columns by generated name.

    Pruned here, before the union: the frame that foreachBatch gets is an opaque scan, nothing is pruned behind it.

    Args:
        query: The join.
        frames: One per stream; None where the stream is an inner join.
        everything: Whether late and rejected rows are written, which takes every column.
    """
    parts = [tagged(query, position, frame, everything) for position, frame in enumerate(frames) if frame is not None]
    one = parts[0]
    for other in parts[1:]:
        one = one.union(other)
    return one


def _needed(query: Query, position: int, everything: bool) -> list[int]:
    stream = query.streams[position]
    if everything:
        return list(range(len(stream.schema)))
    return sorted({stream.time, *(column.field for column in query.kept[position])})


def tagged(query: Query, position: int, frame: DataFrame, everything: bool) -> DataFrame:
    """Return a frame as rows of one stream of a join, with the columns of the others NULL."""
    needed = [_needed(query, other, everything) for other in range(len(query.streams))]
    columns: list[Column] = []
    for other, fields in enumerate(needed):
        types = spark_schema(query.streams[other].schema)
        for field in fields:
            value = frame[_quoted(frame.columns[field])] if other == position else F.lit(None)
            columns.append(value.cast(types[field].dataType).alias(f"s{other}_{field}"))
    hashed = content_hash(
        [(frame[_quoted(frame.columns[field])], frame.schema[field].dataType) for field in needed[position]]
    )
    # The hash stands last: before the columns it reads, Spark's constraints would double with each of them.
    return frame.select(F.lit(position).cast("byte").alias(STREAM), *columns, hashed.alias(HASH))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def is_local(spark: SparkSession) -> bool:
    """Tell whether all tasks run in this host's own process tree."""
    master = spark.sparkContext.master or ""
    return master == "local" or master.startswith("local[")


def host(spark: SparkSession, shared: bool) -> Host:
    """Return where a join runs: on this host with no more cores than it has."""
    slots = spark.sparkContext.defaultParallelism
    return Host(slots, min(slots, os.cpu_count() or slots) if is_local(spark) else slots, shared)
