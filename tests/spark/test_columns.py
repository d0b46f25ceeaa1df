"""`where` and `select` as columns of PySpark's: the same join as text, and nothing lost on the way."""

import copy
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm

pytestmark = pytest.mark.spark

SCHEMA = (
    "id long, ts timestamp, x double, word string, day date, v array<string>, s struct<f:int,`a b`:int>, d decimal(5,2)"
)
Of = Callable[[Any, Any], Column]


@wm.predicate(form="pair")
def near(x: float, y: float) -> bool:
    return abs(x - y) < 2


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    rows = [
        (at, datetime(2024, 1, 1, 0, 0, at), at * 1.5 if at % 4 else None, "abcd"[at % 3 :], date(2024, 1, 1 + at % 3),
         ["a", "bcd"][: at % 3], (at % 3, 1), Decimal(at) / 4)
        for at in range(7)
    ]  # fmt: skip
    one, two = spark.createDataFrame(rows, SCHEMA), spark.createDataFrame(rows, SCHEMA)
    return one, two.withColumn("x", F.col("x") + 0.5)


CASES: dict[str, tuple[str, Of]] = {
    "band": ("abs(a.x - b.x) < 2", lambda a, b: F.abs(a.x - b.x) < 2),
    "conjuncts": (
        "a.x < b.x AND a.id >= b.id - 3 AND a.word = b.word",
        lambda a, b: (a.x < b.x) & (a.id >= b.id - 3) & (a.word == b.word),
    ),
    "in": ("a.id IN (1, 2, b.id)", lambda a, b: a.id.isin(1, 2, b.id)),
    "like": ("a.word LIKE 'b%' AND b.word RLIKE 'c'", lambda a, b: a.word.like("b%") & b.word.rlike("c")),
    "casts": (
        "cast(a.x AS int) = try_cast(b.word AS int) OR cast(a.id AS string) = '3'",
        lambda a, b: (a.x.cast("int") == b.word.try_cast("int")) | (a.id.cast("string") == "3"),
    ),
    "intervals": ("a.ts - b.ts < INTERVAL 2 SECONDS", lambda a, b: a.ts - b.ts < F.lit(timedelta(seconds=2))),
}
"""Those that must be decided as their texts are."""

MORE: dict[str, tuple[str, Of]] = {
    "fields": ("a.s.f = b.s.f", lambda a, b: a.s.f == b["s.f"]),
    "or, not": ("a.x < 3 OR NOT a.id = b.id", lambda a, b: (a.x < 3) | ~(a.id == b.id)),
    "null": ("a.x IS NULL AND b.x IS NOT NULL", lambda a, b: a.x.isNull() & b.x.isNotNull()),
    "null-safe": ("a.x <=> b.x - 0.5", lambda a, b: a.x.eqNullSafe(b.x - 0.5)),
    "unequal": ("a.id != b.id AND -a.id + 3 > b.id % 2", lambda a, b: (a.id != b.id) & (-a.id + 3 > b.id % 2)),
    "between": ("a.id BETWEEN b.id AND b.id + 1", lambda a, b: a.id.between(b.id, b.id + 1)),
    "texts": (
        "startswith(a.word, b.word) AND contains(a.word, 'd')",
        lambda a, b: a.word.startswith(b.word) & a.word.contains("d"),
    ),
    "case": (
        "CASE WHEN a.x > 4 THEN b.x > 4 WHEN a.x > 2 THEN false ELSE true END",
        lambda a, b: F.when(a.x > 4, b.x > 4).when(a.x > 2, False).otherwise(True),
    ),
    "literals": (
        "a.ts > TIMESTAMP '2024-01-01 00:00:02' AND b.day = DATE '2024-01-02' AND a.d < 1.50BD AND b.word < 'it''s'",
        lambda a, b: (
            (a.ts > F.lit(datetime(2024, 1, 1, 0, 0, 2)))
            & (b.day == date(2024, 1, 2))
            & (a.d < Decimal("1.50"))
            & (b.word < "it's")
        ),
    ),
    "text inside": (
        "a.ts BETWEEN b.ts AND b.ts + INTERVAL 2 SECONDS",
        lambda a, b: F.expr("a.ts between b.ts and b.ts + interval 2 seconds"),
    ),
    "lambdas": ("exists(a.v, e -> e = b.word)", lambda a, b: F.exists(a.v, lambda e: e == b.word)),
    "nested lambdas": (
        "exists(a.v, e -> exists(b.v, f -> f = e AND e < a.word))",
        lambda a, b: F.exists(a.v, lambda e: F.exists(b.v, lambda f: (f == e) & (e < a.word))),
    ),
    "items": ("get(a.v, 0) = 'a' AND b.s['a b'] = 1", lambda a, b: (F.get(a.v, 0) == "a") & (b["s"]["a b"] == 1)),
    "bits": (
        "(a.id & b.id) = (a.id ^ 1) AND ~a.id < 0",
        lambda a, b: (a.id.bitwiseAND(b.id) == a.id.bitwiseXOR(1)) & (F.bitwise_not(a.id) < 0),
    ),
    "a name of its own": ("a.x < b.x", lambda a, b: (a.x < b.x).alias("condition")),
}


