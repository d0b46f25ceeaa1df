"""What Spark computes beforehand: constants once, and expressions over one stream once a tuple, as hidden columns.

Where an expression may raise, a flag column records for which tuples it did.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.arguments import DAY
from watersmeet.predicate.bounds import FIXED_ZONES
from watersmeet.predicate.expr import Expr, Refusal, error_sql
from watersmeet.predicate.model import Column, HiddenColumn
from watersmeet.predicate.types import FRACTIONAL, INTEGRAL, from_arrow
from watersmeet.query.query import StreamSpec
from watersmeet.spark.run.frames import arrow_type, attempt_name, column_name, hidden_name, is_storable
from watersmeet.spark.sql.catalyst import (
    ConditionText,
    NodeBuilder,
    ParsedNode,
    error_sentence,
    items,
    kind_of,
    without_error_log,
)
from watersmeet.spark.sql.condition_names import STARS, ConditionNames
from watersmeet.spark.sql.convert import literal
from watersmeet.spark.sql.value_limits import ValueLimits

NO_VALUES = STARS | {
    "LambdaFunction", "UnresolvedNamedLambdaVariable", "NamePlaceholder", "NamedArgumentExpression", "Alias",
    "UnresolvedCollation",
}  # fmt: skip
"""Parts that mean something only inside others."""
ARITHMETIC = frozenset({"Add", "Subtract", "Multiply", "UnaryMinus", "UnaryPositive"})
COMPARISONS = frozenset({"EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan",
                         "GreaterThanOrEqual", "In"})  # fmt: skip
SAFE_NODES = frozenset({"UnresolvedAttribute", "Literal", "And", "Or", "Not", "IsNull", "IsNotNull", "Like",
                        "CaseWhen"})  # fmt: skip
SAFE_FUNCTIONS = frozenset({
    "lower", "upper", "lcase", "ucase", "trim", "ltrim", "rtrim", "btrim", "length", "len", "char_length", "reverse",
    "contains", "startswith", "endswith", "instr", "soundex", "coalesce", "nvl", "ifnull", "nvl2", "nullif", "if",
    "isnull", "isnotnull", "isnan", "between", "greatest", "least",
})  # fmt: skip


def cannot_raise(part: ParsedNode, expr_of: Callable[[ParsedNode], Expr]) -> bool:
    """Tell whether computing a part can't raise in Spark, whatever the values.

    Args:
        part: What Spark computes.
        expr_of: Translates a part, which yields its type.

    Raises:
        Refusal: If a part can't be translated.
    """
    expr = expr_of(part)
    return not (expr.raises or expr.fails) and all(_cannot_raise(inner, expr_of) for inner in part.walk())


def _cannot_raise(part: ParsedNode, expr_of: Callable[[ParsedNode], Expr]) -> bool:
    """Tell whether a node itself can't raise, its children aside."""
    if part.kind == "UnresolvedFunction":
        return len(part.names) == 1 and part.names[0].lower() in SAFE_FUNCTIONS and _needs_no_cast(part, expr_of)
    if part.kind in ARITHMETIC:
        return expr_of(part).type.kind in FRACTIONAL
    return part.kind in SAFE_NODES or (part.kind in COMPARISONS and _needs_no_cast(part, expr_of))


def _needs_no_cast(part: ParsedNode, expr_of: Callable[[ParsedNode], Expr]) -> bool:
    """Tell whether only numbers other than decimals have to be cast: casting a far date to a timestamp raises."""
    kinds = {expr_of(child).type.kind for child in part.children} - {"void", "boolean"}
    return len(kinds) <= 1 or kinds <= {*INTEGRAL, *FRACTIONAL}


