"""What runs in Spark's tasks: Arrow blocks in, pickled reports out; file names carry the task attempt's id."""

import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from watersmeet.engine.fuse import ResultWriter, output, pending
from watersmeet.engine.intake import Intake, IntakeReport
from watersmeet.engine.plan import BatchPlan
from watersmeet.engine.relay import Relay
from watersmeet.engine.report import TaskReport
from watersmeet.engine.ship import Wire
from watersmeet.engine.task import JoinTask, Worker
from watersmeet.errors import WatersmeetError
from watersmeet.kernel.partials import Partials
from watersmeet.limits import adopt
from watersmeet.predicate.model import Column
from watersmeet.spark.frames import HASH, STREAM
from watersmeet.state.rows import HASH as CHUNK_HASH
from watersmeet.state.rows import TIME
from watersmeet.state.store import Store

Blocks = Iterable[pa.RecordBatch]
Task = Callable[[Blocks], Iterator[pa.RecordBatch]]
REPORT = pa.schema([("node", pa.int32()), ("body", pa.binary())])
REPORT_DDL = "node int, body binary"

_worker: Worker | None = None


def worker() -> Worker:
    """Return what this worker process keeps between tasks."""
    global _worker  # Spark reuses worker processes, and gives no other place to keep a connection.
    if _worker is None:
        _worker = Worker(time.perf_counter, shared())
    return _worker


def shared() -> Path | None:
    """Return a folder that the tasks of an executor share and that goes when it does; None in the driver."""
    folders = os.environ.get("SPARK_LOCAL_DIRS") if TaskContext.get() is not None else None
    return Path(folders.split(",")[0]).resolve() / "watersmeet-answers" if folders else None


def attempt() -> str:
    """Return a name unique to this task attempt within the query's run."""
    context = TaskContext.get()
    assert context is not None
    return f"p{context.partitionId()}a{context.taskAttemptId()}"


def attempt_number() -> int:
    """Return this task attempt's number, unique in the application."""
    context = TaskContext.get()
    assert context is not None
    return context.taskAttemptId()


def partition() -> int:
    """Return the number of this task, which is the node's."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def rows_of(block: pa.RecordBatch, plan: BatchPlan) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of an input block per stream, as intake takes them."""
    streams = block.column(STREAM).to_numpy(zero_copy_only=False)
    for stream in np.unique(streams).tolist():
        part = block if bool((streams == stream).all()) else block.filter(pa.array(streams == stream))
        prefix, time_name = f"s{stream}_", f"s{stream}_{plan.query.streams[stream].time}"
        columns = {TIME: part.column(time_name).cast(pa.int64()), CHUNK_HASH: part.column(HASH)}
        for name in (n for n in part.schema.names if n.startswith(prefix) and n != time_name):
            # [!] Timestamps come in the session's zone or in UTC, as Spark fetched them: state knows one type only.
            columns[name] = _as(part.column(name), plan.query.type_of(Column(stream, int(name.removeprefix(prefix)))))
        yield stream, pa.record_batch(columns)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def messages(rows: Iterable[tuple[int, Any]]) -> pa.RecordBatch:
    """Return (node, report) pairs as a block."""
    pairs = list(rows)
    return pa.record_batch(
        [pa.array([n for n, _ in pairs], pa.int32()), pa.array([pickle.dumps(r) for _, r in pairs], pa.binary())],
        schema=REPORT,
    )


def guarded(task: Task, nodes: Iterable[int]) -> Task:
    """Return a task that sends an error of ours on as a report: Spark need not try again what can't succeed."""

    def run(blocks: Blocks) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(blocks)
        except WatersmeetError as error:
            error.__cause__ = error.__context__ = None
            yield messages((node, Failure(type(error), str(error))) for node in nodes)

    return run


class Failure:
    """An error of ours on its way to the driver."""

    def __init__(self, kind: type[WatersmeetError], message: str) -> None:
        self.kind, self.message = kind, message

    def error(self) -> WatersmeetError:
        """Return the error as it was."""
        error = self.kind.__new__(self.kind)
        error.args = (self.message,)
        return error


def take_in(plan: BatchPlan, name: str, number: int, blocks: Blocks) -> IntakeReport:
    """Store input rows as the task attempt of a name and a number does."""
    taken = Intake(plan, name, number)
    for block in blocks:
        taken.report.read.append((time.time(), block.num_rows))
        for stream, rows in rows_of(block, plan):
            taken.add(stream, rows)
    return taken.finish()


