"""Conditions over event times, however they are written, let state go by the watermark: through Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from watersmeet.testing import stream_batches, write_batches

pytestmark = pytest.mark.spark
SECOND = 1_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
BATCHES, EACH = 6, 20


def batches(shift: int) -> list[pa.Table]:
    """Twenty rows a batch, one a second; batches are a minute apart."""
    numbers = [range(EACH * batch, EACH * (batch + 1)) for batch in range(BATCHES)]
    times = [[(60 * batch + at) * SECOND + shift for at in range(EACH)] for batch in range(BATCHES)]
    kind = SCHEMA.field("ts").type
    return [
        pa.table({"id": pa.array(ids), "ts": pa.array(ts).cast(kind)}, schema=SCHEMA)
        for ids, ts in zip(numbers, times, strict=True)
    ]


@pytest.mark.parametrize(
    "where",
    one_in(
        2,
        [
            "b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS",
            "a.ts <= b.ts AND b.ts <= a.ts + INTERVAL 5 SECONDS",
            "b.ts >= a.ts AND b.ts - INTERVAL 5 SECONDS <= a.ts",
            "a.ts >= b.ts - INTERVAL '5' SECOND AND a.ts <= b.ts",
        ],
    ),
)
def test_state_goes_in_every_zone(spark: SparkSession, tmp_path: Path, where: str) -> None:
    state_goes(spark, tmp_path, where, "Europe/Berlin")


@pytest.mark.parametrize(
    "where",
    one_in(
        2,
        [
            "b.ts - a.ts BETWEEN INTERVAL 0 SECONDS AND INTERVAL 5 SECONDS",
            "a.ts <= b.ts AND b.ts - a.ts <= INTERVAL 5 SECONDS",
        ],
    ),
)
def test_state_goes_where_clocks_are_never_changed(spark: SparkSession, tmp_path: Path, where: str) -> None:
    """Elsewhere Spark takes the difference of local times, which says nothing of how far apart two moments are."""
    state_goes(spark, tmp_path, where, "UTC")


@pytest.mark.slow
def test_state_goes_beside_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of a table bring about no results, so that nothing waits for them, whether they are read again or not."""
    for name, shift in (("a", 0), ("b", SECOND // 2)):
        write_batches(tmp_path / name, batches(shift))
    frames = {name: stream_batches(spark, tmp_path / name) for name in "ab"}
    known = spark.createDataFrame([(id, str(id)) for id in range(EACH * BATCHES)], "id long, name string")
    a, b = (wm.stream(name, frame, time="ts", delay="1 second", ahead=None) for name, frame in frames.items())
    near = "b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS AND"
    for at, refresh in enumerate((False, True)):
        table = wm.table("t", known, refresh=refresh)
        both = wm.join(a, b, table, where=f"{near} a.id = t.id", select="t.name, b.id AS b")
        wanted = {(str(a), b) for a in range(EACH * BATCHES) for b in range(a, a + 5) if b // EACH == a // EACH}
        one = wm.join(a, table, where="a.id = t.id", select="a.id AS a, t.name")
        for number, (join, found, most) in enumerate([(both, wanted, 4), (one, {(i, str(i)) for i in range(120)}, 1)]):
            out = str(tmp_path / f"out{at}{number}")
            writer = join.writeStream.option("checkpointLocation", f"{out}-state").trigger(availableNow=True)
            query = writer.start(out)
            query.awaitTermination()
            assert {tuple(row) for row in spark.read.parquet(out).collect()} == found
            kept = query.progress[-1]["distinctRows"] - (0 if refresh else known.count())
            assert kept <= most * EACH, [p["distinctRows"] for p in query.progress]


def test_windows_of_outer_joins_beside_tables(spark: SparkSession, tmp_path: Path) -> None:
    for name, shift in (("a", 0), ("b", SECOND // 2)):
        write_batches(tmp_path / name, batches(shift))
    frames = {name: stream_batches(spark, tmp_path / name) for name in "ab"}
    known = spark.createDataFrame([(id, str(id)) for id in range(0, EACH * BATCHES, 2)], "id long, name string")
    a, b = (wm.stream(name, frame, time="ts", delay="1 second", ahead=None) for name, frame in frames.items())
    near = "b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS AND b.id > 30"
    join = wm.join(a, b, wm.table("t", known), where=f"{near} AND a.id = t.id", how={"b": "anti"}, select="t.name")
    query = join.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True)
    query.start(str(tmp_path / "out")).awaitTermination()
    found = {int(row.name) for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert found == {
        id for id in range(0, EACH * BATCHES, 2) if all(b // EACH != id // EACH or b <= 30 for b in range(id, id + 5))
    }


def state_goes(spark: SparkSession, tmp_path: Path, where: str, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for name, shift in (("a", 0), ("b", SECOND // 2)):
            write_batches(tmp_path / name, batches(shift))
        frames = {name: stream_batches(spark, tmp_path / name) for name in "ab"}
        streams = [wm.stream(name, frames[name], time="ts", delay="1 second", ahead=None) for name in "ab"]
        join = wm.join(*streams, where=where, select="a.id AS a, b.id AS b")
        out = str(tmp_path / "out")
        writer = join.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True)
        query = writer.start(out)
        query.awaitTermination()
        wanted = {(a, b) for a in range(EACH * BATCHES) for b in range(a, a + 5) if b // EACH == a // EACH}
        assert {tuple(row) for row in spark.read.parquet(out).collect()} == wanted
        assert query.progress[-1]["distinctRows"] <= 4 * EACH, [p["distinctRows"] for p in query.progress]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