@dataclass(frozen=True, eq=False)
class ComputedColumn:
    """A hidden column as Spark computes it.

    Attributes:
        part: The expression.
        hidden: The column as the join knows it.
        kind: Its type in Spark.
        column: Its position.
        value: Its value, over the stream's columns under their numbers, and its attempt.
        attempt: The attempt to compute it, if it may raise.
        flag: The column, right behind it, that is TRUE where computing it raised; None if it can't raise.
    """

    part: ParsedNode
    hidden: HiddenColumn
    kind: T.DataType
    column: Column
    value: SparkColumn
    flag: "ComputedColumn | None" = None
    attempt: SparkColumn | None = None

    @property
    def columns(self) -> set[Column]:
        """The column, and its flag's."""
        return {self.column} | ({self.flag.column} if self.flag else set())

    @property
    def reason(self) -> str:
        """The message of an error where computing it raised."""
        return f"an error when Spark computed `{self.hidden.text}`"

    def expr(self, careful: bool) -> Expr:
        """Return it as an expression of the translator; a careful one raises where computing it did.

        Raises:
            Refusal: If DuckDB doesn't know its type, or compares such values differently.
        """
        type_, name = from_arrow(self.hidden.type), self.column.name
        if not type_.is_usable or collation(self.kind):
            raise Refusal(f"values of type {self.kind.simpleString()} can be handled only by Spark")
        if self.flag is None or not careful:
            return Expr(name, type_, frozenset({self.column}))
        sql = f"(CASE WHEN {self.flag.column.name} THEN {error_sql(self.reason, type_)} ELSE {name} END)"
        return Expr(sql, type_, frozenset(self.columns), raises=True, or_null=name)

    def read(self) -> SparkColumn:
        """Return it as Spark reads it when it decides a conjunct."""
        return self.guard(F.col(hidden_name(self.column.name)))

    def guard(self, value: SparkColumn) -> SparkColumn:
        """Return a value that raises where computing the hidden column did."""
        if self.flag is None:
            return value
        error = F.raise_error(F.lit(self.reason))
        return F.when(F.col(hidden_name(self.flag.column.name)), error).otherwise(value)