def intake(plan: BatchPlan, receivers: int) -> Task:
    """Return the task that stores its share of the input and tells every task that joins what it stored."""

    def run(blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        name = f"p{partition()}" if plan.again else attempt()
        report = take_in(plan, name, attempt_number(), blocks)
        yield messages((receiver, report) for receiver in range(receivers))

    return guarded(run, range(receivers))


def join(plan: BatchPlan, shares: int) -> Task:
    """Return the task that runs all hops of its share, writes the results to the store and reports."""

    def run(blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        started = time.process_time()
        done = joined(plan, intakes(blocks), attempt(), partition(), shares)
        finish(done[0], started)
        yield messages((report.node, report) for report in done)

    return guarded(run, [-1])


def joined(plan: BatchPlan, taken: list[IntakeReport], name: str, share: int, shares: int) -> list[TaskReport]:
    """Run all hops of a share, write the results to the store under a name, and return what was done."""
    task = JoinTask(plan, taken, worker())
    done, later = write(plan, name, task, task.results(share, shares))
    first, *others = task.reports(share, shares, name)
    first.rows, first.files, first.pending = done.rows, done.files, later.files
    return [first, *others]


def write(plan: BatchPlan, name: str, task: JoinTask, found: Iterable[Partials]) -> tuple[ResultWriter, ResultWriter]:
    """Write results to the store, under a name unique to the task attempt, and aside what Spark has yet to decide."""
    query, table = task.query, task.table
    done = ResultWriter(plan.store, query.output_schema, f"{plan.name}-{name}")
    later = ResultWriter(plan.store, query.pending_schema, f"{plan.name}-{name}-pending")
    for block in found:
        results, waiting = task.divided(block)
        for rows in output(query, results, table):
            done.write(rows)
        for rows in pending(query, waiting, table, task.answers):
            later.write(rows)
    done.close()
    later.close()
    return done, later


def decided(store: Store, schema: pa.Schema, name: str) -> Task:
    """Return the task that writes combinations which Spark found to be results to the store, and reports the files."""

    def run(blocks: Blocks) -> Iterator[pa.RecordBatch]:
        writer = ResultWriter(store, schema, f"{name}-{attempt()}")
        for block in blocks:
            writer.write(block)
        writer.close()
        yield messages([(partition(), (writer.rows, writer.files))])

    return guarded(run, [-1])


def finish(report: TaskReport, started: float) -> None:
    """Note that a task did it, and the CPU seconds since it started."""
    report.seconds += time.process_time() - started
    report.tasks += 1


def relay(plan: BatchPlan, hop: int) -> Task:
    """Return the task of a hop on a node: what it finds goes on to the next hop's nodes."""

    def run(blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        started = time.process_time()
        relaying = Relay(plan, hop, partition(), attempt(), worker())
        relaying.take(blocks)
        shipping = [time.process_time() - started]
        for course, block in relaying.found():
            yield from _timed(relaying.ship(course, block), shipping)
        yield relaying.message(time.process_time() - started, sum(shipping))

    return _wired(run, plan)


def _timed(blocks: Iterator[pa.RecordBatch], spent: list[float]) -> Iterator[pa.RecordBatch]:
    """Yield blocks, noting the CPU seconds that making each took."""
    while True:
        begun = time.process_time()
        block = next(blocks, None)
        spent.append(time.process_time() - begun)
        if block is None:
            return
        yield block


def last_relay(plan: BatchPlan, hop: int) -> Task:
    """Return the task of the last hop on a node: it writes the results to the store and reports."""

    def run(blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        started = time.process_time()
        node = partition()
        relaying = Relay(plan, hop, node, attempt(), worker())
        relaying.take(blocks)
        received = time.process_time() - started
        results = (block for _, block in relaying.found())
        done, later = write(plan, attempt(), relaying.task, results)
        report = relaying.closing()
        report.rows, report.files, report.pending = done.rows, done.files, later.files
        report.shipping += received
        finish(report, started)
        yield messages([(node, report)])

    return guarded(run, [-1])


def _wired(task: Task, plan: BatchPlan) -> Task:
    """Return a task whose output crosses the wire, errors of ours included."""
    wire = Wire(plan.query, plan.placement.tracked)

    def run(blocks: Blocks) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(blocks)
        except WatersmeetError as error:
            failure = pickle.dumps(Failure(type(error), str(error)))
            yield wire.messages(list(range(plan.placement.nodes)), failure)

    return run


def show(plan: BatchPlan, shares: int) -> Task:
    """Return the task that runs all hops of its share and yields what it finds, for static frames.

    These are results, or where the query has conjuncts left to Spark, rows of its pending schema. A last column holds
    an error of ours, in a row of its own: raised here it would come with a stack of Python frames.
    """
    found = plan.query.pending_schema if plan.query.deferred else plan.query.output_schema
    schema = found.append(pa.field(error_column(found.names), pa.string()))

    def run(blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        try:
            for rows in _shown(JoinTask(plan, intakes(blocks), worker()), partition(), shares):
                fine = pa.nulls(rows.num_rows, pa.string())
                yield pa.RecordBatch.from_arrays([*rows.columns, fine], schema=schema)
        except WatersmeetError as error:
            nothing = [pa.nulls(1, field.type) for field in found]
            yield pa.RecordBatch.from_arrays([*nothing, pa.array([str(error)])], schema=schema)

    return run


def _shown(task: JoinTask, share: int, shares: int) -> Iterator[pa.RecordBatch]:
    query, table = task.query, task.table
    for block in task.results(share, shares):
        if query.deferred:
            yield from pending(query, block, table, task.answers)
        else:
            yield from output(query, block, table)


def error_column(columns: Iterable[str]) -> str:
    """Return a name for the errors beside columns of these names."""
    name, taken = "_error", {column.lower() for column in columns}
    while name in taken:
        name = f"_{name}"
    return name


def warm_up(blocks: Blocks) -> Iterator[pa.RecordBatch]:
    """Let a worker process import what tasks need before the first batch waits for it."""
    worker()
    yield from blocks


def intakes(blocks: Blocks) -> list[IntakeReport]:
    """Return what the intake tasks reported."""
    return outcome(body.as_py() for block in blocks for body in block.column("body"))


def outcome(bodies: Iterable[bytes]) -> list[Any]:
    """Return the reports that tasks sent.

    Raises:
        WatersmeetError: The first error that a task reported.
    """
    found = [pickle.loads(body) for body in bodies]
    for report in found:
        if isinstance(report, Failure):
            raise report.error()
    return found
