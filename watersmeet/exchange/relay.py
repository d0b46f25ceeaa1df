"""One hop of a node as a task of its own: what reaches it crosses a shuffle, and so does what it ships.

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
from watersmeet.batch.node import Action, Arrived, EndOfBatch, Node, Partial, Share, Ship, Stored
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.exchange.message import Attempt
from watersmeet.exchange.wire import Wire
from watersmeet.probe.partials import Partials


@dataclass(slots=True)
class Baton:
    """What a task hands to the next hop's task of the same node.

    Attributes:
        intakes: The reports of the intake tasks.
        report: What the node's tasks have done so far.
    """

    intakes: list[IntakeReport] = field(default_factory=list)
    report: TaskReport | None = None


class Relay:
    """A node's task for one hop; the last such task makes all hops that follow as well.

    Args:
        plan: The batch's plan.
        hop: The hop, from 0.
        attempt: The task attempt; its partition is the node's number.
    """

    def __init__(self, plan: BatchPlan, hop: int, attempt: Attempt) -> None:
        self._plan, self._hop, self._attempt = plan, hop, attempt
        self._wire = Wire(plan.query, plan.placement.tracked)
        self._baton = Baton()
        self._aside: mmap.mmap | None = None
        self._waiting = 0
        self.node = Node(plan, attempt.worker, Share(attempt.partition, plan.placement.nodes, attempt.partition))

    # -- reading everything before the first probe: which chunks there are is known only then

    def read(self, blocks: Iterable[pa.RecordBatch]) -> None:
        """Read all input: take note of messages, put partial results aside on disk."""
        # [!] A file without a name: however the task ends, nothing is left of it.
        with tempfile.TemporaryFile() as draft, pa.PythonFile(draft, "w") as sink:
            with pa.ipc.new_stream(sink, self._wire.schema) as aside:
                for block in blocks:
                    self._read(block, aside)
            draft.flush()
            self._aside = mmap.mmap(draft.fileno(), 0, access=mmap.ACCESS_READ)

    def _read(self, block: pa.RecordBatch, aside: Any) -> None:
        body = block.column("body")
        for message in body.drop_null():
            self._note(pickle.loads(message.as_py()))
        rows = block.filter(body.is_null())
        if rows.num_rows:
            self._waiting += rows.num_rows
            aside.write_batch(rows.cast(self._wire.schema))

    def _note(self, message: Any) -> None:
        if isinstance(message, IntakeReport):
            self._baton.intakes.append(message)
        elif isinstance(message, Baton):
            self._baton = message
        else:
            raise message.error()

    # -- driving the node

    def actions(self) -> Iterator[Action]:
        """Yield what the node does with all that reached it."""
        first, last = self._hop == 0, self._hop + 1 == self._plan.stages
        yield from self.node.handle(Arrived(self._baton.intakes, probe=first))
        if not first:
            for origin in range(len(self._plan.query.streams)):
                for course in range(len(self.node.courses(origin))):
                    yield from self.node.handle(Partial(origin, course, self._hop, self._received(origin, course)))
        if last:
            for action in self.node.handle(EndOfBatch(self._attempt.name, self._attempt.cpu)):
                yield Stored(self._add_earlier(action.report)) if isinstance(action, Stored) else action

    def _received(self, origin: int, course: int) -> Iterator[Partials]:
        """Yield the partial results of one course that other nodes shipped."""
        if not self._waiting:
            return
        before, step = self.node.courses(origin)[course][self._hop - 1 : self._hop + 1]
        for rows in pa.ipc.open_stream(pa.py_buffer(self._aside)):
            mine = (rows.column("origin").to_numpy() == origin) & (rows.column("course").to_numpy() == course)
            if np.any(mine):
                block = self._wire.receive(rows.filter(pa.array(mine)), step.joined, before.carry)
                self.node.work.of(step).shuffled += len(block)
                yield block

    def ship(self, action: Ship) -> Iterator[pa.RecordBatch]:
        """Yield partial results as rows on the wire, each once for every node that it must visit."""
        made, step = self.node.courses(action.block.origin)[action.course][action.hop - 1 : action.hop + 1]
        to = self.node.visits(action.block, step)
        self.node.work.of(step).rows_in += len(action.block)
        yield from self._wire.ship(action.block, to, action.course, made.carry, self.node.table.gather)

    def _add_earlier(self, report: TaskReport) -> TaskReport:
        """Return a report with the work of the node's earlier tasks."""
        if self._baton.report is not None:
            report.add(self._baton.report)
        return report

    def baton(self, seconds: float, shipping: float) -> pa.RecordBatch:
        """Return what the next hop's task of this node must know.

        Args:
            seconds: The CPU seconds that this task took.
            shipping: Those of them spent on sending and receiving.
        """
        report = self._add_earlier(self.node.report(self._attempt.partition))
        report.work.seconds += seconds
        report.work.shipping += shipping
        report.work.tasks += 1
        return self._wire.messages([self._attempt.partition], pickle.dumps(Baton(self._baton.intakes, report)))
