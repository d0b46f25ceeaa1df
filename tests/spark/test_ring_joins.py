"""The ring exchange through Spark: what travels, what is shown of it, and what an error in one of its tasks does."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.harness import Case, cuts, expected, frames, join_of, results, run, write
from watersmeet.testing import oracle

pytestmark = pytest.mark.spark
CASE = Case(
    [oracle.Stream(name, oracle.Sliding(12), 6) for name in "abc"],
    cuts(11, "abc", batches=3, nulls=0),
    holds=lambda a, b, c: a["x"] < b["x"] < c["x"],
)
WHERE = "a.x < b.x AND b.x < c.x"


@pytest.mark.slow
def test_messages_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Tuples that go one after the other take messages of their own; in waves, many share them."""
    write(tmp_path / "in", CASE.batches)
    sent = list[int]()
    for interleaved in (1, None):
        strategy, folder = wm.PSP(3, interleaved=interleaved), tmp_path / str(interleaved)
        join = join_of(CASE, frames(spark, tmp_path / "in", "abc"), where=WHERE, strategy=strategy)
        query = run(join.writeStream, folder, "ring")
        assert results(folder, CASE.names) == expected(CASE).results
        sent.append(sum(p["linkMessages"] for p in query.progress))
        assert all(p["linkBytes"] > 0 for p in query.progress if sum(p["inputRows"].values()))
    assert sent[0] > sent[1] > 0


def test_an_error_in_one_task_is_told_and_ends_the_others(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches)
    fatal = wm.predicate(name="fatal", form="pair")(lambda x, y: 1 / 0)
    join = join_of(
        CASE, frames(spark, tmp_path / "in", "abc"), where=f"{WHERE} AND fatal(a.x, c.x)", predicates=[fatal]
    )
    with pytest.raises(wm.WatersmeetError, match=r"fatal.*ZeroDivisionError"):
        run(join.writeStream, tmp_path, "ring")


def test_a_threshold_that_is_none(spark: SparkSession) -> None:
    with pytest.raises(wm.DefinitionError, match="interleaved=0: give a number of tuples, 1 or more, or None"):
        wm.PSP(2, interleaved=0)
