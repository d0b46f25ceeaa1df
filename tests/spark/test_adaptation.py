"""Joins that change while they run, through real Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.harness import Case, cuts, expected, frames, join_of, results, write
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark

PAIR = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(41, "ab", batches=5, nulls=0),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)


def test_a_join_that_cannot_keep_up_is_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "in", PAIR.batches)
    joined = join_of(PAIR, frames(spark, tmp_path / "in", "ab"), strategy=wm.PSP(2))
    writer = joined.writeStream.trigger(processingTime="1 millisecond").option("exchange", "shuffle")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert results(tmp_path, "ab") == expected(PAIR).results
    assert [p.get("overload", {}).get("batches") for p in query.progress] == [None, None, 3, 4, 5]
    (record,) = caplog.records
    assert record.getMessage().startswith("The last 3 batches took longer than the trigger's 0.001 s, the last one ")
