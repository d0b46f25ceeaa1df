"""How a batch's job runs on Spark: one function per exchange, all with the same result."""

from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.engine.plan import BatchPlan
from watersmeet.engine.report import TaskReport
from watersmeet.engine.ship import Wire
from watersmeet.limits import limits
from watersmeet.spark import driver as small
from watersmeet.spark import tasks
from watersmeet.spark.frames import spark_schema

_warm: set[tuple[str, str]] = set()
"""What was made ready already, by the application it was made ready in."""


def driver(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a small batch in the driver's process, any other as `local` does; tasks are made ready as batches grow."""
    done = small.run(batch, plan)
    if done is None:
        return local(batch, plan)
    if done[0].seconds > limits().driver_seconds / 2:
        warm_up(batch.sparkSession, "local")
    return done


def local(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch where all tasks see the store on one host: write chunks, one small shuffle, all hops in one task.

    What is shuffled is only the news of which chunks were written; rows are read from the memory-mapped chunks.
    """
    shares = batch.sparkSession.sparkContext.defaultParallelism
    probed = _told(batch, plan, shares).mapInArrow(tasks.join(plan, shares), tasks.REPORT_DDL)
    return tasks.outcome(row.body for row in probed.collect())


def shuffle(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch with partial results sent from hop to hop by Spark's shuffle; hops that need none run in one task.

    New rows reach the nodes that they visit first through the store.
    """
    nodes, last = plan.placement.nodes, plan.stages - 1
    wire = spark_schema(Wire(plan.query, plan.placement.tracked).schema)
    frame = _told(batch, plan, nodes)
    for hop in range(last):
        frame = frame.mapInArrow(tasks.relay(plan, hop), wire).repartitionById(nodes, F.col("node"))
    done = frame.mapInArrow(tasks.last_relay(plan, last), tasks.REPORT_DDL)
    return tasks.outcome(row.body for row in done.collect())


def _told(batch: DataFrame, plan: BatchPlan, receivers: int) -> DataFrame:
    """Return the reports of the intake tasks, for each of the tasks that follow."""
    told = _compact(batch).mapInArrow(tasks.intake(plan, receivers), tasks.REPORT_DDL)
    return told.repartitionById(receivers, F.col("node"))


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
    first = none.mapInArrow(tasks.warm_up, tasks.REPORT_DDL).repartitionById(slots, F.col("node"))
    first.mapInArrow(tasks.warm_up, tasks.REPORT_DDL).collect()


def _compact(batch: DataFrame) -> DataFrame:
    """Return a batch in no more partitions than run at once: a task that starts Python costs more than a few rows."""
    return batch.coalesce(batch.sparkSession.sparkContext.defaultParallelism)


EXCHANGES: dict[str, Callable[[DataFrame, BatchPlan], list[TaskReport]]] = {
    "driver": driver,
    "local": local,
    "shuffle": shuffle,
}
