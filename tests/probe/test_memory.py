"""A probe with very many results runs in blocks: a worker's memory stays small whatever comes out."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import resource, sys, time, uuid
import numpy as np, pyarrow as pa
from watersmeet.batch.fuse import ResultWriter, output
from watersmeet.batch.intake import Intake
from watersmeet.batch.operator import Operator
from watersmeet.batch.plan import start
from watersmeet.batch.node import Arrived, Node, Share
from watersmeet.batch.worker import Worker
from watersmeet.query.windows import Sliding
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Output, Query, StreamSpec
from watersmeet.state.store.store import Store

size, where, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("k", pa.string())])
streams = tuple(StreamSpec(name, schema, 1, Sliding(10**9), 0) for name in "ab")
conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect())
shown = tuple(Output(f"o{s}{f}", Column(s, f)) for s in (0, 1) for f in (0, 3))
query = Query(streams, conjuncts, where, shown)
store = Store(folder)
batch = Operator(query, Central(), store, uuid.uuid4().hex).plan(start(query))
intake = Intake(batch, "t", 0)
for stream in (0, 1):
    ids = np.arange(size)
    names = pa.array([f"key {i % 100:030d}" for i in range(size)])
    columns = {"ts": ids, "hash": ids, f"s{stream}_0": ids, f"s{stream}_2": ids.astype(float), f"s{stream}_3": names}
    intake.add(stream, pa.record_batch(columns))
node = Node(batch, Worker(time.perf_counter), Share())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
writer = ResultWriter(store, query.output_schema, "results")
for emit in node.handle(Arrived([intake.finish()])):
    for rows in output(query, emit.results, node.table):
        writer.write(rows)
writer.close()
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(writer.rows, (after - before) // 1024)
"""


def measure_growth(folder: Path, size: int, where: str) -> tuple[int, int]:
    """Return how many results a cross product of two streams gave, and by how many MB the process grew for them."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(size), where, str(folder)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    rows, megabytes = run.stdout.split()
    return int(rows), int(megabytes)


@pytest.mark.long
@pytest.mark.parametrize("where", ["", "a.x >= 0 AND b.x + a.x >= 0"], ids=["cross product", "scan"])
def test_four_million_results(tmp_path: Path, where: str) -> None:
    rows, megabytes = measure_growth(tmp_path, 2000, where)
    assert rows == 2000**2
    assert megabytes < 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "where", ["", "a.x >= 0 AND b.x + a.x >= 0", "a.k = a.k"], ids=["cross product", "scan", "own"]
)
def test_fifty_million_results(tmp_path: Path, where: str) -> None:
    rows, megabytes = measure_growth(tmp_path, 7100, where)
    assert rows == 7100**2
    assert megabytes < 300
