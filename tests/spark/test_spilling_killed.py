"""Joins that put work off are killed at any moment of batches and rounds: in the end each result is there once."""

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark import harness, processes
from tests.spark.spilling_join import BATCHES, PLANS, started

pytestmark = [pytest.mark.spark, pytest.mark.slow]
KILLS = int(os.environ.get("KILLS", "8"))
TRIES = 3 * KILLS
MOMENTS = 10
"""A program is killed after so many steps at most; one that had less to do has ended before."""


def read_results(folder: Path) -> Counter[tuple[int, ...]]:
    return Counter(tuple(row.values()) for row in harness.read(folder / "out").to_pylist())


def killed(folder: Path, rng: random.Random, plan: str) -> str:
    """Run the program up to a moment; return the kind of step during or after which it was killed, or that it ended."""
    spec: dict[str, Any] = {"plan": plan, "exchange": rng.choice(harness.EXCHANGES), "expires": 2.0}
    spec |= {"policy": rng.choice(["random", "local", "synchronized"]), "oldest": rng.choice(["0 seconds", "1 hour"])}
    left, kind = rng.randint(1, MOMENTS), "batch"
    with processes.program(folder, "spilling_join", **spec) as process:
        for said in processes.lines(process):
            assert not said.startswith("failed"), said
            if not said.startswith(("batch", "round", "done")):
                continue
            kind, left = said.split()[0], left - 1
            if kind == "done":
                break
            if not left:
                time.sleep(rng.random() * 0.4)
                break
    return kind


@pytest.mark.parametrize("plan", PLANS)
def test_killed_at_any_moment(spark: SparkSession, tmp_path: Path, plan: str) -> None:
    rng, ended, fed = random.Random(plan), Counter[str](), 0
    while ended["batch"] + ended["round"] < KILLS and ended.total() < TRIES:
        more = min(rng.randint(0, 1) if fed else 2, len(BATCHES) - fed)
        if more:
            harness.write(tmp_path / "in", BATCHES[fed : fed + more])
        fed += more
        ended[killed(tmp_path, rng, plan)] += 1
    said = processes.run(tmp_path, name="spilling_join", plan=plan, exchange="local", expires=2.0, **LAST)
    assert said[-1] == "done"
    query = started(spark, tmp_path / "in", tmp_path / "plain", plan, "driver")
    query.awaitTermination()
    wanted = read_results(tmp_path / "plain")
    assert read_results(tmp_path) == wanted and wanted.total() > 100
    print(f"{plan}: {dict(ended)}, {wanted.total()} results")
    assert ended["batch"] and ended["round"] and ended["batch"] + ended["round"] >= KILLS


LAST = {"policy": "local", "oldest": "1 hour"}
