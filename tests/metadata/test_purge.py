"""Dead rows leave in the batch that finds them, whether their chunks are merged in it or not, and leave no file."""

from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.limits import limited
from watersmeet.metadata.constraints import Key
from watersmeet.placement import PSP, Central, Strategy
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("k", pa.int64())])
BATCHES = 12


@pytest.mark.long
@pytest.mark.parametrize("strategy", [Central(), PSP(2)])
@pytest.mark.parametrize("waiting", [True, False], ids=["some wait", "all die"])
def test_dead_rows_leave_merged_or_not(tmp_path: Path, strategy: Strategy, waiting: bool) -> None:
    streams = tuple(StreamSpec(name, SCHEMA, 1, Window(), 0, constraints=(Key((2,)),)) for name in "ab")
    text = "a.k = b.k"
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    run, merged = Run(Query(streams, conjuncts, text), Store(str(tmp_path))), 0
    with limited(merged_chunks=2):
        for batch in range(BATCHES):
            rows = [(stream, {"id": batch, "ts": batch, "k": batch}) for stream in (0, 1)]
            alone = [(0, {"id": 1000 + batch, "ts": batch, "k": 1000 + batch})] if waiting else []
            run.step(strategy, [*rows, *alone])
            shown = run.progress[-1]
            assert shown["distinctRows"] == len(rows) + len(alone) * (batch + 1)
            assert shown["purgedRows"] == (len(rows) if batch else 0)
            merged += shown["merges"]
    assert bool(merged) == waiting
    assert sum(run.results.values()) == BATCHES
    last = [manifests.load(run.store, batch) for batch in (run.batch - 1, run.batch)]
    named = {file for manifest in last if manifest is not None for file in manifest.files}
    assert set(run.store.names("chunks")) <= named
