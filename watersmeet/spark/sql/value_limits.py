"""Limits of the values that functions such as `repeat` make: beyond the limit the call is refused, or raises.

A size that is constant is tested when the join is defined, before Spark computes anything with it. One that depends on
columns is tested where it is computed: beyond the limit the call raises, and up to it means what it means in Spark.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.limits import limits
from watersmeet.spark.sql.catalyst import (
    NodeBuilder,
    ParsedNode,
    expressions,
    items,
    kind_of,
    origin_of,
    without_error_log,
)
from watersmeet.spark.sql.convert import is_built_in
from watersmeet.spark.sql.value_bounds import (
    FIXED,
    FORMATS,
    GROWERS,
    HOLDERS,
    OPERATORS,
    READERS,
    Arguments,
    format_size,
    parsed_size,
    width,
)

NUMBER = "double"
"""The type in which sizes are computed: it can't overflow."""
READING = frozenset({"UnresolvedAttribute", "UnresolvedNamedLambdaVariable", "UnresolvedStar",
                     "UnresolvedStarExceptOrReplace", "ExpressionWithUnresolvedIdentifier", "NamedArgumentExpression",
                     "ScalarSubquery", "Exists", "InSubquery", "ListQuery"})  # fmt: skip
UNNAMED = frozenset({"UnresolvedStar", "UnresolvedStarExceptOrReplace", "NamedArgumentExpression"})
WRAPPERS = frozenset({"Alias", "Cast", "LambdaFunction"})
"""Nodes that may have the origin of a call, around it."""
ErrorAt = Callable[[str, ParsedNode], Exception]
"""Makes an error that underlines a part."""
Make = Callable[[ParsedNode, Sequence[Any]], Any]
"""Returns the node of a call with other arguments."""
CallTypes = tuple[list[T.DataType], T.DataType]
"""The types of a call's arguments, and of its value."""


# -- functions that make large values of small ones


@dataclass(frozen=True, slots=True)
class Maker:
    """A function that makes large values of small ones.

    Attributes:
        kinds: The classes of Spark's nodes for a call of it.
        at: The argument on which the size depends most; it is the one that is tested.
        count: Returns how many pieces the value consists of.
        sizing: The arguments on which that depends.
        unit: The bytes of a piece, or a function that returns them.
    """

    kinds: frozenset[str]
    at: int
    count: Callable[[Arguments], Column]
    sizing: tuple[int, ...]
    unit: int | Callable[[Arguments], Column] = 1

    def bytes(self, arguments: Arguments) -> Column:
        """Return the size of the value."""
        return self.count(arguments) * (self.unit if isinstance(self.unit, int) else self.unit(arguments))


def _argument(at: int, arguments: Arguments) -> Column:
    return arguments[at][0].cast(NUMBER)


def _digits(arguments: Arguments) -> Column:
    """Return the sum of the numbers in a format's placeholders: widths, precisions and positions; NULL for NULL."""
    text = arguments[0][0].cast("string")
    places = F.regexp_extract_all(text, F.lit(r"%[-#+ ,(<.$\d]*"), F.lit(0))
    numbers = F.flatten(F.transform(places, lambda place: F.regexp_extract_all(place, F.lit(r"\d+"), F.lit(0))))
    return F.aggregate(numbers, F.lit(0.0), lambda sum, number: sum + number.cast(NUMBER))


def _decimals(arguments: Arguments) -> Column:
    """Return the number of decimals of a formatted number; a pattern needs no limit, as it is written out."""
    value, kind = arguments[1]
    return value.cast(NUMBER) if isinstance(kind, T.NumericType) else F.lit(0.0)


def _steps(arguments: Arguments) -> Column:
    """Return how many steps a sequence takes; without a step, it is one, or a day. NULL for a step of 0."""
    start, stop = (_on_a_line(*ends) for ends in arguments[:2])
    is_time = isinstance(arguments[0][1], T.DatetimeType | T.DateType)
    step = _length(*arguments[2]) if len(arguments) > 2 else F.lit(86400.0 if is_time else 1.0)
    return F.abs(stop - start) / F.nullif(F.abs(step), F.lit(0.0))


def _on_a_line(value: Column, kind: T.DataType) -> Column:
    """Return a number, or a moment in seconds."""
    return value.cast(NUMBER) if isinstance(kind, T.NumericType) else value.cast("timestamp").cast(NUMBER)


