"""Five queries of different kinds in one process: each is exact, also when one of them fails and is started again."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.chaos import joins, program
from tests.chaos.program import Spec, Steps
from tests.spark import processes
from tests.spark.harness import write

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KINDS = ("inner", "count", "left", "nested", "metadata")
EXCHANGES = ("driver", "local", "ring", "shuffle", "driver")


@pytest.mark.parametrize("victim", range(2))
def test_five_queries(spark: SparkSession, tmp_path: Path, victim: int) -> None:
    seeds = [next(seed for seed in range(1000) if joins.subject(seed).kind == kind) for kind in KINDS]
    specs = [
        Spec(seed, sink, at, EXCHANGES[at], spill=(1, "random") if joins.subject(seed).spills else None, late=True)
        for at, (seed, sink) in enumerate(zip(seeds, ("parquet", "json", "csv", "orc", "upsert"), strict=True))
    ]
    folders = [tmp_path / kind for kind in KINDS]
    steps = [Steps(("sink", 2) if at == victim else None) for at in range(len(specs))]
    for folder, spec in zip(folders, specs, strict=True):
        played = joins.subject(spec.seed)
        write(folder / "in", played.batches, played.schema)
    queries = [program.begun(spark, *start) for start in zip(folders, specs, steps, strict=True)]
    for at, query in enumerate(queries):
        ended = program.outcome(lambda query=query: query, steps[at])  # type: ignore[misc]
        assert ended == "done" if at != victim else "CutShort" in ended
    spec, again = replace(specs[victim], exchange="local"), Steps()
    assert program.outcome(lambda: program.begun(spark, folders[victim], spec, again), again) == "done"
    for folder, spec in zip(folders, specs, strict=True):
        played = joins.subject(spec.seed)
        wanted, late = played.results(processes.batches(folder / "checkpoint-main", played.batches), False)
        assert program.written(folder, spec) == wanted and wanted.total() > 5
        assert late is None or program.late(folder, spec) == late
