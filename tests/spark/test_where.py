"""`where` is all of Spark SQL: what Spark computes of each tuple, what is decided here, what Spark decides."""

import runpy
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import read, run, through
from tests.versions import LATEST, there
from watersmeet.spark.run.versions import SPARK
from watersmeet.spark.sql.catalyst import error_sentence
from watersmeet.testing import stream_batches, write_batches

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ["Ann", "anne", "Straße", "Bob ", "", "Σίσυφος", "x1", "it's", None, "bobby"]
SCHEMA = "id long, ts timestamp, n int, x double, s string, p string, xs array<int>, end int, v array<float>, d date"


def rows(shift: int, size: int = 10) -> list[tuple[Any, ...]]:
    made = []
    for at in range(size):
        n = (at + shift) % 4
        moment = START + timedelta(seconds=at)
        word, pattern = WORDS[(at + shift) % len(WORDS)], ["^a", "[0-9]", "o+"][at % 3]
        xs = [at % 3, None, shift] if at % 4 else []
        x = [float("nan"), -0.0, 1.5, None, at / 3][(at + shift) % 5]
        made.append((at, moment, n, x, word, pattern, xs, at - 5, [1.0, float(at), float(n)], moment.date()))
    return made


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return spark.createDataFrame(rows(0), SCHEMA), spark.createDataFrame(rows(3), SCHEMA)


def make_join(frames: Sequence[DataFrame], where: str, window: Any = None, **more: Any) -> wm.Join:
    streams = [wm.stream(name, frame, time="ts", window=window) for name, frame in zip("ab", frames, strict=True)]
    return wm.join(*streams, where=where, select="a.id AS a, b.id AS b", strategy=wm.PSP(2), **more)


def answers(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in frame.collect())


def by_spark(frames: Sequence[DataFrame], where: str) -> list[tuple[int, int]]:
    one, two = (frame.select(F.struct("*").alias(name)) for name, frame in zip("ab", frames, strict=True))
    return answers(one.crossJoin(two).where(where).select("a.id", "b.id"))


