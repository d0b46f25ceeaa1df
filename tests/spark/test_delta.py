"""Delta as source and sink: exactly once through kills, rounds of spilling and a checkpoint that is moved."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.remote import packages
from tests.spark import harness, processes
from tests.spark.delta_join import CASE
from tests.versions import LATEST
from watersmeet.spark.output.tables import check_jar
from watersmeet.spark.run.versions import SPARK, describe_jar_mismatch

FITTING = {(4, 1), (4, 2)}
"""The versions of Spark that there are jars for."""
one_session = pytest.mark.xdist_group("delta")


def settings(spark: tuple[int, ...]) -> dict[str, str]:
    classes = f"{packages.delta_jars('.'.join(map(str, spark)))}/*"
    return {"spark.driver.extraClassPath": classes, "spark.executor.extraClassPath": classes}


def run(folder: Path, **spec: Any) -> str:
    """Run the program; return the last thing it said."""
    given = {"settings": settings(SPARK), "source": "delta", "checkpoint": "checkpoint", **spec}
    with processes.program(folder, "delta_join", **given) as process:
        said = list(processes.lines(process))
    assert said, (folder / "log").read_text()[-3000:]
    return said[-1]


def actions(table: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Yield what a table's log says of a kind, in order."""
    for log in sorted((table / "_delta_log").glob("*.json")):
        for line in log.read_text().splitlines():
            if kind in json.loads(line):
                yield json.loads(line)[kind]


def read_table(table: Path) -> Counter[tuple[int, ...]]:
    """Return the ids that a table holds; nothing is ever removed from it."""
    files = [pq.read_table(table / action["path"]).to_pylist() for action in actions(table, "add")]
    return Counter((row["a"], row["b"]) for rows in files for row in rows)


def expected_results() -> Counter[tuple[int, ...]]:
    return Counter({ids: times for (ids, _), times in harness.expected(CASE).results.items()})


@one_session
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(SPARK not in FITTING, reason="there is no Delta for this version of Spark")
@pytest.mark.parametrize("spill", [False, True])
def test_kills_lose_and_double_nothing(tmp_path: Path, spill: bool) -> None:
    kills = [["sink", 2], ["manifest", 1], ["reports", 1], *([["round sink", 1], ["round job", 1]] if spill else [])]
    for at, die in enumerate(kills):
        assert run(tmp_path, spill=spill, die=die) == f"step {die[0]}"
        if at == 0:
            shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    assert run(tmp_path, spill=spill) == "done"
    assert read_table(tmp_path / "out") == expected_results() and expected_results().total() > 50
    batches = [action["version"] for action in actions(tmp_path / "out", "txn")]
    assert batches == list(range(len(batches))) and (len(batches) > len(CASE.batches)) == spill
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "older").rename(tmp_path / "checkpoint")
    assert f"has this query's results up to batch {batches[-1]}, and the checkpoint is at batch 1" in run(tmp_path)
    assert read_table(tmp_path / "out") == expected_results()


@one_session
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(SPARK not in FITTING, reason="there is no Delta for this version of Spark")
def test_a_checkpoint_that_is_moved_writes_no_batch_twice(tmp_path: Path) -> None:
    assert run(tmp_path, die=["sink", 2]) == "step sink"
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "copy")
    assert run(tmp_path, checkpoint="moved") == "done"
    assert read_table(tmp_path / "out") == expected_results()
    assert "it is an older copy" in run(tmp_path, checkpoint="copy")


@one_session
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(SPARK != LATEST, reason="jars for Spark 4.2 fit")
def test_jars_that_do_not_fit_are_told(tmp_path: Path) -> None:
    harness.write(tmp_path / "in", CASE.batches)
    said = run(tmp_path, source="parquet", settings=settings((4, 2)))
    assert said.startswith("refused format('delta'): delta-spark_4.2_2.13-") and "docs/versions.md" in said


def test_a_jar_says_by_its_name_what_it_is_for() -> None:
    own = ".".join(map(str, SPARK))
    check_jar(f"/jars/delta-spark_{own}_2.13-4.4.0.jar")
    check_jar("")
    with pytest.raises(
        wm.DefinitionError, match=r"delta-spark_3\.9_2\.13-1\.jar is for Spark 3\.9, and this is Spark 4"
    ):
        check_jar("/jars/delta-spark_3.9_2.13-1.jar")
    assert describe_jar_mismatch(RuntimeError("no such thing")) is None


@pytest.mark.spark
def test_without_delta_a_sentence_says_so(spark: SparkSession, tmp_path: Path) -> None:
    harness.write(tmp_path / "in", CASE.batches[:1])
    join = harness.join_of(CASE, harness.frames(spark, tmp_path / "in", CASE.names))
    with pytest.raises(wm.StateError, match=r"Batch 0 was not written: .*delta.*; start the query again") as caught:
        harness.run(join.writeStream.format("delta"), tmp_path)
    assert len(str(caught.value).splitlines()) == 1
