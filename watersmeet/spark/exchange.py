"""How a batch's job runs on Spark: one function per exchange, all with the same result."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.engine.intake import IntakeReport
from watersmeet.engine.plan import BatchPlan
from watersmeet.engine.probe import TaskReport
from watersmeet.spark import tasks

Outcome = tuple[list[IntakeReport], list[TaskReport]]


def local(batch: DataFrame, plan: BatchPlan) -> Outcome:
    """Run a batch where all tasks see the store on one host: write chunks, one small shuffle, all hops in one task.

    What is shuffled is only the news of which chunks were written; rows are read from the memory-mapped chunks.
    """
    nodes = plan.placement.nodes
    told = batch.mapInArrow(tasks.intake(plan), tasks.REPORT_DDL).repartitionById(nodes, F.col("node"))
    return tasks.outcome(row.body for row in told.mapInArrow(tasks.probe(plan), tasks.REPORT_DDL).collect())


EXCHANGES: dict[str, Callable[[DataFrame, BatchPlan], Outcome]] = {"local": local}
