"""What functions make of what they get: all that text from people may call are tried, however large it can be made."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.spark.catalyst import Builder, quiet
from watersmeet.spark.growing import KNOWN, bound_of
from watersmeet.spark.growth import FREE
from watersmeet.spark.purity import why_not
from watersmeet.spark.widths import is_open, width

pytestmark = pytest.mark.spark

COMPUTING = frozenset({
    "array_funcs", "bitwise_funcs", "collection_funcs", "conditional_funcs", "conversion_funcs", "csv_funcs",
    "datetime_funcs", "hash_funcs", "json_funcs", "lambda_funcs", "map_funcs", "math_funcs", "misc_funcs",
    "predicate_funcs", "st_funcs", "string_funcs", "struct_funcs", "url_funcs", "variant_funcs", "vector_funcs",
    "xml_funcs", "avro_funcs", "protobuf_funcs", "sketch_funcs", "",
})  # fmt: skip
OUT_OF_REACH = {
    "java_method": "reflection", "reflect": "reflection", "try_reflect": "reflection", "version": "environment",
    "current_catalog": "environment", "user": "environment", "current_path": "environment",
    "json_tuple": "a generator", "schema_of_variant_agg": "an aggregate", "vector_avg": "an aggregate",
    "vector_sum": "an aggregate", "random": "chance",
    **dict.fromkeys(("to_variant_object", "schema_of_variant", "variant_insert", "variant_set", "variant_array_append",
                     "try_variant_insert", "try_variant_set", "try_variant_array_append"), "text of any length"),
}  # fmt: skip
"""Functions that no text from people may call, with the reason."""
SIZE = 600
ROOM = 1024
"""How many bytes a value may have whatever the arguments are like."""


def registered(spark: SparkSession) -> Iterator[tuple[str, str, str]]:
    """Yield the functions of Spark's registry: the name, the group and the class."""
    jvm: Any = spark._jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    names = registry.listFunction().iterator()
    while names.hasNext():
        name = names.next()
        info = registry.lookupFunction(name).get()
        yield str(name.funcName()), str(info.getGroup()), str(info.getClassName()).rsplit(".", 1)[-1]


def test_every_function_of_the_registry_is_known(spark: SparkSession) -> None:
    """A function that a new version of Spark adds must be looked at: does it grow, or reach out of the query?"""
    assert not KNOWN & FREE
    unknown = []
    for name, group, kind in registered(spark):
        outside = group in ("xml_funcs", "avro_funcs", "protobuf_funcs", "sketch_funcs") or name in OUT_OF_REACH
        refused = why_not(group, kind.removesuffix("ExpressionBuilder"))
        if name not in KNOWN | FREE and not outside and not refused:
            unknown.append((name, group, kind))
    assert not unknown
    assert {name for name, _, _ in registered(spark)} >= {"concat", "upper"}


KINDS = {
    "text": [
        "repeat('a', {n})", "repeat(chr(1), {n})", "repeat('\u0390', {n})", "repeat('\"', {n})", "repeat('a,', {n})",
        "concat('[', repeat('1,', {n}), '1]')", "concat('[', repeat('{{}},', {n}), '1]')", "repeat('1', {n})",
        "repeat('%1$s', {n})", "repeat('VV', {n})", "repeat('zzzz', {n})", "repeat('k:v,', {n})",
    ],
    "binary": ["encode(repeat('a', {n}), 'UTF-8')", "unhex(repeat('FF', {n}))"],
    "numbers": ["sequence(1, {n})"],
    "texts": ["array(repeat('a', {n}), 'b')", "split(repeat('a,', {n}), ',')"],
    "map": ["map('k', repeat('a', {n}))"],
    "struct": ["named_struct('long_name_of_a_field', repeat('a', {n}))"],
    "structs": ["array_repeat(named_struct('long_name_of_a_field', 1), {n})"],
    "pairs": ["array(named_struct('k', 'a', 'v', repeat('a', {n})))"],
    "arrays": ["array(sequence(1, {n}), array(3))"],
    "variant": ["parse_json(concat('[', repeat('1,', {n}), '1]'))"],
    "number": ["1", "-1.7976931348623157E308D", "{n}"],
    "time": ["TIMESTAMP'2020-01-01'"],
}  # fmt: skip
"""Values by their kind: if Spark takes one, it takes the others."""
VALUES = {f"{kind}{at}": value for kind, values in KINDS.items() for at, value in enumerate(values)}
FIRST = {f"{kind}0": [f"{kind}{at}" for at in range(len(values))] for kind, values in KINDS.items()}
SMALL = ["''", "'a'", "','", "'(?=(.*))'", "'$1$1'", "'\u20ac'", "1", "100", "'UTF-32'", "'hex'", "TRUE", "'$[*]'",
         "'STRING'", "'x INT, y INT'", "'array<struct<x: int, y: int>>'"]  # fmt: skip
