"""How a batch's job runs on Spark: one function per exchange, all with the same result."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.engine.intake import IntakeReport
from watersmeet.engine.plan import BatchPlan
from watersmeet.engine.probe import TaskReport
from watersmeet.engine.ship import Wire
from watersmeet.spark import tasks
from watersmeet.spark.frames import spark_schema

Outcome = tuple[list[IntakeReport], list[TaskReport]]


def local(batch: DataFrame, plan: BatchPlan) -> Outcome:
    """Run a batch where all tasks see the store on one host: write chunks, one small shuffle, all hops in one task.

    What is shuffled is only the news of which chunks were written; rows are read from the memory-mapped chunks.
    """
    nodes = plan.placement.nodes
    told = _compact(batch).mapInArrow(tasks.intake(plan), tasks.REPORT_DDL).repartitionById(nodes, F.col("node"))
    return tasks.outcome(row.body for row in told.mapInArrow(tasks.probe(plan), tasks.REPORT_DDL).collect())


def shuffle(batch: DataFrame, plan: BatchPlan) -> Outcome:
    """Run a batch with a Spark shuffle before each hop; hops that need none run in one task."""
    nodes = plan.placement.nodes
    wire = spark_schema(Wire(plan.query).schema)
    last = 0 if plan.placement.stays() else len(plan.query.streams) - 2
    frame = _compact(batch).mapInArrow(tasks.diffuse(plan), wire).repartitionById(nodes, F.col("node"))
    for hop in range(last):
        frame = frame.mapInArrow(tasks.relay(plan, hop), wire).repartitionById(nodes, F.col("node"))
    done = frame.mapInArrow(tasks.last_relay(plan, last), tasks.REPORT_DDL)
    return tasks.outcome(row.body for row in done.collect())


def _compact(batch: DataFrame) -> DataFrame:
    """Return a batch in no more partitions than run at once: a task that starts Python costs more than a few rows."""
    return batch.coalesce(batch.sparkSession.sparkContext.defaultParallelism)


EXCHANGES: dict[str, Callable[[DataFrame, BatchPlan], Outcome]] = {"local": local, "shuffle": shuffle}