def streams(frames: tuple[DataFrame, DataFrame]) -> tuple[Any, Any]:
    one, two = (wm.stream(name, frame, time="ts", window="1 hour") for name, frame in zip("ab", frames, strict=True))
    return one, two


def results_of(join: wm.Join) -> list[Any]:
    return sorted(map(tuple, join.toDF().collect()))


def decided(join: wm.Join) -> list[tuple[Any, ...]]:
    """How the conjuncts of a join are decided, whatever their texts."""
    return [(c.sql, c.columns, c.bounds, c.equality, c.exact, c.raises) for c in join.query.conjuncts]


@pytest.mark.parametrize("case", CASES)
def test_a_column_is_decided_as_text_is(frames: tuple[DataFrame, DataFrame], case: str) -> None:
    a, b = streams(frames)
    text, column = CASES[case]
    one, two = (wm.join(a, b, where=where) for where in (text, column(a, b)))
    assert decided(one) == decided(two)
    assert [stream.tests for stream in one.query.streams] == [stream.tests for stream in two.query.streams]


def test_all_of_them_have_the_results_of_their_texts(frames: tuple[DataFrame, DataFrame]) -> None:
    """In one job: a join whose SELECT list computes every condition, as text and as column."""
    a, b = streams(frames)
    every = CASES | MORE
    columns = [column(a, b).alias(f"c{at}") for at, (_, column) in enumerate(every.values())]
    texts = [F.expr(text).alias(f"t{at}") for at, (text, _) in enumerate(every.values())]
    rows = wm.join(a, b, select=[a.id.alias("left"), b.id.alias("right"), *columns, *texts]).toDF().collect()
    assert len(rows) == 49
    for at, case in enumerate(every):
        assert [row[f"c{at}"] for row in rows] == [row[f"t{at}"] for row in rows], case
    for case in ("lambdas", "literals"):
        at = list(every).index(case)
        made = wm.join(a, b, where=every[case][1](a, b), select=[a.id.alias("left"), b.id.alias("right")])
        assert results_of(made) == sorted((row.left, row.right) for row in rows if row[f"t{at}"]) != []


def test_python_predicates_are_called_with_columns(frames: tuple[DataFrame, DataFrame]) -> None:
    a, b = streams(frames)
    text = "near(a.x, b.x) AND NOT near(a.x, 9D)"
    by_name = F.call_function("near", F.col("A.x"), F.col("b.X")) & ~near(a.x, 9.0)
    made = [
        wm.join(a, b, where=where, select="a.id AS a, b.id AS b", predicates=[near])
        for where in (text, near(a.x, b.x) & ~near(a.x, 9.0), by_name)
    ]
    assert results_of(made[0]) == results_of(made[1]) == results_of(made[2]) != []


def test_the_description_of_a_join_is_the_same_whenever_it_is_defined(frames: tuple[DataFrame, DataFrame]) -> None:
    """Expression ids and the numbers of lambda variables are new in each process, and for each column."""
    udf = F.udf(lambda x: x, "double")

    def description() -> dict[str, Any]:
        a, b = streams(frames)
        where = F.exists(a.v, lambda e: e == b.word) & (udf(frames[0].x) < b.x) & (frames[1]["s.f"] == a["s.f"])
        shown = [a.id, (a.x - frames[1].x).alias("d"), "b.id AS other"]
        return wm.join(a, b, where=where, select=shown).query.description()

    one = description()
    assert one == description()
    assert one["where"] == "exists(a.v, x1 -> x1 = b.word) AND <lambda>(a.x) < b.x AND b.s.f = a.s.f"
    assert one["select"] == "a.id, (a.x - b.x) AS d, (b.id) AS other"


