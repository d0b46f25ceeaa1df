"""Work that is put off, through Spark: every result comes, exactly once, through rounds, stops and restarts."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark import harness
from tests.spark.harness import Case, cuts, expected, frames, join_of, results, through
from watersmeet.testing import oracle

pytestmark = pytest.mark.spark


def case_of(seed: int, names: str = "ab", strategy: Any = None, batches: int = 5) -> Case:
    return Case(
        [oracle.Stream(name, oracle.Sliding(12), 6) for name in names],
        cuts(seed, names, batches, rows=14),
        where=" AND ".join(f"{one}.k = {two}.k" for one, two in pairwise(names)),
        holds=lambda *rows: all(row["k"] is not None and row["k"] == rows[0]["k"] for row in rows),
        strategy=strategy or wm.Hash(2),
    )


TIGHT = wm.Spill(memory=1, partitions=4, policy="local", oldest="1 hour")


@through("local", "shuffle")
def test_all_that_is_owed_is_paid_before_availableNow_ends(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    case = case_of(1)
    harness.write(tmp_path / "in", case.batches)
    join = join_of(case, frames(spark, tmp_path / "in", case.names), spill=TIGHT)
    query = harness.run(join.writeStream, tmp_path, exchange)
    wanted = expected(case).results
    assert results(tmp_path, case.names) == wanted and wanted.total() > 50
    assert not query.isActive
    told = [p["spilling"] for p in query.progress]
    assert max(found["owedProbes"] for found in told) > 0 == told[-1]["owedProbes"]
    assert sum(found["paidResults"] for found in told) > 0 and query.progress[-1]["round"]
    assert [p["watermark"] for p in query.progress if not p["round"]] == list(expected(case).watermarks.values())


def test_what_is_owed_survives_a_stop_and_is_paid_without_spill_too(spark: SparkSession, tmp_path: Path) -> None:
    case = case_of(2, batches=6)
    harness.write(tmp_path / "in", case.batches[:3])
    inputs = frames(spark, tmp_path / "in", case.names)
    writer = join_of(case, inputs, spill=TIGHT).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    query.processAllAvailable()
    query.stop()
    harness.write(tmp_path / "in", case.batches[3:])
    join = join_of(case, frames(spark, tmp_path / "in", case.names))
    harness.run(join.writeStream, tmp_path)
    assert results(tmp_path, case.names) == expected(case).results


def test_settle_pays_while_the_query_runs_and_stop_can_settle(spark: SparkSession, tmp_path: Path) -> None:
    case = case_of(3, "abc", wm.Hash(2))
    harness.write(tmp_path / "in", case.batches[:4])
    inputs = frames(spark, tmp_path / "in", case.names)
    spill = wm.Spill(memory=1, partitions=3, policy="random", oldest="1 hour")
    writer = join_of(case, inputs, spill=spill).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    query.processAllAvailable()
    query.settle()
    first = expected(Case(case.streams, case.batches[:4], case.where, case.holds, strategy=case.strategy))
    assert results(tmp_path, case.names) == first.results
    harness.write(tmp_path / "in", case.batches[4:])
    query.processAllAvailable()
    query.stop(settle=True)
    assert results(tmp_path, case.names) == expected(case).results
    with pytest.raises(wm.StateError, match="has stopped"):
        query.settle()
