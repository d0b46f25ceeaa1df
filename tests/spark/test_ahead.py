"""Rows from far ahead are rejected, not believed: they make no other row late."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.harness import EPOCH, SECOND, Case, cuts, expected, frames, results, run, side_ids, through, write
from tests.times import instant
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.testing import oracle, stream_batches, write_batches

pytestmark = pytest.mark.spark

CASE = Case([oracle.Stream(name, oracle.Sliding(10), 5) for name in "ab"], cuts(11, "ab"))
YEAR_9999 = (253_402_300_000 * 1_000_000 - EPOCH) / SECOND
GARBAGE: list[dict[str, Any]] = [{"id": 900 + at, "ts": YEAR_9999 + at, "x": 1.0, "k": "p"} for at in range(2)]


def dirty(batch: int) -> list[dict[str, Any]]:
    """The case's batches, with a row of the year 9999 in each stream."""
    bad = dict(zip("ab", GARBAGE, strict=True))
    return [
        {name: [*rows, bad[name]] if at == batch else rows for name, rows in here.items()}
        for at, here in enumerate(CASE.batches)
    ]


def make_join(spark: SparkSession, folder: Path, **options: Any) -> wm.Join:
    inputs = frames(spark, folder / "in", "ab")
    usual: dict[str, Any] = {"time": "ts", "window": "10 seconds", "delay": "5 seconds"}
    return wm.join(*(wm.stream(name, inputs[name], **usual | options) for name in "ab"), strategy=wm.PSP(2))


def rejections(query: JoinQuery) -> list[list[str]]:
    """The streams of which a batch warns that rows were rejected."""
    return [[says.split(":")[0] for says in p["warnings"] if "rejected" in says] for p in query.progress]


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "watersmeet"]


@through()
def test_a_row_from_the_year_9999_in_each_stream(
    spark: SparkSession, tmp_path: Path, exchange: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "in", dirty(1))
    writer = make_join(spark, tmp_path).writeStream.option("rejectedPath", str(tmp_path / "rejected"))
    query = run(writer, tmp_path, exchange)
    wanted = expected(CASE)
    assert results(tmp_path, "ab") == wanted.results
    assert [p["rejectedRows"] for p in query.progress] == [0, 2, 0, 0]
    assert [instant(p["watermark"]) for p in query.progress] == [wanted.watermarks[at] for at in range(4)]
    assert side_ids(tmp_path / "rejected", "ab") == Counter({("a", 900): 1, ("b", 901): 1})
    reasons = {(sample["kind"], sample["reason"]) for sample in query.progress[1]["samples"]}
    assert reasons == {("rejected", "event time more than 1 day ahead of the clock and of all streams")}
    assert rejections(query) == [[], ["Stream 'a'", "Stream 'b'"], [], []]
    assert query.progress[1]["warnings"][:2] == logged(caplog)[:2]


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}])
def test_a_backlog_may_be_read_in_large_steps(spark: SparkSession, tmp_path: Path, trigger: dict[str, Any]) -> None:
    hours = pa.array([0, 3_600_000_000], pa.timestamp("us", "UTC"))
    for name in "ab":
        batches = [pa.table({"id": [1], "ts": hours.slice(at, 1)}) for at in range(2)]
        write_batches(str(tmp_path / name), batches)
    streams = [
        wm.stream(name, stream_batches(spark, str(tmp_path / name)), time="ts", window="10 seconds") for name in "ab"
    ]
    writer = wm.join(*streams, where="a.id = b.id").writeStream.trigger(**trigger)
    query = writer.option("checkpointLocation", str(tmp_path / "state")).start(str(tmp_path / "out"))
    query.processAllAvailable()
    query.stop()
    jumps = ["The watermark moved by" in " ".join(progress["warnings"]) for progress in query.progress]
    assert jumps == [False, "processingTime" in trigger]


@pytest.mark.slow
def test_warnings_of_an_inner_join_are_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "in", [{**here, "c": here["a"]} for here in dirty(1)])
    inner = make_join(spark, tmp_path)
    c = wm.stream("c", frames(spark, tmp_path / "in", "c")["c"], time="ts", window="10 seconds")
    outer = wm.join(wm.stream("ab", inner, window="10 seconds"), c, select="ab.a.id AS a, c.id AS c")
    query = run(outer.writeStream, tmp_path)
    assert rejections(query) == [[], ["Stream 'c'", "Stream 'a'", "Stream 'b'"], [], []]
    assert query.progress[1]["warnings"][:3] == logged(caplog)[:3]


def test_ahead_may_change_between_runs_and_none_is_no_limit(spark: SparkSession, tmp_path: Path) -> None:
    batches = dirty(1)
    write(tmp_path / "in", batches[:1])
    run(make_join(spark, tmp_path, ahead="1 hour").writeStream, tmp_path)
    write(tmp_path / "in", batches[1:])
    query = run(make_join(spark, tmp_path, ahead=None).writeStream, tmp_path)
    assert sum(p["rejectedRows"] for p in query.progress) == 0
    assert [p["lateRows"] for p in query.progress][2:] == [sum(map(len, here.values())) for here in batches[2:]]


def test_static_frames_have_no_limit(spark: SparkSession, tmp_path: Path) -> None:
    text = "SELECT a.id AS a, b.id AS b FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS]"
    days = [f"timestamp '9999-01-01 00:00:0{at}' AS ts" for at in range(2)]
    inputs = {name: spark.sql(f"SELECT 1 AS id, {day}") for name, day in zip("ab", days, strict=True)}
    assert wm.sql(text, inputs, time="ts", ahead="1 hour").toDF().count() == 1


def test_a_bad_ahead(spark: SparkSession) -> None:
    frame = spark.sql("SELECT timestamp '2026-01-01 00:00:00' AS ts")
    with pytest.raises(wm.DefinitionError, match=r"^ahead of stream 'a': 'far' is not a duration; "):
        wm.stream("a", frame, time="ts", ahead="far")
    with pytest.raises(wm.DefinitionError, match=r"^ahead of stream 'a': 'far' is not a duration; "):
        wm.sql("SELECT * FROM a, b", {"a": frame, "b": frame}, time="ts", ahead="far")
