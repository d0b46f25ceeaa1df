"""What Python workers may take: the option `openBytes`, and a limit of their address space."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.harness import cuts, frames, join_of, run, write
from tests.spark.test_bad_input import CASE
from watersmeet.spark.run import workers
from watersmeet.spark.run.workers import FRUGAL, save_address_space

pytestmark = pytest.mark.spark


def test_a_size_that_is_none_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", cuts(42, "ab", batches=1))
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream.option("openbytes", "much")
    with pytest.raises(wm.DefinitionError) as caught:
        run(writer, tmp_path)
    assert str(caught.value) == (
        "option 'openBytes': 'much' is not a size of 1 byte or more; write it like '512 MB' or '2 GB'."
    )


def test_a_size_reaches_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", cuts(42, "ab", batches=1))
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream.option("openBytes", "3 MB")
    query = run(writer, tmp_path)
    assert query._runner.tree.operator.store.open_bytes == 3 << 20


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {}),
        ({"spark.executor.pyspark.memory": "4g"}, FRUGAL),
        ({"spark.executor.pyspark.memory": "4g", "mine": "8"}, FRUGAL | {"MALLOC_ARENA_MAX": "8"}),
    ],
)
def test_workers_reserve_little_if_their_memory_is_limited(given: dict[str, str], wanted: dict[str, str]) -> None:
    conf = SparkConf(loadDefaults=False).setAll([*given.items()])
    environment = {"MALLOC_ARENA_MAX": given["mine"]} if "mine" in given else {}
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf, environment=environment))
    save_address_space(session)
    assert environment == wanted


@pytest.mark.parametrize(("cores", "processes"), [("4", 4), (None, None)])
def test_tasks_know_how_many_run_beside_them(
    monkeypatch: pytest.MonkeyPatch, cores: str | None, processes: int | None
) -> None:
    context = SimpleNamespace(getLocalProperty=lambda name: cores)
    monkeypatch.setattr(workers, "TaskContext", SimpleNamespace(get=lambda: context))
    assert workers._processes() == processes
    monkeypatch.setattr(workers, "TaskContext", SimpleNamespace(get=lambda: None))
    assert workers._processes() is None
