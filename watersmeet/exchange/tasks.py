"""The tasks of a batch: they store input, run hops and write results, and send reports."""

import mmap
import pickle
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.arrays import cast_column
from watersmeet.batch.fuse import ResultWriter, output, pending
from watersmeet.batch.intake import Intake
from watersmeet.batch.node import Action, Arrived, Emit, EndOfBatch, Node, Partial, Share, Ship, StateStored
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import IntakeReport, ResultFiles, TaskReport
from watersmeet.batch.worker import Clock
from watersmeet.exchange.message import (
    RESULTS,
    Attempt,
    Blocks,
    Task,
    Wire,
    messages,
    read_reports,
    report_errors,
    send_errors,
)
from watersmeet.limits import adopt
from watersmeet.predicate.model import Column
from watersmeet.probe.partials import Partials
from watersmeet.query.query import TRACE_TYPE, Query
from watersmeet.spilling.tallies import count_codes
from watersmeet.state.chunks.chunk import HASH, TIME, TRACE
from watersmeet.state.store.store import Store


@dataclass(slots=True)
class Baton:
    """What a task passes on to the same node's task of the next hop.

    Attributes:
        intakes: The reports of the intake tasks.
        report: The work of the node's tasks so far.
    """

    intakes: list[IntakeReport] = field(default_factory=list)
    report: TaskReport | None = None


class Relay:
    """A node's task for one hop; the last such task also makes all later hops.

    Args:
        plan: The batch's plan.
        hop: The hop, from 0.
        attempt: The task attempt; its partition is the node's number.
    """

    def __init__(self, plan: BatchPlan, hop: int, attempt: Attempt) -> None:
        self._plan, self._hop, self._attempt = plan, hop, attempt
        self._wire = Wire(plan.query, plan.placement.tracked)
        self._baton = Baton()
        self._spooled: mmap.mmap | None = None
        self._spooled_rows = 0
        self.node = Node(plan, attempt.worker, Share(attempt.partition, plan.placement.nodes, attempt.partition))

    # -- reading all input before the first probe, since only then all chunks are known

    def read(self, blocks: Iterable[pa.RecordBatch]) -> None:
        """Read all input: handle messages, and spool partial results to disk.

        Raises:
            WatersmeetError: An error that an earlier task reported.
        """
        # [!] An unnamed file: however the task ends, nothing is left of it.
        with tempfile.TemporaryFile() as draft, pa.PythonFile(draft, "w") as sink:
            with pa.ipc.new_stream(sink, self._wire.schema) as spool:
                for block in blocks:
                    self._read(block, spool)
            draft.flush()
            self._spooled = mmap.mmap(draft.fileno(), 0, access=mmap.ACCESS_READ)

    def _read(self, block: pa.RecordBatch, spool: Any) -> None:
        """Handle a block's messages, and append its partial results to the spool.

        Raises:
            WatersmeetError: An error that an earlier task reported.
        """
        body = block.column("body")
        for message in body.drop_null():
            self._handle_message(pickle.loads(message.as_py()))
        rows = block.filter(body.is_null())
        if rows.num_rows:
            self._spooled_rows += rows.num_rows
            spool.write_batch(rows.cast(self._wire.schema))

    def _handle_message(self, message: Any) -> None:
        """Keep what an earlier task passed on.

        Raises:
            WatersmeetError: An error that it reported instead.
        """
        if isinstance(message, IntakeReport):
            self._baton.intakes.append(message)
        elif isinstance(message, Baton):
            self._baton = message
        else:
            raise message.error()

    # -- driving the node

    def actions(self) -> Iterator[Action]:
        """Yield the node's actions for all input, which must have been read; the last task also stores its state."""
        first, last = self._hop == 0, self._hop + 1 == self._plan.stages
        yield from self.node.handle(Arrived(self._baton.intakes, probe=first))
        if not first:
            for origin in range(len(self._plan.query.streams)):
                for course in range(len(self.node.courses(origin))):
                    blocks = self._shipped_partials(origin, course)
                    yield from self.node.handle(Partial(origin, course, self._hop, blocks))
        if last:
            for action in self.node.handle(EndOfBatch(self._attempt.name, self._attempt.cpu)):
                yield StateStored(self._add_earlier(action.report)) if isinstance(action, StateStored) else action

    def _shipped_partials(self, origin: int, course: int) -> Iterator[Partials]:
        """Yield blocks of partial results of one course that other nodes shipped, and count them."""
        if not self._spooled_rows:
            return
        before, step = self.node.courses(origin)[course][self._hop - 1 : self._hop + 1]
        for rows in pa.ipc.open_stream(pa.py_buffer(self._spooled)):
            mine = (rows.column("origin").to_numpy() == origin) & (rows.column("course").to_numpy() == course)
            if np.any(mine):
                block = self._wire.receive(rows.filter(pa.array(mine)), step.joined, before.carry)
                self.node.work.of(step).shuffled += len(block)
                yield block

    def ship(self, action: Ship) -> Iterator[pa.RecordBatch]:
        """Yield partial results as rows on the wire, one for each node that they must visit; counts them as input."""
        before, step = self.node.courses(action.block.origin)[action.course][action.hop - 1 : action.hop + 1]
        to = self.node.visits(action.block, step)
        self.node.work.of(step).rows_in += len(action.block)
        yield from self._wire.ship(action.block, to, action.course, before.carry, self.node.table.gather)

    def _add_earlier(self, report: TaskReport) -> TaskReport:
        """Add the work of the node's earlier tasks to a report, and return it."""
        if self._baton.report is not None:
            report.add(self._baton.report)
        return report

    def baton(self, seconds: float, shipping: float) -> pa.RecordBatch:
        """Return the message to this node's task of the next hop: the intake reports, and the work so far.

        Args:
            seconds: The CPU seconds that this task took.
            shipping: The part of them spent on sending and receiving.
        """
        report = self._add_earlier(self.node.report(self._attempt.partition))
        report.work.seconds += seconds
        report.work.shipping += shipping
        report.work.tasks += 1
        return self._wire.messages([self._attempt.partition], pickle.dumps(Baton(self._baton.intakes, report)))


