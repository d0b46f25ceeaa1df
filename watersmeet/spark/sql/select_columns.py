"""A join's output columns; `select` may be a list of PySpark's, read like a SELECT list, but not through text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.errors import DefinitionError, SqlError
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.model import Column
from watersmeet.predicate.scope import TABLE_TIME, same_name
from watersmeet.query.optional_streams import check_selected_columns
from watersmeet.query.query import RESULT_TIME, Output, Query
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.output.identity import ID
from watersmeet.spark.run import checks
from watersmeet.spark.run.frames import quote_name
from watersmeet.spark.sql.catalyst import EditedText, NodeBuilder, ParsedNode, items
from watersmeet.spark.sql.column_writer import ColumnWriter
from watersmeet.spark.sql.condition_names import ATTRIBUTE, STARS
from watersmeet.spark.sql.select import (
    FILTER_COLUMN,
    ListReader,
    Selection,
    SelectList,
    check,
    check_untrusted,
    parse_select,
)


def check_select(select: object) -> list[SparkColumn] | None:
    """Return `select` as a list of columns, in which strings become columns; None if it is a string, or None.

    Raises:
        DefinitionError: If it is something else.
    """
    if select is None or isinstance(select, str):
        return None
    columns = [select] if isinstance(select, SparkColumn) else [*select] if isinstance(select, list | tuple) else []
    if not columns or not all(isinstance(one, SparkColumn | str) for one in columns):
        invalid = next((one for one in columns if not isinstance(one, SparkColumn | str)), select)
        raise DefinitionError(
            "select must be a string such as 'a.id, b.x AS other', or a list of columns such as [a.id, b.id]; "
            f"{invalid!r} is neither."
        )
    return [F.expr(one) if isinstance(one, str) else one for one in columns]


def read_columns(
    columns: Sequence[SparkColumn],
    query: Query,
    spark: SparkSession,
    frames: Mapping[str, DataFrame | None],
    ours: bool = False,
) -> SelectList:
    """Read a list of columns over a join's streams.

    Args:
        columns: The columns.
        query: The join.
        spark: The session.
        frames: The streams' frames, to which a column may be bound; None for one that is a join.
        ours: Whether the list is ours, not the user's: it may then name the times of tables.

    Raises:
        SqlError: If it names what does not exist, or plain columns of the same name.
        DefinitionError: If Spark can't read a column, or it belongs to another frame.
    """
    writer = ColumnWriter(spark, frames)
    listed = writer.select_list(columns)
    return _ColumnReader(writer.text, query, spark, ours).read(listed)


class _ColumnReader(ListReader):
    """Reads a list of columns, and rebuilds their nodes for Spark."""

    def __init__(self, text: str, query: Query, spark: SparkSession, ours: bool) -> None:
        super().__init__(text, query, ours)
        self._builder = NodeBuilder(spark)
        self._jvm: Any = spark._jvm
        self._one_row = spark._jsparkSession.sessionState().sqlParser().parsePlan("SELECT 1").child()

    def read(self, listed: Sequence[ParsedNode]) -> SelectList:
        pairs = [pair for item in listed for pair in self._read_item(item)]
        plan = self._builder.project([node for node, _ in pairs], self._one_row)
        duplicate = "select: Two output columns are called {}; name one with alias('...')."
        return self._select_list([output for _, output in pairs], EditedText(self._text), plan, duplicate)

    def _read_item(self, item: ParsedNode) -> list[tuple[Any, Output | None]]:
        """Return the nodes for Spark that an item stands for, each with its output if it is a plain column.

        Notes the columns that are read.

        Raises:
            SqlError: If the item names what does not exist.
        """
        if item.kind in STARS:
            return self._star(item)
        inner = item.children[0] if item.kind == "Alias" else item
        node = self._builder.rebuild(item, self._qualify)
        if item.kind not in ("Alias", ATTRIBUTE):
            none = self._jvm.scala.Option.empty()
            node = self._jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAlias(node, none)
        if inner.kind != ATTRIBUTE or _is_id(inner):
            return [(node, None)]
        column, whole = self._column(inner)
        name = str(item.handle.name()) if item.kind == "Alias" else inner.names[-1]
        return [(node, Output(name, column) if whole else None)]

    def _star(self, item: ParsedNode) -> list[tuple[Any, Output | None]]:
        """Return the columns of `stream.*`, except a table's time, and note them; raises SqlError for other stars."""
        target = item.handle.target()
        name = "" if target.isEmpty() else ".".join(str(part) for part in items(target.get()))
        for at, stream in enumerate(self._query.streams):
            if same_name(stream.name, name):
                names = enumerate(stream.schema.names)
                outputs = [Output(column, Column(at, field)) for field, column in names if column != TABLE_TIME]
                self._columns |= {output.column for output in outputs}
                return [(self._builder.attribute(stream.name, output.name), output) for output in outputs]
        raise self._error(f"There is no stream {name}; write F.col('{self._query.streams[0].name}.*').", item)

    def _qualify(self, part: ParsedNode) -> Any:
        """Return a column's node with its stream's name before its own, and note the column.

        None for what stays as it is: `_time` and `_id`, which are noted too, and anything that is not a name.
        """
        if part.kind != ATTRIBUTE:
            return None
        if _is_id(part):
            self._identity = True
            return None
        column, _ = self._column(part)
        if column == RESULT_TIME:
            return None
        stream = self._query.streams[column.stream]
        rest = part.names[2 if self._has_stream(part.names) else 1 :]
        return self._builder.attribute(stream.name, stream.schema.names[column.field], *rest)

    def _column(self, part: ParsedNode) -> tuple[Column, bool]:
        """Note the column that a name reads; return it, and whether the name is that column rather than a field in it.

        Raises:
            SqlError: If there is no such column.
        """
        if [name.lower() for name in part.names] == ["_time"]:
            column = RESULT_TIME
        else:
            try:
                column = self._scope.column(part.names)
            except Refusal as refusal:
                raise self._error(refusal.problem, part) from None
        self._columns.add(column)
        return column, len(part.names) == (2 if self._has_stream(part.names) else 1)

    def _error(self, problem: str, part: ParsedNode) -> SqlError:
        return SqlError(f"select: {problem}", self._text, *part.span)


def _is_id(part: ParsedNode) -> bool:
    """Tell whether a name is the results' `_id`."""
    return [name.lower() for name in part.names] == [ID]


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


def _default_columns(query: Query, identity: bool) -> list[SparkColumn]:
    """Return one struct column per stream, without the hidden time column of tables, and `_time`."""
    structs = [
        struct_of(spec.name, spec.schema.names, at in query.nullable_streams, spec.schema.names[spec.time])
        for at, spec in enumerate(query.streams)
        if at not in query.hidden_streams
    ]
    return [*structs, F.col("_time"), *([F.col(ID)] if identity is True else [])]


def struct_of(stream: str, names: Sequence[str], lacking: bool, time: str) -> SparkColumn:
    """Return a struct column of a stream's columns, under its name, without the hidden time of a table.

    Where results may lack the stream (`lacking`), it is NULL if `time` is, which is one of the `names`.
    """
    columns = {name: F.col(f"{quote_name(stream)}.{quote_name(name)}") for name in names}
    struct = F.struct(*(column for name, column in columns.items() if name != TABLE_TIME))
    return (F.when(columns[time].isNotNull(), struct) if lacking else struct).alias(stream)
