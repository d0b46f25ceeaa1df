"""What Spark computes beforehand: constants once, and what reads one stream once a tuple, as hidden columns."""

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
from watersmeet.predicate.types import from_arrow
from watersmeet.query.query import StreamSpec
from watersmeet.spark.run.frames import arrow_type, column_name, hidden_name, is_storable, tried_name
from watersmeet.spark.sql.catalyst import Builder, Part, items, kind_of, quiet, said
from watersmeet.spark.sql.convert import Text, literal
from watersmeet.spark.sql.growing import Growing
from watersmeet.spark.sql.names import STARS, Names
from watersmeet.spark.sql.sizes import Sizes

NO_VALUES = STARS | {
    "LambdaFunction", "UnresolvedNamedLambdaVariable", "NamePlaceholder", "NamedArgumentExpression", "Alias",
    "UnresolvedCollation",
}  # fmt: skip
"""Parts that mean something only inside others."""


@dataclass(frozen=True, eq=False)
class Computed:
    """A hidden column as Spark computes it.

    Attributes:
        part: The expression.
        hidden: The column as the join knows it.
        kind: Its type in Spark's terms.
        column: Its position.
        value: What computes it, over the stream's columns by their numbers and what was tried.
        tried: What is tried for it, if it may raise.
        flag: The column, right behind it, that is TRUE where computing it raised; None if it can't raise.
    """

    part: Part
    hidden: HiddenColumn
    kind: T.DataType
    column: Column
    value: SparkColumn
    flag: "Computed | None" = None
    tried: SparkColumn | None = None

    @property
    def columns(self) -> set[Column]:
        """The column, and its flag's."""
        return {self.column} | ({self.flag.column} if self.flag else set())

    @property
    def reason(self) -> str:
        """What an error says where computing it raised."""
        return f"an error when Spark computed `{self.hidden.text}`"

    def expr(self, careful: bool) -> Expr:
        """Return it as the translator takes it; with care, it raises where computing it did.

        Raises:
            Refusal: If DuckDB doesn't know its type, or compares such values otherwise.
        """
        type_, name = from_arrow(self.hidden.type), self.column.name
        if not type_.is_usable or collation(self.kind):
            raise Refusal(f"values of type {self.kind.simpleString()} can be handled only by Spark")
        if self.flag is None or not careful:
            return Expr(name, type_, frozenset({self.column}))
        sql = f"(CASE WHEN {self.flag.column.name} THEN {error_sql(self.reason, type_)} ELSE {name} END)"
        return Expr(sql, type_, frozenset(self.columns), raises=True, or_null=name)

    def shown(self) -> SparkColumn:
        """Return it as Spark reads it where it decides a conjunct."""
        return self.checked(F.col(hidden_name(self.column.name)))

    def checked(self, value: SparkColumn) -> SparkColumn:
        """Return a value that raises where computing the hidden column did."""
        if self.flag is None:
            return value
        error = F.raise_error(F.lit(self.reason))
        return F.when(F.col(hidden_name(self.flag.column.name)), error).otherwise(value)


