"""Input frames: pruned, tagged with their stream, hashed, and combined into one, since a batch is one frame.

The hash of a row's content breaks ties of the arrival order, so distinct rows must not collide systematically. [!]
Spark's xxhash64 skips NULL, ignores the boundaries of arrays and structs, treats -0.0 as 0.0, and rejects maps and
variants. So it is also given what it would otherwise miss.
"""

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from watersmeet.batch.plan import Host
from watersmeet.errors import DefinitionError
from watersmeet.exchange.tasks import CONTENT, STREAM, TRACED
from watersmeet.formatting import with_article
from watersmeet.predicate.model import Column as ColumnOf
from watersmeet.predicate.scope import OURS, TABLE_TIME, same_name
from watersmeet.query.query import TRACE_TYPE, Query
from watersmeet.spark.run.versions import to_arrow_schema

STORABLE = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip
TIMES_OF_DAY = "spark.sql.timeType.enabled"
"""Spark's setting that turns the type TIME on."""
TRACE_KIND = from_arrow_type(TRACE_TYPE)
"""Spark's type of traces."""


class HiddenValues(NamedTuple):
    """The hidden columns of a stream as Spark computes them, over its columns under their numbers.

    Attributes:
        attempts: What may raise, by the names under which `values` refer to it.
        values: The hidden columns.

    [!] Each attempt is made once, in a projection of its own: Spark 4.3 generates wrong code for one that occurs
    several times.
    """

    attempts: Mapping[str, Column] = {}
    values: Sequence[Column] = ()


class PunctuationFrame(NamedTuple):
    """Punctuations from a frame of their own, which come in as rows of a stream.

    Attributes:
        stream: The stream's position.
        frame: The frame, its columns under their numbers.
        values: The values of the stream's columns, hidden ones included, by position; all others are NULL.
    """

    stream: int
    frame: DataFrame
    values: Mapping[int, Column]


def check_frame(what: str, frame: Any) -> DataFrame:
    """Return a frame if it is a classic Spark frame.

    Args:
        what: What error messages call it.
        frame: The argument to check.

    Raises:
        DefinitionError: If it is something else, such as a Spark Connect frame, or a column has a reserved name.
    """
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise DefinitionError(
            f"{what} is a Spark Connect frame; Watersmeet needs a classic session for now "
            "(SparkSession.builder.master(...), without remote(...))."
        )
    if not isinstance(frame, DataFrame):
        raise DefinitionError(f"{what} needs a Spark DataFrame, static or streaming; got {_kind(frame)}.")
    if any(same_name(name, TABLE_TIME) for name in frame.columns):
        raise DefinitionError(f"{what} has a column {TABLE_TIME}: that name is reserved; rename the column.")
    _check_times_of_day(what, frame)
    return frame


def _check_times_of_day(what: str, frame: DataFrame) -> None:
    """Refuse columns of type TIME if the session has them turned off, as by default: Spark would fail at the start.

    Raises:
        DefinitionError: If there is one.
    """
    timed = [field.name for field in frame.schema if "time(" in field.dataType.simpleString()]
    if timed and frame.sparkSession.conf.get(TIMES_OF_DAY, "false") != "true":
        raise DefinitionError(
            f"{what} has a column '{timed[0]}' of type TIME, which this session's Spark has turned off: "
            f"spark.conf.set('{TIMES_OF_DAY}', 'true') before the frame is made, or drop the column."
        )


