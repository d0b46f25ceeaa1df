"""The output columns of a join: which the engine computes, and which Spark computes from those."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from watersmeet.predicate.scope import TABLE_TIME
from watersmeet.query.optional_streams import check_selected_columns
from watersmeet.query.query import RESULT_TIME, Output, Query
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.output.identity import ID
from watersmeet.spark.run import checks
from watersmeet.spark.run.frames import quote_name
from watersmeet.spark.sql.select import FILTER_COLUMN, Selection, SelectList, check, check_untrusted, parse_select
from watersmeet.spark.sql.select_columns import read_columns


def output_columns(
    select: Any, join: JoinDefinition, untrusted: bool, identity: bool
) -> tuple[tuple[Output, ...], Selection | None, str]:
    """Return the engine's output columns, the SELECT list if Spark has to compute it from them, and its text.

    Without columns and a list, the engine outputs a struct per stream. Spark analyses a list, in no job.

    Args:
        select: The SELECT list, as text or as columns; None for the default output.
        join: The join, still without output columns.
        untrusted: Whether the list comes from people.
        identity: Whether the default output has an `_id`.

    Raises:
        DefinitionError: If the list is invalid, or columns of the default output have the same name.
    """
    is_default = select is None
    if is_default:
        streams = [stream for at, stream in enumerate(join.query.streams) if at not in join.query.hidden_streams]
        columns = [(stream.name, stream.schema.names) for stream in streams]
        checks.require_distinct_columns(
            columns, "results show every column: rename one, or say what to show with select='...'"
        )
        if not any(stream.table for stream in streams) and not join.query.filter:
            return (), None, ""
        select = _default_columns(join.query, identity)
    parsed = _parse(select, join, untrusted, is_default)
    check_selected_columns(join.query, parsed.computed.columns)
    text = parsed.computed.text
    if parsed.plain is not None and not parsed.computed.filters:
        return parsed.plain, None, text
    outputs = tuple(Output(column.name, column) for column in parsed.computed.columns or (RESULT_TIME,))
    selecting = replace(join, query=replace(join.query, outputs=outputs), identity=parsed.computed.identity)
    empty = selecting.nest(selecting.empty_frame())
    if untrusted:
        return outputs, check_untrusted(parsed.computed, empty), text
    check(parsed.computed, empty)
    return outputs, parsed.computed, text


def _parse(select: Any, join: JoinDefinition, untrusted: bool, is_default: bool) -> SelectList:
    """Parse a SELECT list; the filter on results, if any, becomes its last item. Raises SqlError if it is invalid."""
    condition = join.query.filter
    if isinstance(select, str):
        text = f"{select}, ({condition}) AS {FILTER_COLUMN}" if condition else select
        parsed = parse_select(text, join.query, join.spark, untrusted)
    else:
        columns = [*select, F.expr(condition).alias(FILTER_COLUMN)] if condition else select
        frames = zip((stream.name for stream in join.query.streams), join.frames, strict=True)
        parsed = read_columns(columns, join.query, join.spark, dict(frames), is_default)
    return replace(parsed, computed=replace(parsed.computed, filters=True)) if condition else parsed


def _default_columns(query: Query, identity: bool) -> list[Column]:
    """Return one struct column per stream, without the hidden time column of tables, and `_time`."""
    structs = [
        struct_of(spec.name, spec.schema.names, at in query.nullable_streams, spec.schema.names[spec.time])
        for at, spec in enumerate(query.streams)
        if at not in query.hidden_streams
    ]
    return [*structs, F.col("_time"), *([F.col(ID)] if identity is True else [])]


def struct_of(stream: str, names: Sequence[str], lacking: bool, time: str) -> Column:
    """Return a struct column that holds the tuple of a stream, under the stream's name.

    Args:
        stream: The stream.
        names: Its columns.
        lacking: Whether results may lack the stream; its time is then NULL.
        time: Its time column.
    """
    columns = {name: F.col(f"{quote_name(stream)}.{quote_name(name)}") for name in names}
    struct = F.struct(*(column for name, column in columns.items() if name != TABLE_TIME))
    return (F.when(columns[time].isNotNull(), struct) if lacking else struct).alias(stream)
