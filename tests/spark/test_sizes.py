"""Functions that make large values of small ones: refused where the size is known, an error where it is not."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.budget import one_in
from watersmeet.limits import limited
from watersmeet.spark.sql.catalyst import NodeBuilder, parse
from watersmeet.spark.sql.value_limits import MakerLimits

pytestmark = pytest.mark.spark

COLUMNS = ("id", "timestamp_seconds(id) AS ts", "id * 1000 AS n", "concat('text', id) AS s", "array(1, 2) AS v",
           "array(X'01', X'0203') AS w", "date_add(DATE'2020-01-01', cast(id AS int)) AS d", "'%5d' AS f",
           "cast(id AS string) AS t")  # fmt: skip
Join = Callable[..., Any]


@pytest.fixture(scope="module")
def make_join(spark: SparkSession) -> Join:
    frame = spark.range(3).selectExpr(*COLUMNS).localCheckpoint()

    def join(where: str) -> list[tuple[int, int]]:
        streams = [wm.stream(name, frame, time="ts") for name in "ab"]
        made = wm.join(*streams, where=where, select="a.id AS a, b.id AS b", strategy=wm.Central())
        return sorted(tuple(row) for row in made.toDF().collect())

    return join


REFUSED = [
    ("length(repeat('x', 2000000000)) > 0", "repeat", "repeat('x', 2000000000)"),
    ("length(repeat('x', 1000 * 1000 * 1000)) > 0", "repeat", "repeat('x', 1000 * 1000 * 1000)"),
    ("length(repeat('x', length(space(60)) * 20000000)) > 0", "repeat", None),
    ("length(repeat(repeat('x', 10000000), 10)) > 0", "repeat", "repeat(repeat('x', 10000000), 10)"),
    ("length(repeat(a.s, 2000000000)) > b.n", "repeat", "repeat(a.s, 2000000000)"),
    ("SPACE(2000000000) = a.s", "space", "SPACE(2000000000)"),
    ("lpad(a.s, 2000000000) = b.s", "lpad", "lpad(a.s, 2000000000)"),
    ("`rpad`(a.s, 2000000000, 'xy') = b.s", "rpad", "`rpad`(a.s, 2000000000, 'xy')"),
    ("length(system.builtin.rpad(X'01', 2000000000)) = b.n", "rpad", None),
    ("size(array_repeat(a.s, 2000000000)) = b.n", "array_repeat", "array_repeat(a.s, 2000000000)"),
    ("size(array_repeat(space(1000000), 1000)) = b.n", "array_repeat", "array_repeat(space(1000000), 1000)"),
    ("size(sequence(1, 2000000000)) = b.n", "sequence", "sequence(1, 2000000000)"),
    ("size(sequence(0D, 1e9)) = b.n OR size(sequence(-1000000000, 1000000000, 5)) = 1", "sequence", None),
    ("size(sequence(DATE'0001-01-01', DATE'9999-12-31', INTERVAL 1 SECOND)) = b.n", "sequence", None),
    ("size(sequence(TIMESTAMP'2000-01-01', TIMESTAMP'2001-01-01', INTERVAL '1' SECOND)) = b.n", "sequence", None),
    ("size(array_insert(a.v, 2000000000, 1)) = b.n", "array_insert", "array_insert(a.v, 2000000000, 1)"),
    ("format_number(a.n, 2000000000) = b.s", "format_number", "format_number(a.n, 2000000000)"),
    ("printf('%2000000000d', a.n) = b.s", "printf", "printf('%2000000000d', a.n)"),
    ("format_string('%d%-5.1999999999f', a.n, 1D) = b.s", "format_string", None),
    ("CASE WHEN a.n = 1 THEN exists(a.v, x -> space(2000000000) = 'x') ELSE TRUE END", "space", "space(2000000000)"),
    ("from_json(a.s, repeat('x', 2000000000)).x = b.n", "repeat", "repeat('x', 2000000000)"),
]


@pytest.mark.parametrize(("where", "name", "underlined"), REFUSED, ids=[where for where, _, _ in REFUSED])
def test_constant_sizes_are_refused_at_once(make_join: Join, where: str, name: str, underlined: str | None) -> None:
    began = time.process_time()
    with pytest.raises(wm.SqlError) as caught:
        make_join(where)
    assert caught.value.problem == f"{name} would make a value of more than 16,777,216 bytes."
    start, end = caught.value.span
    assert underlined is None or where[start:end] == underlined
    assert time.process_time() - began < 5


def guarded(spark: SparkSession, text: str) -> tuple[DataFrame, Column]:
    """Return pairs of rows, and an expression over them with its sizes tested."""
    frame = spark.range(3).selectExpr(*COLUMNS)
    pairs = frame.select(F.struct("*").alias("a")).crossJoin(frame.select(F.struct("*").alias("b"))).coalesce(1)
    tree, builder = parse(spark, text), NodeBuilder(spark)
    sizes = MakerLimits(spark, [tree], lambda problem, part: AssertionError(problem))
    sizes.learn_types(pairs.select(builder.column(tree.handle))._jdf.queryExecution().analyzed())
    return pairs, builder.column(builder.rebuild(tree, lambda part: None, sizes.guard))


LARGE = [
    "length(repeat(a.s, cast(a.n * b.n * 10 AS int)))",
    "length(repeat(a.s, 10000000))",
    "length(space(cast(b.n * 100000 AS int)))",
    "length(lpad(a.s, cast(b.n * 100000 AS int), '-'))",
    "length(rpad(cast(a.s AS binary), cast(b.n * 100000 AS int)))",
    "size(array_repeat(a.w, cast(a.n * 1000 AS int)))",
    "size(array_repeat(struct(a.s, a.v), cast(b.n * 1000 AS int)))",
    "size(sequence(0L, b.n * 100000))",
    "size(sequence(b.n * 100000, 0L, -7L))",
    "size(sequence(TIMESTAMP'1970-01-01', timestamp_seconds(b.n * 1000000), make_dt_interval(0, 0, 0, 1)))",
    "size(sequence(TIMESTAMP'1970-01-01', timestamp_seconds(b.n * 1000000), make_interval(0, 0, 0, 0, 0, 1)))",
    "size(array_insert(a.v, cast(b.n * 100000 + 1 AS int), 1))",
    "length(format_number(a.n, cast(b.n * 100000 AS int)))",
    "length(format_string(concat('%', b.n + 1, '00000d'), a.n))",
    "exists(a.v, x -> length(repeat(b.s, cast(x * b.n * 10000 AS int))) > 0)",
    "exists(array(1, 1000000000), x -> length(space(x)) > 5)",
]


@pytest.mark.parametrize("text", one_in(3, LARGE))
def test_sizes_from_columns_raise_beyond_the_limit(spark: SparkSession, text: str) -> None:
    pairs, column = guarded(spark, text)
    with pytest.raises(PySparkException, match="would make a value of more than 16,777,216 bytes"):
        pairs.select(column).collect()


SMALL = [
    "repeat(a.s, cast(b.n / 1000 AS int))",
    "repeat(a.id, cast(b.id AS int))",
    "repeat(a.s, -5)",
    "repeat(a.s, cast(NULL AS int))",
    "lpad(a.t, cast(b.id AS int) + 1, '0')",
    "lpad(b.s, -cast(a.id AS int), 'x')",
    "rpad(a.s, cast(b.n AS int))",
    "rpad(X'01', cast(b.n AS int))",
    "space(cast(b.n AS int))",
    "sequence(a.id, b.id)",
    "sequence(a.d, date_add(b.d, 100), INTERVAL '1' MONTH)",
    "sequence(a.d, b.d)",
    "sequence(a.d, date_add(b.d, 10), make_interval(0, 0, 0, cast(a.id AS int) + 1))",
    "sequence(a.ts, b.ts, if(a.ts <= b.ts, 1, -1) * INTERVAL '1' SECOND)",
    "array_repeat(a.w, cast(b.id AS int))",
    "array_repeat(NULL, cast(b.id AS int))",
    "array_insert(a.v, cast(b.id AS int) + 4, 1)",
    "array_insert(a.v, -cast(b.id AS int) - 4, 1)",
    "format_number(a.n, cast(b.id AS int))",
    "format_number(a.n, concat('#,###.', b.id * 0))",
    "format_string(a.f, b.n)",
    "printf('99999999999 %d', a.n)",
    "transform(a.v, x -> repeat(b.t, x))",
    "transform(sequence(0, 3), (x, i) -> lpad(a.s, x + i, b.t))",
]


def test_sane_sizes_mean_what_they_do_in_spark(spark: SparkSession) -> None:
    made = [guarded(spark, text) for text in SMALL]
    plain = [F.expr(text) for text in SMALL]
    pairs = made[0][0]
    for row in pairs.select(*plain, *(column for _, column in made)).collect():
        assert row[: len(SMALL)] == row[len(SMALL) :]


def test_a_join_says_it_in_a_sentence(make_join: Join) -> None:
    with limited(value_bytes=100):
        with pytest.raises(wm.SqlError, match="space would make a value of more than 100 bytes"):
            make_join("space(101) <> a.s")
        assert len(make_join("length(space(100)) = 100 AND lpad(concat(a.t, b.t), 3, '0') = repeat(a.t, 3)")) == 1
        with pytest.raises(PySparkException, match="repeat would make a value of more than 100 bytes"):
            make_join("repeat(a.s, cast(b.n AS int)) <> ''")
