"""The driver's own process: fetches rows, and runs small batches, for which starting tasks takes too long."""

import json
import struct
import time
from functools import lru_cache, reduce
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.errors import StateError
from watersmeet.exchange.message import Attempt
from watersmeet.exchange.tasks import join_share, take_in
from watersmeet.limits import limits
from watersmeet.probe.chunk_table import is_bulky
from watersmeet.spark.run.widths import FIXED, is_variable_width, width
from watersmeet.spark.run.workers import worker

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
