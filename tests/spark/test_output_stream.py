"""The output as others read it: before there are results, and as a stream, through crashes of the join."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

import watersmeet as wm
from tests.budget import one_in
from tests.spark.crashing_join import Steps
from tests.spark.harness import Case, cuts, expected, frames, join_of, run, side_ids, write
from watersmeet.spark.output.files import Mover, Root
from watersmeet.spark.run.batch import BatchRunner
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark

CASE = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(61, "ab", batches=5, nulls=0, null_times=0.1),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)
SELECT = "a.id AS a, b.id AS b, a.k AS k, _time AS at"
COLUMNS = (
    T.StructType().add("a", T.LongType()).add("b", T.LongType()).add("k", T.StringType()).add("at", T.TimestampType())
)
FORMATS = [("parquet", True), ("json", True), ("parquet", False), ("orc", False)]


class CutShort(Exception):
    """Ends a run where a crash would."""


def cut_short(step: str) -> None:
    raise CutShort(step)


@contextmanager
def reader(spark: SparkSession, folder: Path, format: str, seen: list[Any]) -> Iterator[StreamingQuery]:
    """A stream of Spark's over the join's output, with a checkpoint of its own."""

    def take(frame: DataFrame, batch: int) -> None:
        seen.extend((row.a, row.b) for row in frame.collect())

    rows = spark.readStream.schema(COLUMNS).format(format).load(str(folder / "out"))
    query = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "reader")).start()
    try:
        yield query
    finally:
        query.stop()


def amid_delivery(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """Cut the run when so many files of a batch have appeared."""
    move, left = Mover.move, [files]

    def cut(mover: Mover, source: Root, file: str, name: str) -> None:
        left[0] -= Path(source[1], file).exists()
        if left[0] < 0:
            raise CutShort("delivery")
        move(mover, source, file, name)

    monkeypatch.setattr(Mover, "move", cut)


@pytest.mark.parametrize("written", one_in(4, FORMATS))
def test_a_stream_over_the_output_sees_each_result_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: tuple[str, bool]
) -> None:
    """[!] Cut at every step that touches the output, each time gone on with by other nodes."""
    format, parted = written
    write(tmp_path / "in", CASE.batches)
    claim, seen, nodes = BatchRunner.open, list[Any](), iter([2, 3, 1, 4, 2, 3])

    def go_on(*die: Any) -> None:
        monkeypatch.setattr(BatchRunner, "open", Steps(die or None, cut_short).watching(claim))
        joined = join_of(CASE, frames(spark, tmp_path / "in", "ab"), select=SELECT, strategy=wm.PSP(next(nodes)))
        writer = joined.writeStream.format(format)
        run(writer.partitionBy("k") if parted else writer, tmp_path)

    with pytest.raises(wm.StateError, match="CutShort: sink"):
        go_on("sink", 1)
    assert not list((tmp_path / "out").rglob("part-b*")), "nothing appears before its manifest"
    with reader(spark, tmp_path, format, seen) as downstream:
        for die in (("sink", 1), ("manifest", 1), ("delivery", 2)):
            with pytest.raises(wm.StateError, match=f"CutShort: {die[0]}"):
                go_on(*die)
            downstream.processAllAvailable()
        with monkeypatch.context() as patch:
            amid_delivery(patch, 1)
            with pytest.raises(wm.StateError, match=r"Batch \d is safe, but its files .* folders: CutShort: delivery"):
                go_on()
        downstream.processAllAvailable()
        go_on()
        downstream.processAllAvailable()
    wanted = Counter(ids for ids, _ in expected(CASE).results.elements())
    assert Counter(seen) == wanted
    if format == "parquet":  # who lists the folder himself finds the same, and nothing unfinished
        found = duckdb.execute(f"SELECT a, b FROM read_parquet('{tmp_path}/out/**/*.parquet')").fetchall()
        assert Counter(found) == wanted
    assert not (tmp_path / "out" / "_watersmeet_staging").exists()


def test_a_batch_that_was_not_delivered_goes_where_the_output_is_now(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", CASE.batches)
    claim, out = BatchRunner.open, tmp_path / "out"
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab"), select=SELECT).writeStream
    writer = writer.option("latePath", str(tmp_path / "late"))
    monkeypatch.setattr(BatchRunner, "open", Steps(["manifest", 3], cut_short).watching(claim))
    with pytest.raises(wm.StateError, match="CutShort: manifest"):
        run(writer, tmp_path)
    before = len(list(out.glob("part-b*")))
    monkeypatch.setattr(BatchRunner, "open", claim)
    checkpoint = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    checkpoint.start(str(tmp_path / "new")).awaitTermination()
    assert len(list(out.glob("part-b*"))) == before and list((tmp_path / "new").glob("part-b2-*"))
    found = spark.read.parquet(str(out), str(tmp_path / "new"))
    assert Counter((row.a, row.b) for row in found.collect()) == Counter(
        ids for ids, _ in expected(CASE).results.elements()
    )
    assert side_ids(tmp_path / "late", "ab").total() == len(expected(CASE).late)


# -- before there are results

NOTHING = [("parquet", ()), ("orc", ()), ("parquet", ("k",)), ("csv", ()), ("json", ()), ("csv", ("k",))]


@pytest.mark.parametrize("written", one_in(2, NOTHING))
def test_no_results_is_an_empty_output(
    spark: SparkSession, tmp_path: Path, written: tuple[str, tuple[str, ...]]
) -> None:
    format, parts = written
    (tmp_path / "in").mkdir()
    empty = spark.readStream.schema("id bigint, ts timestamp, x double, k string").parquet(str(tmp_path / "in"))
    streams = [wm.stream(name, empty, time="ts", window="10 seconds") for name in "ab"]
    writer = wm.join(*streams, select=SELECT).writeStream.format(format).partitionBy(*parts)
    writer = writer.option("header", True) if format == "csv" else writer
    late = writer.option("latePath", str(tmp_path / "late"))
    for _ in range(2):
        run(late, tmp_path)
    out = str(tmp_path / "out")
    read: Callable[[str], DataFrame] = spark.read.option("header", True).format(format).load
    if format != "json" and not (parts and format != "parquet"):
        names = ["a", "b", "at", "k"] if parts else ["a", "b", "k", "at"]
        assert read(out).columns == names and read(out).count() == 0
    if format in ("parquet", "orc"):
        assert {field.name: field.dataType for field in read(out).schema} == {
            field.name: field.dataType for field in COLUMNS
        }
    assert spark.read.schema(COLUMNS).format(format).load(out).count() == 0
    assert spark.read.parquet(str(tmp_path / "late" / "a")).columns == ["id", "ts", "x", "k"]
    seen = list[Any]()
    with reader(spark, tmp_path, format, seen) as downstream:
        downstream.processAllAvailable()
    assert seen == []
    assert len([path for path in (tmp_path / "out").iterdir() if path.is_file()]) <= 1, "a restart adds nothing"


def test_columns_stay_right_when_results_come(spark: SparkSession, tmp_path: Path) -> None:
    """The file that says which columns there are, before there is a folder for any value, is no row of its own."""
    write(tmp_path / "in", CASE.batches[:1])
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab"), select=SELECT).writeStream.partitionBy("k")
    query = run(writer, tmp_path)
    read = spark.read.parquet(str(tmp_path / "out"))
    assert read.columns == ["a", "b", "at", "k"] and read.count() == query.progress[-1]["outputRows"] > 0
    hive = f"SELECT a, b, k FROM read_parquet('{tmp_path}/out/**/*.parquet', hive_partitioning = true)"
    assert len(duckdb.execute(hive).fetchall()) == read.count()