LAMBDAS = ["x -> x", "(x, y) -> x", "(k, x, y) -> 1", "x -> TRUE", "(x, y) -> 0"]


def shapes() -> Iterator[list[str]]:
    """Yield arguments, with a value of each kind for all of it."""
    yield []
    for one in FIRST:
        yield from ([one], [one, one], [one, one, one], [one, one, LAMBDAS[1]], [one, one, LAMBDAS[2]])
        yield from ([one, other] for other in [*SMALL, *LAMBDAS, *FIRST] if other != one)
        yield from ([other, one] for other in SMALL[:3])
        yield from ([one, *others] for others in product(SMALL[1:7], [*SMALL[4:8], "text0"]))


def variants(arguments: list[str]) -> Iterator[list[str]]:
    """Yield arguments with all values of their kinds."""
    varying = [FIRST.get(argument, [argument]) for argument in arguments]
    yield from map(list, product(*varying) if len(arguments) < 3 else zip(*_padded(varying), strict=True))


def _padded(lists: list[list[str]]) -> list[list[str]]:
    longest = max(map(len, lists))
    return [[one[at % len(one)] for at in range(longest)] for one in lists]


def written(name: str, arguments: list[str]) -> str:
    """Return a call."""
    return f"`{name}`({', '.join(arguments)})"


def types(row: DataFrame, columns: list[str]) -> list[T.DataType] | str:
    """Return the types of expressions; if Spark doesn't take them, why not."""
    try:
        with quiet():
            return [field.dataType for field in row.selectExpr(*columns).schema.fields]
    except PySparkException as error:
        return str(error.getCondition())
    except Py4JError:
        return ""


def grown(spark: SparkSession, row: DataFrame, name: str) -> tuple[int, list[str]]:
    """Return how many calls of a function were tried, and those whose values are larger than they may be."""
    builder, sizes, texts = Builder(spark), list[Column](), list[str]()
    never = set[int]()
    for shape in shapes():
        kind = "" if len(shape) in never else types(row, [written(name, shape)])
        if isinstance(kind, str) and kind.startswith("WRONG_NUM_ARGS"):
            never.add(len(shape))
        if isinstance(kind, str) or not is_open(kind[0]):
            continue
        for arguments in variants(shape):
            values = [argument for argument in arguments if "->" not in argument]
            found = types(row, values) if values else []
            assert not isinstance(found, str)
            given = list(zip(map(F.expr, values), found, strict=True))
            bounds = [width(*argument).cast("double") for argument in given]
            bounds += [bound_of(name, given, kind[0])] if name in KNOWN else []
            most = F.greatest(F.lit(0.0), F.lit(0.0), *bounds)
            beyond = builder.tried(width(F.expr(written(name, arguments)), kind[0]) > most + ROOM)
            sizes.append(F.coalesce(beyond, F.lit(False)).alias(f"c{len(sizes)}"))
            texts.append(written(name, arguments))
    wrong = list[str]()
    for at in range(0, len(sizes), 50):
        answers = row.select(*sizes[at : at + 50]).toArrow().columns
        wrong += [text for text, answer in zip(texts[at:], answers, strict=False) if answer[0].as_py()]
    return len(texts), wrong


@pytest.fixture(scope="module")
def row(spark: SparkSession) -> DataFrame:
    return (
        spark.range(1)
        .selectExpr(*(f"{value.format(n=SIZE)} AS {name}" for name, value in VALUES.items()))
        .localCheckpoint()
    )


ASKED = sorted(KNOWN | FREE)
SOME = ("hex",)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in SOME else pytest.mark.slow) for name in ASKED])
def test_no_value_is_larger_than_it_may_be(spark: SparkSession, row: DataFrame, name: str) -> None:
    _, wrong = grown(spark, row, name)
    assert not wrong, wrong[:5]