CONDITIONS = [
    # computed when a tuple comes in
    "b.x - a.x + 0.1D < 0.1F AND a.ts BETWEEN TIMESTAMP'2000-01-01' AND date_add(b.d, 1)",
    "lower(trim(a.s)) = lower(trim(b.s))",
    "upper(a.s) = 'STRASSE' AND a.n = b.n",
    "soundex(a.s) = soundex(b.s)",
    "regexp_extract(a.s, '[a-z]+', 0) < b.s",
    "date_trunc('HOUR', a.ts) <= b.ts AND weekofyear(b.d) = 1 AND a.id = b.id",
    "aggregate(a.xs, 0, (sum, x) -> sum + coalesce(x, 0)) = b.n",
    "a.n > 1 AND b.s LIKE '%o%'",
    "'it''s' = a.s AND b.id < 2",
    "a.end > b.end AND a.`end` BETWEEN 0 AND 2BD",
    "s_only(a.id) = b.id",
    "from_json(concat('{\"k\":', a.n, '}'), 'k int').k = b.n",
    # Spark takes integers to double past a float that the text has between them
    "cast(a.id + 16777216 AS float) = b.id + 16777216D",
    "cast(a.id + 16777216 AS float) = CASE WHEN b.n > 1 THEN float(b.id + 16777216) ELSE b.id + 16777216D END",
    "cast(a.id + b.id + 16777216 AS float) > 16777220D",
    "cast(16777217 AS float) = b.id + 16777216D AND a.id = b.id",
    "struct(cast(a.id + 16777216 AS float) = b.id + 16777216D, a.n) = struct(true, b.n)",
    "cast(a.end + 0 AS float) = b.x OR cast(a.end AS float) = b.end",
    "CASE WHEN b.n > 1 THEN cast(a.id + 16777216 AS float) END = b.id + 16777216D",
    "if(b.n > 1, float(a.id + 16777216), 1F) = b.id + 16777216D AND a.n = b.n",
    "nullif(cast(a.id + 16777216 AS float), b.n) = b.id + 16777216D",
    "float(float(a.id + 16777216)) = b.id + 16777216D",
    "named_struct('q', float(a.id + 16777216)).q = b.id + 16777216D",
    "isnan(a.end + b.end) IS NOT NULL AND a.id = b.id",
    # decided here, some combinations by Spark
    "levenshtein(a.s, b.s) <= 2",
    "levenshtein(a.s, b.s, 1) = 1",
    "jaro_winkler_similarity(a.s, b.s) > 0.7",
    "vector_cosine_similarity(a.v, b.v) >= 0.9",
    "2 * asin(sqrt(pow(sin((a.x - b.x) / 2), 2) + cos(a.x) * cos(b.x) * pow(sin((a.n - b.n) / 2), 2))) < 1",
    "cbrt(a.n * 27 + b.n * 0) = 3.0 AND a.n = 1",
    "arrays_overlap(a.xs, b.xs)",
    "size(array_intersect(a.xs, b.xs)) = 2",
    "bit_count(a.n ^ b.n) = 1",
    # decided by Spark
    "regexp_like(a.s, b.p)",
    "exists(a.xs, x -> x = b.n)",
    "filter(a.xs, x -> x > b.n)[0] IS NOT NULL OR a.s COLLATE UTF8_LCASE = b.s COLLATE UTF8_LCASE",
    "struct(a.n, a.s) = struct(b.n, b.s)",
    "map_from_arrays(array(a.n), array(b.n))[2] = 1 AND a.id < 5 AND a.x >= b.x",
    "struct(a.*) IS NOT NULL AND a.id = b.id",
    "to_json(named_struct('s', a.s, 't', b.s)) RLIKE 'o.*o'",
    "true",
    "a.id = b.id AND 1 = 2",
    "exists(array(1, 2), x -> x = a.n + b.n)",
    "(a.n, b.n) IN ((1, 2), (2, 3))",
    "size(array_union(split(a.s, ''), split(b.s, ''))) > 4",
    "from_json(concat('{\"k\":', a.n, b.n, '}'), 'k int', map('mode', 'PERMISSIVE')).k = 12",
    "CASE WHEN a.n + b.n > 9 THEN raise_error('big') ELSE true END",
    "a.n < b.n OR NULL = 3 / a.n + b.n",
    "CASE WHEN a.n < -5 THEN 1/0 > b.n ELSE a.n = b.n END",
    "a.s COLLATE UTF8_LCASE = b.s",
    "contains(a.s COLLATE UTF8_LCASE, b.s)",
    "mask(a.s || b.s) LIKE ALL (concat(a.id, '%'), concat('x', '%'))",
    "soundex(a.s || b.s) LIKE ALL (concat('B', '%'), concat('%', b.id % 5))",
    "datediff(a.d, date_from_unix_date(2147483647 - b.id)) < 0",
    "exists(array(a.x, 1D), e -> e = b.n)",
    "concat('+Na', left(b.p, 0), 'N') = a.s OR cast(concat('+Na', left(a.p, 0), 'N', left(b.p, 0)) AS double) = 'NaN'",
]


ALONE = {"a.s = b.n": "false", "string(a.x * 0.0D) || b.n = '-0.02' OR string(a.x * -0.0D) || b.n = '-0.02'": "true"}
"""What has to be asked alone, with ANSI mode on or off: Spark takes 0.0 and -0.0 for one where they stand together."""
PLAIN = [where for where in there(CONDITIONS) if "s_only" not in where and "filter(a.xs" not in where]


@pytest.fixture(scope="module")
def sparks(frames: tuple[DataFrame, DataFrame]) -> dict[str, list[tuple[int, int]]]:
    """Spark's own answers; to ask for all of them at once takes a tenth of the time."""
    one, two = (frame.select(F.struct("*").alias(name)) for name, frame in zip("ab", frames, strict=True))
    spark = one.sparkSession
    # Spark computes what occurs twice before the guards of either.
    spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    try:
        columns = [F.expr(where).alias(f"c{at}") for at, where in enumerate(PLAIN)]
        rows = one.crossJoin(two).select(F.col("a.id").alias("a"), F.col("b.id").alias("b"), *columns).collect()
    finally:
        spark.conf.unset("spark.sql.subexpressionElimination.enabled")
    return {where: sorted((r["a"], r["b"]) for r in rows if r[f"c{at}"]) for at, where in enumerate(PLAIN)}


@pytest.mark.parametrize("where", one_in(5, PLAIN))
def test_conditions_mean_what_they_do_in_spark(
    frames: tuple[DataFrame, DataFrame], sparks: dict[str, list[tuple[int, int]]], where: str
) -> None:
    assert answers(make_join(frames, where).toDF()) == sparks[where]


