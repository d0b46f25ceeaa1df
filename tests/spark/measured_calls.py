"""Calls of Spark's functions with large arguments of all kinds, and how large their values are, many in each query."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.spark.sql.catalyst import NodeBuilder, items, without_error_log
from watersmeet.spark.sql.value_bounds import is_variable_width, width
from watersmeet.spark.sql.value_limits import BOUNDED, bound_of, type_of

SIZE = 1100
ROOM = 1024
"""How many bytes a value may have whatever the arguments are like."""
KINDS = {
    "text": [
        "repeat('a', {n})", "repeat(chr(1), {n})", "repeat('\u0390', {n})", "repeat('\u0130', {n})", "repeat('1', {n})",
        "repeat('\"', {n})", "repeat('a,', {n})", "repeat('%1$s', {n})", "repeat('VV', {n})", "repeat('zzzz', {n})",
        "repeat('k:v,', {n})", "repeat('9', 300)", "concat('[', repeat('1,', {n}), '1]')",
        "concat('[', repeat('{{}},', {n}), '1]')", "concat('http://a/b?c=', repeat('d', {n}))",
        "concat('{{\"', repeat('k', {n}), '\": \"', repeat(chr(233), {n}), '\"}}')",
    ],
    "binary": ["encode(repeat('a', {n}), 'UTF-8')", "unhex(repeat('FF', {n}))"],
    "numbers": ["sequence(1, {n})"],
    "floats": ["transform(sequence(1, {n}), x -> float(x))"],
    "texts": ["array(repeat('a', {n}), 'b')", "split(repeat('a,', {n}), ',')"],
    "map": [
        "map('k', repeat('a', {n}))",
        "map_from_arrays(transform(sequence(1, {n}), x -> string(x)), array_repeat('a', {n}))",
    ],
    "struct": ["named_struct('long_name_of_a_field', repeat('a', {n}))"],
    "structs": ["array_repeat(named_struct('long_name_of_a_field', 1), {n})"],
    "pairs": ["array(named_struct('k', 'a', 'v', repeat('a', {n})))"],
    "arrays": ["array(sequence(1, {n}), array(3))"],
    "variant": ["parse_json(concat('[', repeat('1,', {n}), '1]'))", "parse_json(concat('\"', repeat('a', {n}), '\"'))"],
    "shape": ["st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')"],
    "int": ["1", "-1", "{n}"],
    "double": ["1D", "-1.7976931348623157E308D", "{n}D"],
    "time": ["TIMESTAMP'2020-01-01'"],
    "span": ["INTERVAL 5 DAYS"],
}  # fmt: skip
"""Values by their kind: if Spark takes one, it takes the others."""
SMALL = ["''", "'a'", "','", "'(?=(.*))'", "'\u20ac'", "'$[*]'", "1", "100", "TRUE", "'UTF-32'", "'hex'", "'STRING'",
         "'0000111122223333'", "'x INT, y INT'", "'array<struct<x: int, y: int>>'"]  # fmt: skip
LAMBDA = frozenset({"transform", "filter", "exists", "forall", "aggregate", "reduce", "zip_with", "transform_keys",
                    "transform_values", "map_filter", "map_zip_with", "array_sort"})  # fmt: skip
"""Functions that take lambdas."""
GATHERERS = frozenset({"transform", "zip_with", "transform_keys", "transform_values", "map_zip_with"})
"""Those whose lambda may only return what is of fixed width."""
LAMBDAS = ["x -> x", "(x, y) -> x", "(k, x, y) -> 1", "x -> TRUE", "(x, y) -> TRUE", "(x, y) -> 0"]
TRIPLES = [("'a'", "text"), ("','", "text"), ("''", "text"), ("'(?=(.*))'", "'$1$1$1'"), ("'(?=(.*))'", "1"),
           ("'.'", "text"), ("'\u20ac'", "'\u20ac'"), ("1", "text"), ("text", "1"), ("1", "1"), ("text", "text"),
           ("int", "text"), ("int", "binary"), ("int", "int"), ("','", "':'"), ("'a'", "'\u20ac'"),
           ("'$'", "'ARRAY<STRING>'"), ("'$'", "'STRING'")]  # fmt: skip
VIEW = "cells"
SHIFTS = (0, 1, 4)
"""How far apart values stand in their lists that are tried together."""
AT_ONCE = 200
"""How many calls Spark analyses at once."""
TOGETHER = 30
"""How many are measured in one query."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function.

    Attributes:
        name: The function.
        arguments: Kinds of values, literals and lambdas.
    """

    name: str
    arguments: tuple[str, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its large arguments."""
        return tuple(argument for argument in self.arguments if argument in KINDS)

    @property
    def columns(self) -> list[str]:
        """The arguments, with columns called by their place among the large ones."""
        places = iter(range(len(self.kinds)))
        return [f"a{next(places)}" if argument in KINDS else argument for argument in self.arguments]

    @property
    def text(self) -> str:
        """The call, of those columns."""
        return f"`{self.name}`({', '.join(self.columns)})"


