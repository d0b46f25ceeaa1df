"""What comes to the driver comes whole: a connection that is cut is never taken for the end of the rows."""

import io
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import util
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.harness import Case, cuts, expected, frames, join_of, results, run, write
from watersmeet.exchange.message import REPORT, Attempt, Blocks, messages
from watersmeet.spark.run.spark_stages import SparkStage, fetch_all, fetch_small
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark

Cut = Callable[[Callable[[int], int]], None]


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """Return what lets connections from the JVM end early, after as many bytes as is said of their whole length."""
    connect = util._create_local_socket

    def to(length: Callable[[int], int]) -> None:
        def short(info: Any) -> tuple[io.BytesIO, socket.socket]:
            file, connection = connect(info)
            sent = file.read()
            return io.BytesIO(sent[: length(len(sent))]), connection

        monkeypatch.setattr(util, "_create_local_socket", short)

    return to


CUTS: dict[str, Callable[[int], int]] = {
    "at once": lambda length: 0,
    "in the schema": lambda length: 20,
    "in the rows": lambda length: length // 2,
    "before the count": lambda length: length - 12,  # two batches: their number, and the place of each
    "before the last place": lambda length: length - 4,
    "in the last place": lambda length: length - 1,
}


@pytest.mark.parametrize("name", CUTS)
def test_rows_cut_short_are_an_error(spark: SparkSession, cut: Cut, name: str) -> None:
    frame = spark.range(0, 4, 1, 2)
    assert fetch_all(frame).num_rows == 4
    cut(CUTS[name])
    for call in (fetch_all, lambda frame: fetch_small(frame, 10)):
        with pytest.raises(wm.StateError, match=r"before all rows had reached the driver: .* start again"):
            call(frame)


def test_what_collect_makes_of_it(spark: SparkSession, cut: Cut) -> None:
    """[!] Why nothing here collects: PySpark returns fewer rows, and no error. Should that change, so may the docs."""
    rows = spark.range(0, 4, 1, 2)
    cut(lambda length: length // 2)
    assert len(rows.collect()) < 4


def test_reports_cut_short_are_an_error(spark: SparkSession, cut: Cut) -> None:
    def report(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        yield messages([(attempt.partition, "here")])

    stage = SparkStage(spark.range(0, 4, 1, 2)).run(report, REPORT)
    assert pa.Table.from_batches(stage.collect()).column("node").to_pylist() == [0, 1]
    cut(lambda length: length - 12)
    with pytest.raises(wm.StateError, match="before all rows had reached"):
        stage.collect()


def test_a_static_join_cut_short_is_an_error_unless_it_is_collected(spark: SparkSession, cut: Cut) -> None:
    frame = spark.range(3).selectExpr("id", "timestamp_seconds(id) AS ts")
    found = wm.join(*(wm.stream(name, frame, time="ts") for name in "ab"), where="a.id = b.id").toDF()
    cut(lambda length: length - 4)
    with pytest.raises(EOFError):
        found.toArrow()
    assert found.count() == 3


PAIR = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(32, "ab", batches=2, nulls=0),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)


@pytest.mark.parametrize("exchange", ["driver", "local"])
def test_a_batch_cut_short_is_not_written_and_comes_again(
    spark: SparkSession, tmp_path: Path, cut: Cut, exchange: str
) -> None:
    write(tmp_path / "in", PAIR.batches)
    cut(lambda length: length - 4)
    with pytest.raises(wm.StateError, match="before all rows had reached the driver"):
        run(join_of(PAIR, frames(spark, tmp_path / "in", "ab")).writeStream, tmp_path, exchange)
    assert not results(tmp_path, "ab")
    cut(lambda length: length)
    run(join_of(PAIR, frames(spark, tmp_path / "in", "ab")).writeStream, tmp_path, exchange)
    assert results(tmp_path, "ab") == expected(PAIR).results
