"""Spark's documented stream-stream join, impressions and clicks, ported as it stands: the results are Spark's own."""

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.budget import one_in
from watersmeet.testing import stream_batches, write_batches

pytestmark = pytest.mark.spark
SECOND = 1_000_000
START = 1_704_106_800 * SECOND
TIME = pa.timestamp("us", "UTC")
NEAR = """clickAdId = impressionAdId AND clickTime >= impressionTime
          AND clickTime <= impressionTime + interval 1 minute"""
LATE = 900
"""The ads of rows that come too late, for either of the two."""


Rows = list[tuple[int, float]]
"""Ads, and seconds."""


def batches(ad: str, time: str, rows: list[Rows]) -> list[pa.Table]:
    return [
        pa.table(
            {
                ad: pa.array([ad for ad, _ in batch], pa.int64()),
                time: pa.array([START + round(at * SECOND) for _, at in batch], pa.int64()).cast(TIME),
            }
        )
        for batch in rows
    ]


def arriving(rows: list[tuple[int, float, float]]) -> list[Rows]:
    """Return (ad, time, delay) in batches of a minute by when they arrive; then what closes all before it."""
    found: list[Rows] = [
        [(ad, at) for ad, at, delay in rows if (at + delay) // 60 == minute] for minute in range(-1, 6)
    ]
    return [*found, *([(1000 + at, 4000.0 + 100 * at)] for at in range(2))]


def impressions() -> list[Rows]:
    """An ad every other second, every third one 9 seconds late; one that is far too late for anybody."""
    return arriving([*((at, 2.0 * at, 9.0 * (at % 3 == 0)) for at in range(120)), (LATE, 1.0, 250.0)])


def clicks() -> list[Rows]:
    """A click on every other ad, up to 18 seconds late, some just within the minute and some just after it."""
    after = (0, 5, 59.999999, 60, 60.000001, 75)
    found = [(at, 2 * at + after[at // 2 % 6], at * 7 % 19) for at in range(0, 120, 2)]
    return arriving([*found, (2, 5.0, 250.0), (LATE, 2.0, 250.0)])


def frames(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    if not folder.exists():
        write_batches(folder / "impressions", batches("impressionAdId", "impressionTime", impressions()))
        write_batches(folder / "clicks", batches("clickAdId", "clickTime", clicks()))
    return (
        stream_batches(spark, folder / "impressions").withWatermark("impressionTime", "10 seconds"),
        stream_batches(spark, folder / "clicks").withWatermark("clickTime", "20 seconds"),
    )


def by_spark(spark: SparkSession, folder: Path, kind: str) -> Counter[Any]:
    one, two = frames(spark, folder)
    joined = one.join(two, F.expr(NEAR), kind).select("impressionAdId", "clickTime")
    query = joined.writeStream.format("memory").queryName(f"ported_{kind}").trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / f"spark-{kind}")).start().awaitTermination()
    return Counter(tuple(row) for row in spark.table(f"ported_{kind}").collect() if row[0] < 1000)


def ported(spark: SparkSession, folder: Path, kind: str, **delays: Any) -> wm.Join:
    one, two = frames(spark, folder)
    return wm.join(
        wm.stream("i", one, time="impressionTime", ahead=None),
        wm.stream("c", two, time="clickTime", ahead=None, **delays),
        where=NEAR,
        select="i.impressionAdId, c.clickTime",
        how={"c": "left"} if kind == "leftOuter" else None,
    )


def run(join: wm.Join, folder: Path, name: str) -> Any:
    writer = join.writeStream.option("checkpointLocation", str(folder / f"ck-{name}")).trigger(availableNow=True)
    query = writer.start(str(folder / name))
    query.awaitTermination()
    return query


def by_watersmeet(spark: SparkSession, folder: Path, kind: str) -> Counter[Any]:
    run(ported(spark, folder, kind), folder, kind)
    found = spark.read.parquet(str(folder / kind)).collect()
    return Counter(tuple(row) for row in found if row[0] < 1000)


@pytest.mark.parametrize("kind", one_in(2, ["leftOuter", "inner"]))
def test_a_port_gives_what_sparks_own_join_gives(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    wanted, found = by_spark(spark, tmp_path / "data", kind), by_watersmeet(spark, tmp_path / "data", kind)
    assert len(wanted) > 30
    assert found == wanted


def explained(join: wm.Join, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    join.explain()
    return capsys.readouterr().out


def test_a_row_at_the_watermark_is_late_for_spark_alone(spark: SparkSession, tmp_path: Path) -> None:
    """The watermark is at 80 seconds after the first batch, and the second does not move it."""
    data = tmp_path / "data"
    shown = [[(1, 80.0), (2, 100.0)], [(3, 95.0)], [(4, 96.0)]]
    clicked = [[(9, 100.0)], [(9, 95.0)], [(1, 80.0), (1, 80.001)]]
    write_batches(data / "impressions", batches("impressionAdId", "impressionTime", shown))
    write_batches(data / "clicks", batches("clickAdId", "clickTime", clicked))
    found, wanted = by_watersmeet(spark, data, "inner"), by_spark(spark, data, "inner")
    assert [row[1].microsecond for row in wanted] == [1000]
    assert sorted(row[1].microsecond for row in found) == [0, 1000]


def test_the_delay_is_the_watermarks(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    told = explained(ported(spark, data, "inner"), capsys)
    assert "i: unbounded on impressionTime, delay 10 seconds (its frame's watermark)\n" in told
    assert "c: unbounded on clickTime, delay 20 seconds (its frame's watermark)\n" in told
    assert "c: unbounded on clickTime, delay 3 seconds\n" in explained(
        ported(spark, data, "inner", delay="3 s"), capsys
    )
    left = explained(ported(spark, data, "leftOuter"), capsys)
    assert "i: sliding 1 minute, inclusive on impressionTime (by conditions on event times), delay" in left
    one, two = (frame.withColumn("clickTime", F.col("clickTime")) for frame in frames(spark, data)[1:] * 2)
    renamed = one.select(F.col("clickTime").alias("at"), "clickAdId")
    joined = wm.join(
        wm.stream("a", renamed, time="AT"), wm.stream("b", two, time="clickTime"), where="a.at = b.clickTime"
    )
    assert [stream.delay for stream in joined.query.streams] == [20 * SECOND] * 2


def test_without_watermarks_and_windows_conditions_give_the_delay(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames(spark, tmp_path / "data")
    one, two = (stream_batches(spark, tmp_path / "data" / name) for name in ("impressions", "clicks"))

    def join(where: str) -> wm.Join:
        streams = wm.stream("i", one, time="impressionTime"), wm.stream("c", two, time="clickTime")
        return wm.join(*streams, where=where)

    assert "delay 1 minute (by conditions on event times)\n" in explained(join(NEAR), capsys)
    assert join("impressionTime < clickTime + interval 90 seconds").query.streams[0].delay == 90 * SECOND
    assert join("impressionTime < clickTime").query.streams[0].delay == 0
    assert join("impressionAdId = clickAdId").query.streams[0].delay == 0


def test_a_watermark_on_another_column_is_told(spark: SparkSession, tmp_path: Path) -> None:
    frame = frames(spark, tmp_path / "data")[0].withColumn("shown", F.expr("impressionTime + interval 1 second"))
    with pytest.warns(wm.DefinitionWarning, match="has a watermark on 'impressionTime', and its time is 'shown', so"):
        wm.stream("i", frame, time="shown")
    wm.stream("i", frame, time="shown", delay="5 seconds")


def test_checkpoints_keep_their_delay_unless_another_is_written(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint of an earlier version has the delay that was the default then."""
    data = tmp_path / "data"
    run(ported(spark, data, "inner", delay="0 seconds"), data, "old")
    with caplog.at_level(logging.WARNING, "watersmeet"):
        query = run(ported(spark, data, "inner"), data, "old")
    assert query._join.query.streams[1].delay == 0
    said = [r.message for r in caplog.records if "keeps the delay of its checkpoint" in r.message]
    assert said == [
        "Stream 'c' keeps the delay of its checkpoint, 0 seconds: by its frame's watermark it would now be 20 seconds. "
        "For that, start with a new checkpoint."
    ]
    with pytest.raises(wm.DefinitionError, match="delay of 'c' was '0 s' and is now '7 s'"):
        run(ported(spark, data, "inner", delay="7 seconds"), data, "old")


def test_checkpoints_keep_a_wider_window_than_conditions_now_give(spark: SparkSession, tmp_path: Path) -> None:
    """Earlier versions took less than a minute for at most a minute."""
    frames(spark, tmp_path / "data")
    one, two = (stream_batches(spark, tmp_path / "data" / name) for name in ("impressions", "clicks"))

    def join(**window: Any) -> wm.Join:
        streams = (
            wm.stream("i", one, time="impressionTime", ahead=None, **window),
            wm.stream("c", two, time="clickTime"),
        )
        where = "clickAdId = impressionAdId AND clickTime < impressionTime + interval 1 minute"
        return wm.join(*streams, where=where, how={"c": "anti"}, select="i.impressionAdId")

    assert join().query.streams[0].window.describe() == "sliding 1 minute"
    for name, window in (("old", {"window": "60000001 microseconds", "delay": "60000001 microseconds"}), ("new", {})):
        run(join(**window), tmp_path, name)
    query = run(join(), tmp_path, "old")
    assert query._join.query.streams[0].window.notation == "sliding 60.000001 s"
    one_result, other = (Counter(spark.read.parquet(str(tmp_path / name)).collect()) for name in ("old", "new"))
    assert one_result == other and other
    with pytest.raises(wm.DefinitionError, match=r"window of 'i' was 'sliding 60\.000001 s' and is now 'sliding 61 s'"):
        run(join(window="61 seconds"), tmp_path, "old")


def test_buckets_by_sparks_window_are_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    one, two = frames(spark, tmp_path / "data")
    streams = wm.stream("i", one, time="impressionTime"), wm.stream("c", two, time="clickTime")
    with pytest.raises(
        wm.SqlError, match=r"window\(\.\.\) can't be compared between streams; give both window=wm.tumbl"
    ):
        wm.join(*streams, where="window(impressionTime, '10 minutes') = window(clickTime, '10 minutes')")
