"""The exchanges: a batch's job as stages of tasks, whatever runs the stages."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self, TypeVar

import pyarrow as pa

from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.errors import StateError
from watersmeet.exchange import tasks
from watersmeet.exchange.message import REPORT, Task, Wire, received
from watersmeet.exchange.ring_task import Connect, run_ring

Kind = TypeVar("Kind", bound="Stage")


class Stage(ABC):
    """Blocks of rows in partitions, computed now or later."""

    @abstractmethod
    def run(self, task: Task, schema: pa.Schema) -> Self:
        """Return what a task makes of each partition, in blocks of a schema."""

    def run_together(self, task: Task, schema: pa.Schema) -> Self:
        """Return what a task makes of each partition, with all tasks running at the same time."""
        return self.run(task, schema)

    @abstractmethod
    def dealt(self, partitions: int) -> Self:
        """Return the rows in so many partitions, each row in the one that its column `node` says."""

    @abstractmethod
    def collect(self) -> list[pa.RecordBatch]:
        """Compute all and return the blocks."""


def inline(input: Stage, plan: BatchPlan, shares: int) -> list[TaskReport]:
    """Run a batch where all tasks see the store on one host: write chunks, one small exchange, all hops in one task.

    What is exchanged is only the news of which chunks were written; rows are read from the memory-mapped chunks.

    Args:
        input: The batch's rows.
        plan: Its plan.
        shares: How many tasks join.
    """
    nodes, stage = plan.placement.nodes, told(input, plan, shares).run(tasks.join(plan, shares), REPORT)
    return complete(stage, [at % nodes for at in range(max(nodes, shares))])


def hops(input: Stage, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch with partial results sent from hop to hop; hops that need not be apart run in one task.

    New rows reach the nodes that they visit first through the store.
    """
    nodes, last = plan.placement.nodes, plan.stages - 1
    wire = Wire(plan.query, plan.placement.tracked).schema
    stage = told(input, plan, nodes)
    for hop in range(last):
        stage = stage.run(tasks.relay(plan, hop), wire).dealt(nodes)
    return complete(stage.run(tasks.last_relay(plan, last), REPORT), range(nodes))


def ring(input: Stage, plan: BatchPlan, shares: int, connect: Connect) -> list[TaskReport]:
    """Run a batch on a ring of nodes: new rows are stored, then tasks that run at the same time pass tuples round.

    Args:
        input: The batch's rows.
        plan: Its plan.
        shares: How many tasks host the nodes, at most one for each.
        connect: Links a task to those of the neighbouring nodes.
    """
    stage = told(input, plan, shares).run_together(run_ring(plan, shares, connect), REPORT)
    return complete(stage, range(plan.placement.nodes))


def complete(stage: Stage, nodes: Iterable[int]) -> list[TaskReport]:
    """Run the last stage of a job and return the reports of its tasks.

    [!] Every task reports, even if it has found nothing: a report that got lost on its way must not pass for an empty
    one, since the results and chunks that it names would be lost with it.

    Args:
        stage: The stage.
        nodes: The nodes that its tasks report for, each as often as there are reports for it.

    Raises:
        StateError: If one is missing.
    """
    reports: list[TaskReport] = received(stage.collect())
    wanted = sorted(nodes)
    if sorted(report.node for report in reports) != wanted:
        raise StateError(
            f"Only {len(reports)} of {len(wanted)} reports of tasks came to the driver: an earlier error in its log, "
            "such as OutOfMemoryError, says why; start again once that is fixed."
        )
    return reports


def told(input: Kind, plan: BatchPlan, receivers: int) -> Kind:
    """Return the reports of the intake tasks, for each of the tasks that follow."""
    return input.run(tasks.intake(plan, receivers), REPORT).dealt(receivers)
