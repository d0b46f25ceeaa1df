"""How a batch's job runs on Spark: exchanges over Spark's own stages, all with the same results.

Small batches, for which starting tasks takes too long, run in the driver's own process.
"""

import json
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, reduce
from threading import Lock, Thread
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.errors import StateError
from watersmeet.exchange.exchanges import Stage, run_local, run_ring, run_shuffle
from watersmeet.exchange.message import REPORT, Attempt, Task
from watersmeet.exchange.tasks import join_share, take_in
from watersmeet.limits import limits
from watersmeet.probe.chunk_table import is_bulky
from watersmeet.spark.run.frames import is_local, spark_schema
from watersmeet.spark.run.ring_links import Rendezvous
from watersmeet.spark.run.workers import import_modules, spark_task, worker
from watersmeet.spark.sql.value_bounds import FIXED, is_variable_width, width

_warm: set[tuple[str, str]] = set()
"""The warm-up jobs that have run, each with its application."""
BULKY = 1 << 16
"""The assumed width of a value of variable length, in bytes, before any row is stored."""
SPREAD = 4
"""How many times as wide as stored rows a row may be to be fetched at the first attempt."""
WIDTH = "_width"
NAME = "driver"
CUT_SHORT = (
    "Spark closed the connection before all rows had reached the driver: an earlier error in its log, such as "
    "OutOfMemoryError, says why; start again once that is fixed, or with more spark.driver.memory."
)
_turn = Lock()
"""[!] Queries of one process call back in threads of their own; DuckDB connections and open chunks serve one."""