@pytest.mark.parametrize("where", ALONE)
def test_conditions_that_are_asked_alone(frames: tuple[DataFrame, DataFrame], where: str) -> None:
    spark = frames[0].sparkSession
    spark.conf.set("spark.sql.ansi.enabled", ALONE[where])
    try:
        assert answers(make_join(frames, where).toDF()) == by_spark(frames, where)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_functions_of_the_users_own(spark: SparkSession) -> None:
    own = spark.newSession()  # in Spark 4.1, nobody can take back what hides a function of Spark's
    frames = [own.createDataFrame(rows(shift), SCHEMA) for shift in (0, 3)]
    own.udf.register("plus_one", lambda n: n + 1, "int")

    def twice(ids: pd.Series) -> pd.Series:
        return ids * 2

    own.udf.register("twice", pandas_udf(twice, "long"))  # type: ignore[call-overload]
    own.sql("CREATE OR REPLACE TEMPORARY FUNCTION square(x INT) RETURNS INT RETURN x * x")
    own.udf.register("abs", lambda x: 7.0, "double")  # whether Spark's own goes before it depends on Spark's version
    for where in (
        "plus_one(a.n) = b.n",
        "twice(a.id) = b.id AND square(b.n) = b.n",
        "square(a.n + b.n) > 9",
        "plus_one(a.n + b.n) = 4 AND abs(a.n - b.n) = 1",
        "plus_one(a.n + b.n) = 4 AND abs(a.n - b.n) = 7",
    ):
        assert answers(make_join(frames, where).toDF()) == by_spark(frames, where), where


@wm.predicate(form="pair")
def near(x: float, y: float) -> bool:
    return abs(x - y) < 2


@pytest.mark.parametrize(
    ("where", "holds"),
    one_in(2, [
        ("near(a.n, b.n) OR regexp_like(a.s, b.p)", "abs(a.n - b.n) < 2 OR regexp_like(a.s, b.p)"),
        ("NOT (a.n <> 0 AND near(1/a.n, b.n))", "NOT (a.n <> 0 AND abs(1/a.n - b.n) < 2)"),
        ("coalesce(a.n = 0, FALSE) OR near(1/a.n, b.n)", "a.n = 0 OR abs(1/a.n - b.n) < 2"),
        ("near(length(a.s), b.n) AND a.s RLIKE b.p", "abs(length(a.s) - b.n) < 2 AND a.s RLIKE b.p"),
    ], unpack=True),
)  # fmt: skip
def test_python_predicates_among_what_spark_decides(
    frames: tuple[DataFrame, DataFrame], where: str, holds: str
) -> None:
    assert answers(make_join(frames, where, predicates=[near]).toDF()) == by_spark(frames, holds)


GUARDED = [
    "a.n <> 0 AND 1 / a.n >= b.n",
    "1 / a.n >= b.n AND a.n <> 0",
    "1 / a.n >= b.n AND a.n <> 0 AND regexp_like(a.s, b.p)",
    "regexp_like(a.s, b.p) AND 1 / a.n >= b.n AND a.n <> 0",
    "element_at(a.xs, b.n + 1) = 0 AND size(a.xs) > b.n",
    "a.n = 0 OR cast(concat(a.n, '') AS int) div a.n = b.n",
    "try_cast(a.s AS int) IS NOT NULL AND cast(a.s AS int) >= b.n",
    "try_cast(a.s AS int) IS NOT NULL AND a.s = b.n",
    "a.n < 0 AND (a.n = 1 OR cast('ab' AS int) <= a.n) AND a.id = b.id",
    "a.n < 0 AND cast('x' AS date) < b.d - a.n",
    "a.n = 99 AND cast(date_from_unix_date(2147483647 - a.n) AS timestamp) <= b.ts",
    "filter(a.xs, x -> x > b.n)[0] = 3 AND size(filter(a.xs, x -> x > b.n)) > 0",
]


