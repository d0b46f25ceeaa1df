"""Functions that make large values of small ones, such as `repeat`: what they may make is limited.

A size that is known when the join is defined is refused there, before Spark computes anything with it. One that depends
on columns is tested where it is computed: beyond the limit the call raises, and up to it means what it means in Spark.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.limits import limits
from watersmeet.spark.run.widths import FIXED, width
from watersmeet.spark.sql.catalyst import Builder, Part, expressions, items, kind_of, origin_of, quiet
from watersmeet.spark.sql.convert import is_built_in

Given = Sequence[tuple[Column, T.DataType]]
"""The arguments of a call, each with its type."""
NUMBER = "double"
"""In which sizes are computed: it can't overflow."""


@dataclass(frozen=True, slots=True)
class Maker:
    """A function that makes a large value.

    Attributes:
        kinds: The classes that Spark makes of a call of it.
        at: The argument that says how large.
        count: Returns how many pieces the value is made of.
        sizing: The arguments that say so.
        unit: How many bytes a piece takes, or what returns it.
    """

    kinds: frozenset[str]
    at: int
    count: Callable[[Given], Column]
    sizing: tuple[int, ...]
    unit: int | Callable[[Given], Column] = 1

    def bytes(self, given: Given) -> Column:
        """Return how large the value is."""
        return self.count(given) * (self.unit if isinstance(self.unit, int) else self.unit(given))


def _argument(at: int, given: Given) -> Column:
    return given[at][0].cast(NUMBER)


def _digits(given: Given) -> Column:
    """Return the sum of the widths and precisions that a format asks for."""
    text = given[0][0].cast("string")
    found = F.regexp_extract_all(text, F.lit(r"%[-#+ ,(<.$\d]*"), F.lit(0))
    numbers = F.flatten(F.transform(found, lambda one: F.regexp_extract_all(one, F.lit(r"\d+"), F.lit(0))))
    return F.aggregate(numbers, F.lit(0.0), lambda sum, number: sum + number.cast(NUMBER))


def _decimals(given: Given) -> Column:
    """Return how many decimals a number is to be shown with; a pattern is as long as it is."""
    value, kind = given[1]
    return value.cast(NUMBER) if isinstance(kind, T.NumericType) else F.lit(0.0)


def _steps(given: Given) -> Column:
    """Return how many elements a sequence has."""
    start, stop = (_on_a_line(*ends) for ends in given[:2])
    is_time = isinstance(given[0][1], T.DatetimeType | T.DateType)
    step = _length(*given[2]) if len(given) > 2 else F.lit(86400.0 if is_time else 1.0)
    return F.abs(stop - start) / F.nullif(F.abs(step), F.lit(0.0))


def _on_a_line(value: Column, kind: T.DataType) -> Column:
    """Return a number, or a moment in seconds."""
    return value.cast(NUMBER) if isinstance(kind, T.NumericType) else value.cast("timestamp").cast(NUMBER)


def _length(value: Column, kind: T.DataType) -> Column:
    """Return a number, or how long an interval is in seconds."""
    if isinstance(kind, T.NumericType):
        return value.cast(NUMBER)
    return F.try_add(F.timestamp_seconds(F.lit(0)), value).cast(NUMBER)


def _text(at: int, given: Given) -> Column:
    return F.octet_length(given[at][0].cast("string"))


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
    "array_repeat": Maker(frozenset({"ArrayRepeat"}), 1, partial(_argument, 1), (1,), lambda given: width(*given[0])),
    "array_insert": Maker(frozenset({"ArrayInsert"}), 1, lambda given: F.abs(_argument(1, given)), (1,), FIXED),
    "sequence": Maker(frozenset({"Sequence"}), 1, _steps, (0, 1, 2), FIXED),
}


def maker_of(part: Part) -> Maker | None:
    """Return what a part makes, if it calls a function that makes large values."""
    return MAKERS.get(part.names[-1].lower()) if part.kind == "UnresolvedFunction" else None


def too_large(name: str) -> str:
    """Return what is said of a value beyond the limit."""
    return f"{name} would make a value of more than {limits().value_bytes:,} bytes"


