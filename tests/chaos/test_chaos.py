"""What the chaos relies on: its joins agree with the oracle, and what hits nothing is noticed."""

import os
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from tests.chaos import joins, program
from tests.chaos.__main__ import MANY, _mishaps, missed, table
from tests.chaos.mishaps import DAEMON, MISHAPS, strike
from tests.chaos.program import SINKS, Spec, Steps
from tests.chaos.round import Round, Tally, Wrong
from tests.spark.harness import write
from watersmeet.errors import AFRESH


def test_a_mishap_that_hits_nothing_is_noticed() -> None:
    tallies = {"kill": Tally(3, 2, Counter(exact=1)), "flip": Tally(2, 0, Counter(refused=2, stopped=1))}
    assert missed(tallies, ["kill", "cut"], rounds=3) == ["flip"]
    assert missed(tallies, ["kill", "cut"], rounds=MANY) == ["cut", "flip"], "it never came up in so many rounds"
    assert [line.split() for line in table(tallies, 4).splitlines()] == [
        ["mishap", "rounds", "hits", "exact", "refused", "stopped"],
        ["flip", "2", "0", "0", "2", "1"],
        ["kill", "3", "2", "1", "0", "0"],
        ["all", "4", "2", "1", "2", "1"],
    ]


def test_advice_against_damage_is_wrong_where_there_is_none(tmp_path: Path) -> None:
    round = Round(mock.Mock(), tmp_path, 1, {})
    assert round.heard("stopped No space left on device")
    with pytest.raises(Wrong, match="nothing was damaged or restored, but it said: refused The state file x is missin"):
        round.heard(f"refused The state file x is missing: restore it or {AFRESH}.")
    round.damaged = True
    assert round.heard(f"refused The state file x is missing: restore it or {AFRESH}.")


def test_every_kind_takes_turns(tmp_path: Path) -> None:
    rounds = [Round(mock.Mock(), tmp_path, seed, {}) for seed in range(MANY)]
    thrown = {mishap.__name__ for round in rounds for mishap in _mishaps(round, [*MISHAPS])}
    assert thrown == {*MISHAPS}


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
    sink = SINKS[seed % len(SINKS)]
    spec, steps = Spec(seed, sink, 1, "driver", final=final, parts=sink != "upsert", late=True), Steps()
    assert program.outcome(lambda: program.begun(spark, tmp_path, spec, steps), steps) == "done"
    found, (wanted, late) = program.written(tmp_path, spec), played.results(played.batches, final)
    assert found == wanted and found.total() > 5
    if late is not None:
        assert program.late(tmp_path, spec) == late and late.total()
