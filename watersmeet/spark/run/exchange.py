"""How a batch's job runs on Spark: the exchanges over Spark's own stages, all with the same result."""

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.exchange.message import REPORT, Task
from watersmeet.exchange.stages import Stage, hops, inline
from watersmeet.limits import limits
from watersmeet.spark.run import driver as small
from watersmeet.spark.run import tasks
from watersmeet.spark.run.fetch import fetch_all
from watersmeet.spark.run.frames import spark_schema

_warm: set[tuple[str, str]] = set()
"""What was made ready already, by the application it was made ready in."""


def driver(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a small batch in the driver's process, any other as `local` does; tasks are made ready as batches grow."""
    done = small.run(batch, plan)
    if done is None:
        return local(batch, plan)
    if done[0].work.seconds > limits().driver_seconds / 2:
        warm_up(batch.sparkSession, "local")
    return done


def local(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch where all tasks see the store on one host: no row is shuffled."""
    return inline(_input(batch), plan, batch.sparkSession.sparkContext.defaultParallelism)


def shuffle(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch with partial results sent from hop to hop by Spark's shuffle."""
    return hops(_input(batch), plan)


class SparkStage(Stage):
    """Blocks that Spark computes."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame

    def run(self, task: Task, schema: pa.Schema) -> Self:
        """Return what a task makes of each partition."""
        return type(self)(self.frame.mapInArrow(tasks.on_spark(task), spark_schema(schema)))

    def dealt(self, partitions: int) -> Self:
        """Return the rows in the partitions that they name: by a shuffle."""
        return type(self)(self.frame.repartitionById(partitions, F.col("node")))

    def collect(self) -> list[pa.RecordBatch]:
        """Run the job."""
        return list(fetch_all(self.frame).to_batches())


def _input(batch: DataFrame) -> SparkStage:
    """Return a batch in no more partitions than run at once: a task that starts Python costs more than a few rows."""
    return SparkStage(batch.coalesce(batch.sparkSession.sparkContext.defaultParallelism))


def warm_up(spark: SparkSession, exchange: str) -> None:
    """Let Spark learn in the background what the first batch will ask of it: it plans the stream meanwhile."""
    run = _first_rows if exchange == "driver" else _first_tasks
    known = (spark.sparkContext.applicationId, run.__name__)
    if known in _warm:
        return
    _warm.add(known)

    def quietly() -> None:
        with suppress(Exception):  # whatever is wrong, the first batch will say it
            run(spark)

    Thread(target=quietly, name="watersmeet-warm-up", daemon=True).start()


def _first_rows(spark: SparkSession) -> None:
    """Fetch a row as the driver fetches small batches."""
    kinds = ("cast(id AS byte)", "cast(id AS double)", "cast(id AS timestamp)", "xxhash64(id)")
    spark.range(0, 1, 1, 1).selectExpr("id", *kinds).coalesce(1).limit(1).toArrow()


def _first_tasks(spark: SparkSession) -> None:
    """Start the Python workers, by a job shaped like a batch's."""
    slots = spark.sparkContext.defaultParallelism
    none = spark.range(0, slots, 1, slots).select(F.lit(0).alias("node"), F.lit(b"").alias("body"))
    first = none.mapInArrow(tasks.warm_up, spark_schema(REPORT)).repartitionById(slots, F.col("node"))
    fetch_all(first.mapInArrow(tasks.warm_up, spark_schema(REPORT)))


EXCHANGES: dict[str, Callable[[DataFrame, BatchPlan], list[TaskReport]]] = {
    "driver": driver,
    "local": local,
    "shuffle": shuffle,
}
