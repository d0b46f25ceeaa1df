"""Mishaps around a checkpoint and its outputs: refused in a sentence before anything is lost, or exact."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark.harness import Case, cuts, expected, frames, join_of, results, run, side_ids, write
from watersmeet.spark.run.checks import require_separate_folders
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark

PAIR = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(32, "ab", batches=6, nulls=0),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)


def go_on(spark: SparkSession, folder: Path, batches: slice, **options: Any) -> None:
    """Run a join over more batches."""
    if more := PAIR.batches[batches]:
        write(folder / "in", more)
    writer = join_of(PAIR, frames(spark, folder / "in", "ab")).writeStream
    for name, value in options.items():
        writer = writer.option(name, value)
    run(writer, folder)


def test_a_refused_start_withdraws_nothing(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, old = tmp_path / "checkpoint", tmp_path / "old"
    go_on(spark, tmp_path, slice(0, 3))
    shutil.copytree(checkpoint, old)
    go_on(spark, tmp_path, slice(3, 5))
    done = results(tmp_path, "ab")
    checkpoint.rename(tmp_path / "newest")
    shutil.copytree(old, checkpoint)
    max(checkpoint.glob("watersmeet/chunks/*.arrow")).unlink()
    with pytest.raises(wm.StateError, match="is missing or empty"):
        go_on(spark, tmp_path, slice(5, 6))
    assert results(tmp_path, "ab") == done
    shutil.rmtree(checkpoint)
    (tmp_path / "newest").rename(checkpoint)
    go_on(spark, tmp_path, slice(6, 6))
    assert results(tmp_path, "ab") == expected(PAIR).results


def test_a_copy_does_not_write_where_its_original_does(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    go_on(spark, tmp_path, slice(0, 2))
    shutil.copytree(checkpoint, copy)
    go_on(spark, tmp_path, slice(2, 4))
    joined = join_of(PAIR, frames(spark, tmp_path / "in", "ab"))
    with pytest.raises(wm.DefinitionError, match=r"copy/watersmeet is a copy of the one at .*checkpoint/watersmeet"):
        joined.writeStream.option("checkpointLocation", str(copy)).start(str(tmp_path / "out"))
    writer = joined.writeStream.option("checkpointLocation", str(copy)).trigger(availableNow=True)
    writer.start(str(tmp_path / "elsewhere")).awaitTermination()
    go_on(spark, tmp_path, slice(4, 5))
    checkpoint.rename(tmp_path / "moved")
    write(tmp_path / "in", PAIR.batches[5:])
    writer = joined.writeStream.option("checkpointLocation", str(tmp_path / "moved")).trigger(availableNow=True)
    writer.start(str(tmp_path / "out")).awaitTermination()
    assert results(tmp_path, "ab") == expected(PAIR).results


def test_files_of_any_name_lie_about(spark: SparkSession, tmp_path: Path) -> None:
    go_on(spark, tmp_path, slice(0, 3))
    for folder in ("out", "checkpoint/watersmeet/chunks"):
        (Path(os.fsdecode(os.fsencode(tmp_path / folder) + b"/\xff\xfe"))).write_bytes(b"?")
    (tmp_path / "out" / "again").symlink_to(tmp_path / "out")
    go_on(spark, tmp_path, slice(3, 6))
    (tmp_path / "out" / "again").unlink()
    assert results(tmp_path, "ab") == expected(PAIR).results


def test_outputs_lie_apart() -> None:
    require_separate_folders(
        "/c/watersmeet", ("/o", "path"), ("/oa", "latePath, stream 'a'"), ("/c", "x"), ("/d/watersmeet2", "y")
    )
    with pytest.raises(
        wm.DefinitionError, match="path and latePath, stream 'a': of /o and /o/a, one lies in the other"
    ):
        require_separate_folders("/c/watersmeet", ("/o", "path"), ("/o/a", "latePath, stream 'a'"))
    with pytest.raises(wm.DefinitionError, match="two streams of different columns are called that"):
        require_separate_folders("/c/watersmeet", ("/o/a", "latePath, stream 'a'"), ("/o/a", "latePath, stream 'a'"))
    with pytest.raises(wm.DefinitionError, match="path and latePath, stream 'a' are the same folder, /o/a; give"):
        require_separate_folders("/c/watersmeet", ("/o/a", "path"), ("/o/a", "latePath, stream 'a'"))
    with pytest.raises(wm.DefinitionError, match="path: /c/watersmeet/chunks is where the join keeps its state"):
        require_separate_folders("/c/watersmeet", ("/c/watersmeet/chunks", "path"))


def test_late_and_rejected_rows_want_two_folders(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(wm.DefinitionError, match="are the same folder"):
        go_on(spark, tmp_path, slice(0, 1), latePath=str(tmp_path / "s"), rejectedPath=str(tmp_path / "s"))


def test_late_rows_of_a_nested_join_with_a_stream_of_the_same_name(spark: SparkSession, tmp_path: Path) -> None:
    batches = [
        {"a": [{"id": 1, "ts": 100, "x": 1.0, "k": "p"}], "b": [{"id": 2, "ts": 100, "x": 1.0, "k": "p"}]},
        {"a": [{"id": 3, "ts": 101, "x": 1.0, "k": "p"}], "b": [{"id": 4, "ts": 0, "x": 1.0, "k": "p"}]},
    ]
    write(tmp_path / "in", batches)
    given = frames(spark, tmp_path / "in", "ab")
    inner = wm.join(
        *(wm.stream(name, given[name], time="ts", window="10 seconds") for name in "ab"),
        where="a.x = b.x",
        select="a.ts AS ts, a.x AS x",
    )
    outer = wm.join(
        wm.stream("i", inner, time="ts", window="10 seconds"),
        wm.stream("b", given["b"], time="ts", window="10 seconds"),
        where="i.x = b.x",
        select="b.id AS id",
    )
    run(outer.writeStream.option("latePath", str(tmp_path / "late")), tmp_path)
    assert side_ids(tmp_path / "late", "b").total() == 2


def test_an_error_of_the_users_own_function_is_told(spark: SparkSession, tmp_path: Path) -> None:
    def consume(frame: DataFrame, batch: int) -> None:
        raise ValueError("my table is locked")

    write(tmp_path / "in", PAIR.batches)
    joined = join_of(PAIR, frames(spark, tmp_path / "in", "ab"))
    with pytest.raises(wm.StateError, match="Batch 0 was not written: ValueError: my table is locked; start") as told:
        run(joined.writeStream.foreachBatch(consume), tmp_path)
    assert isinstance(told.value.__cause__, ValueError)


def divide(frame: DataFrame, batch: int) -> None:
    frame.selectExpr("1 / (a.id - a.id) AS n").collect()


def leave(frame: DataFrame, batch: int) -> None:
    sys.exit(3)


@pytest.mark.parametrize(("consume", "says"), [(divide, "Division by zero"), (leave, "SystemExit: 3")])
def test_what_raises_in_the_sink_is_not_the_input(
    spark: SparkSession, tmp_path: Path, consume: Callable[[DataFrame, int], None], says: str
) -> None:
    """[!] What ends the thread that Spark waits for would leave the query waiting for ever."""
    write(tmp_path / "in", PAIR.batches)
    joined = join_of(PAIR, frames(spark, tmp_path / "in", "ab"))
    with pytest.raises(wm.StateError, match=f"Batch 0 was not written: .*{says}.*; start the query again"):
        run(joined.writeStream.foreachBatch(consume), tmp_path)


@pytest.mark.parametrize("path", ["", "x\0y", "x\udcff"])
def test_what_is_no_path(spark: SparkSession, tmp_path: Path, path: str) -> None:
    write(tmp_path / "in", PAIR.batches)
    joined = join_of(PAIR, frames(spark, tmp_path / "in", "ab"))
    with pytest.raises(wm.DefinitionError, match=r"is not a path|give a string such as '/data/matches'"):
        joined.writeStream.option("checkpointLocation", str(tmp_path / "c")).start(path)


def test_a_folder_where_a_file_should_be(spark: SparkSession, tmp_path: Path) -> None:
    go_on(spark, tmp_path, slice(0, 1))
    described = tmp_path / "checkpoint/watersmeet/query.json"
    described.unlink()
    described.mkdir()
    with pytest.raises(wm.StateError, match="The query was not started: Is a directory"):
        go_on(spark, tmp_path, slice(1, 2))
