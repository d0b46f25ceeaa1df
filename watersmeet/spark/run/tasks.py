"""Tasks on Spark: who they are, and what static frames run."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from watersmeet.batch.fuse import output, pending
from watersmeet.batch.intake import IntakeReport
from watersmeet.batch.node import Arrived, Emit, EndOfBatch, Node, Share
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.worker import Worker
from watersmeet.errors import WatersmeetError
from watersmeet.exchange.message import Attempt, Blocks, Task, received
from watersmeet.limits import adopt
from watersmeet.state.store.budget import shared_by

EXECUTOR_CORES = "resource.executor.cores"
"""Where Spark tells tasks `spark.executor.cores`, if it is set."""
SparkTask = Callable[[Blocks], Iterator[pa.RecordBatch]]

_worker: Worker | None = None


def worker() -> Worker:
    """Return what this worker process keeps between tasks."""
    global _worker  # Spark reuses worker processes, and gives no other place to keep a connection.
    if _worker is None:
        shared_by(_processes())
        _worker = Worker(time.perf_counter, shared())
    return _worker


def shared() -> Path | None:
    """Return a folder that the tasks of an executor share and that goes when it does; None in the driver."""
    folders = os.environ.get("SPARK_LOCAL_DIRS") if TaskContext.get() is not None else None
    return Path(folders.split(",")[0]).resolve() / "watersmeet" if folders else None


def _processes() -> int | None:
    """Return how many tasks the executor runs at once, each in a process of its own; None if that isn't said."""
    context = TaskContext.get()
    cores = None if context is None else context.getLocalProperty(EXECUTOR_CORES)
    return int(cores) if cores else None


def on_spark(task: Task) -> SparkTask:
    """Return a task as Spark runs it."""

    def run(blocks: Blocks) -> Iterator[pa.RecordBatch]:
        yield from task(attempt(), blocks)

    return run


def attempt() -> Attempt:
    """Return the task attempt that this is."""
    context = TaskContext.get()
    assert context is not None
    partition, number = context.partitionId(), context.taskAttemptId()
    return Attempt(partition, f"p{partition}a{number}", number, worker(), time.process_time, time.time)


def show(plan: BatchPlan, shares: int) -> Task:
    """Return the task that runs all hops of its share and yields what it finds, for static frames.

    These are results, or where the query has conjuncts left to Spark, rows of its pending schema. A last column holds
    an error of ours, in a row of its own: raised here it would come with a stack of Python frames.
    """
    found = plan.query.pending_schema if plan.query.deferred else plan.query.output_schema
    schema = found.append(pa.field(error_column(found.names), pa.string()))

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        adopt(plan.limits)
        told = list(blocks)
        # [!] Not the task's partition: in a union, or coalesced, the frame's partitions are numbered otherwise.
        share = next((block.column("node")[0].as_py() for block in told if block.num_rows), None)
        if share is None:
            return
        try:
            for rows in _output(Node(plan, attempt.worker, Share(share, shares)), received(told), attempt):
                fine = pa.nulls(rows.num_rows, pa.string())
                yield pa.RecordBatch.from_arrays([*rows.columns, fine], schema=schema)
        except WatersmeetError as error:
            nothing = [pa.nulls(1, field.type) for field in found]
            yield pa.RecordBatch.from_arrays([*nothing, pa.array([str(error)])], schema=schema)

    return run


def _output(node: Node, intakes: Sequence[IntakeReport], attempt: Attempt) -> Iterator[pa.RecordBatch]:
    """Yield what a node of a static frame emits; its state is read by nobody, so it stores none."""
    for event in (Arrived(intakes), EndOfBatch(None, attempt.cpu)):
        for action in node.handle(event):
            assert isinstance(action, Emit)
            if not node.query.deferred:
                yield from output(node.query, action.results, node.table)
                continue
            for block in (action.results, action.pending):
                yield from pending(node.query, block, node.table, node.answers)


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