Typed = tuple[Call, T.DataType]
"""A call, with the type of its value."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of measuring.

    Attributes:
        sizes: How many calls of each function had a value of any length.
        wrong: The calls whose values were larger than they may be, with the size and the bound.
    """

    sizes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, call: Call, sizes: Sequence[tuple[int, float]]) -> None:
        """Add how large a call's values are, each with how large it may be."""
        self.sizes[call.name] += len(sizes)
        over = [(size, most) for size, most in sizes if size > most + ROOM]
        if over:
            size, most = max(over)
            self.wrong.append(f"{call.name}({', '.join(call.arguments)}): {size} > {most:.0f}")


def shapes(kind: str) -> Iterator[tuple[str, ...]]:
    """Yield arguments of which the first large one is of a kind."""
    yield from ((kind,), (kind, kind, kind), (kind, kind, kind, kind))
    yield from ((kind, other) for other in [*KINDS, *SMALL, *LAMBDAS])
    yield from ((small, kind) for small in SMALL)
    yield from ((kind, *others) for others in TRIPLES)
    yield from ((kind, kind, step) for step in LAMBDAS)
    yield from ((kind, "1", step) for step in LAMBDAS)


class Scan:
    """Measures what functions make of large arguments.

    Args:
        spark: The session.
        known: The functions that have a bound of their own; the value of another may be as large as its arguments.
    """

    def __init__(self, spark: SparkSession, known: frozenset[str] = BOUNDED) -> None:
        self._spark, self._known, self._builder = interpreting(spark), known, NodeBuilder(spark)
        self._counts: dict[str, set[int]] = {}
        firsts = ", ".join(f"{values[0].format(n=1)} AS {kind}" for kind, values in KINDS.items())
        self._spark.sql(f"SELECT {firsts}").createOrReplaceTempView(VIEW)
        literals = [*SMALL, *(argument for others in TRIPLES for argument in others if argument not in KINDS)]
        shown = self._analysed([*KINDS, *literals])
        self._kinds = dict(zip([*KINDS, *literals], map(type_of, shown), strict=True))

    def measured(self, names: Iterable[str], kind: str) -> Measured:
        """Return what functions make of arguments of which the first large one is of a kind."""
        calls = [Call(name, shape) for name in names for shape in self._shapes(name, kind)]
        made = Measured()
        for kinds, group in groupby(sorted(calls, key=lambda call: call.kinds), key=lambda call: call.kinds):
            frame = self._frame(kinds)
            frame.createOrReplaceTempView(VIEW)
            taken = self._taken([*group])
            for at in range(0, len(taken), TOGETHER):
                self._measure(frame, taken[at : at + TOGETHER], made)
        return made

    def _taken(self, calls: Sequence[Call]) -> list[Typed]:
        """Return the calls that Spark takes and whose values may be of any length, each with the value's type."""
        parts = [calls[at : at + AT_ONCE] for at in range(0, len(calls), AT_ONCE)]
        types = [made for part in parts for made in self._types([call.text for call in part])]
        return [
            (call, made)
            for call, made in zip(calls, types, strict=True)
            if made is not None and is_variable_width(made)
        ]

    def _shapes(self, name: str, kind: str) -> list[tuple[str, ...]]:
        if name not in self._counts:
            self._counts[name] = {count for count in range(1, 5) if self._may_be_open(name, count)}
        fit = [shape for shape in shapes(kind) if len(shape) in self._counts[name]]
        if name in GATHERERS:
            fit = [shape for shape in fit if not shape[-1].endswith("-> x")]
        return [shape for shape in fit if ("->" in shape[-1]) == (name in LAMBDA and len(shape) > 1)]

    def _may_be_open(self, name: str, count: int) -> bool:
        """Tell whether a function takes so many arguments, and may return a value of any length."""
        try:
            made = self._analysed([f"`{name}`({', '.join(['NULL'] * count)})"])[0]
        except (PySparkException, Py4JError) as error:
            return "WRONG_NUM_ARGS" not in str(error)
        kind = _type_of(made)
        return kind is None or is_variable_width(kind) or isinstance(kind, T.NullType)  # which is that of the arguments

    def _types(self, texts: Sequence[str]) -> list[T.DataType | None]:
        """Return the types of expressions; None for those that Spark doesn't take."""
        try:
            made = self._analysed(texts)
        except (PySparkException, Py4JError):
            half = len(texts) // 2
            return [*self._types(texts[:half]), *self._types(texts[half:])] if half else [None]
        return [_type_of(one) for one in made]

    def _analysed(self, texts: Sequence[str]) -> list[Any]:
        """Return the nodes of expressions, unresolved where Spark doesn't take them.

        Raises:
            PySparkException: If it takes one so little that it says so at once.
        """
        state = self._spark._jsparkSession.sessionState()
        with without_error_log():
            plan = state.sqlParser().parsePlan(f"SELECT {', '.join(texts)} FROM {VIEW}")
            return items(state.analyzer().execute(plan).projectList())

    def _frame(self, kinds: Sequence[str]) -> DataFrame:
        """Return values of kinds beside each other, several of each with several of the others, and their sizes."""
        values = [[value.format(n=SIZE) for value in KINDS[kind]] for kind in kinds]
        places = range(max(map(len, values)))
        # [!] Four are two keys and their values: a map that is made after one with a key twice holds that one's, too.
        shifts = {1: SHIFTS[:1], 4: SHIFTS[1:]}.get(len(kinds), SHIFTS)
        rows = {
            tuple(one[(at + shift * place) % len(one)] for place, one in enumerate(values))
            for at in places
            for shift in shifts
        }
        structs = [f"struct({', '.join(f'{value} AS a{at}' for at, value in enumerate(row))})" for row in sorted(rows)]
        frame = self._spark.sql(f"SELECT inline(array({', '.join(structs)}))")
        sizes = [width(F.col(f"a{at}"), self._kinds[kind]).alias(f"w{at}") for at, kind in enumerate(kinds)]
        return frame.select("*", *sizes).localCheckpoint()

    def _measure(self, frame: DataFrame, calls: Sequence[Typed], into: Measured) -> None:
        columns = [F.struct(self._size(*one).alias("size"), self._bound(*one).alias("most")) for one in calls]
        try:
            with without_error_log():
                answers = frame.select(*(column.alias(f"c{at}") for at, column in enumerate(columns))).toArrow()
        except PySparkException:  # Spark says only now that it doesn't take one
            half = len(calls) // 2
            for part in (calls[:half], calls[half:]) if half else ():
                self._measure(frame, part, into)
            return
        for (call, _), answer in zip(calls, answers.columns, strict=True):
            into.add(call, [(size, most) for size, most in map(dict.values, answer.to_pylist()) if size is not None])

    def _size(self, call: Call, kind: T.DataType) -> Column:
        """Return how large the value of a call is; NULL if it has none."""
        value = F.expr(call.text)
        return self._tried(F.when(value.isNotNull(), width(value, kind)))

    def _bound(self, call: Call, kind: T.DataType) -> Column:
        """Return how large it may be."""
        sizes = [F.col(f"w{at}").cast("double") for at in range(len(call.kinds))]
        if call.name in self._known:
            known = zip(call.columns, call.arguments, strict=True)
            arguments = [(F.expr(text), self._kinds[name]) for text, name in known if "->" not in name]
            sizes.append(self._tried(bound_of(call.name, arguments, kind)))
        return F.greatest(F.lit(0.0), F.lit(0.0), *sizes)

    def _tried(self, column: Column) -> Column:
        # [!] Spark takes a bare CASE out of what tries it.
        return self._builder.null_if_raises(F.struct(column.alias("value"))).getField("value")


def _type_of(node: Any) -> T.DataType | None:
    """Return the type of a node; None if Spark doesn't take it, or PySpark doesn't know the type."""
    try:
        return type_of(node) if node.resolved() else None
    except PySparkException:  # such as of times in nanoseconds
        return None


def interpreting(spark: SparkSession) -> SparkSession:
    """Return a session that interprets expressions when the query runs: to compile each would take longer."""
    own = spark.newSession()
    own.conf.set("spark.sql.codegen.wholeStage", "false")
    own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    folding = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
    own.conf.set("spark.sql.optimizer.excludedRules", folding)
    return own
