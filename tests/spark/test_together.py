"""Features that meet in one join: a table, an optional stream, conditions as columns, ids."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.budget import one_in
from watersmeet.testing import stream_batches, write_batches

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def rows(*given: tuple[int, int, str]) -> pa.Table:
    ids, seconds, zones = zip(*given, strict=True)
    times = pa.array([NOON + timedelta(seconds=at) for at in seconds], pa.timestamp("us", "UTC"))
    return pa.table({"id": ids, "ts": times, "zone": zones})


@pytest.mark.spark
@pytest.mark.parametrize(
    ("optional", "how", "expected"),
    one_in(
        2,
        [
            ("zones", "left", {(3, 11, "z"), (4, 12, "x"), (2, 10, None)}),
            ("zones", "anti", {(2, 10)}),
            ("b", "left", {(3, 11, "z"), (1, None, "x"), (4, 12, "x")}),
        ],
        unpack=True,
    ),
)
def test_a_table_and_an_optional_stream(
    spark: SparkSession, tmp_path: Path, optional: str, how: Any, expected: set[Any]
) -> None:
    write_batches(tmp_path / "a", [rows((1, 0, "x"), (2, 5, "y")), rows((3, 30, "z")), rows((4, 100, "x"))])
    write_batches(tmp_path / "b", [rows((10, 1, "x")), rows((11, 31, "q")), rows((12, 101, "x"))])
    a, b = (
        wm.stream(name, stream_batches(spark, tmp_path / name), time="ts", window="10 seconds", delay="2 seconds")
        for name in "ab"
    )
    zones = wm.table("zones", spark.createDataFrame([("x", 7), ("z", 9)], "zone string, n int"))
    where = (a.zone == zones.zone) & (F.abs(a.id - b.id) < 9)
    join = wm.join(a, b, zones, where=where, how={optional: how}, identity=True, strategy=wm.PSP(2))
    writer = join.writeStream.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
    writer.start(str(tmp_path / "out")).awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    shown = {"a": "id", "b": "id", "zones": "zone"}
    kept = [name for name in shown if not (name == optional and how == "anti")]
    assert found[0].asDict().keys() == {*kept, "_time", "_id"} and len({row["_id"] for row in found}) == len(expected)
    assert {tuple(row[name] and row[name][shown[name]] for name in kept) for row in found} == expected