def run_in_driver(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a small batch in the driver's process, any other as `local`; return the reports of its tasks.

    Once batches take longer, warms up the workers that will be needed.
    """
    reports = run_if_small(batch, plan)
    if reports is None:
        return run_locally(batch, plan)
    if reports[0].work.seconds > limits().driver_seconds / 2:
        warm_up(batch.sparkSession, "local")
    return reports


def run_locally(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch where all tasks see the store on one host: no row is shuffled."""
    return run_local(_input(batch), plan, batch.sparkSession.sparkContext.defaultParallelism)


def run_by_shuffle(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch with partial results sent from hop to hop by Spark's shuffle."""
    return run_shuffle(_input(batch), plan)


def run_on_ring(batch: DataFrame, plan: BatchPlan) -> list[TaskReport]:
    """Run a batch on a ring of nodes, hosted by as many tasks as run at once.

    Raises:
        StateError: If no task can run.
    """
    context = batch.sparkSession.sparkContext
    tasks = min(plan.placement.nodes, _count_slots(context))
    if not tasks:
        raise StateError(
            "The ring exchange needs a slot for a task, and no executor has one; start one, and the query."
        )
    address = "127.0.0.1" if is_local(batch.sparkSession) else str(context.getConf().get("spark.driver.host"))
    with Rendezvous(address, tasks) as meeting:
        return run_ring(_input(batch), plan, tasks, meeting.connect)


def _count_slots(context: SparkContext) -> int:
    """Return how many tasks run at the same time at most, as Spark counts them before it starts a barrier stage."""
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


class SparkStage(Stage):
    """Blocks that Spark computes."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame

    def run(self, task: Task, schema: pa.Schema) -> Self:
        """Return the output of a task over each partition."""
        return type(self)(self.frame.mapInArrow(spark_task(task), spark_schema(schema)))

    def run_together(self, task: Task, schema: pa.Schema) -> Self:
        """Return the output of a task over each partition, all of which run at once: a barrier stage."""
        return type(self)(self.frame.mapInArrow(spark_task(task), spark_schema(schema), barrier=True))

    def partition_by_node(self, partitions: int) -> Self:
        """Shuffle rows to the partitions that they name."""
        return type(self)(self.frame.repartitionById(partitions, F.col("node")))

    def collect(self) -> list[pa.RecordBatch]:
        """Run the job."""
        return list(fetch_all(self.frame).to_batches())


def _input(batch: DataFrame) -> SparkStage:
    """Return a batch in no more partitions than run at once: starting Python for a task costs more than a few rows."""
    return SparkStage(batch.coalesce(batch.sparkSession.sparkContext.defaultParallelism))


def warm_up(spark: SparkSession, exchange: str) -> None:
    """Start a job in a background thread that warms Spark up for the first batch, while it plans the stream.

    Each kind of job runs once an application; its errors are ignored.

    Args:
        spark: The session.
        exchange: How batches run: those of `driver` need no workers at first.
    """
    run = _fetch_row if exchange == "driver" else _start_workers
    job = (spark.sparkContext.applicationId, run.__name__)
    if job in _warm:
        return
    _warm.add(job)

    def run_quietly() -> None:
        with suppress(Exception):  # the first batch will report whatever is wrong
            run(spark)

    Thread(target=run_quietly, name="watersmeet-warm-up", daemon=True).start()


def _fetch_row(spark: SparkSession) -> None:
    """Fetch a row as the driver fetches small batches."""
    kinds = ("cast(id AS byte)", "cast(id AS double)", "cast(id AS timestamp)", "xxhash64(id)")
    spark.range(0, 1, 1, 1).selectExpr("id", *kinds).coalesce(1).limit(1).toArrow()


def _start_workers(spark: SparkSession) -> None:
    """Start the Python workers by a job shaped like a batch's."""
    slots = spark.sparkContext.defaultParallelism
    rows = spark.range(0, slots, 1, slots).select(F.lit(0).alias("node"), F.lit(b"").alias("body"))
    intake = rows.mapInArrow(import_modules, spark_schema(REPORT)).repartitionById(slots, F.col("node"))
    fetch_all(intake.mapInArrow(import_modules, spark_schema(REPORT)))


EXCHANGES: dict[str, Callable[[DataFrame, BatchPlan], list[TaskReport]]] = {
    "driver": run_in_driver,
    "local": run_locally,
    "shuffle": run_by_shuffle,
    "ring": run_on_ring,
}
"""How a batch's job runs, by the name of the exchange; `Exchange` in `checks.py` lists the same names."""


def fetch_all(frame: DataFrame) -> pa.Table:
    """Run a job and return all its rows.

    [!] Never use `collect()`, or what is based on it (`take`, `first`, `head`): when the JVM runs out of memory while
    it sends rows, PySpark takes the closed connection for their end, and returns fewer. `toArrow()` has them counted.

    Raises:
        StateError: If some did not arrive.
    """
    try:
        return frame.toArrow()
    except (EOFError, struct.error, pa.ArrowInvalid):
        raise StateError(CUT_SHORT) from None


def run_if_small(batch: DataFrame, plan: BatchPlan) -> list[TaskReport] | None:
    """Run a batch in this process, and return its report; None, with nothing done, if it isn't small.

    A Spark job fetches the rows, to find out if there are few: two, if they are wider than expected.

    Nodes own chunks as they do elsewhere. Only the process that does their work differs.
    """
    max_rows, closed = row_limit(plan), sum(chunk.rows for chunk in plan.chunks) if plan.is_final else 0
    if plan.seconds >= limits().driver_seconds or max_rows <= closed:
        return None
    rows = fetch_small(batch, max_rows)
    return None if rows is None else run_rows(rows, plan)


def fetch_small(batch: DataFrame, max_rows: int) -> pa.Table | None:
    """Return the rows of a batch; None if there are `max_rows` or more, or if they are too wide together.

    Bytes are bounded before they are sent, whatever the rows are like: values of rows that are wider than the average
    allows stay behind, and each row carries its width. If all rows together keep the limit, they are fetched again.
    """
    # One partition and a limit: where the batch turns out to be large, Spark stops reading.
    few = batch.coalesce(1).limit(max_rows)
    if not any(is_variable_width(field.dataType) for field in batch.schema):
        rows = fetch_all(few)
        return rows if rows.num_rows < max_rows else None
    # [!] Powers of two: for every other cap Spark would compile its code anew.
    schema = batch.schema.json()
    cap = 1 << max(0, (limits().driver_bytes // max_rows).bit_length() - 1)
    for _ in range(2):
        rows = fetch_all(few.select(*_capped_columns(batch.sparkSession.sparkContext.applicationId, schema, cap)))
        widths = rows.column(WIDTH)
        if rows.num_rows >= max_rows or (pc.sum(widths).as_py() or 0) > limits().driver_bytes:
            return None
        widest = pc.max(widths).as_py() or 0
        if widest <= cap:
            return rows.drop_columns([WIDTH])
        cap = 1 << int(widest).bit_length()
    return None


@lru_cache(maxsize=64)
def _capped_columns(application: str, schema: str, cap: int) -> list[Column]:
    """Return a frame's columns and the rows' width; columns of variable length are NULL in rows wider than a cap.

    Cached, because making them takes many calls of the JVM.
    """
    fields = T.StructType.fromJson(json.loads(schema)).fields
    wide = [field for field in fields if is_variable_width(field.dataType)]
    inside = reduce(Column.__add__, (width(F.col(field.name), field.dataType) for field in wide))
    row_width = inside + FIXED * (len(fields) - len(wide))
    fits = row_width <= cap
    columns = [F.when(fits, F.col(f.name)).alias(f.name) if f in wide else F.col(f.name) for f in fields]
    return [*columns, row_width.alias(WIDTH)]


def row_limit(plan: BatchPlan) -> int:
    """Return the number of rows from which a batch is not small, if they are as wide as those in state.

    Without state, values of variable length are taken to be wide.
    """
    kinds = [plan.query.type_of(column) for columns in plan.query.stored_columns for column in columns]
    rows = sum(chunk.rows for chunk in plan.chunks)
    if rows:
        width = sum(chunk.bytes for chunk in plan.chunks) // rows
        width *= SPREAD if any(map(is_bulky, kinds)) else 1
    else:
        width = sum(BULKY if is_bulky(kind) else 8 for kind in kinds)
    return min(limits().driver_rows, limits().driver_bytes // max(1, width))


def run_rows(rows: pa.Table, plan: BatchPlan) -> list[TaskReport]:
    """Store rows, join them, and write results to the store, in this process; waits for other batches in it."""
    with _turn:
        start = time.process_time()
        attempt = Attempt(0, NAME, 0, worker(), time.process_time, time.time)
        reports = join_share(plan, [take_in(plan, attempt, rows.to_batches())], attempt, 0, 1)
        reports[0].work.seconds += time.process_time() - start
        return reports