@pytest.mark.parametrize("where", one_in(4, GUARDED))
def test_a_guard_works_in_either_order(frames: tuple[DataFrame, DataFrame], where: str) -> None:
    first, *others = where.split(" AND ") if " OR " not in where else [where]
    guarded = " AND ".join([*reversed(others), first]) if where.startswith(("1 /", "element", "filter")) else where
    if where.startswith("regexp_like"):
        guarded = "a.n <> 0 AND regexp_like(a.s, b.p) AND 1 / a.n >= b.n"
    if where.startswith(("a.n < 0", "a.n = 99")):  # Spark itself computes the constant too early
        guarded = "false"
    assert answers(make_join(frames, where).toDF()) == by_spark(frames, guarded)


MAPS = {
    "map": "map({x}, 1, {y}, 2)",
    "map_from_arrays": "map_from_arrays(array({x}, {y}), array(1, 2))",
    "map_from_entries": "map_from_entries(array(named_struct('k', {x}, 'v', 1), named_struct('k', {y}, 'v', 2)))",
    "map_concat": "map_concat(map({x}, 1), map({y}, 2))",
    "str_to_map": "str_to_map({x} || ':1,' || {y} || ':2')",
    "str_to_map by": "str_to_map({x} || '=1&' || {y} || '=2', '&', concat(left({x}, 0), '='))",
    "transform_keys": "transform_keys(map({x} || '1', 1, {y} || '2', 2), (k, v) -> ascii(k))",
}
"""Calls that make maps of two keys, and raise if these are the same."""


