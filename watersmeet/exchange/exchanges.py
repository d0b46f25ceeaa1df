"""The exchanges: each runs a batch's job as stages of tasks, on anything that can run stages."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self, TypeVar

import pyarrow as pa

from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.errors import StateError
from watersmeet.exchange import tasks
from watersmeet.exchange.message import REPORT, Task, Wire, read_reports
from watersmeet.exchange.ring_task import Connect, ring_task

Kind = TypeVar("Kind", bound="Stage")


class Stage(ABC):
    """Blocks of rows in partitions, computed eagerly or lazily."""

    @abstractmethod
    def run(self, task: Task, schema: pa.Schema) -> Self:
        """Return the output of a task over each partition, in blocks of a schema."""

    def run_together(self, task: Task, schema: pa.Schema) -> Self:
        """Return what a task makes of each partition, with all tasks running at the same time."""
        return self.run(task, schema)

    @abstractmethod
    def partition_by_node(self, partitions: int) -> Self:
        """Return the rows in this many partitions, each row in the one that its column `node` names."""

    @abstractmethod
    def collect(self) -> list[pa.RecordBatch]:
        """Compute and return all blocks."""


def run_local(input: Stage, plan: BatchPlan, shares: int) -> list[TaskReport]:
    """Run a batch on one host, where all tasks see the store: intake, one small exchange, then all hops in one task.

    Return the reports of all nodes; errors are as in `complete`.

    Only the intake reports are exchanged, which name the new chunks; rows are read from the memory-mapped chunks.

    Args:
        input: The batch's rows.
        plan: Its plan.
        shares: How many tasks run hops.
    """
    nodes, stage = plan.placement.nodes, run_intake(input, plan, shares).run(tasks.join(plan, shares), REPORT)
    return complete(stage, [number % nodes for number in range(max(nodes, shares))])  # shares beyond as in `Node`


def run_shuffle(input: Stage, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch with partial results sent from hop to hop; the last stage runs all hops that need no travel.

    New rows reach the nodes of their first hop through the store. Return the reports of all nodes; errors are as in
    `complete`.
    """
    nodes, last = plan.placement.nodes, plan.stages - 1
    wire = Wire(plan.query, plan.placement.tracked).schema
    stage = run_intake(input, plan, nodes)
    for hop in range(last):
        stage = stage.run(tasks.relay(plan, hop), wire).partition_by_node(nodes)
    return complete(stage.run(tasks.last_relay(plan, last), REPORT), range(nodes))


def run_ring(input: Stage, plan: BatchPlan, shares: int, connect: Connect) -> list[TaskReport]:
    """Run a batch on a ring of nodes: new rows are stored, then tasks that run at the same time pass tuples round.

    Return the reports of all nodes; errors are as in `complete`.

    Args:
        input: The batch's rows.
        plan: Its plan.
        shares: How many tasks host the nodes, at most one for each.
        connect: Links a task to those of the neighbouring nodes.
    """
    stage = run_intake(input, plan, shares).run_together(ring_task(plan, shares, connect), REPORT)
    return complete(stage, range(plan.placement.nodes))


def complete(stage: Stage, nodes: Iterable[int]) -> list[TaskReport]:
    """Run the last stage of a job and return the reports of its tasks.

    [!] Every task reports, even if it found nothing: a lost report must not pass for an empty one, since the results
    and chunks that it names would be lost with it.

    Args:
        stage: The stage.
        nodes: The nodes that its tasks report for, each as often as it has reports.

    Raises:
        StateError: If a report is missing.
        WatersmeetError: The first error that a task reported.
    """
    reports: list[TaskReport] = read_reports(stage.collect())
    expected = sorted(nodes)
    if sorted(report.node for report in reports) != expected:
        raise StateError(
            f"Only {len(reports)} of {len(expected)} reports of tasks reached the driver: an earlier error in its log, "
            "such as OutOfMemoryError, says why; start again once that is fixed."
        )
    return reports


def run_intake(input: Kind, plan: BatchPlan, receivers: int) -> Kind:
    """Return the stage of intake: it stores the input, and sends the reports to each of the tasks that follow."""
    return input.run(tasks.intake(plan, receivers), REPORT).partition_by_node(receivers)
