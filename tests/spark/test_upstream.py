"""What the frame of a stream may do before the join: stateful operators, and types that Spark has turned off."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import watersmeet as wm
from watersmeet.workload import numbers, write

pytestmark = pytest.mark.spark
SCHEMA = "id long, ts timestamp, x double"
WATERMARK = r"put \.withWatermark\(time column, delay\) before it"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("upstream")
    for seed, name in enumerate("abc"):
        write(numbers(2, 60, np.random.default_rng(seed), high=100), made / name, seconds_per_file=20)
    return made


def last_maxima(frame: DataFrame) -> DataFrame:
    """An aggregation, whose groups are complete once the watermark has passed them."""
    windows = frame.withWatermark("ts", "5 seconds").groupBy(F.window("ts", "10 seconds"))
    return windows.agg(F.max("x").alias("x")).select(F.col("window.end").alias("ts"), "x")


def once(frame: DataFrame) -> DataFrame:
    return frame.union(frame).dropDuplicates(["id"]).select("ts", "x")


def paired(frame: DataFrame, other: DataFrame) -> DataFrame:
    both = frame.alias("p").join(other.alias("q"), F.expr("p.id = q.id"))
    return both.select(F.col("p.ts").alias("ts"), F.col("q.x").alias("x"))


def test_stateful_operators_before_a_join(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    def make_join(read: Callable[[str], DataFrame], complete: str = "true") -> wm.Join:
        frames = {
            "a": last_maxima(read("a")).where(complete),
            "b": once(read("b")),
            "c": paired(read("c"), read("a")),
        }
        streams = [wm.stream(name, frame, time="ts", window="1 hour") for name, frame in frames.items()]
        return wm.join(*streams, where="a.x < b.x AND b.x < c.x", select="a.x AS a, b.x AS b, c.x AS c")

    def streaming(name: str) -> DataFrame:
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{name}")

    def static(name: str) -> DataFrame:
        return spark.read.schema(SCHEMA).parquet(f"{folder}/{name}")

    where = {"path": f"{tmp_path}/out", "checkpointLocation": f"{tmp_path}/state"}
    query = make_join(streaming).writeStream.format("parquet").options(**where).trigger(availableNow=True).start()
    query.awaitTermination()
    latest = static("a").selectExpr("max(ts) - interval 5 seconds AS mark").first()
    assert latest is not None
    wanted = make_join(static, f"ts <= timestamp'{latest.mark}'").toDF().collect()
    assert len(wanted) > 50
    assert Counter(spark.read.parquet(f"{tmp_path}/out").collect()) == Counter(wanted)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a, b: a.groupBy("ts").agg(F.max("x").alias("x")), f"an aggregation needs a watermark, .*; {WATERMARK}"),
        (
            lambda a, b: a.withWatermark("ts", "5 seconds").groupBy("x").agg(F.max("ts").alias("ts")),
            "an aggregation needs a watermark, .*, and group by that column or by a window of it",
        ),
        (lambda a, b: a.dropDuplicatesWithinWatermark(["id"]), f"dropDuplicatesWithinWatermark needs .*; {WATERMARK}"),
        (lambda a, b: a.join(b.select("id"), "id", "left"), "an outer join of two streams needs a watermark on each"),
        (lambda a, b: a.orderBy("ts"), "a stream can't be sorted; leave out orderBy"),
        (lambda a, b: a.selectExpr("ts", "x", "rank() OVER (ORDER BY ts) AS r"), "Window function is not supported"),
    ],
)
def test_what_spark_can_not_run_is_told_before_the_start(
    spark: SparkSession, folder: Path, change: Any, said: str
) -> None:
    a, b = (spark.readStream.schema(SCHEMA).parquet(f"{folder}/{name}") for name in "ab")
    with pytest.raises(wm.DefinitionError, match=f"^Stream 'p' can't be run as a stream: {said}"):
        wm.stream("p", change(a, b), time="ts")
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    try:
        wm.stream("p", change(a, b), time="ts")
    finally:
        spark.conf.unset("spark.sql.streaming.unsupportedOperationCheck")


def test_punctuations_that_spark_can_not_run(spark: SparkSession, folder: Path) -> None:
    a, b = (spark.readStream.schema(SCHEMA).parquet(f"{folder}/{name}") for name in "ab")
    ends = wm.punctuations(frame=b.groupBy("id").agg(F.max("ts").alias("ts")), time="ts", on="id")
    streams = wm.stream("a", a, time="ts", punctuations=ends), wm.stream("b", b, time="ts", window="1 hour")
    with pytest.raises(wm.DefinitionError, match="Punctuations of stream 'a': their frame can't be run as a stream"):
        wm.join(*streams, where="a.id = b.id")


@pytest.mark.skipif(not hasattr(T, "TimeType"), reason="this Spark has no TIME")
def test_times_of_day_that_spark_has_turned_off(spark: SparkSession) -> None:
    kind = T.StructType([T.StructField("opens", T.TimeType()), T.StructField("ts", T.TimestampType())])
    nested = T.StructType([T.StructField("shop", T.ArrayType(kind)), T.StructField("ts", T.TimestampType())])
    said = r"has a column '{}' of type TIME, .* turned off: spark.conf.set\('spark.sql.timeType.enabled', 'true'\)"
    with pytest.raises(wm.DefinitionError, match="Stream 'a' " + said.format("opens")):
        wm.stream("a", spark.createDataFrame([], kind), time="ts")
    with pytest.raises(wm.DefinitionError, match="Table 'z' " + said.format("shop")):
        wm.table("z", spark.createDataFrame([], nested))
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        wm.stream("a", spark.createDataFrame([], kind), time="ts")
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")