def _length(value: Column, kind: T.DataType) -> Column:
    """Return a number, or the length of an interval in seconds."""
    if isinstance(kind, T.NumericType):
        return value.cast(NUMBER)
    return F.try_add(F.timestamp_seconds(F.lit(0)), value).cast(NUMBER)


def _text(at: int, arguments: Arguments) -> Column:
    return F.octet_length(arguments[at][0].cast("string"))


PADDED = Maker(frozenset({"StringLPad", "StringRPad", "BinaryPad"}), 1, partial(_argument, 1), (1,))
FORMAT = Maker(frozenset({"FormatString"}), 0, _digits, (0,))
MAKERS: dict[str, Maker] = {
    "repeat": Maker(frozenset({"StringRepeat"}), 1, partial(_argument, 1), (1,), partial(_text, 0)),
    "space": Maker(frozenset({"StringSpace"}), 0, partial(_argument, 0), (0,)),
    "lpad": PADDED,
    "rpad": PADDED,
    "format_string": FORMAT,
    "printf": FORMAT,
    "format_number": Maker(frozenset({"FormatNumber"}), 1, _decimals, (1,)),
    "array_repeat": Maker(frozenset({"ArrayRepeat"}), 1, partial(_argument, 1), (1,), lambda args: width(*args[0])),
    "array_insert": Maker(frozenset({"ArrayInsert"}), 1, lambda args: F.abs(_argument(1, args)), (1,), FIXED),
    "sequence": Maker(frozenset({"Sequence"}), 1, _steps, (0, 1, 2), FIXED),
}
BOUNDED = frozenset({*GROWERS, *MAKERS, *READERS, *HOLDERS})
"""The functions whose values may be larger than their arguments."""


def name_of(part: ParsedNode) -> str:
    """Return the name of the function that a part calls; empty if it calls none."""
    return part.names[-1].lower() if part.kind == "UnresolvedFunction" else OPERATORS.get(part.kind, "")


def maker_of(part: ParsedNode) -> Maker | None:
    """Return the function that a part calls if it is one that makes large values."""
    return MAKERS.get(name_of(part)) if part.kind == "UnresolvedFunction" else None


def sizing_of(part: ParsedNode, maker: Maker | None) -> list[ParsedNode]:
    """Return the arguments of a call on which the size of its value depends."""
    return [part.children[at] for at in maker.sizing if at < len(part.children)] if maker else []


def bound_of(name: str, arguments: Arguments, kind: T.DataType | None = None) -> Column:
    """Return, for Spark to compute, how many bytes the value of a call takes at most.

    A function that has no bound of its own is taken to hold all its arguments, and no more.

    Args:
        name: The function.
        arguments: Its arguments.
        kind: The type of the value; required for `READERS`, whose bounds depend on it.
    """
    if name in READERS and kind is not None:
        return parsed_size(arguments, kind)
    if name in FORMATS:
        return format_size(MAKERS[name].bytes, arguments)
    if name in GROWERS:
        return GROWERS[name](arguments)
    widths = sum((width(*argument).cast(NUMBER) for argument in arguments), F.lit(0.0))
    if name not in MAKERS:
        return widths
    bytes = F.greatest(F.lit(0.0), F.coalesce(MAKERS[name].bytes(arguments), F.lit(0.0)))
    return widths + bytes if name == "array_insert" else bytes


# -- limits


