"""What the bench of metadata makes of its runs, and one small run of the join with each kind of end."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from pyspark.sql import SparkSession

from bench.metadata import core
from bench.metadata.auctions import WARM_UP_BATCHES, by_batch, judge
from bench.metadata.plots import draw
from bench.metadata.reference import batches, needed, outcome, reference
from bench.metadata.run import Figures, Kind, figures, follow, start
from tests.budget import one_in
from watersmeet.workload import auctions, write_batches

ONE = Figures(0, 100, 5, 60, 3, 2, 900, 0, 7, 70, ms=40.0, cpu_ms=20.0, purge_ms=5.0, process="driver")


def run_of(count: int, **changes: Any) -> list[Figures]:
    return [replace(ONE, batch=batch, **changes) for batch in range(count)]


def test_figures_of_a_batch() -> None:
    told = {
        "batchId": 3,
        "inputRows": {"auctions": 1, "bids": 20},
        "outputRows": 4,
        "distinctRows": 15,
        "purgedRows": 2,
        "stateChunks": 5,
        "stateBytes": 600,
        "merges": 1,
        "promises": {"auctions": {"marks": 3, "bytes": 30}, "bids": {"marks": 4, "bytes": 50}},
        "durationMs": {"total": 99.5},
        "nodes": [{"cpuMs": 10.0}, {"cpuMs": 12.5}],
        "purgeMs": 6.0,
        "process": "driver",
    }
    assert figures(told) == Figures(3, 21, 4, 15, 2, 5, 600, 1, 7, 80, 99.5, 22.5, 6.0, "driver")


def test_a_short_run_is_judged_by_its_results_alone() -> None:
    verdict = judge(run_of(20), [10] * 20, [], same=True)
    assert (verdict.most_live, verdict.slower, verdict.missed_goals) == (None, None, [])
    assert (verdict.purge_of_cpu, verdict.purge_of_batch) == (0.25, 0.125)
    (missed,) = judge(run_of(20), [10] * 20, [], same=False).missed_goals
    assert "finished files" in missed


def test_a_long_run_is_judged_once_it_has_settled() -> None:
    early, later = run_of(WARM_UP_BATCHES, live=500), run_of(200, live=60)
    fine = judge([*early, *later], [50] * 320, run_of(5), same=True)
    assert (fine.most_live, fine.usual_live, fine.slower, fine.slower_cpu, fine.missed_goals) == (
        1.2,
        1.2,
        1.0,
        1.0,
        [],
    )
    slow = [*early, *later[:-50], *run_of(50, ms=50.0, live=70)]
    missed = judge(slow, [50] * 320, run_of(5, results=6), same=True).missed_goals
    assert len(missed) == 3
    assert "5 batches" in missed[0] and "1.40" in missed[1] and "1.25" in missed[2]


@pytest.mark.long
def test_batches_stand_beside_those_without_metadata(tmp_path: Path) -> None:
    rows = by_batch(run_of(3), [50, 60, 0], run_of(2, live=80))
    assert [row["ratio"] for row in rows] == [1.2, 1.0, 60.0]
    assert [row["without"] for row in rows] == [80, 80, ""]
    draw(tmp_path / "metadata.png", rows, "a test")
    assert (tmp_path / "metadata.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.parametrize("ids", one_in(2, ["uuid", "integer"]))
def test_a_small_run_without_spark_finds_the_same(tmp_path: Path, ids: Any) -> None:
    files = tmp_path / "files"
    write_batches(auctions(2, 60, np.random.default_rng(0), bids=3, ids=ids), files)
    found = {kind: list(core.run(files, tmp_path / kind, kind, 600)) for kind in get_args(Kind)}
    assert {kind: outcome(tmp_path / kind / "results") for kind in found} == dict.fromkeys(found, reference(files))
    wanted = needed(batches(files))
    assert all(one.live >= rows.total for one, rows in zip(found["metadata"], wanted, strict=True))
    assert found["metadata"][-1].live < found["none"][-1].live == found["windows"][-1].live
    assert sum(one.results for one in found["metadata"]) == reference(files).count > 0
    assert len(list(core.run(files, tmp_path / "cut", "metadata", 0))) == 1


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("ids", ["integer", "uuid"])
def test_a_small_run_finds_all_and_keeps_little(spark: SparkSession, tmp_path: Path, ids: Any) -> None:
    files = tmp_path / "files"
    write_batches(auctions(2, 40, np.random.default_rng(0), bids=3, ids=ids), files)
    found = {kind: list(follow(start(spark, files, tmp_path / kind, kind), 600)) for kind in get_args(Kind)}
    assert {kind: outcome(tmp_path / kind / "results") for kind in found} == dict.fromkeys(found, reference(files))
    wanted = needed(batches(files))
    assert all(one.live >= rows.total for one, rows in zip(found["metadata"], wanted, strict=True))
    assert found["metadata"][-1].live < found["none"][-1].live == found["windows"][-1].live
    assert sum(one.purged for one in found["metadata"]) > 0 == sum(one.purged for one in found["none"])