class Sizes:
    """The calls of one text that may make large values.

    Args:
        spark: The session.
        trees: The text as Spark parsed it, piece by piece.
        error: Makes an error that underlines a part.
    """

    def __init__(self, spark: SparkSession, trees: Sequence[Part], error: Callable[[str, Part], Exception]) -> None:
        self._spark, self._builder, self._error = spark, Builder(spark), error
        # [!] Innermost first: what is inside a constant is known to be small when the constant is computed.
        parts = [part for tree in trees for part in reversed([*tree.walk()])]
        found = {part: maker for part in parts if (maker := maker_of(part)) is not None}
        self.calls = {part: maker for part, maker in found.items() if is_built_in(spark, part.names[-1])}
        self._open = {part for part, maker in self.calls.items() if not self._is_known(part, maker)}
        self._types: dict[Part, list[T.DataType]] = {}

    def analysed(self, plan: Any) -> None:
        """Take over the types of arguments from Spark's analysed plan."""
        found = {(kind, span): types for kind, span, types in _typed(plan)}
        for part in self._open:
            kinds, span = self.calls[part].kinds, part.origin
            types = next((found[kind, span] for kind in kinds if (kind, span) in found), None)
            if types is not None:
                self._types[part] = types

    def is_guarded(self, part: Part) -> bool:
        """Tell whether a call's size has to be tested where it is computed."""
        return part in self._types

    def guarded(self, part: Part, children: list[Any]) -> Any:
        """Return the node of a call with the argument tested that says how large, if it has to be; else None.

        Args:
            part: The call.
            children: Its arguments, as nodes.
        """
        if not self.is_guarded(part):
            return None
        maker, columns = self.calls[part], [self._builder.column(child) for child in children]
        given = list(zip(columns, self._types[part], strict=False))
        error = F.raise_error(F.lit(too_large(part.names[-1].lower())))
        beyond = maker.bytes(given) > limits().value_bytes
        tested = self._builder.node(F.when(beyond, error).otherwise(columns[maker.at]))
        made = [tested if at == maker.at else child for at, child in enumerate(children)]
        return self._builder.with_children(part, made)

    def _is_known(self, part: Part, maker: Maker) -> bool:
        """Tell whether the size of a call is a constant, which then is no more than the limit."""
        sizing = [part.children[at] for at in maker.sizing if at < len(part.children)]
        if not all(map(is_constant, sizing)):
            return False
        whole = isinstance(maker.unit, int) or all(map(is_constant, part.children))
        found = constant(self._spark, part, maker.bytes if whole else maker.count)
        if found is not None and found > limits().value_bytes:
            raise self._error(f"{too_large(part.names[-1].lower())}.", part)
        return found is not None and whole


def constant(spark: SparkSession, part: Part, size: Callable[[Given], Column]) -> float | None:
    """Return a size that Spark computes now; None if it can't.

    Args:
        spark: The session.
        part: The call.
        size: Returns the size, given the call's arguments; NULL stands for those that are no constants.
    """
    builder, none = Builder(spark), F.lit(None).cast("string")
    columns = [builder.column(child.handle) if is_constant(child) else none for child in part.children]
    row = spark.sql("SELECT 0 AS c FROM VALUES (0)")
    try:
        with quiet():
            types = [field.dataType for field in row.select(*(c.alias("c") for c in columns)).schema]
            made = row.select(size(list(zip(columns, types, strict=True))).cast(NUMBER).alias("c"))
            if kind_of(made._jdf.queryExecution().optimizedPlan()) != "LocalRelation":  # a function of the user's
                return None
            found = made.first()
    except (PySparkException, Py4JError):  # it is no call that Spark takes, and Spark will say so
        return None
    return None if found is None else found[0] or 0.0


def is_constant(part: Part) -> bool:
    """Tell whether a part reads nothing: no column, and no variable of a lambda."""
    return not any(inner.kind in READING for inner in part.walk())


READING = frozenset({"UnresolvedAttribute", "UnresolvedNamedLambdaVariable", "UnresolvedStar",
                     "UnresolvedStarExceptOrReplace", "ExpressionWithUnresolvedIdentifier", "NamedArgumentExpression",
                     "ScalarSubquery", "Exists", "InSubquery", "ListQuery"})  # fmt: skip


def _typed(plan: Any) -> Iterator[tuple[str, tuple[int, int] | None, list[T.DataType]]]:
    """Yield the class, the place and the types of the arguments of calls that may make large values."""
    known = {kind for maker in MAKERS.values() for kind in maker.kinds}
    for node in expressions(plan):
        if (kind := kind_of(node)) in known:
            yield kind, origin_of(node.origin()), [type_of(child) for child in items(node.children())]


def type_of(node: Any) -> T.DataType:
    """Return the type of a node of Spark's analysed tree."""
    made: T.DataType = T._parse_datatype_json_string(node.dataType().json())
    return made