STREAM, CONTENT, TRACED = "_stream", "_hash", "_trace"
"""The columns of input rows beside the streams' own: the stream, a hash of the content and, if an inner join is traced,
the groups that its results came from."""


def rows_of(block: pa.RecordBatch, plan: BatchPlan) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of an input block by stream, in the form that `Intake.add` takes."""
    streams = block.column(STREAM).to_numpy(zero_copy_only=False)
    for stream in np.unique(streams).tolist():
        part = block if bool((streams == stream).all()) else block.filter(pa.array(streams == stream))
        prefix, time_name = f"s{stream}_", f"s{stream}_{plan.query.streams[stream].time}"
        columns = {TIME: part.column(time_name).cast(pa.int64()), HASH: part.column(CONTENT)}
        if stream in plan.spilling.traced:
            columns[TRACE] = cast_column(part.column(TRACED), TRACE_TYPE)
        for name in (n for n in part.schema.names if n.startswith(prefix) and n != time_name):
            # [!] Spark delivers timestamps in the session's zone or in UTC; state has one type only.
            columns[name] = cast_column(
                part.column(name), plan.query.type_of(Column(stream, int(name.removeprefix(prefix))))
            )
        yield stream, pa.record_batch(columns)


def take_in(plan: BatchPlan, attempt: Attempt, blocks: Blocks) -> IntakeReport:
    """Store the input rows of a task and return its report, which also says when each block was read."""
    name = f"p{attempt.partition}" if plan.intake.repeatable else attempt.name
    share = Intake(plan, name, attempt.number)
    for block in blocks:
        share.report.reads.append((attempt.now(), block.num_rows))
        for stream, rows in rows_of(block, plan):
            share.add(stream, rows)
    return share.finish()


def intake(plan: BatchPlan, receivers: int) -> Task:
    """Return the task that stores its share of the input and sends its report to every task that runs hops."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        report = take_in(plan, attempt, blocks)
        yield messages((receiver, report) for receiver in range(receivers))

    return report_errors(run, range(receivers))


# -- all hops in one task