class ValueLimits(ABC):
    """The calls of one text whose values may be too large; Spark computes constant sizes as soon as it is created.

    Args:
        spark: The session.
        trees: The text as Spark parsed it, piece by piece.
        error: Makes an error that underlines a part.
        make: Makes the node of a call whose value may be made; None for the call as it is, with other arguments.

    Raises:
        SqlError: If a constant size is beyond the limit.
    """

    def __init__(
        self, spark: SparkSession, trees: Sequence[ParsedNode], error: ErrorAt, make: Make | None = None
    ) -> None:
        self._spark, self._builder, self._error = spark, NodeBuilder(spark), error
        self._make = make or self._builder.with_children
        self._types: dict[ParsedNode, CallTypes] = {}
        # [!] Innermost first: what is inside a constant is known to be small when the constant is computed.
        parts = [part for tree in trees for part in reversed([*tree.walk()])]
        self._open = [part for part in parts if self._may_grow(part) and not self._is_constant(part)]

    @abstractmethod
    def learn_types(self, plan: Any) -> None:
        """Take the types of arguments from Spark's analysed plan; calls can be guarded after that."""

    def is_guarded(self, part: ParsedNode) -> bool:
        """Tell whether a call's size has to be tested where it is computed."""
        return part in self._types

    def guard(self, part: ParsedNode, children: list[Any]) -> Any:
        """Return the node of a part; that of a call raises if its value is too large.

        Args:
            part: The part.
            children: Its children, as nodes.
        """
        return self._guard(part, children) if self.is_guarded(part) else self._make(part, children)

    @abstractmethod
    def _may_grow(self, part: ParsedNode) -> bool:
        """Tell whether a part is a call whose value may be too large."""

    @abstractmethod
    def _is_constant(self, part: ParsedNode) -> bool:
        """Tell whether the size of a call is a constant, which Spark computes now; raises SqlError beyond the limit."""

    @abstractmethod
    def _guard(self, part: ParsedNode, children: list[Any]) -> Any:
        """Return the call as a node of Spark that raises if its value would be too large."""

    def _refuse_large(self, part: ParsedNode, size: float | None) -> None:
        if size is not None and size > limits().value_bytes:
            raise self._error(f"{_too_large(part)}.", part)

    def _limit_value(self, part: ParsedNode, size: Column, value: Column) -> Column:
        """Return a value that raises if a size is beyond the limit."""
        error = F.raise_error(F.lit(_too_large(part)))
        return F.when(size > limits().value_bytes, error).otherwise(value)


class MakerLimits(ValueLimits):
    """Limits for the text of programs: only functions that make large values of small ones are tested."""

    def learn_types(self, plan: Any) -> None:
        """See `ValueLimits`; a call that the plan no longer contains stays unguarded."""
        kinds = {kind for maker in MAKERS.values() for kind in maker.kinds}
        nodes = {
            (kind_of(node), origin_of(node.origin())): node for node in expressions(plan) if kind_of(node) in kinds
        }
        for part in self._open:
            keys = ((kind, part.origin) for kind in MAKERS[name_of(part)].kinds)
            node = next((nodes[key] for key in keys if key in nodes), None)
            if node is not None:
                self._types[part] = _call_types(node)

    def _may_grow(self, part: ParsedNode) -> bool:
        return maker_of(part) is not None and is_built_in(self._spark, part.names[-1])

    def _is_constant(self, part: ParsedNode) -> bool:
        """See `ValueLimits`; where only the number of parts is constant, that is tested, and the answer is False."""
        maker = MAKERS[name_of(part)]
        if not all(map(is_constant, sizing_of(part, maker))):
            return False
        whole = isinstance(maker.unit, int) or all(map(is_constant, part.children))
        size = constant_size(self._spark, part, maker.bytes if whole else maker.count)
        self._refuse_large(part, size)
        return size is not None and whole

    def _guard(self, part: ParsedNode, children: list[Any]) -> Any:
        """Return the call with a test of the argument that decides its size."""
        maker, columns = MAKERS[name_of(part)], [self._builder.column(child) for child in children]
        size = maker.bytes(list(zip(columns, self._types[part][0], strict=False)))
        tested = self._builder.node(self._limit_value(part, size, columns[maker.at]))
        arguments = [tested if at == maker.at else child for at, child in enumerate(children)]
        return self._builder.with_children(part, arguments)


