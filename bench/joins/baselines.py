"""The competitors: what one does today with Spark alone.

All join streams a, b and c with 10 s windows (no two members 10 s apart or more) under a predicate between a and b and
one between b and c, and write the three ids to Parquet. They stream one file of each input a trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import pandas_udf

from bench.common import STREAMS, WINDOW, Task
from watersmeet.workload import similar


@dataclass(frozen=True, slots=True)
class Competitor:
    """A way to do the join in Spark, with the settings under which it was found fastest."""

    join: Callable[[SparkSession, Task], None]
    settings: Mapping[str, str]


def stream(spark: SparkSession, files: Path, name: str) -> DataFrame:
    """One input, a file a trigger, its columns prefixed by the stream's name.

    The files are in order of time, so a watermark without delay loses nothing and frees state soonest.
    """
    folder = str(files / name)
    schema = spark.read.parquet(folder).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
    return frame.toDF(*[f"{name}_{column}" for column in frame.columns]).withWatermark(f"{name}_ts", "0 seconds")


def near(left: str, right: str) -> Column:
    """Less than a window apart; written as ranges, from which Spark derives when state may go."""
    return f.expr(f"{left} > {right} - INTERVAL {WINDOW} SECONDS AND {left} < {right} + INTERVAL {WINDOW} SECONDS")


def plain_time(frame: DataFrame, column: str) -> DataFrame:
    """Turn an event time into microseconds: Spark refuses a third watermarked stream after two event times."""
    return frame.withColumn(column, f.unix_micros(column))


def within_plain(column: str, other: str) -> Column:
    """`near` for a time that `plain_time` turned into microseconds."""
    return f.expr(f"abs({column} - unix_micros({other})) < {WINDOW * 1_000_000}")


def finish(result: DataFrame, task: Task) -> None:
    """Stream the ids of the results to Parquet until the input is used up."""
    query = (
        result.select("a_id", "b_id", "c_id")
        .writeStream.format("parquet")
        .option("path", str(task.results))
        .option("checkpointLocation", str(task.out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def dummy_key(spark: SparkSession, task: Task) -> None:
    """Spark's own workaround: an equality on a constant, so all state and work is in one partition."""
    a, b, c = (stream(spark, task.files, name).withColumn(f"{name}_key", f.lit(1)) for name in STREAMS)
    band = "abs({} - {}) < " + repr(task.epsilon)
    ab = a.join(b, f.expr("a_key = b_key AND " + band.format("a_x", "b_x")) & near("a_ts", "b_ts"))
    ab = plain_time(ab, "b_ts").select("a_id", "a_ts", "b_id", "b_ts", "b_x", "b_key")
    on_bc = f.expr("b_key = c_key AND " + band.format("b_x", "c_x"))
    finish(ab.join(c, on_bc & near("a_ts", "c_ts") & within_plain("b_ts", "c_ts")), task)


def buckets(spark: SparkSession, task: Task) -> None:
    """The expert's workaround: equality of range buckets, a and c copied into the buckets left and right of theirs."""

    def bucket(column: str) -> str:
        return f"CAST(floor({column} / {task.epsilon!r}) AS BIGINT)"

    def copied(name: str) -> DataFrame:
        three = f"explode(sequence({bucket(f'{name}_x')} - 1, {bucket(f'{name}_x')} + 1))"
        return stream(spark, task.files, name).withColumn(f"{name}_key", f.expr(three))

    band = "abs({} - {}) < " + repr(task.epsilon)
    b = stream(spark, task.files, "b").withColumn("b_key", f.expr(bucket("b_x")))
    ab = copied("a").join(b, f.expr("a_key = b_key AND " + band.format("a_x", "b_x")) & near("a_ts", "b_ts"))
    ab = plain_time(ab, "b_ts").select("a_id", "a_ts", "b_id", "b_ts", "b_x", "b_key")
    on_bc = f.expr("b_key = c_key AND " + band.format("b_x", "c_x"))
    finish(ab.join(copied("c"), on_bc & near("a_ts", "c_ts") & within_plain("b_ts", "c_ts")), task)


def images_udf(spark: SparkSession, task: Task) -> None:
    """Image similarity with Spark alone: a join on a constant and the times, then a pandas UDF on every pair."""

    alike = pandas_udf(similar_pairs, "boolean")  # type: ignore[call-overload]
    a, b, c = (stream(spark, task.files, name).withColumn(f"{name}_key", f.lit(1)) for name in STREAMS)
    ab = a.join(b, f.expr("a_key = b_key") & near("a_ts", "b_ts")).where(alike("a_img", "b_img"))
    ab = plain_time(ab, "b_ts").select("a_id", "a_ts", "b_id", "b_ts", "b_img", "b_key")
    abc = ab.join(c, f.expr("b_key = c_key") & near("a_ts", "c_ts") & within_plain("b_ts", "c_ts"))
    finish(abc.where(alike("b_img", "c_img")), task)


def similar_pairs(xs: pd.Series, ys: pd.Series) -> pd.Series:
    """Whether each pair of images is similar: `watersmeet.workload.similar`, a pair at a time."""
    return pd.Series([similar(x, [y])[0] for x, y in zip(xs, ys, strict=True)])


# Settings tried, a run or two each on two shared cores, so small differences say little. State store: Spark's default.
# RocksDB with the newest format of join state (4) took as long for 100 tuples/s and a third longer for 1,000; formats 2
# and 3 took a third longer already for 100. Four partitions instead of two took longer. Smaller Arrow batches, and
# Arrow instead of pandas UDFs, cost about the same CPU time.
COMPETITORS = {
    "dummy-key": Competitor(dummy_key, {"spark.sql.shuffle.partitions": "1"}),
    "buckets": Competitor(buckets, {"spark.sql.shuffle.partitions": "2"}),
    "images-udf": Competitor(images_udf, {"spark.sql.shuffle.partitions": "1"}),
}