def test_columns_of_frames_are_those_of_the_stream_that_has_them(frames: tuple[DataFrame, DataFrame]) -> None:
    one, two = frames
    other = two.selectExpr("*", "id + 0 AS n")
    a, b = wm.stream("a", one, time="ts"), wm.stream("b", other, time="ts")
    join = wm.join(a, b, where=(one.id == other.n) & (one["s.f"] == 1), select=[one.id, other["x"].alias("bx")])
    assert join.query.where == "a.id = b.n AND a.s.f = 1"
    assert [row[0] for row in results_of(join)] == [1, 4]
    with pytest.raises(wm.DefinitionError, match="'id' is one of a DataFrame that several streams have: a, c"):
        wm.join(a, wm.stream("c", one, time="ts"), where=one.id == 1)
    with pytest.raises(
        wm.DefinitionError, match=r"'n' is one of a DataFrame that none of the streams has; write it .*F.col\('a.n'"
    ):
        wm.join(a, wm.stream("c", two, time="ts"), where=other.n == 1)  # fmt: skip


def test_aliased_frames(frames: tuple[DataFrame, DataFrame]) -> None:
    a, b = (wm.stream(name, frame.alias(name), time="ts") for name, frame in zip("ab", frames, strict=True))
    join = wm.join(a, b, where=F.col("a.id") + 5 == F.col("b.id"), select=["a.id", F.col("b.id").alias("other")])
    assert results_of(join) == [(0, 5), (1, 6)]


def test_select_takes_columns(frames: tuple[DataFrame, DataFrame]) -> None:
    a, b = streams(frames)
    where = a.id == b.id
    plain = wm.join(a, b, where=where, select=[F.col("a.*"), b.id.alias("other"), F.col("_time")])
    assert plain.select is None and plain.toDF().columns == [*frames[0].columns, "other", "_time"]
    computed = wm.join(a, b, where=where, select=[a.id, (b.x - a.x).alias("d"), a.s["f"].alias("f"), b.word])
    assert computed.toDF().columns == ["id", "d", "f", "word"]
    assert {row.d for row in computed.toDF().collect()} == {0.5, None}
    assert wm.join(a, b, where=where, select=a.id).toDF().columns == ["id"]
    for bad, said in {
        "Two output columns are called id": [a.id, b.id],
        "Stream b has no column y": [F.col("b.y")],
        "There is no stream c": [F.col("c.*")],
        "can't be computed row by row": [F.sum(a.x)],
        "a list of columns such as": [a.id, 5],
        "must be a string such as": [],
        "5 is neither": 5,
    }.items():
        with pytest.raises(wm.DefinitionError, match=bad):
            wm.join(a, b, where=where, select=said)  # type: ignore[arg-type]


def test_what_columns_can_not_say(frames: tuple[DataFrame, DataFrame]) -> None:
    a, b = streams(frames)
    deep = reduce(lambda made, at: ~made, range(1500), a.x < b.x)
    for where, said in (
        (a.x + b.x, "A condition is expected here, not a value of type double"),
        (F.rand() < a.x, "`where` must be deterministic"),
        (F.col("c.x") < a.x, "There is no stream c; choose from a, b"),
        (F.call_function("no_such", a.x), "There is no function no_such"),
        (F.sum(a.x) > 1, "`where` looks at one combination of rows|An aggregate looks at many rows"),
        (F.expr("a.x <"), "Spark can't read the column"),
        (deep, "The column is nested too deeply"),
    ):
        with pytest.raises(wm.DefinitionError, match=said):
            wm.join(a, b, where=where)
    with pytest.raises(wm.DefinitionError, match="untrusted=True is for text that people wrote"):
        wm.join(a, b, where=a.x < b.x, untrusted=True)


def test_columns_of_a_stream(frames: tuple[DataFrame, DataFrame]) -> None:
    a, _ = streams(frames)
    assert str(a["ID"]) == str(F.col("a.ID")) and isinstance(a.x, Column) and isinstance(a["s.f"], Column)
    with pytest.raises(wm.DefinitionError, match="Stream 'a' has no column 'y'; it has id, ts, x"):
        a["y"]
    with pytest.raises(wm.DefinitionError, match="Stream 'a': 5 is not the name of a column"):
        a[5]
    with pytest.raises(AttributeError, match="Stream 'a' has no column 'y'"):
        _ = a.y
    assert str(copy.copy(a).x) == str(a.x)


def test_a_column_of_any_name_is_that_column(frames: tuple[DataFrame, DataFrame]) -> None:
    names = ("name", "time", "window", "frame", "schema", "table", "streaming")
    one, two = (frame.withColumns(dict.fromkeys(names, F.col("word"))) for frame in frames)
    a, b = streams((one.drop("word"), two.drop("word")))
    equal = [getattr(a, name) == getattr(b, name) for name in names]
    joined = wm.join(a, b, where=reduce(and_, equal) & (a.id < b.id), select="a.id AS a, b.id AS b")
    plain = wm.join(*streams(frames), where="a.word = b.word AND a.id < b.id", select="a.id AS a, b.id AS b")
    assert results_of(joined) == results_of(plain)
    assert repr(a).startswith("Stream(a: id, ts")
