"""What functions make of what they get: all that text from people may call are tried, however large it can be made."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.functions import why_not
from tests.spark.measured_calls import KINDS, Scan
from watersmeet.spark.sql.value_bounds import FREE
from watersmeet.spark.sql.value_limits import BOUNDED

pytestmark = pytest.mark.spark

OUT_OF_REACH = {
    "java_method": "reflection", "reflect": "reflection", "try_reflect": "reflection", "version": "environment",
    "current_catalog": "environment", "user": "environment", "current_path": "environment",
    "json_tuple": "a generator", "schema_of_variant_agg": "an aggregate", "vector_avg": "an aggregate",
    "vector_sum": "an aggregate", "random": "chance",
    **dict.fromkeys(("to_variant_object", "schema_of_variant", "variant_insert", "variant_set", "variant_array_append",
                     "try_variant_insert", "try_variant_set", "try_variant_array_append"), "text of any length"),
}  # fmt: skip
"""Functions that no text from people may call, with the reason."""


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
    assert not BOUNDED & FREE
    unknown = []
    for name, group, kind in registered(spark):
        outside = group in ("xml_funcs", "avro_funcs", "protobuf_funcs", "sketch_funcs") or name in OUT_OF_REACH
        refused = why_not(group, kind.removesuffix("ExpressionBuilder"))
        if name not in BOUNDED | FREE and not outside and not refused:
            unknown.append((name, group, kind))
    assert not unknown
    assert {name for name, _, _ in registered(spark)} >= {"concat", "upper"}


@pytest.fixture(scope="module")
def scan(spark: SparkSession) -> Scan:
    return Scan(spark)


EACH = sorted(BOUNDED | FREE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_larger_than_it_may_be(scan: Scan, kind: str) -> None:
    """All functions, with arguments of which the first large one is of a kind."""
    made = scan.measured(EACH, kind)
    assert made.sizes and not made.wrong, made.wrong


def test_some_values_are_no_larger_than_they_may_be(scan: Scan) -> None:
    made = scan.measured(["hex", "lcase", "trim"], "text")
    assert min(made.sizes.values()) > 0 and not made.wrong, made.wrong


def test_what_grows_is_noticed(spark: SparkSession) -> None:
    """Taken for functions whose values are no larger than their arguments, growing ones are told."""
    made = Scan(spark, known=frozenset()).measured(["hex", "lcase", "trim"], "text")
    assert {call.split("(")[0] for call in made.wrong} == {"hex", "lcase"}
