"""What the chaos relies on: its joins agree with the oracle, and what hits nothing is noticed."""

import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.chaos import joins, program
from tests.chaos.__main__ import missed, table
from tests.chaos.mishaps import DAEMON, strike
from tests.chaos.program import SINKS, Spec, Steps
from tests.chaos.round import Tally
from tests.spark.harness import write


def test_a_mishap_that_hits_nothing_is_noticed() -> None:
    tallies = {"kill": Tally(3, 2, Counter(exact=1)), "flip": Tally(2, 0, Counter(refused=2, stopped=1))}
    assert missed(tallies) == ["flip"]
    assert [line.split() for line in table(tallies).splitlines()] == [
        ["mishap", "rounds", "hits", "exact", "refused", "stopped"],
        ["flip", "2", "0", "0", "2", "1"],
        ["kill", "3", "2", "1", "0", "0"],
    ]


@pytest.mark.spark
def test_the_workers_of_a_program_are_hit(spark: SparkSession) -> None:
    """PySpark's daemon leads a group of its own, so that they are not in the program's."""
    spark.range(2).mapInArrow(lambda blocks: blocks, "id long").collect()
    assert strike(os.getpid(), DAEMON)
    assert not strike(os.getpid(), "a word that no process has in its command")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("kind", sorted(joins.KINDS))
def test_joins_agree_with_the_oracle(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    seed = next(seed for seed in range(1000) if joins.subject(seed).kind == kind)
    played, final = joins.subject(seed), kind in ("left", "anti")
    write(tmp_path / "in", played.batches, played.schema)
    spec, steps = Spec(seed, SINKS[seed % len(SINKS)], 1, "driver", final=final), Steps()
    assert program.outcome(lambda: program.begun(spark, tmp_path, spec, steps), steps) == "done"
    found = program.written(tmp_path, spec)
    assert found == played.results(played.batches, final) and found.total() > 5
