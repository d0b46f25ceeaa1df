"""How a batch's job runs on Spark: one function per exchange, all with the same result."""

from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.engine.plan import BatchPlan
from watersmeet.engine.probe import TaskReport
from watersmeet.engine.ship import Wire
from watersmeet.spark import driver as small
from watersmeet.spark import tasks
from watersmeet.spark.frames import spark_schema


def driver(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a small batch in the driver's process, any other as `local` does."""
    return small.run(batch, plan) or local(batch, plan)


def local(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch where all tasks see the store on one host: write chunks, one small shuffle, all hops in one task.

    What is shuffled is only the news of which chunks were written; rows are read from the memory-mapped chunks.
    """
    told = _told(batch, plan)
    return tasks.outcome(row.body for row in told.mapInArrow(tasks.probe(plan), tasks.REPORT_DDL).collect())


def shuffle(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch with partial results sent from hop to hop by Spark's shuffle; hops that need none run in one task.

    New rows reach the nodes that they visit first through the store.
    """
    nodes, last = plan.placement.nodes, plan.stages - 1
    wire = spark_schema(Wire(plan.query, plan.placement.tracked).schema)
    frame = _told(batch, plan)
    for hop in range(last):
        frame = frame.mapInArrow(tasks.relay(plan, hop), wire).repartitionById(nodes, F.col("node"))
    done = frame.mapInArrow(tasks.last_relay(plan, last), tasks.REPORT_DDL)
    return tasks.outcome(row.body for row in done.collect())


def _told(batch: DataFrame, plan: BatchPlan) -> DataFrame:
    """Return the reports of the intake tasks, for every node."""
    return (
        _compact(batch)
        .mapInArrow(tasks.intake(plan), tasks.REPORT_DDL)
        .repartitionById(plan.placement.nodes, F.col("node"))
    )


def warm_up(spark: SparkSession) -> None:
    """Start the Python workers in the background, by a job shaped like a batch's: Spark plans the stream meanwhile."""
    slots = spark.sparkContext.defaultParallelism

    def run() -> None:
        none = spark.range(0, slots, 1, slots).select(F.lit(0).alias("node"), F.lit(b"").alias("body"))
        first = none.mapInArrow(tasks.warm_up, tasks.REPORT_DDL).repartitionById(slots, F.col("node"))
        with suppress(Exception):  # whatever is wrong, the first batch will say it
            first.mapInArrow(tasks.warm_up, tasks.REPORT_DDL).collect()

    Thread(target=run, name="watersmeet-warm-up", daemon=True).start()


def _compact(batch: DataFrame) -> DataFrame:
    """Return a batch in no more partitions than run at once: a task that starts Python costs more than a few rows."""
    return batch.coalesce(batch.sparkSession.sparkContext.defaultParallelism)


EXCHANGES: dict[str, Callable[[DataFrame, BatchPlan], list[TaskReport]]] = {
    "driver": driver,
    "local": local,
    "shuffle": shuffle,
}
