"""Where results go: files of each kind, tables, the user's own function; and what a running join tells of itself."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import (
    EPOCH,
    SECOND,
    Case,
    cuts,
    expected,
    frames,
    join_of,
    results,
    run,
    table,
    through,
    write,
)
from tests.times import instant
from watersmeet.limits import Limits, limited
from watersmeet.testing import write_batches
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark

CASE = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(51, "ab", batches=2, nulls=0),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)
SELECT = "a.id AS a, b.id AS b, a.k AS k"


@pytest.fixture(scope="module")
def inputs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    folder = tmp_path_factory.mktemp("inputs")
    write(folder, CASE.batches)
    return frames(spark, folder, "ab")


@pytest.fixture(scope="module")
def flat(inputs: dict[str, DataFrame]) -> wm.Join:
    return join_of(CASE, inputs, select=SELECT)


def expected_results() -> Counter[Any]:
    rows = {row["id"]: row for batch in CASE.batches for found in batch.values() for row in found}
    return Counter((a, b, rows[a]["k"]) for (a, b), _ in expected(CASE).results.elements())


def rows_of(frame: DataFrame) -> Counter[Any]:
    return Counter((row.a, row.b, row.k) for row in frame.collect())


@pytest.mark.parametrize("format", one_in(3, ["orc", "json", "parquet"]))
def test_files_of_each_kind_in_folders_by_column(
    spark: SparkSession, flat: wm.Join, tmp_path: Path, format: str
) -> None:
    run(flat.writeStream.format(format).partitionBy("k"), tmp_path)
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir() if "=" in path.name} == {
        "k=p",
        "k=q",
        "k=__HIVE_DEFAULT_PARTITION__",
    }
    files = {path.name for path in out.rglob("*") if path.is_file()} - {"_common_metadata"}
    assert all(name.startswith(("part-b0-", "part-b1-")) for name in files)
    read = spark.read.schema("a long, b long, k string").format(format).load(str(out))
    assert rows_of(read) == expected_results()


def test_names_of_formats_and_options_are_looked_up_as_spark_does(flat: wm.Join, tmp_path: Path) -> None:
    """[!] Under another spelling of its format Spark appended to the output, and a replay doubled its rows."""
    writer = flat.writeStream.format("PARQUET")
    with pytest.raises(wm.DefinitionError, match="exchange 'nosuch'"):
        writer.options(EXCHANGE="nosuch", checkpointlocation=str(tmp_path / "no")).start(str(tmp_path / "no"))
    run(writer, tmp_path)
    files = [path.name for path in (tmp_path / "out").iterdir() if path.suffix == ".parquet"]
    assert len(files) > 1 and all(name.startswith(("part-empty-", "part-b0-", "part-b1-")) for name in files)


def test_csv_with_options(spark: SparkSession, flat: wm.Join, tmp_path: Path) -> None:
    run(flat.writeStream.format("csv").option("header", True).options(sep="|"), tmp_path)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert all(path.read_text().startswith("a|b|k\n") for path in files)
    assert (
        rows_of(spark.read.csv(str(tmp_path / "out"), header=True, sep="|", schema="a long, b long, k string"))
        == expected_results()
    )


def test_structs_in_json(spark: SparkSession, inputs: dict[str, DataFrame], tmp_path: Path) -> None:
    run(join_of(CASE, inputs).writeStream.format("json"), tmp_path)
    read = spark.read.json(str(tmp_path / "out"))
    got = Counter((row.a.id, row.b.id) for row in read.select("a", "b").collect())
    assert got == Counter(ids for ids, _ in expected(CASE).results.elements())


@through("driver")
def test_each_batch_is_materialised_before_user_code_sees_it(flat: wm.Join, tmp_path: Path, exchange: str) -> None:
    """[!] A lazy frame would lose state: take runs one node, filter(false) none, orderBy and count each twice."""
    rows, batches = list[Any](), list[int]()

    def consume(frame: DataFrame, batch: int) -> None:
        batches.append(batch)
        frame.take(1)
        assert frame.filter("false").count() == 0
        rows.extend(frame.orderBy("a").collect())
        assert frame.count() == frame.count()

    run(flat.writeStream.foreachBatch(consume), tmp_path, exchange)
    assert batches == [0, 1]
    assert Counter((row.a, row.b, row.k) for row in rows) == expected_results()


def test_foreach_batch_that_ignores_a_frame_loses_nothing(flat: wm.Join, tmp_path: Path) -> None:
    """[!] The first batch's rows must be in the state although nobody looked at the first batch's results."""
    rows = list[Any]()

    def consume(frame: DataFrame, batch: int) -> None:
        if batch:
            rows.extend(frame.collect())

    query = run(flat.writeStream.foreachBatch(consume), tmp_path)
    assert sum(p["outputRows"] for p in query.progress) == expected_results().total()
    assert len(rows) == query.progress[1]["outputRows"] > 0


def test_a_table(spark: SparkSession, flat: wm.Join, tmp_path: Path) -> None:
    spark.sql("DROP TABLE IF EXISTS joined")
    writer = flat.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    try:
        writer.toTable("joined", path=str(tmp_path / "table")).awaitTermination()
        assert rows_of(spark.table("joined")) == expected_results()
    finally:
        spark.sql("DROP TABLE IF EXISTS joined")


def test_memory_and_names(spark: SparkSession, flat: wm.Join, tmp_path: Path) -> None:
    writer = flat.writeStream.format("memory").queryName("remembered").outputMode("append")
    query = run(writer, tmp_path)
    assert rows_of(spark.table("remembered")) == expected_results()
    assert query.name == "remembered" and not query.isActive and query.exception() is None


def test_console(flat: wm.Join, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(flat.writeStream.format("console").option("numRows", 2), tmp_path)
    shown = capsys.readouterr().out
    assert "Batch: 0" in shown and "Batch: 1" in shown and "|  a|  b|" in shown


def test_other_formats_are_sparks_own(flat: wm.Join, tmp_path: Path) -> None:
    assert run(flat.writeStream.format("noop"), tmp_path).progress[-1]["batchId"] == 1


# -- progress

KEYS = {
    *("batchId", "inputRows", "lateRows", "rejectedRows", "outputRows", "stateRows", "distinctRows", "purgedRows"),
    *("nodes", "hops", "order", "strategy", "watermark", "heldBackBy", "warnings", "latencyMs", "durationMs"),
}


@pytest.mark.parametrize(
    ("limit", "process"), [(Limits().driver_rows, "driver"), (3, "task"), (0, "task")], ids=["small", "large", "wide"]
)
def test_small_batches_run_in_the_driver(
    inputs: dict[str, DataFrame], tmp_path: Path, limit: int, process: str
) -> None:
    with limited(driver_rows=limit):
        query = run(join_of(CASE, inputs).writeStream, tmp_path, "driver")
    assert [p["process"] for p in query.progress] == [process] * 2
    assert sum(p["outputRows"] for p in query.progress) == expected(CASE).results.total()


def test_batches_that_take_long_run_in_tasks(inputs: dict[str, DataFrame], tmp_path: Path) -> None:
    with limited(driver_seconds=1e-9):
        query = run(join_of(CASE, inputs).writeStream, tmp_path, "driver")
    assert [p["process"] for p in query.progress] == ["driver", "task"]  # what a batch takes is known after the first
    assert sum(p["outputRows"] for p in query.progress) == expected(CASE).results.total()


def test_a_running_join_explains_what_it_measured(
    inputs: dict[str, DataFrame], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = run(join_of(CASE, inputs, order="selectivity").writeStream, tmp_path, "driver")
    query.explain()
    shown = capsys.readouterr().out
    assert "latency from reading a row to its results in the sink: " in shown
    assert shown.count(" estimated, ") == shown.count(" measured") == 2  # one hop for each of two streams


@through("shuffle")
def test_progress(inputs: dict[str, DataFrame], tmp_path: Path, exchange: str) -> None:
    query = run(join_of(CASE, inputs, strategy=wm.PSP(2)).writeStream, tmp_path, exchange)
    assert [p["batchId"] for p in query.progress] == [0, 1]
    for at, p in enumerate(query.progress):
        assert set(p) >= KEYS
        assert p["inputRows"] == {name: len(rows) for name, rows in CASE.batches[at].items()}
        assert (p["lateRows"], p["rejectedRows"]) == (0, 0)
        assert p["stateRows"] == p["distinctRows"] == sum(node["rows"] for node in p["nodes"])
        assert len(p["nodes"]) == 2 and all(set(node) >= {"rows", "bytes", "cpuMs", "pairs"} for node in p["nodes"])
        (hop,) = p["hops"]
        taken = sum(p["inputRows"].values())
        assert hop["rowsIn"] == taken
        # A tuple visits each node that holds part of its range; elsewhere nothing travels.
        assert hop["rowsShuffled"] == 0 if exchange != "shuffle" else taken / 2 <= hop["rowsShuffled"] <= 2 * taken
        assert hop["matches"] == p["outputRows"] <= hop["pairs"]
        assert p["order"] == {"a": [["b"]], "b": [["a"]]} and p["strategy"] == "PSP(nodes=2)"
        assert p["heldBackBy"] in "ab"
        assert set(p["durationMs"]) == {"plan", "job", "commit", "total"}
        parts = p["durationMs"]["plan"] + p["durationMs"]["job"] + p["durationMs"]["commit"]
        assert 0 < parts <= p["durationMs"]["total"] + 1
        assert 0 < p["latencyMs"]["p50"] <= p["latencyMs"]["p95"] <= p["latencyMs"]["p99"] <= p["durationMs"]["total"]
    first, second = query.progress
    taken = sum(second["inputRows"].values())
    assert second["stateRows"] == first["stateRows"] + taken - second["purgedRows"]


# -- triggers that go on


def _seconds(watermark: str | None) -> float | None:
    time = instant(watermark)
    return None if time is None else (time - EPOCH) / SECOND


@pytest.mark.parametrize("set_back", one_in(2, [3600, 0]))
def test_files_that_come_later_and_a_stream_that_falls_silent(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_back: int
) -> None:
    """Once 'b' has been silent for longer than its timeout, 'a' alone moves the watermark; never before."""
    clock = time.time
    write(tmp_path / "in", CASE.batches[:1])
    inputs = frames(spark, tmp_path / "in", "ab")
    streams = [
        wm.stream("a", inputs["a"], time="ts", window="10 seconds", delay="5 seconds"),
        wm.stream("b", inputs["b"], time="ts", window="10 seconds", delay="5 seconds", idle="1 second"),
    ]
    writer = wm.join(*streams, where="a.x < b.x").writeStream.trigger(processingTime="200 milliseconds")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
        write(tmp_path / "in", CASE.batches[1:2])
        query.processAllAvailable()
        assert results(tmp_path, "ab") == expected(CASE).results
        held = query.progress[-1]
        assert held["idle"] == []
        monkeypatch.setattr(time, "time", lambda: clock() - set_back)
        time.sleep(1.2)
        write_batches(tmp_path / "in" / "a", [table([{"id": 900, "ts": 50, "x": 0.0, "k": None}])])
        query.processAllAvailable()
        assert query.progress[-1]["idle"] == ["b"] and query.progress[-1]["heldBackBy"] == "a"
        assert _seconds(query.progress[-1]["watermark"]) == 45
        # It is heard again: its rows behind the watermark are late, the watermark does not fall.
        rows = [{"id": 901, "ts": 44, "x": 1.0, "k": None}, {"id": 902, "ts": 46, "x": 1.0, "k": None}]
        write_batches(tmp_path / "in" / "b", [table(rows)])
        query.processAllAvailable()
        assert query.progress[-1]["lateRows"] == 1 and query.progress[-1]["idle"] == []
        assert _seconds(query.progress[-1]["watermark"]) == 45
        assert results(tmp_path, "ab") - expected(CASE).results == Counter({((900, 902), EPOCH + 50 * SECOND): 1})
    finally:
        query.stop()


def test_no_stream_is_idle_under_available_now(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches)
    write_batches(tmp_path / "in" / "a", [table([{"id": 900, "ts": 50, "x": 0.0, "k": None}])])
    inputs = frames(spark, tmp_path / "in", "ab")
    options: dict[str, Any] = {"time": "ts", "window": "10 seconds", "delay": "5 seconds", "idle": "0 seconds"}
    joined = wm.join(*(wm.stream(name, inputs[name], **options) for name in "ab"))
    query = run(joined.writeStream, tmp_path)
    assert [p["idle"] for p in query.progress] == [[], [], []]
    latest = max(row["ts"] for batch in CASE.batches for row in batch["b"])
    assert _seconds(query.progress[-1]["watermark"]) == latest - 5
