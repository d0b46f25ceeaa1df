"""All examples in Spark's documentation of its functions are answered as Spark answers them.

The examples come from the session's own function registry. Each is tried as it stands, with its literals as columns of
one stream, and with its literals as columns of two.
"""

import os
from collections import Counter

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.predicate.documented import FORMS, Outcome, compare, settings
from tests.predicate.registry import Example, Unusable, examples
from tests.versions import LATEST
from watersmeet.spark.run.versions import SPARK

pytestmark = pytest.mark.spark

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe")
OFF = "UNSUPPORTED_TIME_TYPE"
"""Spark has columns of type TIME off by default: a stream that holds one can't be read back."""
RANDOM = "aes_encrypt"
"""Without a vector of one's own and outside mode ECB it encrypts with a random one, though Spark calls it
deterministic; with the mode in a column, nobody knows beforehand."""
TWO_ANSWERS = "to_json(map(named_struct("
"""Spark writes a key that is a struct as it happens to hold it: `[1]` computed on the spot, `[0,1]` read from a column.
With parts of it in two streams it is a column."""
FEW = int(os.environ.get("REGISTRY_FEW", "320"))
"""The suite tries one example in so many; all of them are tried by `make test-slow`."""


@pytest.fixture(scope="module")
def all_examples(spark: SparkSession) -> list[Example | Unusable]:
    return examples(spark)


def answerable(all_examples: list[Example | Unusable]) -> list[Example]:
    return [example for example in all_examples if isinstance(example, Example) and example.refused is None]


def check(outcome: Outcome) -> None:
    print("\n" + outcome.summary())
    assert [text for text in outcome.different if OFF not in text and TWO_ANSWERS not in text] == []
    assert [text for text in outcome.refused if not text.startswith(RANDOM)] == []
    assert len(outcome.answered) > 0


def test_the_documentation_is_read(all_examples: list[Example | Unusable]) -> None:
    """What is left out is left out for a reason: a change of Spark's documentation shows here."""
    usable = answerable(all_examples)
    left = Counter(example.reason for example in all_examples if isinstance(example, Unusable))
    fewest, functions = (950, 400) if SPARK == LATEST else (800, 350)
    assert len(usable) > fewest and len({example.function for example in usable}) > functions
    assert left["is no SELECT"] == 0
    unread = {
        e.function for e in all_examples if isinstance(e, Unusable) and e.reason == "is more than a list of expressions"
    }
    assert unread == {"from_avro", "to_avro", "from_protobuf", "to_protobuf"}  # of modules that are not there


def test_what_is_no_function_of_the_row_is_refused(spark: SparkSession, all_examples: list[Example | Unusable]) -> None:
    frame = spark.range(1).selectExpr("id", "timestamp_micros(0) AS ts")
    streams = [wm.stream(name, frame, time="ts") for name in "ab"]
    answered = []
    for example in all_examples:
        if isinstance(example, Example) and example.refused is not None:
            try:
                wm.join(*streams, where=f"a.id = b.id AND ({example.text}) IS NOT NULL")
            except wm.DefinitionError as error:
                assert str(error).strip()
            else:
                answered.append(f"{example.text} ({example.refused})")
    assert answered == []


@pytest.mark.parametrize(
    ("at", "ansi", "zone"),
    [(0, True, "Europe/Berlin"), pytest.param(5, False, "America/St_Johns", marks=pytest.mark.slow)],
)
def test_some_examples(
    spark: SparkSession, all_examples: list[Example | Unusable], at: int, ansi: bool, zone: str
) -> None:
    with settings(spark, ansi, zone):
        check(compare(spark, answerable(all_examples)[at::FEW]))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("ansi", [True, False])
def test_all_examples(
    spark: SparkSession, all_examples: list[Example | Unusable], ansi: bool, zone: str, form: str
) -> None:
    with settings(spark, ansi, zone):
        check(compare(spark, answerable(all_examples), [form]))
