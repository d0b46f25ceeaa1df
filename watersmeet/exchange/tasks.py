"""What runs in a task: input is stored, hops are run, results are written; reports come out."""

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.batch.fuse import ResultWriter, output, pending
from watersmeet.batch.intake import Intake, IntakeReport
from watersmeet.batch.node import Action, Arrived, Emit, EndOfBatch, Node, Share, Ship, Stored
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import ResultFiles, TaskReport
from watersmeet.batch.worker import Clock
from watersmeet.errors import WatersmeetError
from watersmeet.exchange.message import RESULTS, Attempt, Blocks, Failure, Task, guarded, messages, received
from watersmeet.exchange.relay import Relay
from watersmeet.exchange.wire import Wire
from watersmeet.limits import adopt
from watersmeet.predicate.model import Column
from watersmeet.query.query import TRACE_TYPE, Query
from watersmeet.spilling.tallies import count_of
from watersmeet.state.chunks.rows import HASH, TIME, TRACE
from watersmeet.state.store.store import Store

STREAM, CONTENT, TRACED = "_stream", "_hash", "_trace"
"""The columns of input rows beside the streams' own: which stream's they are, a hash of their content, and if an
inner join is traced the groups that its results came from."""


def rows_of(block: pa.RecordBatch, plan: BatchPlan) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of an input block per stream, as intake takes them."""
    streams = block.column(STREAM).to_numpy(zero_copy_only=False)
    for stream in np.unique(streams).tolist():
        part = block if bool((streams == stream).all()) else block.filter(pa.array(streams == stream))
        prefix, time_name = f"s{stream}_", f"s{stream}_{plan.query.streams[stream].time}"
        columns = {TIME: part.column(time_name).cast(pa.int64()), HASH: part.column(CONTENT)}
        if stream in plan.spilling.traced:
            columns[TRACE] = _as(part.column(TRACED), TRACE_TYPE)
        for name in (n for n in part.schema.names if n.startswith(prefix) and n != time_name):
            # [!] Timestamps come in the session's zone or in UTC, as Spark fetched them: state knows one type only.
            columns[name] = _as(part.column(name), plan.query.type_of(Column(stream, int(name.removeprefix(prefix)))))
        yield stream, pa.record_batch(columns)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def take_in(plan: BatchPlan, attempt: Attempt, blocks: Blocks) -> IntakeReport:
    """Store input rows and return what was stored."""
    name = f"p{attempt.partition}" if plan.intake.repeatable else attempt.name
    taken = Intake(plan, name, attempt.number)
    for block in blocks:
        taken.report.read.append((attempt.now(), block.num_rows))
        for stream, rows in rows_of(block, plan):
            taken.add(stream, rows)
    return taken.finish()


def intake(plan: BatchPlan, receivers: int) -> Task:
    """Return the task that stores its share of the input and tells every task that joins what it stored."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        report = take_in(plan, attempt, blocks)
        yield messages((receiver, report) for receiver in range(receivers))

    return guarded(run, range(receivers))


# -- all hops in one task


def join(plan: BatchPlan, shares: int) -> Task:
    """Return the task that runs all hops of its share, writes the results to the store and reports."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        started = attempt.cpu()
        reports = join_share(plan, received(blocks), attempt, attempt.partition, shares)
        finish(reports[0], attempt, started)
        yield messages((report.node, report) for report in reports)

    return guarded(run, [-1])


def join_share(
    plan: BatchPlan, intakes: Sequence[IntakeReport], attempt: Attempt, share: int, shares: int
) -> list[TaskReport]:
    """Run all hops of a share, write the results to the store, and return the reports; the first has all the work."""
    node = Node(plan, attempt.worker, Share(share, shares))
    events = (Arrived(intakes), EndOfBatch(attempt.name, attempt.cpu))
    return write(plan, attempt, node, (action for event in events for action in node.handle(event)))


def write(plan: BatchPlan, attempt: Attempt, node: Node, actions: Iterable[Action]) -> list[TaskReport]:
    """Carry out the actions of a node that ships nothing, and return its reports.

    Results are written to the store under names unique to the task attempt, and apart from them the combinations that
    Spark has yet to decide.
    """
    query, name, reports = plan.query, f"{plan.name}-{attempt.name}", list[TaskReport]()
    done = ResultWriter(plan.store, query.file_schema, name)
    later = ResultWriter(plan.store, query.pending_schema, f"{name}-pending")
    for action in actions:
        match action:
            case Emit(results, undecided):
                attempt.watch(RESULTS, results)
                attempt.watch(RESULTS, undecided)
                for rows in output(node.query, results, node.table, node.traces):
                    done.write(rows)
                for rows in pending(node.query, undecided, node.table, node.answers, node.traces):
                    later.write(rows)
            case Stored(report):
                reports.append(report)
            case Ship():
                raise AssertionError("All hops are made here.")
    done.close()
    later.close()
    reports[0].results = ResultFiles(done.rows, done.files, later.files)
    return reports


def decided(store: Store, query: Query, name: str) -> Task:
    """Return the task that writes combinations which Spark found to be results to the store, and reports the files.

    It reports as well in how many of their traces the code of each group is, where combinations have traces.
    """
    unwritten = len(query.traced_schema) - len(query.file_schema)

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        writer, codes = ResultWriter(store, query.file_schema, f"{name}-{attempt.name}"), Counter[int]()
        for block in blocks:
            codes.update(count_of(block.column(0)) if query.tracing != "none" else {})
            writer.write(block.select(list(range(unwritten, block.num_columns))))
        writer.close()
        yield messages([(attempt.partition, (writer.rows, writer.files, codes))])

    return guarded(run, [-1])


def finish(report: TaskReport, attempt: Attempt, started: float) -> None:
    """Add a task to a report, and the CPU seconds since it started."""
    report.work.seconds += attempt.cpu() - started
    report.work.tasks += 1


# -- a task for each hop


def relay(plan: BatchPlan, hop: int) -> Task:
    """Return the task of a hop on a node: what it finds travels to the nodes of the next hop."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        started = attempt.cpu()
        task = Relay(plan, hop, attempt)
        task.read(blocks)
        shipping = [attempt.cpu() - started]
        for action in task.actions():
            assert isinstance(action, Ship)
            attempt.watch(action.course, action.block)
            yield from _timed(task.ship(action), shipping, attempt.cpu)
        yield task.baton(attempt.cpu() - started, sum(shipping))

    return _wired(run, plan)


def _timed(blocks: Iterator[pa.RecordBatch], spent: list[float], cpu: Clock) -> Iterator[pa.RecordBatch]:
    """Yield blocks, and note the CPU seconds that making each took."""
    while True:
        began = cpu()
        block = next(blocks, None)
        spent.append(cpu() - began)
        if block is None:
            return
        yield block


def last_relay(plan: BatchPlan, hop: int) -> Task:
    """Return the task of the last hop on a node: it writes the results to the store and reports."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        started = attempt.cpu()
        task = Relay(plan, hop, attempt)
        task.read(blocks)
        receiving = attempt.cpu() - started
        (report,) = write(plan, attempt, task.node, task.actions())
        report.work.shipping += receiving
        finish(report, attempt, started)
        yield messages([(attempt.partition, report)])

    return guarded(run, [-1])


def _wired(task: Task, plan: BatchPlan) -> Task:
    """Return a task whose output crosses the wire, errors of ours included."""
    wire = Wire(plan.query, plan.placement.tracked)

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(attempt, blocks)
        except WatersmeetError as error:
            failure = pickle.dumps(Failure(type(error), str(error)))
            yield wire.messages(list(range(plan.placement.nodes)), failure)

    return run
