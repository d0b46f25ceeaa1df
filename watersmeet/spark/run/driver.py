"""Small batches run in the driver's own process: to start tasks would take longer than the work."""

import json
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
from watersmeet.exchange.message import Attempt
from watersmeet.exchange.tasks import join_share, take_in
from watersmeet.limits import limits
from watersmeet.probe.chunk_table import is_bulky
from watersmeet.spark.run.fetch import fetch_all
from watersmeet.spark.run.tasks import worker
from watersmeet.spark.run.widths import FIXED, is_open, width

BULKY = 1 << 16
"""How many bytes a value of variable length is taken for as long as none was seen."""
SPREAD = 4
"""How many times as wide as those in state a row may be to be fetched at the first try."""
WIDTH = "_width"
NAME = "driver"
_turn = Lock()
"""[!] Queries of one process call back in threads of their own; DuckDB connections and open chunks serve one."""


def run(batch: DataFrame, plan: BatchPlan) -> list[TaskReport] | None:
    """Run a batch here and now; None, with nothing done, if it isn't small.

    Nodes are what they are elsewhere: owners of chunks. Only who does their work differs.
    """
    most, closed = limit(plan), sum(chunk.rows for chunk in plan.chunks) if plan.is_final else 0
    if plan.seconds >= limits().driver_seconds or most <= closed:
        return None
    rows = fetch(batch, most)
    return None if rows is None else run_rows(rows, plan)


def fetch(batch: DataFrame, most: int) -> pa.Table | None:
    """Return the rows of a batch; None if they are not fewer than `most`, or too wide together.

    Bytes are bounded before they are sent, whatever the rows are like: values of rows wider than on average they may be
    stay behind, and the rows say how wide they were. If together they are no more than the limit, they are fetched
    again.
    """
    # One partition and a limit: where the batch turns out to be large, Spark stops reading.
    few = batch.coalesce(1).limit(most)
    if not any(is_open(field.dataType) for field in batch.schema):
        rows = fetch_all(few)
        return rows if rows.num_rows < most else None
    # [!] Powers of two: for every other cap Spark would compile its code anew.
    schema = batch.schema.json()
    cap = 1 << max(0, (limits().driver_bytes // most).bit_length() - 1)
    for _ in range(2):
        rows = fetch_all(few.select(*_columns(batch.sparkSession.sparkContext.applicationId, schema, cap)))
        widths = rows.column(WIDTH)
        if rows.num_rows >= most or (pc.sum(widths).as_py() or 0) > limits().driver_bytes:
            return None
        widest = pc.max(widths).as_py() or 0
        if widest <= cap:
            return rows.drop_columns([WIDTH])
        cap = 1 << int(widest).bit_length()
    return None


@lru_cache(maxsize=64)
def _columns(application: str, schema: str, cap: int) -> list[Column]:
    """Return a frame's columns, those of variable length only of rows up to a cap, and the rows' width.

    They are kept: to make them takes many calls of the JVM.
    """
    fields = T.StructType.fromJson(json.loads(schema)).fields
    wide = [field for field in fields if is_open(field.dataType)]
    inside = reduce(Column.__add__, (width(F.col(field.name), field.dataType) for field in wide))
    whole = inside + FIXED * (len(fields) - len(wide))
    fits = whole <= cap
    shown = [F.when(fits, F.col(f.name)).alias(f.name) if f in wide else F.col(f.name) for f in fields]
    return [*shown, whole.alias(WIDTH)]


def limit(plan: BatchPlan) -> int:
    """Return how many rows a small batch has fewer than, as wide as the rows in state are."""
    kinds = [plan.query.type_of(column) for kept in plan.query.kept for column in kept]
    rows = sum(chunk.rows for chunk in plan.chunks)
    if rows:
        width = sum(chunk.bytes for chunk in plan.chunks) // rows
        width *= SPREAD if any(map(is_bulky, kinds)) else 1
    else:
        width = sum(BULKY if is_bulky(kind) else 8 for kind in kinds)
    return min(limits().driver_rows, limits().driver_bytes // max(1, width))


def run_rows(rows: pa.Table, plan: BatchPlan) -> list[TaskReport]:
    """Store rows, join them, and write results to the store, in this process."""
    with _turn:
        started = time.process_time()
        here = Attempt(0, NAME, 0, worker(), time.process_time, time.time)
        done = join_share(plan, [take_in(plan, here, rows.to_batches())], here, 0, 1)
        done[0].work.seconds += time.process_time() - started
        return done
