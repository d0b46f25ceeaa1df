"""Python workers: the tasks they run, what they reserve, and what happens when one dies."""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from watersmeet.batch.fuse import output, pending
from watersmeet.batch.node import Arrived, Emit, EndOfBatch, Node, Share
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import IntakeReport
from watersmeet.batch.worker import Worker
from watersmeet.errors import WatersmeetError
from watersmeet.exchange.message import Attempt, Blocks, Task, read_reports
from watersmeet.limits import adopt
from watersmeet.state.store.budget import set_workers

EXECUTOR_CORES = "resource.executor.cores"
"""The property that holds `spark.executor.cores` in a task, if it is set."""
FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Keeps Arrow from reserving 1 GiB at once, and malloc from reserving 64 MiB for every thread that allocates."""
WORKER_DIED = "a Python worker or an executor died, perhaps for lack of memory or in a function that crashed"
_DEATHS = re.compile(
    r"Python worker exited unexpectedly|Python worker failed to connect back|ExecutorLostFailure"
    r"|No port number in [\w.]+'s stdout"
    r"|java\.(net\.SocketException|io\.IOException): (Connection reset|Broken pipe|Stream closed)[^\n]*\n"
    r"(\s+at [^\n]*\n)*\s+at org\.apache\.spark\.api\.python\."
)
"""Spark's messages when the process of a task is gone; an error raised by a function is a PythonException."""

T = TypeVar("T")
SparkTask = Callable[[Blocks], Iterator[pa.RecordBatch]]

_worker: Worker | None = None


# -- in a worker


def worker() -> Worker:
    """Return what this worker process keeps between tasks; the first call creates it.

    That one also sets how many processes share the memory of the container.
    """
    global _worker  # Spark reuses worker processes, and gives no other place to keep a connection.
    if _worker is None:
        set_workers(_processes())
        _worker = Worker(time.perf_counter, shared_folder())
    return _worker


def shared_folder() -> Path | None:
    """Return a folder that the tasks of an executor share, and that is removed with it; None in the driver."""
    folders = os.environ.get("SPARK_LOCAL_DIRS") if TaskContext.get() is not None else None
    return Path(folders.split(",")[0]).resolve() / "watersmeet" if folders else None


def _processes() -> int | None:
    """Return how many tasks the executor runs at once, each in its own process; None if that is not configured."""
    context = TaskContext.get()
    cores = None if context is None else context.getLocalProperty(EXECUTOR_CORES)
    return int(cores) if cores else None


def spark_task(task: Task) -> SparkTask:
    """Return a task as a function for `mapInArrow`."""

    def run(blocks: Blocks) -> Iterator[pa.RecordBatch]:
        yield from task(current_attempt(), blocks)

    return run


def current_attempt() -> Attempt:
    """Return the task attempt that calls this."""
    context = TaskContext.get()
    assert context is not None
    partition, number = context.partitionId(), context.taskAttemptId()
    return Attempt(partition, f"p{partition}a{number}", number, worker(), time.process_time, time.time)


def static_task(plan: BatchPlan, shares: int) -> Task:
    """Return the task that runs all hops of its share of a join of static frames, and yields its results.

    Where the query has conjuncts left to Spark, it yields rows of the pending schema instead. The last column holds an
    error of ours, in a row of its own: if raised here, it would come with a stack of Python frames.
    """
    columns = plan.query.pending_schema if plan.query.deferred_conjuncts else plan.query.output_schema
    schema = columns.append(pa.field(error_column(columns.names), pa.string()))

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """Yield the results of a task's share; an error of ours becomes a row, which the driver raises."""
        adopt(plan.limits)
        inputs = list(blocks)
        # [!] Not the task's partition: a union or coalesce numbers the frame's partitions differently.
        share = next((block.column("node")[0].as_py() for block in inputs if block.num_rows), None)
        if share is None:
            return
        try:
            for rows in _result_rows(Node(plan, attempt.worker, Share(share, shares)), read_reports(inputs), attempt):
                no_error = pa.nulls(rows.num_rows, pa.string())
                yield pa.RecordBatch.from_arrays([*rows.columns, no_error], schema=schema)
        except WatersmeetError as error:
            nulls = [pa.nulls(1, field.type) for field in columns]
            yield pa.RecordBatch.from_arrays([*nulls, pa.array([str(error)])], schema=schema)

    return run


def _result_rows(node: Node, intakes: Sequence[IntakeReport], attempt: Attempt) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a node of a static join emits; nobody reads its state, so it stores none."""
    for event in (Arrived(intakes), EndOfBatch(None, attempt.cpu)):
        for action in node.handle(event):
            assert isinstance(action, Emit)
            if not node.query.deferred_conjuncts:
                yield from output(node.query, action.results, node.table)
                continue
            for block in (action.results, action.pending):
                yield from pending(node.query, block, node.table, node.answers)


def error_column(columns: Iterable[str]) -> str:
    """Return a name for the column of errors that none of these columns has."""
    name, reserved = "_error", {column.lower() for column in columns}
    while name in reserved:
        name = f"_{name}"
    return name


def import_modules(blocks: Blocks) -> Iterator[pa.RecordBatch]:
    """Pass blocks on; makes a worker process import what tasks need before the first batch waits for it."""
    worker()
    yield from blocks


# -- in the driver


def save_address_space(spark: SparkSession) -> None:
    """Make a session's Python workers reserve little address space if `spark.executor.pyspark.memory` limits it.

    Memory that is only reserved counts there, too. What the user has set (`spark.executorEnv`) stays.
    """
    context = spark.sparkContext
    if context.getConf().get("spark.executor.pyspark.memory") is not None:
        for name, value in FRUGAL.items():
            context.environment.setdefault(name, value)


def is_death(error: BaseException) -> bool:
    """Tell whether a job failed because the process of a task died, rather than because of an error in the task."""
    return _DEATHS.search(str(error)) is not None


def retry_after_death(job: Callable[[], T], clear: Callable[[], None] = lambda: None) -> T:
    """Run a job, and once more if a Python worker or an executor dies, with a warning: `local[N]` retries no task.

    Args:
        job: The job; its second run shares nothing with the first, whose tasks may still be running.
        clear: Removes what the first run left.
    """
    try:
        return job()
    except Exception as error:
        if not is_death(error):
            raise
    logging.getLogger("watersmeet").warning("A Python worker or an executor died; its job is run again.")
    clear()
    return job()