def join(plan: BatchPlan, shares: int) -> Task:
    """Return the task that runs all hops of one of the `shares`, writes the results to the store, and reports."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """Adopt the plan's limits, run all hops of this task's share, and yield the reports of its nodes."""
        adopt(plan.limits)
        started = attempt.cpu()
        reports = join_share(plan, read_reports(blocks), attempt, attempt.partition, shares)
        finish(reports[0], attempt, started)
        yield messages((report.node, report) for report in reports)

    return report_errors(run, [-1])


def join_share(
    plan: BatchPlan, intakes: Sequence[IntakeReport], attempt: Attempt, share: int, shares: int
) -> list[TaskReport]:
    """Run all hops of a share and write the results to the store; return the reports, the first with all the work."""
    node = Node(plan, attempt.worker, Share(share, shares))
    events = (Arrived(intakes), EndOfBatch(attempt.name, attempt.cpu))
    return write(plan, attempt, node, (action for event in events for action in node.handle(event)))


def write(plan: BatchPlan, attempt: Attempt, node: Node, actions: Iterable[Action]) -> list[TaskReport]:
    """Write the results of a node that ships nothing, and return its reports.

    Results, and in separate files the combinations that Spark must decide, are written to the store under names unique
    to the task attempt.
    """
    written = NodeOutput(plan, attempt, node)
    for action in actions:
        written.take(action)
    return written.close()


class NodeOutput:
    """Writes what a node emits, and collects its reports.

    Args:
        plan: The batch's plan.
        attempt: The task attempt; its name is unique to the node if the task has several.
        node: The node.
    """

    def __init__(self, plan: BatchPlan, attempt: Attempt, node: Node) -> None:
        name = f"{plan.name}-{attempt.name}"
        self._node, self._watch, self._reports = node, attempt.watch, list[TaskReport]()
        self._results = ResultWriter(plan.store, plan.query.file_schema, name)
        self._pending = ResultWriter(plan.store, plan.query.pending_schema, f"{name}-pending")

    def take(self, action: Action) -> None:
        """Write the results and pending combinations of an `Emit`; keep the report of a `StateStored`."""
        node = self._node
        match action:
            case Emit(results, undecided):
                self._watch(RESULTS, results)
                self._watch(RESULTS, undecided)
                for rows in output(node.query, results, node.table, node.traces):
                    self._results.write(rows)
                for rows in pending(node.query, undecided, node.table, node.answers, node.traces):
                    self._pending.write(rows)
            case StateStored(report):
                self._reports.append(report)
            case Ship():
                raise AssertionError("All hops are made here.")

    def close(self) -> list[TaskReport]:
        """Close the files and return the reports; the first names them."""
        self._results.close()
        self._pending.close()
        self._reports[0].results = ResultFiles(self._results.rows, self._results.files, self._pending.files)
        return self._reports


def decided_results(store: Store, query: Query, name: str) -> Task:
    """Return the task that writes the results among the combinations that Spark decided, and reports the files.

    The files' names begin with `name`. If combinations have traces, it also reports how many traces contain the code
    of each group.
    """
    unwritten = len(query.traced_schema) - len(query.file_schema)

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """Write the results that Spark has decided on, and yield a report of their number, files and traces."""
        writer, codes = ResultWriter(store, query.file_schema, f"{name}-{attempt.name}"), Counter[int]()
        for block in blocks:
            codes.update(count_codes(block.column(0)) if query.tracing != "none" else {})
            writer.write(block.select(list(range(unwritten, block.num_columns))))
        writer.close()
        yield messages([(attempt.partition, (writer.rows, writer.files, codes))])

    return report_errors(run, [-1])


def finish(report: TaskReport, attempt: Attempt, started: float) -> None:
    """Add one task, and the CPU seconds since it started, to a report."""
    report.work.seconds += attempt.cpu() - started
    report.work.tasks += 1


# -- a task for each hop


def relay(plan: BatchPlan, hop: int) -> Task:
    """Return the task of one hop on a node: its partial results travel to the nodes of the next hop."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """Make one hop, and yield the partial results on their way to the next, then the baton with what it took."""
        task, started, reading = _start_relay(plan, hop, attempt, blocks)
        shipping = [reading]
        for action in task.actions():
            assert isinstance(action, Ship)
            attempt.watch(action.course, action.block)
            yield from _time_blocks(task.ship(action), shipping, attempt.cpu)
        yield task.baton(attempt.cpu() - started, sum(shipping))

    wire = Wire(plan.query, plan.placement.tracked)
    nodes = list(range(plan.placement.nodes))
    return send_errors(run, lambda failure: wire.messages(nodes, pickle.dumps(failure)))


def _start_relay(plan: BatchPlan, hop: int, attempt: Attempt, blocks: Blocks) -> tuple[Relay, float, float]:
    """Adopt the plan's limits and read a hop's input; return what makes the hop, and two times.

    These are the CPU seconds at the start, and those that reading took.
    """
    adopt(plan.limits)
    started = attempt.cpu()
    task = Relay(plan, hop, attempt)
    task.read(blocks)
    return task, started, attempt.cpu() - started


def _time_blocks(blocks: Iterator[pa.RecordBatch], seconds: list[float], cpu: Clock) -> Iterator[pa.RecordBatch]:
    """Yield blocks, and append to `seconds` the CPU seconds that computing each took."""
    while True:
        started = cpu()
        block = next(blocks, None)
        seconds.append(cpu() - started)
        if block is None:
            return
        yield block


def last_relay(plan: BatchPlan, hop: int) -> Task:
    """Return the task of the last hop on a node: it writes the results to the store, and reports."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """Make all remaining hops, finish the node's batch, and yield its report."""
        task, started, reading = _start_relay(plan, hop, attempt, blocks)
        (report,) = write(plan, attempt, task.node, task.actions())
        report.work.shipping += reading
        finish(report, attempt, started)
        yield messages([(attempt.partition, report)])

    return report_errors(run, [-1])
