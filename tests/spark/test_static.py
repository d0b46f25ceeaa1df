"""Joins of static frames, joins as text, and what explain says."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark.harness import Case, cuts, expected, join_of, table
from watersmeet.testing import assert_same, brute_force
from watersmeet.testing.oracle import Count, Hopping, Sliding, Stream, Unbounded

pytestmark = pytest.mark.spark

STREAMS = [Stream("a", Sliding(9), 0), Stream("b", Hopping(12, 4), 0), Stream("c", Count(8), 0)]
ONE_BATCH = cuts(61, "abc", batches=1, rows=12, step=20, ties=False)


@pytest.fixture(scope="module")
def inputs(spark: SparkSession) -> dict[str, DataFrame]:
    return {name: spark.createDataFrame(table(rows)) for name, rows in ONE_BATCH[0].items()}


def ids(frame: DataFrame) -> Counter[Any]:
    return Counter(tuple(row) for row in frame.select("a.id", "b.id", "c.id").collect())


def test_a_frame_is_lazy_and_can_be_used_again(inputs: dict[str, DataFrame]) -> None:
    """[!] Each use computes the join anew and whole, whatever the use before it asked for."""
    case = Case(STREAMS, ONE_BATCH, "a.x <= b.x", lambda a, b, c: None not in (a["x"], b["x"]) and a["x"] <= b["x"])
    frame = join_of(case, inputs).toDF()
    wanted = Counter(found for found, _ in expected(case).results.elements())
    assert frame.columns == ["a", "b", "c", "_time"]
    assert len(frame.take(3)) == 3
    assert frame.filter("false").count() == 0
    assert frame.count() == frame.count() == wanted.total()
    assert ids(frame) == wanted
    half = frame.filter("a.x < 3")
    assert half.count() == sum(1 for row in frame.collect() if row.a.x < 3)


def test_a_frame_is_whole_in_other_partitions(inputs: dict[str, DataFrame]) -> None:
    """[!] Coalesced or in a union, the frame's partitions have other numbers than the shares of the work."""
    case = Case(STREAMS, ONE_BATCH, "a.x <= b.x", lambda a, b, c: None not in (a["x"], b["x"]) and a["x"] <= b["x"])
    frame = join_of(case, inputs).toDF()
    wanted = Counter(found for found, _ in expected(case).results.elements())
    assert ids(frame.coalesce(1)) == wanted
    assert ids(frame.union(frame)) == wanted + wanted


def test_a_frame_outlives_the_join_and_its_own_name(inputs: dict[str, DataFrame]) -> None:
    case = Case(STREAMS, ONE_BATCH, strategy=wm.Central())
    derived = join_of(case, inputs, select="a.id AS a, b.id + 1 AS b").toDF().select("b")
    assert derived.count() == expected(case).results.total()


def test_sql_says_the_same(spark: SparkSession, inputs: dict[str, DataFrame]) -> None:
    renamed = {**inputs, "b": inputs["b"].withColumnRenamed("ts", "seen")}
    text = """
        SELECT a.id AS a, b.id AS b, c.id AS c, d.id AS d
        FROM a [RANGE 9 SECONDS], b [RANGE 12 SECONDS SLIDE 4 SECONDS WATTR seen], c [ROWS 8], d
        WHERE a.x = b.x AND c.id = d.id
    """
    joined = wm.sql(text, {**renamed, "d": inputs["c"]}, time="ts", strategy=wm.PSP(2))
    batches = [{**ONE_BATCH[0], "d": ONE_BATCH[0]["c"]}]
    case = Case(
        [*STREAMS, Stream("d", Unbounded(), 0)],
        batches,
        holds=lambda a, b, c, d: a["x"] is not None and a["x"] == b["x"] and c["id"] == d["id"],
    )
    wanted = Counter(found for found, _ in expected(case).results.elements())
    assert wanted.total() > 0
    assert Counter(tuple(row) for row in joined.toDF().collect()) == wanted


def test_users_can_compare_with_brute_force(spark: SparkSession) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [{"id": n, "ts": start + timedelta(seconds=3 * n), "x": n % 3} for n in range(8)]
    frame = spark.createDataFrame(rows, "id long, ts timestamp, x int")
    joined = wm.join(
        wm.stream("a", frame, time="ts", window="10 seconds"),
        wm.stream("b", frame, time="ts", window="4 seconds"),
        where="a.x < b.x",
        select="a.id AS a, b.id AS b",
    )
    sizes = {"a": timedelta(seconds=10), "b": timedelta(seconds=4)}
    wanted = brute_force({"a": rows, "b": rows}, lambda a, b: a["x"] < b["x"], windows=sizes)
    assert len(wanted) > 5
    assert_same(
        [tuple(row) for row in joined.toDF().collect()], [(found["a"]["id"], found["b"]["id"]) for found in wanted]
    )


def test_explain(inputs: dict[str, DataFrame], capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(STREAMS, ONE_BATCH, "a.x < b.x AND b.k = c.k AND a.id > 3")
    join_of(case, inputs).explain()
    shown = capsys.readouterr().out
    assert shown.startswith(
        "Watersmeet join of 3 streams, PSP(nodes=2)\n  a: sliding 9 seconds on ts, delay 0 seconds\n"
    )
    assert "  b: hopping 12 seconds every 4 seconds on ts" in shown and "  c: last 8 rows on ts" in shown
    assert "    only where a.id > 3, tested by Spark when a tuple comes in\n" in shown
    assert "  a new tuple of a: a -> b -> c\n    probe b by sorted index on b.x\n" in shown


def test_a_join_says_what_is_wrong_with_its_strategy_or_order(inputs: dict[str, DataFrame]) -> None:
    case = Case(STREAMS, ONE_BATCH, "a.x < b.x AND b.k = c.k")
    with pytest.raises(wm.DefinitionError, match=r"Hash needs for each stream .* has none for 'a'"):
        join_of(case, inputs, strategy=wm.Hash(2))
    with pytest.raises(wm.DefinitionError, match="order='best' is unknown; use one of given, selectivity, histogram"):
        join_of(case, inputs, order="best")


def test_nothing_to_join(spark: SparkSession, tmp_path: Path) -> None:
    empty = spark.createDataFrame([], "id long, ts timestamp")
    joined = wm.join(wm.stream("a", empty, time="ts"), wm.stream("b", empty, time="ts"))
    assert joined.toDF().count() == 0


def test_uses_of_a_frame_add_no_files(inputs: dict[str, DataFrame], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    frame = join_of(Case(STREAMS, ONE_BATCH, strategy=wm.Central()), inputs).toDF()

    def files() -> set[Path]:
        return {path for path in tmp_path.rglob("*") if path.is_file()}

    count = frame.count()
    first = files()
    assert first and frame.orderBy("_time").count() == len(frame.collect()) == count > 0
    assert files() == first
    del frame
    assert not files()


def test_an_error_is_a_sentence(inputs: dict[str, DataFrame]) -> None:
    case = Case(STREAMS[:2], ONE_BATCH, "a.id / (b.id - b.id) > 0")
    frame = join_of(case, {**inputs}, select="a.id AS _error, b.id AS b").toDF()
    for use in (frame.collect, frame.count, frame.select("b").distinct().collect):
        with pytest.raises(SparkRuntimeException) as caught:
            use()
        assert "`a.id / (b.id - b.id) > 0` raised [DIVIDE_BY_ZERO] Division by zero for a.id = " in str(caught.value)
        assert "Traceback" not in str(caught.value)