class UntrustedLimits(ValueLimits):
    """Limits for text from people: all calls are tested whose values may be larger than their arguments.

    The arguments are computed once, and bound to a variable: first the bound on the value is tested, and only then is
    the value made of them.
    """

    def learn_types(self, plan: Any) -> None:
        """See `ValueLimits`; a call that the plan no longer contains can't be limited.

        Raises:
            SqlError: If a call can't be limited.
        """
        nodes: dict[tuple[int, int] | None, Any] = {}
        for node in expressions(plan):
            if kind_of(node) not in WRAPPERS:
                nodes.setdefault(origin_of(node.origin()), node)
        for part in self._open:
            node = nodes.get(part.origin)
            try:
                types = None if node is None else _call_types(node)
            except PySparkException:  # a type that PySpark doesn't know
                types = None
            if types is None:
                raise self._error(f"How large the value of {name_of(part)} becomes can't be limited here.", part)
            self._types[part] = types

    def _may_grow(self, part: ParsedNode) -> bool:
        return name_of(part) in BOUNDED

    def _is_constant(self, part: ParsedNode) -> bool:
        """See `ValueLimits`; where only the number of parts is constant, that is tested, and the answer is False."""
        name, maker = name_of(part), MAKERS.get(name_of(part))
        if all(map(is_constant, part.children)):
            size = None if name in READERS else constant_size(self._spark, part, partial(bound_of, name))
            self._refuse_large(part, size)
            return size is not None
        if maker and all(map(is_constant, sizing_of(part, maker))):
            self._refuse_large(part, constant_size(self._spark, part, maker.count))
        return False

    def _guard(self, part: ParsedNode, children: list[Any]) -> Any:
        """See `ValueLimits`; the values of `HOLDERS` are measured once made, those of others are bounded before."""
        if name_of(part) in HOLDERS:
            value = self._builder.column(self._make(part, children))
            _, kind = self._types[part]
            return self._builder.node(bind(value, lambda value: self._limit_value(part, width(value, kind), value)))
        return self._builder.node(self._test_first(part, [self._builder.column(child) for child in children]))

    def _test_first(self, part: ParsedNode, columns: list[Column]) -> Column:
        """Return a call that raises if the bound on its value is beyond the limit, before the value is made.

        Arguments that vary are computed once, for both.
        """
        varying = [at for at, child in enumerate(part.children) if not is_constant(child)]

        def call(variable: Callable[[int], Column]) -> Column:
            arguments = [variable(at) if at in varying else column for at, column in enumerate(columns)]
            nodes = [self._builder.node(argument) for argument in arguments]
            value = self._builder.column(self._make(part, nodes))
            return self._limit_value(part, self._size_bound(part, arguments), value)

        if not varying:
            return call(lambda at: columns[at])
        struct = F.struct(*(columns[at].alias(f"a{at}") for at in varying))
        return bind(struct, lambda row: call(lambda at: row[f"a{at}"]))

    def _size_bound(self, part: ParsedNode, columns: Sequence[Column]) -> Column:
        """Return, for Spark to compute, how many bytes a call's value takes at most.

        It goes by the types that Spark found for the arguments; where Spark has changed these, they count as texts.
        """
        name, (types, kind) = name_of(part), self._types[part]
        # Spark may turn a call into one with other arguments: then they are texts and numbers, as are those that say
        # how to read the first.
        kinds = [T.StringType()] * len(columns) if len(types) < len(columns) and name not in READERS else types
        kinds = [*kinds, *[T.StringType()] * (len(columns) - len(kinds))]
        return bound_of(name, list(zip(columns, kinds, strict=False)), kind)


def _too_large(part: ParsedNode) -> str:
    """Return the error message for a value beyond the limit."""
    return f"{name_of(part)} would make a value of more than {limits().value_bytes:,} bytes"


def bind(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return a function of a value that is computed once."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def constant_size(spark: SparkSession, part: ParsedNode, size: Callable[[Arguments], Column]) -> float | None:
    """Have Spark compute a size now, without a job, and return it; 0 for NULL.

    None if the call is invalid, or calls a function of the user's.

    Args:
        spark: The session.
        part: The call.
        size: Returns the size from the call's arguments; those that are not constants are NULL.
    """
    builder, none = NodeBuilder(spark), F.lit(None).cast("string")
    columns = [builder.column(child.handle) if is_constant(child) else none for child in part.children]
    row = spark.sql("SELECT 0 AS c FROM VALUES (0)")
    try:
        with without_error_log():
            types = [field.dataType for field in row.select(*(c.alias("c") for c in columns)).schema]
            frame = row.select(size(list(zip(columns, types, strict=True))).cast(NUMBER).alias("c"))
            if kind_of(frame._jdf.queryExecution().optimizedPlan()) != "LocalRelation":  # a function of the user's
                return None
            first = frame.first()
    except (PySparkException, Py4JError):  # not a valid call; Spark will report it
        return None
    return None if first is None else first[0] or 0.0


def is_constant(part: ParsedNode) -> bool:
    """Tell whether a part reads nothing: no column, and no variable of a lambda."""
    return not any(inner.kind in READING for inner in part.walk())


def _call_types(node: Any) -> CallTypes:
    return [type_of(child) for child in items(node.children())], type_of(node)


def type_of(node: Any) -> T.DataType:
    """Return the type of a node of Spark's analysed tree."""
    kind: T.DataType = T._parse_datatype_json_string(node.dataType().json())
    return kind
