"""The exchanges: a batch's job as stages of tasks, whatever runs the stages."""

from abc import ABC, abstractmethod
from typing import Self, TypeVar

import pyarrow as pa

from watersmeet.engine.plan import BatchPlan
from watersmeet.engine.report import TaskReport
from watersmeet.exchange import tasks
from watersmeet.exchange.message import REPORT, Task, received
from watersmeet.exchange.wire import Wire

Kind = TypeVar("Kind", bound="Stage")


class Stage(ABC):
    """Blocks of rows in partitions, computed now or later."""

    @abstractmethod
    def run(self, task: Task, schema: pa.Schema) -> Self:
        """Return what a task makes of each partition, in blocks of a schema."""

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
    return received(told(input, plan, shares).run(tasks.join(plan, shares), REPORT).collect())


def hops(input: Stage, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch with partial results sent from hop to hop; hops that need not be apart run in one task.

    New rows reach the nodes that they visit first through the store.
    """
    nodes, last = plan.placement.nodes, plan.stages - 1
    wire = Wire(plan.query, plan.placement.tracked).schema
    stage = told(input, plan, nodes)
    for hop in range(last):
        stage = stage.run(tasks.relay(plan, hop), wire).dealt(nodes)
    return received(stage.run(tasks.last_relay(plan, last), REPORT).collect())


def told(input: Kind, plan: BatchPlan, receivers: int) -> Kind:
    """Return the reports of the intake tasks, for each of the tasks that follow."""
    return input.run(tasks.intake(plan, receivers), REPORT).dealt(receivers)
