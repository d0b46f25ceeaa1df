"""Calls in text from people whose values may be larger than what they get: limited before the value is made.

The arguments are computed once, and bound to a variable: how large the value may become is tested, and only then is it
made of them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.limits import limits
from watersmeet.spark.run.widths import width
from watersmeet.spark.sql.catalyst import Builder, Part, expressions, items, kind_of, origin_of
from watersmeet.spark.sql.growth import (
    FORMATS,
    GROWERS,
    HOLDERS,
    OPERATORS,
    READERS,
    Arguments,
    format_size,
    parsed_size,
)
from watersmeet.spark.sql.sizes import MAKERS, NUMBER, constant, is_constant, too_large, type_of

Types = tuple[list[T.DataType], T.DataType]
"""The types of a call's arguments, and of its value."""
UNNAMED = frozenset({"UnresolvedStar", "UnresolvedStarExceptOrReplace", "NamedArgumentExpression"})
WRAPPERS = frozenset({"Alias", "Cast", "LambdaFunction"})
"""What may stand where a call does, around it."""


def name_of(part: Part) -> str:
    """Return which function a part calls; empty if it doesn't."""
    return part.names[-1].lower() if part.kind == "UnresolvedFunction" else OPERATORS.get(part.kind, "")


class Growing:
    """The calls of one text from people that may make values larger than what they get.

    Args:
        spark: The session.
        trees: The text as Spark parsed it, piece by piece.
        error: Makes an error that underlines a part.
    """

    def __init__(self, spark: SparkSession, trees: Sequence[Part], error: Callable[[str, Part], Exception]) -> None:
        self._spark, self._builder, self._error = spark, Builder(spark), error
        self._types: dict[Part, Types] = {}
        # [!] Innermost first: what is inside a constant is known to be small when the constant is computed.
        parts = [part for tree in trees for part in reversed([*tree.walk()])]
        self._open = [part for part in parts if name_of(part) in KNOWN and not self._is_known(part)]

    def analysed(self, plan: Any) -> None:
        """Take over the types of calls from Spark's analysed plan.

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
                types = None if node is None else ([type_of(child) for child in items(node.children())], type_of(node))
            except PySparkException:  # a type that PySpark doesn't know
                types = None
            if types is None:
                raise self._error(f"How large the value of {name_of(part)} becomes can't be limited here.", part)
            self._types[part] = types

    def is_guarded(self, part: Part) -> bool:
        """Tell whether a call's size has to be tested where it is computed."""
        return part in self._types

    def guarded(self, part: Part, children: list[Any]) -> Any:
        """Return the node of a call that is tested, if it has to be; else None.

        Args:
            part: The call.
            children: Its arguments, as nodes.
        """
        if part not in self._types:
            return None
        if name_of(part) in HOLDERS:
            made = self._builder.column(self._builder.with_children(part, children))
            kind = self._types[part][1]
            return self._builder.node(_bound(made, lambda value: self._tested(part, width(value, kind), value)))
        return self._builder.node(self._before(part, [self._builder.column(child) for child in children]))

    def _before(self, part: Part, columns: list[Column]) -> Column:
        """Return a call that is tested before it is made."""
        varying = [at for at, child in enumerate(part.children) if not is_constant(child)]

        def call(bound: Callable[[int], Column]) -> Column:
            arguments = [bound(at) if at in varying else column for at, column in enumerate(columns)]
            size = self._size(part, arguments)
            nodes = [self._builder.node(argument) for argument in arguments]
            return self._tested(
                part, size, self._builder.column(part.handle.withNewChildren(self._builder.sequence(nodes)))
            )

        if not varying:
            return call(lambda at: columns[at])
        held = F.struct(*(columns[at].alias(f"a{at}") for at in varying))
        return _bound(held, lambda row: call(lambda at: row[f"a{at}"]))

    def _size(self, part: Part, columns: Sequence[Column]) -> Column:
        name, (types, kind) = name_of(part), self._types[part]
        # What Spark makes of a call may have other arguments: then they are texts and numbers, as those are that say
        # how to read the first.
        kinds = [T.StringType()] * len(columns) if len(types) < len(columns) and name not in READERS else types
        kinds = [*kinds, *[T.StringType()] * (len(columns) - len(kinds))]
        return bound_of(name, list(zip(columns, kinds, strict=False)), kind)

    def _tested(self, part: Part, size: Column, value: Column) -> Column:
        error = F.raise_error(F.lit(too_large(name_of(part))))
        return F.when(size > limits().value_bytes, error).otherwise(value)

    def _is_known(self, part: Part) -> bool:
        """Tell whether the size of a call is a constant, which then is no more than the limit."""
        name, maker = name_of(part), MAKERS.get(name_of(part))
        if not all(map(is_constant, part.children)):
            sizing = [part.children[at] for at in maker.sizing if at < len(part.children)] if maker else []
            count = constant(self._spark, part, maker.count) if maker and all(map(is_constant, sizing)) else None
            known = False
        else:
            count = None if name in READERS else constant(self._spark, part, partial(bound_of, name))
            known = count is not None
        if count is not None and count > limits().value_bytes:
            raise self._error(f"{too_large(name)}.", part)
        return known


KNOWN = frozenset({*GROWERS, *MAKERS, *READERS, *HOLDERS})
"""The functions whose values may be larger than what they get."""


def bound_of(name: str, arguments: Arguments, kind: T.DataType | None = None) -> Column:
    """Return how many bytes the value of a call takes at most.

    Args:
        name: The function.
        arguments: Its arguments.
        kind: The type of the value, of functions for which it says how large.
    """
    if name in READERS and kind is not None:
        return parsed_size(arguments, kind)
    if name in FORMATS:
        return format_size(MAKERS[name].bytes, arguments)
    if name in GROWERS:
        return GROWERS[name](arguments)
    held = sum((width(*argument).cast(NUMBER) for argument in arguments), F.lit(0.0))
    if name not in MAKERS:
        return held
    made = F.greatest(F.lit(0.0), F.coalesce(MAKERS[name].bytes(arguments), F.lit(0.0)))
    return held + made if name == "array_insert" else made


def _bound(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return what is made of a value that is computed once."""
    return F.get(F.transform(F.array(value), body), F.lit(0))
