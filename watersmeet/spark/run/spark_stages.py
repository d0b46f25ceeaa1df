"""How a batch's job runs on Spark: exchanges over Spark's own stages, all with the same results."""

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Self

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.errors import StateError
from watersmeet.exchange.exchanges import Stage, run_local, run_ring, run_shuffle
from watersmeet.exchange.message import REPORT, Task
from watersmeet.limits import limits
from watersmeet.spark.run.driver import fetch_all, run_if_small
from watersmeet.spark.run.frames import is_local, spark_schema
from watersmeet.spark.run.ring_links import Rendezvous
from watersmeet.spark.run.workers import import_modules, spark_task

_warm: set[tuple[str, str]] = set()
"""The warm-up jobs that have run, each with its application."""


def run_in_driver(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a small batch in the driver's process, any other as `local`; return the reports of its tasks.

    Once batches take longer, warms up the workers that will be needed.
    """
    reports = run_if_small(batch, plan)
    if reports is None:
        return run_locally(batch, plan)
    if reports[0].work.seconds > limits().driver_seconds / 2:
        warm_up(batch.sparkSession, "local")
    return reports


def run_locally(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch where all tasks see the store on one host: no row is shuffled."""
    return run_local(_input(batch), plan, batch.sparkSession.sparkContext.defaultParallelism)


def run_by_shuffle(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch with partial results sent from hop to hop by Spark's shuffle."""
    return run_shuffle(_input(batch), plan)


def run_on_ring(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch on a ring of nodes, hosted by as many tasks as run at once.

    Raises:
        StateError: If no task can run.
    """
    context = batch.sparkSession.sparkContext
    tasks = min(plan.placement.nodes, _count_slots(context))
    if not tasks:
        raise StateError(
            "The ring exchange needs a slot for a task, and no executor has one; start one, and the query."
        )
    address = "127.0.0.1" if is_local(batch.sparkSession) else str(context.getConf().get("spark.driver.host"))
    with Rendezvous(address, tasks) as meeting:
        return run_ring(_input(batch), plan, tasks, meeting.connect)


def _count_slots(context: SparkContext) -> int:
    """Return how many tasks run at the same time at most, as Spark counts them before it starts a barrier stage."""
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


class SparkStage(Stage):
    """Blocks that Spark computes."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame

    def run(self, task: Task, schema: pa.Schema) -> Self:
        """Return the output of a task over each partition."""
        return type(self)(self.frame.mapInArrow(spark_task(task), spark_schema(schema)))

    def run_together(self, task: Task, schema: pa.Schema) -> Self:
        """Return the output of a task over each partition, all of which run at once: a barrier stage."""
        return type(self)(self.frame.mapInArrow(spark_task(task), spark_schema(schema), barrier=True))

    def partition_by_node(self, partitions: int) -> Self:
        """Shuffle rows to the partitions that they name."""
        return type(self)(self.frame.repartitionById(partitions, F.col("node")))

    def collect(self) -> list[pa.RecordBatch]:
        """Run the job."""
        return list(fetch_all(self.frame).to_batches())


def _input(batch: DataFrame) -> SparkStage:
    """Return a batch in no more partitions than run at once: starting Python for a task costs more than a few rows."""
    return SparkStage(batch.coalesce(batch.sparkSession.sparkContext.defaultParallelism))


def warm_up(spark: SparkSession, exchange: str) -> None:
    """Start a job in a background thread that warms Spark up for the first batch, while it plans the stream.

    Each kind of job runs once an application; its errors are ignored.

    Args:
        spark: The session.
        exchange: How batches run: those of `driver` need no workers at first.
    """
    run = _fetch_row if exchange == "driver" else _start_workers
    job = (spark.sparkContext.applicationId, run.__name__)
    if job in _warm:
        return
    _warm.add(job)

    def run_quietly() -> None:
        with suppress(Exception):  # the first batch will report whatever is wrong
            run(spark)

    Thread(target=run_quietly, name="watersmeet-warm-up", daemon=True).start()


def _fetch_row(spark: SparkSession) -> None:
    """Fetch a row as the driver fetches small batches."""
    kinds = ("cast(id AS byte)", "cast(id AS double)", "cast(id AS timestamp)", "xxhash64(id)")
    spark.range(0, 1, 1, 1).selectExpr("id", *kinds).coalesce(1).limit(1).toArrow()


def _start_workers(spark: SparkSession) -> None:
    """Start the Python workers by a job shaped like a batch's."""
    slots = spark.sparkContext.defaultParallelism
    rows = spark.range(0, slots, 1, slots).select(F.lit(0).alias("node"), F.lit(b"").alias("body"))
    intake = rows.mapInArrow(import_modules, spark_schema(REPORT)).repartitionById(slots, F.col("node"))
    fetch_all(intake.mapInArrow(import_modules, spark_schema(REPORT)))


EXCHANGES: dict[str, Callable[[DataFrame, BatchPlan], list[TaskReport]]] = {
    "driver": run_in_driver,
    "local": run_locally,
    "shuffle": run_by_shuffle,
    "ring": run_on_ring,
}
"""How a batch's job runs, by the name of the exchange; `Exchange` in `checks.py` lists the same names."""
