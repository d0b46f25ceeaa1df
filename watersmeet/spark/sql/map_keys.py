"""Keys of maps, tested before Spark makes the maps.

[!] Spark's calls that make maps put keys into a builder which belongs to the call, not to the row. If a key is NULL or
occurs twice, the call raises and leaves in the builder what was put there. Where the error is caught and kept with the
row, as `TryEval` does, later rows raise without reason, or find the entries of an earlier row in their maps. So we
raise before the builder is touched.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.spark.sql.catalyst import NodeBuilder, ParsedNode, expressions, kind_of, origin_of, parse
from watersmeet.spark.sql.convert import is_built_in
from watersmeet.spark.sql.value_limits import UNNAMED, bind, is_constant, name_of, type_of


def _alternate_keys(arguments: Sequence[Column]) -> Column:
    return F.array(*arguments[::2])


def _given_keys(arguments: Sequence[Column]) -> Column:
    return arguments[0]


def _entry_keys(arguments: Sequence[Column]) -> Column:
    """Return the keys of entries; NULL if one of these is NULL, as the map is then."""
    entries = arguments[0]
    return F.when(F.forall(entries, Column.isNotNull), F.transform(entries, lambda entry: entry["key"]))


def _joined_keys(arguments: Sequence[Column]) -> Column:
    return F.flatten(F.array(*map(F.map_keys, arguments)))


def _text_keys(arguments: Sequence[Column]) -> Column:
    text, between, within = (*arguments, *(F.lit(","), F.lit(":"))[len(arguments) - 1 :])
    return F.transform(F.split(text, between, -1), lambda entry: F.get(F.split(entry, within, 2), F.lit(0)))


KEYS: dict[str, tuple[str, Callable[[Sequence[Column]], Column]]] = {
    "map": ("CreateMap", _alternate_keys),
    "map_from_arrays": ("MapFromArrays", _given_keys),
    "map_from_entries": ("MapFromEntries", _entry_keys),
    "map_concat": ("MapConcat", _joined_keys),
    "str_to_map": ("StringToMap", _text_keys),
    "transform_keys": ("TransformKeys", _given_keys),
}
"""For each function that makes maps with a builder, Spark's class, and the keys that it puts there."""


class MapKeys:
    """The calls of a condition that make maps.

    Args:
        spark: The session.
        tree: The condition as Spark parsed it.
        simplified: Whether Spark finds `k` in `map(..)[k]` without making a map, and so without looking for duplicates.
    """

    def __init__(self, spark: SparkSession, tree: ParsedNode, *, simplified: bool) -> None:
        self._spark, self._builder = spark, NodeBuilder(spark)
        self._last_wins = spark.conf.get("spark.sql.mapKeyDedupPolicy") == "LAST_WIN"
        self._calls = [part for part in _calls(tree, simplified) if is_built_in(spark, name_of(part))]
        self._types: dict[ParsedNode, T.MapType] = {}

    def learn_types(self, plan: Any) -> None:
        """Take the types of maps from Spark's analysed plan; after that, `make` tests the keys of those found there."""
        if not self._calls:
            return
        nodes = {(kind_of(node), origin_of(node.origin())): node for node in expressions(plan)}
        for part in self._calls:
            node = nodes.get((KEYS[name_of(part)][0], part.origin))
            kind = None if node is None else type_of(node)
            if isinstance(kind, T.MapType):
                self._types[part] = kind

    def make(self, part: ParsedNode, children: Sequence[Any]) -> Any:
        """Return the node of a call with other arguments; if it makes a map, it tests each row's keys, and may raise.

        Calls that `learn_types` did not find in the plan are not tested.
        """
        if part not in self._types:
            return self._builder.with_children(part, children)
        columns = [self._builder.column(child) for child in children]
        if name_of(part) == "transform_keys":
            return self._builder.node(bind(columns[0], lambda source: self._transform(part, source, children[1])))
        varying = [at for at, child in enumerate(part.children) if not is_constant(child)]
        row = F.struct(*(columns[at].alias(f"a{at}") for at in varying))

        def call(row: Column) -> Column:
            arguments = [row[f"a{at}"] if at in varying else column for at, column in enumerate(columns)]
            value = self._builder.with_children(part, [self._builder.node(argument) for argument in arguments])
            return self._check_keys(part, self._keys(part, arguments), self._builder.column(value))

        # [!] Arguments are computed once, and before the call: an error in one must not leave others in the builder.
        return self._builder.node(bind(row, call))

    def _keys(self, part: ParsedNode, arguments: Sequence[Column]) -> Column:
        """Return the keys of the map that a call makes, as an array."""
        if name_of(part) == "map_from_entries":  # whose fields may have any names
            kind = self._types[part]
            entry = T.StructType([T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)])
            arguments = [arguments[0].cast(T.ArrayType(entry))]
        return KEYS[name_of(part)][1](arguments)

    def _transform(self, part: ParsedNode, source: Column, function: Any) -> Column:
        """Return the map that `transform_keys` makes of another; its new keys are computed once, and tested."""
        template = parse(self._spark, "zip_with(keys, values, each)")
        both = [self._builder.node(column) for column in (F.map_keys(source), F.map_values(source))]
        keys = self._builder.column(self._builder.with_children(template, [*both, function]))
        return bind(keys, lambda keys: self._check_keys(part, keys, F.map_from_arrays(keys, F.map_values(source))))

    def _check_keys(self, part: ParsedNode, keys: Column, value: Column) -> Column:
        """Return a value that raises if a key is NULL or, unless the session lets the last one win, occurs twice."""
        distinct = F.array_compact(keys)
        if self._types[part].keyType.simpleString() == "interval":  # Spark can't order these, only tell them apart
            distinct = F.transform(distinct, lambda key: key.cast("string"))
        if not self._last_wins:
            distinct = F.array_distinct(distinct)
        problem = "NULL" if self._last_wins else "NULL or occurs twice"
        error = F.raise_error(F.lit(f"{name_of(part)} would make a map in which a key is {problem}"))
        return F.when(F.size(distinct) < F.size(keys), error).otherwise(value)


def _calls(part: ParsedNode, simplified: bool) -> Iterator[ParsedNode]:
    """Yield the calls in a tree that make maps of what isn't constant."""
    if name_of(part) in KEYS and not is_constant(part) and not any(child.kind in UNNAMED for child in part.children):
        yield part
    is_lookup = simplified and part.kind == "UnresolvedExtractValue" and name_of(part.children[0]) == "map"
    for child in part.children[0].children + part.children[1:] if is_lookup else part.children:
        yield from _calls(child, simplified)
