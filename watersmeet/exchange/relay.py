"""Hops as separate tasks: each probes the chunks of its node, and ships what it finds to the next hop's nodes.

Everything that a later task must know, the chunks written in this batch among it, travels with the data: a task reads
the chunks of the attempt whose output it consumes.
"""

import mmap
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.batch.intake import IntakeReport
from watersmeet.batch.node import Clock, JoinTask, Worker
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.exchange.message import RESULTS
from watersmeet.exchange.wire import Wire
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import Partials, regroup


@dataclass(slots=True)
class News:
    """What a task tells the next hop's task of the same node."""

    intakes: list[IntakeReport] = field(default_factory=list)
    report: TaskReport | None = None


class Relay:
    """One hop's task on one node; where partial results stay from then on, all later hops as well.

    Args:
        plan: The batch's plan.
        hop: The hop, from 0.
        node: The node.
        name: Unique to this task attempt.
        worker: The process's connections.
    """

    def __init__(self, plan: BatchPlan, hop: int, node: int, name: str, worker: Worker) -> None:
        self._plan, self._hop, self._node, self._name, self._worker = plan, hop, node, name, worker
        self._wire = Wire(plan.query, plan.placement.tracked)
        self._news = News()
        self._aside: mmap.mmap | None = None
        self._waiting = 0

    # -- taking everything in before the first probe: what may be probed is known only then

    def take(self, blocks: Iterable[pa.RecordBatch]) -> None:
        """Read all input: note messages, put partial results aside on disk."""
        # [!] A file without a name: however the task ends, nothing is left of it.
        with tempfile.TemporaryFile() as draft, pa.PythonFile(draft, "w") as sink:
            with pa.ipc.new_stream(sink, self._wire.schema) as aside:
                for block in blocks:
                    self._take(block, aside)
            draft.flush()
            self._aside = mmap.mmap(draft.fileno(), 0, access=mmap.ACCESS_READ)
        self.task = JoinTask(self._plan, self._news.intakes, self._worker)

    def _take(self, block: pa.RecordBatch, aside: Any) -> None:
        body = block.column("body")
        for found in body.drop_null():
            self._tell(pickle.loads(found.as_py()))
        rows = block.filter(body.is_null())
        if rows.num_rows:
            self._waiting += rows.num_rows
            aside.write_batch(rows.cast(self._wire.schema))

    def _tell(self, news: Any) -> None:
        if isinstance(news, IntakeReport):
            self._news.intakes.append(news)
        elif isinstance(news, News):
            self._news = news
        else:
            raise news.error()

    # -- hopping

    def found(self) -> "Iterator[tuple[int, Partials]]":
        """Yield what the rows put aside become, with their course; on the last hop, results."""
        for origin in range(len(self._plan.query.streams)):
            for course, steps in enumerate(self.task.courses(origin)):
                blocks = regroup(self._arriving(origin, course, steps))
                blocks = self.task.hops(blocks, steps[self._hop : self._hop + 1], self._node)
                if self._hop + 1 == self._plan.stages:
                    blocks = self._staying(blocks, steps[self._hop + 1 :])
                yield from ((course, block) for block in blocks)
        if self._hop + 1 == self._plan.stages:
            yield from ((RESULTS, block) for block in self.task.outer(self._node, self._plan.placement.nodes))

    def _staying(self, blocks: Iterator[Partials], steps: tuple[Step, ...]) -> Iterator[Partials]:
        """Yield what partial results become that from here on find everything where they are."""
        for block in self.task.hops(blocks, steps):
            self.task.work.strays += int(np.count_nonzero(block.here != self._node))
            yield block

    def _arriving(self, origin: int, course: int, steps: tuple[Step, ...]) -> Iterator[Partials]:
        if self._hop:
            return self._received(origin, course, steps)
        return self.task.visiting(self.task.entering(origin, course), steps[0], self._node)

    def _received(self, origin: int, course: int, steps: tuple[Step, ...]) -> Iterator[Partials]:
        done, step = steps[self._hop - 1], steps[self._hop]
        if not self._waiting:
            return
        for rows in pa.ipc.open_stream(pa.py_buffer(self._aside)):
            mine = (rows.column("origin").to_numpy() == origin) & (rows.column("course").to_numpy() == course)
            if np.any(mine):
                block = self._wire.receive(rows.filter(pa.array(mine)), step.joined, done.carry)
                self.task.work.of(step).shuffled += len(block)
                yield block

    def ship(self, course: int, block: Partials) -> Iterator[pa.RecordBatch]:
        """Yield partial results of one course for the next hop's nodes."""
        done, following = self.task.courses(block.origin)[course][self._hop : self._hop + 2]
        to = self.task.visits(block, following)
        self.task.work.of(following).rows_in += len(block)
        yield from self._wire.ship(block, to, course, done.carry, self.task.table.gather)

    def _report(self) -> TaskReport:
        """Return what this hop's task and those before it on the node did."""
        report = self.task.report(self._node)
        if self._news.report is not None:
            report.add(self._news.report)
        return report

    def message(self, seconds: float, shipping: float) -> pa.RecordBatch:
        """Return what the next hop's task of this node must know.

        Args:
            seconds: What this task took.
            shipping: What sending and receiving took of it.
        """
        report = self._report()
        report.seconds += seconds
        report.shipping += shipping
        report.tasks += 1
        return self._wire.messages([self._node], pickle.dumps(News(self._news.intakes, report)))

    def closing(self, cpu: Clock) -> TaskReport:
        """Do the node's merges and return its report.

        Args:
            cpu: Returns the CPU seconds that the process has used.
        """
        report = self._report()
        self.task.keep(report, self._name, cpu)
        return report