@pytest.fixture(scope="module")
def keys(spark: SparkSession) -> list[DataFrame]:
    """Two streams with words, of which one is NULL."""
    texts: list[list[str | None]] = [["a", "b", None, "a", "c", "d"], ["a", "c", "b", "d"]]
    moment = START.replace(tzinfo=None)
    tuples = [[(at, moment, s, s, 6 // (at + 1)) for at, s in enumerate(some)] for some in texts]
    return [
        spark.createDataFrame(some, "id long, ts timestamp, s string, t string, n int").coalesce(1) for some in tuples
    ]


@pytest.mark.parametrize(("call", "untrusted"), one_in(5, product(MAPS, [False, True]), unpack=True))
def test_a_map_that_cannot_be_made_does_no_harm_to_others(keys: list[DataFrame], call: str, untrusted: bool) -> None:
    """[!] What makes maps in Spark keeps what it was given before it raised."""
    a, c = ("ascii('a')", "ascii('c')") if call == "transform_keys" else ("'a'", "'c'")
    made = MAPS[call].format(x="a.s", y="b.s")
    where = f"cardinality({made}) = 2 AND element_at({made}, {a}) IS NULL"
    wanted = by_spark(keys, f"CASE WHEN a.s <> b.s THEN {where} ELSE false END")
    assert wanted == [(1, 1), (1, 3), (4, 2), (4, 3), (5, 1), (5, 2)]
    assert answers(make_join(keys, f"a.s <> b.s AND {where}", untrusted=untrusted).toDF()) == wanted

    pairs = keys[0].crossJoin(keys[1].select(F.col("s").alias("u"))).coalesce(1)
    made = MAPS[call].format(x="a.s", y="a.u")
    where = f"element_at({made}, {c}) = b.n"
    wanted = by_spark([pairs, keys[1]], f"CASE WHEN a.s <> a.u THEN {where} ELSE false END")
    assert wanted
    assert answers(make_join([pairs, keys[1]], f"{where} AND a.s <> a.u", untrusted=untrusted).toDF()) == wanted
    with pytest.raises(Exception, match="an error when Spark computed"):
        make_join([pairs, keys[1]], where, untrusted=untrusted).toDF().collect()


@pytest.mark.parametrize("untrusted", one_in(2, [False, True]))
def test_a_map_whose_values_cannot_be_computed_does_no_harm_to_others(keys: list[DataFrame], untrusted: bool) -> None:
    """[!] Where Spark computes values one by one, the first is in the builder when the second raises."""
    made = "transform(array(a.n), n -> cardinality(map_filter(map('p', n, 'q', 6 div (n - 2)), (k, v) -> v < 0)))[0]"
    where = f"{made} + 0 * b.n = 1 AND a.n <> 2"
    wanted = by_spark(keys, f"CASE WHEN a.n <> 2 THEN {made} + 0 * b.n = 1 ELSE false END")
    assert wanted
    assert answers(make_join(keys, where, untrusted=untrusted).toDF()) == wanted


@pytest.mark.slow
def test_the_keys_of_maps_are_taken_for_the_same_as_in_spark(keys: list[DataFrame]) -> None:
    guarded = "a.id < b.id AND size(map(make_interval(0, a.id), 1, make_interval(0, b.id), 2)) = 2"
    assert answers(make_join(keys, guarded).toDF()) == by_spark(keys, "a.id < b.id")
    zeros = "a.id < 2 AND b.id < 2 AND size(map(a.id * 0D, 1, b.id * -0D, 2)) = 1"
    with pytest.raises(Exception, match="a key is NULL or occurs twice"):
        make_join(keys, zeros).toDF().collect()
    where = "size(map_concat(map(a.s, 1), map(b.s, 2))) = 1 AND a.s IS NOT NULL AND a.id >= 0"
    second = "if(b.n > 1, named_struct('k', 'e', 'v', 1), NULL)"
    entries = f"cardinality(map_from_entries(array(named_struct('k', a.s, 'v', b.n), {second})))"
    spark = keys[0].sparkSession
    spark.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    try:
        assert answers(make_join(keys, where).toDF()) == by_spark(keys, "a.s = b.s")
        assert answers(make_join(keys, zeros).toDF()) == by_spark(keys, "a.id < 2 AND b.id < 2")
        assert answers(make_join(keys, f"{entries} IS NULL AND a.s IS NOT NULL").toDF()) == by_spark(
            keys, "b.n <= 1 AND a.s IS NOT NULL"
        )
    finally:
        spark.conf.unset("spark.sql.mapKeyDedupPolicy")


def test_what_spark_finds_without_a_map_needs_no_test(keys: list[DataFrame]) -> None:
    where = "map(a.s, 1, b.s, 2)['c'] = 1"
    assert answers(make_join(keys, where).toDF()) == by_spark(keys, where) != []


UNGUARDED = [
    "1 / a.n > b.n",
    "1 / a.n > b.n AND regexp_like(concat('oo', a.id), b.p)",
    "element_at(a.xs, b.n + 9) = 0",
    "1/a.n > 0",
    "date_add(DATE '2026-01-01', a.end + 2147483640 + b.end) IS NULL",
]


@pytest.mark.parametrize("where", one_in(2, UNGUARDED))
def test_without_a_guard_a_sentence_stops_the_query(
    spark: SparkSession, tmp_path: Path, frames: tuple[DataFrame, DataFrame], where: str
) -> None:
    with pytest.raises(wm.WatersmeetError) as caught:
        run(make_join(streams(spark, tmp_path, frames), where, "1 hour").writeStream, tmp_path, "driver")
    said = str(caught.value)
    assert "raised" in said and len(said.splitlines()) == 1 and "at org.apache" not in said
    assert not read(tmp_path / "out").num_rows


def streams(spark: SparkSession, folder: Path, frames: Sequence[DataFrame], batches: int = 2) -> list[DataFrame]:
    """Return the frames as streams, cut into batches."""
    for name, frame in zip("ab", frames, strict=True):
        table = frame.toArrow()
        table = table.set_column(1, "ts", table.column("ts").cast(pa.timestamp("us", "UTC")))
        size = -(-table.num_rows // batches)
        write_batches(folder / name, [table.slice(at * size, size) for at in range(batches)])
    return [stream_batches(spark, folder / name) for name in "ab"]


MIXED = " AND ".join(
    there(
        [
            "lower(trim(a.s)) <= lower(b.s) AND a.n < 3 AND (a.n = 0 OR 3 / a.n > 0)",
            "(levenshtein(a.s, b.s) < 5 OR regexp_like(a.s, b.p))",
            "(jaro_winkler_similarity(a.s, b.s) > 0.3 OR regexp_like(a.s, b.p))",
            "vector_l2_distance(a.v, b.v) < 4",
        ]
    )
)


@through("shuffle")
def test_streams(spark: SparkSession, tmp_path: Path, frames: tuple[DataFrame, DataFrame], exchange: str) -> None:
    given = streams(spark, tmp_path, frames, 3)
    query = run(make_join(given, MIXED, "1 hour").writeStream, tmp_path, exchange)
    wanted = by_spark(frames, MIXED)
    found = read(tmp_path / "out").to_pylist()
    assert sorted((row["a"], row["b"]) for row in found) == wanted and wanted
    assert sum(batch["outputRows"] for batch in query.progress) == len(wanted)
    assert not any(path.is_file() for path in (tmp_path / "checkpoint" / "watersmeet" / "results").rglob("*"))


def test_hidden_columns_are_stored_only_where_they_are_needed(
    spark: SparkSession, tmp_path: Path, frames: tuple[DataFrame, DataFrame]
) -> None:
    where = "lower(a.s) = lower(b.s) AND a.n < 2 AND regexp_like(b.p, 'o')"
    join = make_join(streams(spark, tmp_path, frames), where, "1 hour")
    query = run(join.writeStream, tmp_path, "driver")
    assert [[join.query.name_of(column) for column in kept] for kept in join.query.stored_columns] == [
        ["a.id", "lower(a.s)"],
        ["b.id", "lower(b.s)", "regexp_like(b.p, 'o') failed"],
    ]
    stored = sum(row[2] < 2 and row[4] is not None for row in rows(0))
    stored += sum("o" in row[5] and row[4] is not None for row in rows(3))
    assert query.progress[-1]["distinctRows"] == stored  # what can join nothing isn't stored


def test_a_count_window_counts_what_a_condition_denies(
    spark: SparkSession, tmp_path: Path, frames: tuple[DataFrame, DataFrame]
) -> None:
    join = make_join(streams(spark, tmp_path, frames), "upper(a.s) = 'ANN'", wm.count(3))
    run(join.writeStream, tmp_path, "driver")
    found = sorted((row["a"], row["b"]) for row in read(tmp_path / "out").to_pylist())
    assert found == [(0, 0), (0, 1), (0, 2)]  # with the fourth tuple of a, the first is no longer among its last three


def test_text_with_a_collation_is_compared_by_it(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(rows(0), SCHEMA).withColumn("s", F.expr("s COLLATE UTF8_LCASE"))
    other = spark.createDataFrame(rows(3), SCHEMA).withColumn("s", F.expr("upper(s)"))
    where = "a.s = b.s"
    with pytest.raises(wm.DefinitionError, match=r"COLLATION|collation"):
        make_join([frame, other.withColumn("s", F.expr("s COLLATE UNICODE"))], where)
    lower = [frame, other.withColumn("s", F.expr("s COLLATE UTF8_LCASE"))]
    assert answers(make_join(lower, where).toDF()) == by_spark(lower, where)
    inner = wm.join(
        *(wm.stream(name, f, time="ts") for name, f in zip("ab", lower, strict=True)),
        where="a.id = b.id",
        select="a.id AS id, a.s AS s, _time",
    )
    nested = wm.join(
        wm.stream("i", inner), wm.stream("b", lower[1], time="ts"), where="i.s = b.s", select="i.id AS i, b.id AS b"
    )
    assert answers(nested.toDF()) == by_spark(lower, where)


def test_explain_says_who_decides_what(frames: tuple[DataFrame, DataFrame], capsys: pytest.CaptureFixture[str]) -> None:
    where = "lower(a.s) = b.s AND a.n > 1 AND regexp_like(a.s, b.p) AND levenshtein(a.s, b.s) < 3"
    make_join(frames, where).explain()
    said = capsys.readouterr().out
    assert "lower(a.s), computed by Spark when a tuple comes in" in said
    assert "only where a.n > 1, tested by Spark when a tuple comes in" in said
    assert "decided by Spark, for combinations that pass the other conjuncts: regexp_like(a.s, b.p)" in said
    assert "faster: " in said and "borderline combinations by Spark: levenshtein(a.s, b.s) < 3" in said


def test_another_condition_on_an_old_checkpoint_is_refused(
    spark: SparkSession, tmp_path: Path, frames: tuple[DataFrame, DataFrame]
) -> None:
    given = streams(spark, tmp_path, frames)
    run(make_join(given, r"a.s = 'a\tb'", "1 hour").writeStream, tmp_path, "driver")
    spark.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    try:
        with pytest.raises(wm.DefinitionError, match="another query"):
            run(make_join(given, r"a.s = 'a\tb'", "1 hour").writeStream, tmp_path, "driver")
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")


def test_literals_mean_what_the_session_says(spark: SparkSession, frames: tuple[DataFrame, DataFrame]) -> None:
    for escaped in ("true", "false"):
        spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
        try:
            for where in (r"regexp_like('\d', a.s) OR a.s < '\\d' AND a.n = b.n", "a.s = 'it''s' AND a.id = b.id"):
                assert answers(make_join(frames, where).toDF()) == by_spark(frames, where)
        finally:
            spark.conf.unset("spark.sql.parser.escapedStringLiterals")


@pytest.fixture
def wide(spark: SparkSession) -> Iterator[DataFrame]:
    columns = ", ".join(f"id + {n} AS c{n}" for n in range(40))
    yield spark.sql(f"SELECT timestamp_seconds(id) AS ts, {columns} FROM range(20)")


@pytest.mark.slow
def test_wide_streams_are_planned_in_time(wide: DataFrame) -> None:
    """[!] Spark copies every constraint for each alias: what names a column twice may take for ever."""
    where = " AND ".join(f"a.c{n} + 1 = b.c{n + 1} - 0" for n in range(0, 38, 2)) + " AND regexp_like(a.c0, b.c0)"
    started = datetime.now()
    join = wm.join(*(wm.stream(name, wide, time="ts") for name in "ab"), where=where, select="a.c0 AS a, b.c0 AS b")
    assert len(join.toDF().collect()) == 20
    assert datetime.now() - started < timedelta(seconds=60)


@pytest.mark.slow
def test_intervals_go_through(spark: SparkSession, tmp_path: Path) -> None:
    """Spark has types for them that Arrow or Parquet lack, and compares them; what comes out has them, too."""
    made = ("timestamp_seconds(id) AS ts", "make_ym_interval(id, 1) AS ym", "make_dt_interval(id, 1, 2, 3.5) AS dt")
    frames = [spark.range(shift, 5 + shift).selectExpr("id", *made) for shift in (0, 2)]
    where = "a.ym + INTERVAL 1 YEAR > b.ym AND a.dt <= b.dt AND b.ym - a.ym < INTERVAL '2' YEAR"
    assert answers(make_join(frames, where).toDF()) == by_spark(frames, where) != []
    for name, frame in zip("ab", frames, strict=True):
        frame.write.parquet(str(tmp_path / name))
    given = [spark.readStream.schema(f.schema).parquet(str(tmp_path / n)) for n, f in zip("ab", frames, strict=True)]
    streams_ = [wm.stream(name, frame, time="ts", window="1 hour") for name, frame in zip("ab", given, strict=True)]
    for at, select in enumerate((None, "a.ym AS one, b.dt AS two")):
        join = wm.join(*streams_, where=where, select=select)
        run(join.writeStream, tmp_path / str(at), "driver")
        found = spark.read.parquet(str(tmp_path / str(at) / "out"))
        shown = found.selectExpr("a.ym AS one", "b.dt AS two") if select is None else found
        assert [field.dataType.simpleString() for field in shown.schema] == [
            "interval year to month",
            "interval day to second",
        ]
        wanted = frames[0].alias("a").crossJoin(frames[1].alias("b")).where(where).selectExpr("a.ym", "b.dt")
        text = ("cast(one AS string)", "cast(two AS string)")
        assert sorted(shown.selectExpr(*text).collect()) == sorted(
            wanted.toDF("one", "two").selectExpr(*text).collect()
        )


def test_an_argument_that_failed_stops_what_spark_decides(frames: tuple[DataFrame, DataFrame]) -> None:
    where = "near(1/a.n, b.n) OR regexp_like(a.s, b.s || 'z')"
    with pytest.raises(Exception, match=r"an error when Spark computed `1/a\.n`"):
        make_join(frames, where, predicates=[near]).toDF().collect()


def test_text_with_nul_reaches_duckdb_and_python(spark: SparkSession) -> None:
    texts = ["", "\0", "a", "a\0", "a\0b", "b", None]
    frame = spark.createDataFrame([(at, text) for at, text in enumerate(texts)], "id int, s string")
    frames = [frame.selectExpr("*", "timestamp_micros(0) AS ts")] * 2
    same = wm.predicate(name="same", form="pair")(lambda x, y: x == y)
    for where, by in {
        r"concat(a.s, b.s) < 'a\u0000' OR concat(a.s, b.s) LIKE '_\u0000b'": None,
        r"CASE WHEN same(a.s, 'a\u0000') THEN a.s < b.s ELSE same(concat(b.s, 'x'), '\u0000x') END": (
            r"CASE WHEN a.s = 'a\u0000' THEN a.s < b.s ELSE concat(b.s, 'x') = '\u0000x' END"
        ),
    }.items():
        assert answers(make_join(frames, where, predicates=[same]).toDF()) == by_spark(frames, by or where) != []


@pytest.mark.slow
def test_which_rows_a_count_window_holds_does_not_depend_on_what_is_asked(spark: SparkSession) -> None:
    moment = START.replace(tzinfo=None)
    ties = spark.createDataFrame([(i, moment, float(i)) for i in range(8)], "id int, ts timestamp, x double")
    later = spark.createDataFrame([(9, moment + timedelta(seconds=1), 0.0)], "id int, ts timestamp, x double")
    streams_ = [wm.stream("a", ties, time="ts", window=wm.count(2)), wm.stream("b", later, time="ts")]
    found = {
        tuple(sorted(row[0] for row in wm.join(*streams_, where=where, select=select).toDF().collect()))
        for where in (None, "a.x >= 0", "upper(a.id) IS NOT NULL")
        for select in ("a.id", "a.id, a.x", "a.id, b.id AS b")
    }
    assert len(found) == 1


def test_settings_belong_to_the_join(spark: SparkSession, frames: tuple[DataFrame, DataFrame]) -> None:
    join = make_join(frames, "hour(a.ts) = 0 AND a.id = b.id")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with pytest.raises(wm.DefinitionError, match="defined with time zone UTC"):
            join.toDF()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_errors_in_functions_of_the_users_own_are_sentences(
    spark: SparkSession, tmp_path: Path, frames: tuple[DataFrame, DataFrame]
) -> None:
    spark.udf.register("boom", lambda text: 1 // 0, "int")
    try:
        for at, where in enumerate(
            ("boom(a.s) = 1 AND a.n = b.n", "boom(a.s || b.s) = 1", "regexp_like(a.s, b.p || '(')")
        ):
            with pytest.raises(wm.WatersmeetError) as caught:
                run(
                    make_join(streams(spark, tmp_path / str(at), frames), where, "1 hour").writeStream,
                    tmp_path / str(at),
                    "driver",
                )
            assert len(str(caught.value).splitlines()) == 1
    finally:
        spark.sql("DROP TEMPORARY FUNCTION IF EXISTS boom")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("cast(a.x AS nosuch) = 1", "nosuch"),
        ("DATE'2020-13-01' = a.d", "2020-13-01"),
        ("a.x < b.x AND", "ends too early"),
        ("a.s = 'x", "The quote ' is not closed"),
        ("a.x < b.x AS y", "has a name"),
        ("a.s COLLATE nosuch = b.s", "nosuch"),
        ("a.id = 99999999999999999999999999999999999999999", "recision"),
        ("IDENTIFIER('a.x') = b.x", "IDENTIFIER"),
    ],
)
def test_what_spark_cannot_read_is_told_in_its_words(
    frames: tuple[DataFrame, DataFrame], where: str, said: str
) -> None:
    with pytest.raises(wm.SqlError, match=said):
        make_join(frames, where)


@pytest.mark.skipif(SPARK != LATEST, reason="the page is that of the newest Spark")
def test_the_page_of_functions_is_written_by_its_script(spark: SparkSession) -> None:
    script = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "functions.py"))
    assert script["PAGE"].read_text() == script["page"](spark)


def test_what_a_java_function_raises_is_told() -> None:
    raw = """An error occurred while calling o80.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)
Caused by: java.util.regex.PatternSyntaxException: Unclosed group near index 1
("""
    assert error_sentence(Exception(raw)) == "java.util.regex.PatternSyntaxException: Unclosed group near index 1"


def test_the_error_of_a_task_in_a_barrier_stage_is_told() -> None:
    raw = (
        "An error occurred while calling o109.getResult.\n: org.apache.spark.SparkException: Exception thrown in "
        "awaitResult: \n\tat org.apache.spark.util.X.y(X.scala:70)\nCaused by: org.apache.spark.SparkException: Job "
        "aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure "
        "reason: Stage failed because barrier task ResultTask(1, 0) finished unsuccessfully.\n"
        "org.apache.spark.api.python.PythonException: An exception was thrown from the Python worker:\n"
        'Traceback (most recent call last):\n  File "x.py", line 6, in f\nOSError: [Errno 28] No space left on device\n'
        "\tat org.apache.spark.Y.z(Y.scala:1)"
    )
    assert error_sentence(Exception(raw)) == "OSError: [Errno 28] No space left on device"
