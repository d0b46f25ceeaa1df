"""Small batches run in the driver's own process: to start tasks would take longer than the work."""

import time
from threading import Lock

import pyarrow as pa
from pyspark.sql import DataFrame

from watersmeet.engine.plan import BatchPlan
from watersmeet.engine.probe import TaskReport
from watersmeet.kernel.table import is_bulky
from watersmeet.limits import limits
from watersmeet.spark.tasks import probed, take_in

BULKY = 1 << 16
"""How many bytes a value of variable length is taken for as long as none was seen."""
NAME = "driver"
_turn = Lock()
"""[!] Queries of one process call back in threads of their own; DuckDB connections and open chunks serve one."""


def run(batch: DataFrame, plan: BatchPlan) -> list[TaskReport] | None:
    """Run a batch here and now; None, with nothing done, if it isn't small.

    Nodes are what they are elsewhere: owners of chunks. Only who does their work differs.
    """
    most = limit(plan)
    if plan.seconds >= limits().driver_seconds or most < 1:
        return None
    # One partition and a limit: where the batch turns out to be large, Spark stops reading.
    rows = batch.coalesce(1).limit(most).toArrow()
    if rows.num_rows >= most:
        return None
    return probe(rows, plan)


def limit(plan: BatchPlan) -> int:
    """Return how many rows a small batch has fewer than, as wide as the rows in state are."""
    rows = sum(chunk.rows for chunk in plan.chunks)
    if rows:
        width = sum(chunk.bytes for chunk in plan.chunks) // rows
    else:
        kinds = [plan.query.type_of(column) for kept in plan.query.kept for column in kept]
        width = sum(BULKY if is_bulky(kind) else 8 for kind in kinds)
    return min(limits().driver_rows, limits().driver_bytes // max(1, width))


def probe(rows: pa.Table, plan: BatchPlan) -> list[TaskReport]:
    """Store rows, probe, and write results to the store, in this process."""
    with _turn:
        started = time.process_time()
        done = probed(plan, [take_in(plan, NAME, 0, rows.to_batches())], NAME, 0, 1)
        done[0].seconds += time.process_time() - started
        return done