def _kind(value: Any) -> str:
    """Return the name of a value's type, with its module unless it is built in: there are several DataFrames."""
    kind = type(value)
    return with_article(kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}")


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return a frame's schema as state keeps it, in Arrow; every field is nullable, as the union of streams makes it.

    Raises:
        DefinitionError: If Arrow has no type for a column.
    """
    try:
        fields = [replace_type(field, stored_type(field.dataType)) for field in frame.schema]
        return to_arrow_schema(_make_nullable(T.StructType(fields)))
    except Exception as error:
        raise DefinitionError(f"A column has no type in Arrow: {error}") from None


def replace_type(field: T.StructField, kind: T.DataType) -> T.StructField:
    """Return a field with another type."""
    return T.StructField(field.name, kind, field.nullable, field.metadata)


def stored_type(kind: T.DataType) -> T.DataType:
    """Return the type in which state keeps values of a type: PySpark has no Arrow type for years and months."""
    return T.IntegerType() if isinstance(kind, T.YearMonthIntervalType) else kind


def to_stored(value: Column, kind: T.DataType) -> Column:
    """Return a value of a type as state keeps it."""
    return value.cast("interval month").cast("int") if isinstance(kind, T.YearMonthIntervalType) else value


def from_stored(value: Column, kind: T.DataType) -> Column:
    """Return a value of a type from what state keeps of it."""
    if isinstance(kind, T.YearMonthIntervalType):
        return F.make_ym_interval(F.lit(0), value).cast(kind)
    return value.cast(_make_nullable(kind)) if is_odd(kind) else value


def is_odd(kind: T.DataType) -> bool:
    """Tell whether values of a type come back from state in another type: intervals, and text with a collation."""
    name = kind.simpleString().lower()
    return "interval" in name or "collate" in name


def arrow_type(kind: T.DataType) -> pa.DataType:
    """Return a storable type in Arrow."""
    return to_arrow_schema(_make_nullable(T.StructType([T.StructField("c", kind)]))).field(0).type


def is_storable(kind: T.DataType) -> bool:
    """Tell whether values of a type come back from state unchanged."""
    if isinstance(kind, T.ArrayType):
        return is_storable(kind.elementType)
    if isinstance(kind, T.MapType):
        return is_storable(kind.keyType) and is_storable(kind.valueType)
    if isinstance(kind, T.StructType):
        return all(is_storable(field.dataType) for field in kind)
    return isinstance(kind, STORABLE)


def hidden_name(name: str) -> str:
    """Return a reserved name for an internal column, which no column of a stream can have."""
    return f"{OURS}{name}"


def spark_schema(schema: pa.Schema) -> T.StructType:
    """Return an Arrow schema as one of Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _make_nullable(kind: Any) -> Any:
    """Return a type in which all fields, elements and values of maps may be NULL."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _make_nullable(field.dataType), True) for field in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_make_nullable(kind.elementType), True)
    if isinstance(kind, T.MapType):
        return T.MapType(_make_nullable(kind.keyType), _make_nullable(kind.valueType), True)
    return kind


def union(
    query: Query,
    frames: Sequence[DataFrame | None],
    everything: bool,
    computed: Sequence[HiddenValues],
    punctuations: Sequence[PunctuationFrame] = (),
) -> DataFrame:
    """Return all inputs as one frame: the stream's position, a content hash, each stream's columns by generated name.

    Columns are pruned here, before the union: foreachBatch gets an opaque scan, behind which nothing is pruned.

    Args:
        query: The join.
        frames: One per stream; None where the stream is an inner join.
        everything: Whether late and rejected rows are written, which takes every column.
        computed: How the hidden columns of each stream are computed.
        punctuations: Punctuations from frames of their own.
    """
    parts = [
        tag_rows(query, position, frame, everything, computed[position])
        for position, frame in enumerate(frames)
        if frame is not None
    ]
    parts += [_rows(query, each.stream, each.frame, everything, each.values) for each in punctuations]
    return reduce(DataFrame.union, parts)


def _needed_fields(query: Query, position: int, everything: bool) -> list[int]:
    """Return the positions of the columns that a stream's tuples are joined, tested or judged by, hidden ones included.

    With `everything`, all columns that are not hidden are among them.
    """
    stream = query.streams[position]
    tests = {at for test in stream.tests for at in (test.holds, test.failed) if at is not None}
    fields = {
        stream.time,
        *(column.field for column in query.stored_columns[position]),
        *tests,
        *query.constraint_columns[position],
    }
    return sorted(fields | set(range(len(stream.schema))) if everything else fields)


def tag_rows(
    query: Query, position: int, frame: DataFrame, everything: bool, computed: HiddenValues, traced: bool = False
) -> DataFrame:
    """Return a frame as rows of one stream of a join, with the columns of the others NULL.

    Args:
        query: The join.
        position: The stream.
        frame: The frame.
        everything: Whether rows that are not joined are written, which takes every column.
        computed: How its hidden columns are computed.
        traced: Whether its first column holds traces, which come last here and do not enter the hash.
    """
    fields = frame.schema.fields[1:] if traced else frame.schema.fields
    names = [column_name(at) for at in range(len(fields))]
    own = [to_stored(F.col(name), field.dataType) for name, field in zip(names, fields, strict=True)]
    numbered = frame.toDF(*([TRACED] if traced else []), *names)
    if computed.attempts:
        numbered = numbered.select("*", *(value.alias(name) for name, value in computed.attempts.items()))
    content = None
    if (
        position in query.hashed_streams
    ):  # [!] which rows are the last n, or the newest, must not depend on the columns needed
        content = list(zip(own, (stored_type(field.dataType) for field in fields), strict=True))
    values = dict(enumerate([*own, *computed.values]))
    return _rows(query, position, numbered, everything, values, content, [TRACED] if traced else [])


def _rows(
    query: Query,
    position: int,
    frame: DataFrame,
    everything: bool,
    values: Mapping[int, Column],
    content: Sequence[tuple[Column, T.DataType]] | None = None,
    beside: Sequence[str] = (),
) -> DataFrame:
    """Return a frame as rows of one stream of a join.

    Args:
        query: The join.
        position: The stream.
        frame: The frame.
        everything: Whether rows that are not joined are written, which takes every column.
        values: The values of the stream's columns, by position; those of all other columns are NULL.
        content: What is hashed; by default all values that are needed.
        beside: Other columns of the frame, which come last.
    """
    columns, own = [], list[tuple[Column, T.DataType]]()
    for other in range(len(query.streams)):
        for field in _needed_fields(query, other, everything):
            column = ColumnOf(other, field)
            kind = from_arrow_type(query.type_of(column), prefer_timestamp_ntz=True)
            value = values.get(field) if other == position else None
            cast = (F.lit(None) if value is None else value).cast(kind)
            columns.append(cast.alias(column.name))
            own += [] if value is None else [(cast, kind)]
    # The hash comes last: before the columns it reads, Spark's constraints would double with each of them.
    tag = F.lit(position).cast("byte").alias(STREAM)
    return frame.select(tag, *columns, content_hash(own if content is None else content).alias(CONTENT), *beside)


def column_name(at: int) -> str:
    """Return a name for a frame's column by its position: its own name may be anything, and need not be unique."""
    return f"{OURS}c{at}"


