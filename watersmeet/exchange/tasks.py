"""What runs in a task: input is stored, hops are run, results are written; reports come out."""

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from watersmeet.batch.fuse import ResultWriter, output, pending
from watersmeet.batch.intake import Intake, IntakeReport
from watersmeet.batch.node import Clock, JoinTask
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.errors import WatersmeetError
from watersmeet.exchange.message import RESULTS, Attempt, Blocks, Failure, Task, guarded, messages, received
from watersmeet.exchange.relay import Relay
from watersmeet.exchange.wire import Wire
from watersmeet.limits import adopt
from watersmeet.predicate.model import Column
from watersmeet.probe.partials import Partials
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
        if stream in plan.traces:
            columns[TRACE] = _as(part.column(TRACED), TRACE_TYPE)
        for name in (n for n in part.schema.names if n.startswith(prefix) and n != time_name):
            # [!] Timestamps come in the session's zone or in UTC, as Spark fetched them: state knows one type only.
            columns[name] = _as(part.column(name), plan.query.type_of(Column(stream, int(name.removeprefix(prefix)))))
        yield stream, pa.record_batch(columns)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def take_in(plan: BatchPlan, attempt: Attempt, blocks: Blocks) -> IntakeReport:
    """Store input rows and return what was stored."""
    name = f"p{attempt.partition}" if plan.again else attempt.name
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
        done = joined(plan, received(blocks), attempt, attempt.partition, shares)
        finish(done[0], attempt, started)
        yield messages((report.node, report) for report in done)

    return guarded(run, [-1])


def joined(plan: BatchPlan, taken: list[IntakeReport], attempt: Attempt, share: int, shares: int) -> list[TaskReport]:
    """Run all hops of a share, write the results to the store, and return what was done."""
    task = JoinTask(plan, taken, attempt.worker)
    done, later = write(plan, attempt, task, task.results(share, shares))
    first, *others = task.reports(share, shares, attempt.name, attempt.cpu)
    first.rows, first.files, first.pending = done.rows, done.files, later.files
    return [first, *others]


def write(
    plan: BatchPlan, attempt: Attempt, task: JoinTask, found: Iterable[Partials]
) -> tuple[ResultWriter, ResultWriter]:
    """Write results to the store, under names unique to the task attempt, and aside what Spark has yet to decide."""
    query, table, name = task.query, task.table, f"{plan.name}-{attempt.name}"
    done = ResultWriter(plan.store, query.file_schema, name)
    later = ResultWriter(plan.store, query.pending_schema, f"{name}-pending")
    for block in found:
        attempt.watch(RESULTS, block)
        results, waiting = task.divided(block)
        task.tally(results)
        for rows in output(query, results, table, task.traces):
            done.write(rows)
        for rows in pending(query, waiting, table, task.answers, task.traces):
            later.write(rows)
    done.close()
    later.close()
    return done, later


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
    """Note that a task did it, and the CPU seconds since it started."""
    report.seconds += attempt.cpu() - started
    report.tasks += 1


# -- a task for each hop


def relay(plan: BatchPlan, hop: int) -> Task:
    """Return the task of a hop on a node: what it finds goes on to the next hop's nodes."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        started = attempt.cpu()
        relaying = Relay(plan, hop, attempt.partition, attempt.name, attempt.worker)
        relaying.take(blocks)
        shipping = [attempt.cpu() - started]
        for course, block in relaying.found():
            attempt.watch(course, block)
            yield from _timed(relaying.ship(course, block), shipping, attempt.cpu)
        yield relaying.message(attempt.cpu() - started, sum(shipping))

    return _wired(run, plan)


def _timed(blocks: Iterator[pa.RecordBatch], spent: list[float], cpu: Clock) -> Iterator[pa.RecordBatch]:
    """Yield blocks, noting the CPU seconds that making each took."""
    while True:
        begun = cpu()
        block = next(blocks, None)
        spent.append(cpu() - begun)
        if block is None:
            return
        yield block


def last_relay(plan: BatchPlan, hop: int) -> Task:
    """Return the task of the last hop on a node: it writes the results to the store and reports."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        started = attempt.cpu()
        relaying = Relay(plan, hop, attempt.partition, attempt.name, attempt.worker)
        relaying.take(blocks)
        took = attempt.cpu() - started
        done, later = write(plan, attempt, relaying.task, (block for _, block in relaying.found()))
        report = relaying.closing(attempt.cpu)
        report.rows, report.files, report.pending = done.rows, done.files, later.files
        report.shipping += took
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
