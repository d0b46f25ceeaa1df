"""What reaches out of the query (clock, chance, environment, files, other tables, reflection) is refused in `where`.

A condition must give the same answer each time it is asked, whoever asks, wherever: here by DuckDB, at intake by
Spark, or at the end by Spark. So each way out is tried bare, inside of functions, lambdas, branches and predicates.
"""

import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.budget import one_in

pytestmark = pytest.mark.spark

REFLECTION = [
    "reflect('java.lang.System', 'getenv', 'HOME')",
    "java_method('java.lang.System', 'getProperty', 'user.name')",
    "try_reflect('java.util.UUID', 'randomUUID')",
    "reflect('java.lang.Math', 'abs', a.i)",
]
CLOCK = [
    "current_timestamp()", "current_timestamp", "now()", "current_date()", "current_date", "curdate()",
    "localtimestamp()", "localtimestamp", "current_time()", "current_time(3)", "localtime()", "unix_timestamp()",
    "TIMESTAMP 'now'", "TIMESTAMP 'today'", "TIMESTAMP_NTZ 'now'", "TIMESTAMP_LTZ 'tomorrow'", "DATE 'today'",
    "DATE 'yesterday'", "cast('now' AS timestamp)", "cast('today' AS date)", "date('tomorrow')", "timestamp('now')",
    "to_unix_timestamp(current_timestamp())", "datediff(current_date(), a.day)", "to_timestamp('now')",
]  # fmt: skip
CHANCE = [
    "rand()", "rand(5)", "random()", "random(5)", "randn()", "randn(5)", "uuid()", "shuffle(a.xs)", "shuffle(a.xs, 7)",
    "randstr(5)", "randstr(5, 1)", "uniform(1, 10)", "uniform(1, 10, 7)", "monotonically_increasing_id()",
    "spark_partition_id()",
]  # fmt: skip
ENVIRONMENT = [
    "current_user()", "current_user", "user()", "session_user()", "session_user", "current_catalog()",
    "current_database()", "current_schema()", "current_path()", "input_file_name()", "input_file_block_start()",
    "input_file_block_length()", "from_xml(a.s, 'x INT', map('rowValidationXSDPath', '/etc/hostname'))",
]  # fmt: skip
SUBQUERIES = [
    "(SELECT 1)", "(SELECT max(id) FROM range(3))", "(SELECT max(i) FROM elsewhere)",
    "(WITH t AS (SELECT 1 AS x) SELECT x FROM t)", "(VALUES 1)", "(SELECT a.i)",
    "(SELECT max(i) FROM elsewhere WHERE elsewhere.i < a.i)",
]  # fmt: skip
OF_THE_USER = ["dice()", "chance()", "peek()", "today()"]
VALUES = [*REFLECTION, *CLOCK, *CHANCE, *ENVIRONMENT, *SUBQUERIES, *OF_THE_USER]

PLACES = {
    "bare": "({}) IS NOT NULL",
    "compared": "a.i = b.i AND cast(({}) AS string) > b.s",
    "in a function": "length(concat(a.s, cast(({}) AS string))) > b.i",
    "in a lambda": "exists(a.xs, x -> cast(x AS string) = cast(({}) AS string))",
    "in a lambda of two streams": "size(filter(a.xs, x -> x < b.i AND cast(({}) AS string) <> '')) > 1",
    "in a branch": "CASE WHEN a.i > 100 THEN ({}) IS NULL ELSE a.i = b.i END",
    "in an argument": "same(a.s, cast(({}) AS string))",
    "in a list": "b.s IN ('x', cast(({}) AS string), a.s)",
}
CONDITIONS = [
    "EXISTS (SELECT 1)", "EXISTS (SELECT 1 FROM elsewhere WHERE elsewhere.i = a.i)", "a.i IN (SELECT i FROM elsewhere)",
    "a.i NOT IN (SELECT 1)", "(a.i, b.i) IN (SELECT 1, 2)", "a.i > ALL (SELECT 1)", "a.i = ?", "a.i = :given",
    "count(a.i) > 1", "count(*) > 1", "max(a.i) = b.i", "a.i = sum(b.i) + 1", "listagg(a.s) = b.s",
    "row_number() OVER (ORDER BY a.i) = 1", "sum(a.i) OVER () > b.i", "lag(a.i) OVER (ORDER BY a.ts) = b.i",
    "rank() = 1", "explode(a.xs) = b.i", "posexplode(a.xs) = 1", "inline(array(struct(a.i))) = 1", "stack(2, a.i) = 1",
    "explode(array(1, 2)) + a.i > b.i", "json_tuple(a.s, 'x') = b.s", "window(a.ts, '5 minutes').start = b.ts",
    "session_window(a.ts, '5 minutes').end > b.ts", "grouping_id() = 0", "python_worker_logs() = 1",
    "a.i = elsewhere.i", "a.i = outside", "a.i = session.outside",
]  # fmt: skip