def attempt_name(at: int) -> str:
    """Return the name of the attempt to compute a hidden column; see `HiddenValues`."""
    return f"{OURS}t{at}"


def quote_name(name: str) -> str:
    """Quote any name for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def is_local(spark: SparkSession) -> bool:
    """Tell whether all tasks run in this host's own process tree."""
    master = spark.sparkContext.master or ""
    return master == "local" or master.startswith("local[")


def host(spark: SparkSession, shared: bool) -> Host:
    """Return where a join runs: for a local session, on no more cores than this host has.

    Args:
        spark: The session.
        shared: Whether tasks share their state, so that no row is sent.
    """
    slots = spark.sparkContext.defaultParallelism
    return Host(slots, min(slots, os.cpu_count() or slots) if is_local(spark) else slots, shared)


def content_hash(values: Sequence[tuple[Column, T.DataType]]) -> Column:
    """Return a hash of columns, passed with their types."""
    return F.xxhash64(*hash_input(values))


def hash_input(values: Sequence[tuple[Column, T.DataType]]) -> list[Column]:
    """Return what to hash of columns, passed with their types: distinct rows differ in it."""
    return [part for value, kind in values for part in _parts(value, kind)]


def _parts(value: Column, kind: T.DataType) -> list[Column]:
    """Return what to hash of a value: distinct values differ in it."""
    null = value.isNull()
    if isinstance(kind, T.StructType) and len({field.name.lower() for field in kind}) == len(kind):
        return [null, *(part for field in kind for part in _parts(value.getField(field.name), field.dataType))]
    if isinstance(kind, T.ArrayType):
        return [null, F.size(value), *_elements(value, kind.elementType)]
    if isinstance(kind, T.MapType):
        entry = T.StructType([T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)])
        hashes = F.transform(F.map_entries(value), lambda each: content_hash([(each, entry)]))
        return [null, F.size(value), F.array_sort(hashes)]
    if isinstance(kind, T.VariantType):
        return [null, F.to_json(value), F.schema_of_variant(value)]
    return [null, *_scalar_parts(value, kind)]


def _scalar_parts(value: Column, kind: T.DataType) -> list[Column]:
    """Return what to hash of a value without parts: texts by their bytes, and -0.0 apart from 0.0."""
    if isinstance(kind, T.StringType) and not _is_binary(kind):
        return [value.cast("binary")]  # texts that are equal by a collation may still be different content
    if isinstance(kind, T.FloatType | T.DoubleType):
        return [value, F.when(value == 0, value.cast("string"))]
    return [value]


def _elements(value: Column, kind: T.DataType) -> list[Column]:
    """Return what to hash of an array: the array itself, which is fast, unless elements need more."""
    copy = _copy_array(value)
    each = F.transform(copy, lambda element: content_hash([(element, kind)]))
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType | T.VariantType):
        return [each]
    if isinstance(kind, T.StringType) and not _is_binary(kind):
        return [each]
    zero = isinstance(kind, T.FloatType | T.DoubleType)
    ambiguous = F.exists(copy, lambda element: element.isNull() | (element == 0) if zero else element.isNull())
    return [value, F.when(ambiguous, each)]


def _copy_array(array: Column) -> Column:
    """Return a copy of an array, for functions that look at each element.

    [!] Over an array of nothing but NULL that Spark has just read from Parquet, its own `transform`, `exists` and
    `aggregate` fail: they look values up in a dictionary without entries.
    """
    return F.slice(array, 1, 2**31 - 1)


def _is_binary(kind: T.StringType) -> bool:
    return kind.collation == "UTF8_BINARY"
