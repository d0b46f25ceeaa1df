"""Whatever Spark takes as the session's time zone."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark import harness
from watersmeet.spark.sql.dialect import dialect_of

pytestmark = pytest.mark.spark


@pytest.fixture
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", "UTC")


ZONES = {
    "UTC": "UTC",
    "Etc/UTC": "Etc/UTC",
    "Etc/GMT+1": "Etc/GMT+1",
    "Europe/Berlin": "Europe/Berlin",
    "PST": "America/Los_Angeles",
    "EST": "GMT-05:00",
    "Z": "UTC",
    "UT": "UTC",
    "+1:00": "GMT+01:00",
    "-0330": "GMT-03:30",
    "GMT+1": "GMT+01:00",
    "UTC+2": "GMT+02:00",
    "+01:02:03": "GMT+01:02:03",
}


def test_zones_have_names_that_others_know(spark: SparkSession) -> None:
    try:
        for name, known in ZONES.items():
            spark.conf.set("spark.sql.session.timeZone", name)
            assert dialect_of(spark).time_zone == known
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


WHERE = (
    "hour(a.ts) = hour(b.ts) AND a.ts >= TIMESTAMP '2024-03-30 03:30:00' AND date_trunc('DAY', a.ts) <= b.ts "
    "AND b.ts <= a.ts + INTERVAL 1 DAY AND b.ts - a.ts < INTERVAL 25 HOURS"
)


@pytest.mark.parametrize("zone", one_in(3, ["Europe/Berlin", "Z", "EST", "+01:02:03"]), indirect=True)
def test_conditions_mean_what_they_do_in_spark(spark: SparkSession, zone: str) -> None:
    """Days of the calendar among them: clocks are changed in Berlin amid these rows."""
    start = datetime(2024, 3, 30, tzinfo=UTC)
    rows = [(n, start + timedelta(minutes=37 * n)) for n in range(90)]
    frame = spark.createDataFrame(rows, "id long, ts timestamp")
    joined = wm.join(*(wm.stream(name, frame, time="ts") for name in "ab"), where=WHERE, select="a.id AS a, b.id AS b")
    wanted = frame.alias("a").crossJoin(frame.alias("b")).where(WHERE).selectExpr("a.id AS a", "b.id AS b")
    found = joined.toDF().collect()
    assert sorted(found) == sorted(wanted.collect()) and found


@pytest.mark.parametrize("zone", ["+01:00"], indirect=True)
def test_a_stream_in_a_zone_that_is_an_offset(spark: SparkSession, zone: str, tmp_path: Path) -> None:
    harness.write(tmp_path / "in", harness.cuts(3, "ab", batches=2))
    frames = harness.frames(spark, tmp_path / "in", "ab")
    streams = [wm.stream(name, frames[name], time="ts", window="10 seconds") for name in "ab"]
    join = wm.join(*streams, where="hour(a.ts) = hour(b.ts)", select="a.ts AS one, b.id + 1 AS two, _time")
    query = harness.run(join.writeStream, tmp_path, "driver")
    assert sum(progress["outputRows"] for progress in query.progress) > 0