@wm.predicate(form="pair")
def same(one: str, other: str) -> bool:
    return one == other


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    """Rows to join, with a view, functions and a variable beside them that a condition could reach for."""
    spark.range(3).selectExpr("cast(id AS int) AS i").createOrReplaceTempView("elsewhere")
    spark.udf.register("dice", F.udf(lambda: 4, "int").asNondeterministic())
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION chance() RETURNS DOUBLE RETURN rand() + 1")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION peek() RETURNS INT RETURN (SELECT max(i) FROM elsewhere)")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION today() RETURNS DATE RETURN current_date()")
    spark.sql("DECLARE OR REPLACE VARIABLE outside INT DEFAULT 1")
    columns = ("cast(id AS int) AS i", "cast(id AS string) AS s", "array(1, 2, 3) AS xs", "DATE '2024-01-01' AS day")
    yield spark.range(2).selectExpr(*columns, "timestamp_micros(1700000000000000 + id) AS ts")
    spark.catalog.dropTempView("elsewhere")
    for name in ("dice", "chance", "peek", "today"):
        spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")
    spark.sql("DROP TEMPORARY VARIABLE IF EXISTS outside")


def answer(frame: DataFrame, where: str) -> str | None:
    """Return what is wrong with how the join takes a condition that it must refuse, or None."""
    try:
        wm.join(wm.stream("a", frame, time="ts"), wm.stream("b", frame, time="ts"), where=where, predicates=[same])
    except wm.DefinitionError as error:
        message = str(error)
        return None if message.strip() and "Traceback" not in message else f"{where}: says {message!r}"
    except Exception as error:
        return f"{where}: {type(error).__name__}: {str(error)[:200]}"
    return f"{where}: is taken"


@pytest.mark.parametrize("place", one_in(3, PLACES))
def test_values_from_outside_are_refused(frame: DataFrame, place: str) -> None:
    answers = [answer(frame, PLACES[place].format(value)) for value in VALUES]
    assert [text for text in answers if text] == []


@pytest.mark.parametrize("place", one_in(3, PLACES))
def test_the_same_places_take_values_of_the_rows(frame: DataFrame, place: str) -> None:
    """Else the refusals above would prove nothing."""
    assert str(answer(frame, PLACES[place].format("a.i + 1"))).endswith("is taken")


def test_conditions_that_look_at_more_than_one_combination_are_refused(frame: DataFrame) -> None:
    answers = [answer(frame, text) for text in (*CONDITIONS, *(f"NOT ({text})" for text in CONDITIONS))]
    assert [text for text in answers if text] == []


@pytest.mark.parametrize("ansi", [True, False])
def test_the_mode_makes_no_difference(spark: SparkSession, frame: DataFrame, ansi: bool) -> None:
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        answers = [answer(frame, PLACES["bare"].format(value)) for value in VALUES]
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert [text for text in answers if text] == []


def test_text_that_names_a_variable_of_the_environment_is_only_text(spark: SparkSession) -> None:
    """[!] Spark's parser replaces `${env:X}` in any text it is given, string literals included."""
    names = [name for name in ("PATH", "HOME") if os.environ.get(name)]
    rows = [(os.environ[name], f"${{env:{name}}}") for name in names]
    frame: Any = spark.createDataFrame(rows, "value string, text string")
    frame = frame.selectExpr("*", "timestamp_micros(0) AS ts")
    streams = [wm.stream(name, frame, time="ts") for name in "ab"]
    for (name, column), form in product(product(names, ("value", "text")), ("a.{} = '{}' AND b.value = a.value",)):
        try:
            joined = wm.join(*streams, where=form.format(column, f"${{env:{name}}}"))
        except wm.DefinitionError:
            continue
        assert joined.toDF().count() == (column == "text")