class Hoist:
    """Finds what can be computed beforehand, and defines the hidden columns.

    Attributes:
        computed: The hidden columns of each stream.
        hidden: The hidden columns by the parts whose values they hold.
        constants: The values of parts that are constant.

    Args:
        names: The names of the `where`.
        text: Its text.
        streams: The join's streams.
        kinds: Their columns in Spark.
        spark: The session.
        cannot_raise: Tells whether computing a part can't raise.
        limits: The limits of values that calls make.
    """

    def __init__(
        self,
        names: ConditionNames,
        text: ConditionText,
        streams: Sequence[StreamSpec],
        kinds: Sequence[T.StructType],
        spark: SparkSession,
        cannot_raise: Callable[[ParsedNode], bool],
        limits: ValueLimits,
    ) -> None:
        self._names, self._text, self._streams, self._spark = names, text, streams, spark
        self._cannot_raise, self._limits = cannot_raise, limits
        self._builder, self._zone = NodeBuilder(spark), spark.conf.get("spark.sql.session.timeZone")
        self._kinds, self._empty = kinds, dict[int, DataFrame]()
        self.computed: list[list[ComputedColumn]] = [[] for _ in streams]
        self.hidden: dict[ParsedNode, ComputedColumn] = {}
        self.constants: dict[ParsedNode, Expr] = {}
        self._raising: dict[ParsedNode, Any] = {}

    def prepare(self, clause: ParsedNode) -> None:
        """Have Spark compute the constants of a conjunct, and add its hidden columns to their streams."""
        for part in self._constant_parts(clause):
            self._fold(part)
        for part in self._stream_parts(clause):
            self._hoist(part)

    def condition(self, part: ParsedNode, answer: Callable[[ParsedNode], SparkColumn]) -> SparkColumn:
        """Return a part as Spark decides it: over struct columns, hidden ones and the answers of Python predicates.

        Args:
            part: The part.
            answer: Returns the answer of a call of a Python predicate.
        """

        def replace(inner: ParsedNode) -> Any:
            """Return the node of a hidden column, an answer, an error or a qualified name; None to keep a part."""
            if inner in self.hidden:
                return self._builder.node(self.hidden[inner].read())
            if self._names.predicate(inner) is not None:
                return self._builder.node(answer(inner))
            return self._raising.get(inner) or self._names.qualify(inner, self._builder)

        return self._rebuild(part, replace)

    def _rebuild(self, part: ParsedNode, replace: Callable[[ParsedNode], Any]) -> SparkColumn:
        return self._builder.column(self._builder.rebuild(part, replace, self._limits.guard))

    def _constant_parts(self, part: ParsedNode) -> list[ParsedNode]:
        """Return the largest parts that read no stream and aren't literals."""
        if part.kind in ("LambdaFunction", "Literal"):
            return []
        if not self._names.reads(part) and not self._names.calls(part) and part.kind not in NO_VALUES:
            return [part]
        return [root for child in part.children for root in self._constant_parts(child)]

    def _stream_parts(self, part: ParsedNode) -> list[ParsedNode]:
        """Return the largest parts that read one stream and aren't a bare column."""
        if part.kind == "LambdaFunction":
            return []
        alone = len(self._names.streams(part)) == 1 and not self._names.calls(part)
        if alone and part.kind not in NO_VALUES and not any(inner.kind in STARS for inner in part.walk()):
            return [] if self._names.is_bare(part) else [part]
        return [root for child in part.children for root in self._stream_parts(child)]

    def _fold(self, part: ParsedNode) -> None:
        """Have Spark compute a constant now, as it plans, and keep its value if the translator knows its type.

        If that raises, an expression that raises the same replaces the part, for rows that reach it. A call of a
        function of the user's stays as it is.
        """
        frame = self._spark.range(1).select(self._rebuild(part, lambda inner: None).alias("c"))
        try:
            with without_error_log():
                expressions = frame._jdf.queryExecution().optimizedPlan().expressions()
        except PySparkException as error:
            # [!] Spark computes constants when it plans, guarded or not: the error must wait until a row reaches it.
            raising = F.raise_error(F.lit(error_sentence(error))).cast(frame.schema[0].dataType)
            self._raising[part] = self._builder.node(raising)
            return
        nodes = [node for alias in items(expressions) for node in items(alias.children())]
        literals = [node for node in nodes if kind_of(node) == "Literal"]
        value = literal(literals[0]) if literals else None
        if value is not None:
            self.constants[part] = value

    def _hoist(self, part: ParsedNode) -> None:
        """Add a hidden column for a part, or use that of an equal part; none if its type can't be stored.

        A float that Spark might compare unrounded is left to be computed from hidden columns for its children.
        """
        (stream,) = self._names.streams(part)
        same = next((column for column in self.computed[stream] if _is_same(column.part, part)), None)
        if same is not None:
            self.hidden[part] = same
            return
        value = self._rebuild(part, self._number)
        kind = self._kind(value, stream)
        if kind == T.FloatType() and self._is_rounded(part, stream):
            self._hoist_children(part)
            return
        if is_storable(kind) and not _has_collation(part, kind):
            self.hidden[part] = self._add_column(part, stream, value, kind)

    def _hoist_children(self, part: ParsedNode) -> None:
        """Add hidden columns for what a part computes from, instead of one for the part; none holds a cast to float.

        [!] Spark may leave such a cast out.
        """
        for root in (root for child in part.children for root in self._stream_parts(child)):
            if any(_is_float_cast(inner) for inner in root.walk()):
                self._hoist_children(root)
            else:
                self._hoist(root)

    def _is_rounded(self, part: ParsedNode, stream: int) -> bool:
        """Tell whether a float is cast from an integer, or contains a cast to float.

        [!] Where it is compared with a double, Spark leaves out the cast to float. A column would be a float.
        """
        if _is_float_cast(part):
            inner = self._rebuild(part.children[0], self._number)
            return isinstance(self._kind(inner, stream), T.IntegralType | T.FloatType)
        return any(_is_float_cast(inner) for inner in part.walk())

    def _kind(self, value: SparkColumn, stream: int) -> T.DataType:
        """Return the type of a value over the columns of a stream."""
        return self._empty_frame(stream).select(value.alias("c")).schema[0].dataType

    def _empty_frame(self, stream: int) -> DataFrame:
        """Return an empty frame with the columns of a stream; cached, as it takes Spark a while to create one."""
        if stream not in self._empty:
            self._empty[stream] = self._spark.createDataFrame([], number_columns(self._kinds[stream]))
        return self._empty[stream]

    def _is_planned(self, value: SparkColumn, stream: int) -> bool:
        """Tell whether Spark can plan a value; it can't if a constant in it raises."""
        try:
            with without_error_log():
                self._empty_frame(stream).select(value.alias("c"))._jdf.queryExecution().optimizedPlan()
        except PySparkException:
            return False
        return True

    def _without_constants(self, part: ParsedNode, stream: int) -> SparkColumn:
        """Return a part with literals that Spark doesn't take for constants, so that it doesn't fold them."""
        time = F.col(column_name(self._streams[stream].time)).cast("string")

        def replace(inner: ParsedNode) -> Any:
            """Return the node of a disguised literal, or of a numbered column; None to keep a part."""
            if inner.kind == "Literal":
                return self._builder.node(
                    F.when(F.length(time) < 0, None).otherwise(self._builder.column(inner.handle))
                )
            return self._number(inner)

        return self._rebuild(part, replace)

    def _number(self, part: ParsedNode) -> Any:
        return self._raising.get(part) or self._names.number(part, self._builder)

    def _shift(self, part: ParsedNode) -> tuple[int, int] | None:
        """Return the position of the timestamp column that a part is a fixed time away from, and the microseconds.

        None for any other part.

        [!] A day is 24 hours only where clocks never change, and a month has no fixed length.
        """
        if part.kind not in ("Add", "Subtract") or len(part.children) != 2:
            return None
        one, two = part.children
        if part.kind == "Add" and self._names.is_bare(two):
            one, two = two, one
        if two.kind != "Literal" or not self._names.is_bare(one):
            return None
        (column,) = self._names.reads(one)
        kind = self._streams[column.stream].schema.field(column.field).type
        name = str(two.handle.dataType().simpleString())
        if not pa.types.is_timestamp(kind) or not name.startswith("interval") or "year" in name or "month" in name:
            return None
        micros = int(two.handle.value()) * (-1 if part.kind == "Subtract" else 1)
        fixed = kind.tz is None or self._zone in FIXED_ZONES or abs(micros) < DAY
        return (column.field, micros) if fixed else None

    def _add_column(self, part: ParsedNode, stream: int, value: SparkColumn, kind: T.DataType) -> ComputedColumn:
        """Add a column that holds a part's value to those computed for its stream, and return it.

        If the part may raise, the column is NULL where it does, and a second one says so.
        """
        text, type_ = self._text.of(part), arrow_type(kind)
        position = Column(stream, len(self._streams[stream].schema) + len(self.computed[stream]))
        column = ComputedColumn(part, HiddenColumn(text, type_, moved=self._shift(part)), kind, position, value)
        if self._cannot_raise(part):
            self.computed[stream].append(column)
            return column
        value = value if self._is_planned(value, stream) else self._without_constants(part, stream)
        attempt = self._builder.null_if_raises(F.struct(value.alias("value")))
        behind, outcome = Column(stream, position.field + 1), F.col(attempt_name(position.field))
        failed = HiddenColumn(f"{text} failed", pa.bool_(), failed=True)
        flag = ComputedColumn(part, failed, T.BooleanType(), behind, outcome.isNull())
        column = replace(column, value=outcome.getField("value"), flag=flag, attempt=attempt)
        self.computed[stream] += [column, flag]
        return column


def _is_same(one: ParsedNode, two: ParsedNode) -> bool:
    """Tell whether two parts compute the same; Spark takes 0.0 and -0.0 for equal, but writes them differently."""
    return bool(one.handle.equals(two.handle)) and one.handle.sql() == two.handle.sql()


def _is_float_cast(part: ParsedNode) -> bool:
    if part.kind == "Cast":
        return str(part.handle.dataType().simpleString()) == "float"
    return part.kind == "UnresolvedFunction" and part.names[-1].lower() == "float" and len(part.children) == 1


def _has_collation(part: ParsedNode, kind: T.DataType) -> bool:
    """Tell whether a part sets its collation explicitly: as a column it would no longer take precedence."""
    return collation(kind) is not None and any(inner.kind == "Collate" for inner in part.walk())


def number_columns(kind: T.StructType) -> T.StructType:
    """Return a stream's schema with its columns under their numbers."""
    return T.StructType([T.StructField(column_name(at), field.dataType) for at, field in enumerate(kind.fields)])


def collation(kind: T.DataType) -> str | None:
    """Return a type's name if its text is compared by a collation, not byte by byte; else None."""
    name = kind.simpleString()
    return name if "collate" in name.lower() else None