class Hoist:
    """Finds what can be computed beforehand, and has it computed.

    Args:
        names: The names of the `where`.
        text: Its text.
        streams: The join's streams.
        kinds: Their columns in Spark's terms.
        spark: The session.
        calm: Tells whether computing a part can't raise.
        sizes: The calls that may make large values.
    """

    def __init__(
        self,
        names: Names,
        text: Text,
        streams: Sequence[StreamSpec],
        kinds: Sequence[T.StructType],
        spark: SparkSession,
        calm: Callable[[Part], bool],
        sizes: Sizes | Growing,
    ) -> None:
        self._names, self._text, self._streams, self._spark, self._calm = names, text, streams, spark, calm
        self._sizes = sizes
        self._builder, self._zone = Builder(spark), spark.conf.get("spark.sql.session.timeZone")
        self._kinds, self._empty = kinds, dict[int, DataFrame]()
        self.computed: list[list[Computed]] = [[] for _ in streams]
        self.hidden: dict[Part, Computed] = {}
        self.constants: dict[Part, Expr] = {}
        self._raising: dict[Part, Any] = {}

    def prepare(self, clause: Part) -> None:
        """Have computed what can be of a conjunct."""
        for part in self._fixed(clause):
            self._fold(part)
        for part in self._roots(clause):
            self._hoist(part)

    def decided(self, part: Part, answer: Callable[[Part], SparkColumn]) -> SparkColumn:
        """Return a part as Spark decides it: over struct columns, hidden ones and the answers of Python predicates.

        Args:
            part: The part.
            answer: Returns the answer of a call of a Python predicate.
        """

        def other(inner: Part) -> Any:
            if inner in self.hidden:
                return self._builder.node(self.hidden[inner].shown())
            if self._names.predicate(inner) is not None:
                return self._builder.node(answer(inner))
            return self._raising.get(inner) or self._names.in_full(inner, self._builder)

        return self._rebuilt(part, other)

    def _rebuilt(self, part: Part, replaced: Callable[[Part], Any]) -> SparkColumn:
        return self._builder.column(self._builder.rebuilt(part, replaced, self._sizes.guarded))

    def _fixed(self, part: Part) -> list[Part]:
        """Return the largest parts that read no stream and aren't literals."""
        if part.kind in ("LambdaFunction", "Literal"):
            return []
        if not self._names.reads(part) and not self._names.calls(part) and part.kind not in NO_VALUES:
            return [part]
        return [root for child in part.children for root in self._fixed(child)]

    def _roots(self, part: Part) -> list[Part]:
        """Return the largest parts that read one stream and aren't a bare column."""
        if part.kind == "LambdaFunction":
            return []
        alone = len(self._names.streams(part)) == 1 and not self._names.calls(part)
        if alone and part.kind not in NO_VALUES and not any(inner.kind in STARS for inner in part.walk()):
            return [] if self._names.is_bare(part) else [part]
        return [root for child in part.children for root in self._roots(child)]

    def _fold(self, part: Part) -> None:
        """Let Spark compute a constant now; it can't if that raises, or takes a function of the user's."""
        frame = self._spark.range(1).select(self._rebuilt(part, lambda inner: None).alias("c"))
        try:
            with quiet():
                shown = frame._jdf.queryExecution().optimizedPlan().expressions()
        except PySparkException as error:
            # [!] Spark computes constants when it plans, guarded or not: the error must wait until a row reaches it.
            raising = F.raise_error(F.lit(said(error))).cast(frame.schema[0].dataType)
            self._raising[part] = self._builder.node(raising)
            return
        found = [node for alias in items(shown) for node in items(alias.children()) if kind_of(node) == "Literal"]
        value = literal(found[0]) if found else None
        if value is not None:
            self.constants[part] = value

    def _hoist(self, part: Part) -> None:
        """Let Spark compute a part of each tuple of a stream; not if its type can't be stored."""
        (stream,) = self._names.streams(part)
        known = next((made for made in self.computed[stream] if _alike(made.part, part)), None)
        if known is not None:
            self.hidden[part] = known
            return
        value = self._rebuilt(part, self._numbered)
        kind = self._kind(value, stream)
        if kind == T.FloatType() and self._is_rough(part, stream):
            self._hoist_within(part)
            return
        if is_storable(kind) and not _is_explicit(part, kind):
            self.hidden[part] = self._compute(part, stream, value, kind)

    def _hoist_within(self, part: Part) -> None:
        """Let Spark compute what a part is made of, as far as no float is among it that Spark may leave out."""
        for root in (root for child in part.children for root in self._roots(child)):
            if any(_is_float_cast(inner) for inner in root.walk()):
                self._hoist_within(root)
            else:
                self._hoist(root)

    def _is_rough(self, part: Part, stream: int) -> bool:
        """Tell whether a float is cast from an integer, or made of what may be.

        [!] Where such a one is compared with a double, Spark leaves out the float between. As a column it would be one.
        """
        if _is_float_cast(part):
            inner = self._rebuilt(part.children[0], self._numbered)
            return isinstance(self._kind(inner, stream), T.IntegralType | T.FloatType)
        return any(_is_float_cast(inner) for inner in part.walk())

    def _kind(self, value: SparkColumn, stream: int) -> T.DataType:
        """Return the type of a value over the columns of a stream."""
        return self._over(stream).select(value.alias("c")).schema[0].dataType

    def _over(self, stream: int) -> DataFrame:
        """Return an empty frame with the columns of a stream; made once it is needed, for it takes Spark a while."""
        if stream not in self._empty:
            self._empty[stream] = self._spark.createDataFrame([], numbered(self._kinds[stream]))
        return self._empty[stream]

    def _is_planned(self, value: SparkColumn, stream: int) -> bool:
        """Tell whether Spark can plan a value; it can't if it computes a constant in it that raises."""
        try:
            with quiet():
                self._over(stream).select(value.alias("c"))._jdf.queryExecution().optimizedPlan()
        except PySparkException:
            return False
        return True

    def _unfolded(self, part: Part, stream: int) -> SparkColumn:
        """Return a part whose literals Spark doesn't take for constants: it can't compute with them too early."""
        time = F.col(column_name(self._streams[stream].time)).cast("string")

        def other(inner: Part) -> Any:
            if inner.kind == "Literal":
                return self._builder.node(
                    F.when(F.length(time) < 0, None).otherwise(self._builder.column(inner.handle))
                )
            return self._numbered(inner)

        return self._rebuilt(part, other)

    def _numbered(self, part: Part) -> Any:
        return self._raising.get(part) or self._names.numbered(part, self._builder)

    def _moved(self, part: Part) -> tuple[int, int] | None:
        """Return the timestamp column that a part is a fixed time away from, and by how many microseconds.

        [!] A day is 24 hours only where clocks are never changed, and a month has no length at all.
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

    def _compute(self, part: Part, stream: int, value: SparkColumn, kind: T.DataType) -> Computed:
        text, type_ = self._text.of(part), arrow_type(kind)
        column = Column(stream, len(self._streams[stream].schema) + len(self.computed[stream]))
        made = Computed(part, HiddenColumn(text, type_, moved=self._moved(part)), kind, column, value)
        if self._calm(part):
            self.computed[stream].append(made)
            return made
        value = value if self._is_planned(value, stream) else self._unfolded(part, stream)
        tried = self._builder.tried(F.struct(value.alias("value")))
        behind, known = Column(stream, column.field + 1), F.col(tried_name(column.field))
        flag = Computed(
            part, HiddenColumn(f"{text} failed", pa.bool_(), failed=True), T.BooleanType(), behind, known.isNull()
        )
        made = replace(made, value=known.getField("value"), flag=flag, tried=tried)
        self.computed[stream] += [made, flag]
        return made


def _alike(one: Part, two: Part) -> bool:
    """Tell whether two parts compute the same; Spark takes 0.0 and -0.0 for equal, but writes them differently."""
    return bool(one.handle.equals(two.handle)) and one.handle.sql() == two.handle.sql()


def _is_float_cast(part: Part) -> bool:
    if part.kind == "Cast":
        return str(part.handle.dataType().simpleString()) == "float"
    return part.kind == "UnresolvedFunction" and part.names[-1].lower() == "float" and len(part.children) == 1


def _is_explicit(part: Part, kind: T.DataType) -> bool:
    """Tell whether a part says itself how its text is compared: as a column it would no longer prevail."""
    return collation(kind) is not None and any(inner.kind == "Collate" for inner in part.walk())


def numbered(kind: T.StructType) -> T.StructType:
    """Return a stream's columns by their numbers."""
    return T.StructType([T.StructField(column_name(at), field.dataType) for at, field in enumerate(kind.fields)])


def collation(kind: T.DataType) -> str | None:
    """Return a type's name if it holds text that is compared by a collation, not byte by byte; else None."""
    name = kind.simpleString()
    return name if "collate" in name.lower() else None
