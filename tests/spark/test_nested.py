"""Joins whose streams are joins: linear, bushy and semi-bushy plans give what the flat definition says."""

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark import harness
from tests.spark.harness import EPOCH, SECOND, cuts, micros, through
from tests.times import instant

pytestmark = pytest.mark.spark
NAMES = "abcd"


def _rows(batches: Any, name: str) -> list[dict[str, Any]]:
    return [{**row, "ts": micros(row["ts"])} for batch in batches for row in batch[name]]


def _run_join(
    left: list[dict[str, Any]], right: list[dict[str, Any]], sizes: tuple[int, int], width: float
) -> list[dict[str, Any]]:
    """The results of a band join of two inputs as rows: ids, values of the right one, and the time T."""
    found = []
    for one, two in product(left, right):
        last = max(one["ts"], two["ts"])
        in_time = last - one["ts"] < sizes[0] * SECOND and last - two["ts"] < sizes[1] * SECOND
        if in_time and None not in (one["x"], two["x"]) and abs(one["x"] - two["x"]) < width:
            found.append({"id": (one["id"], two["id"]), "x": two["x"], "ts": last})
    return found


def _stream(name: str, frame: Any, **more: Any) -> Any:
    return wm.stream(name, frame, window="10 seconds", delay="60 seconds", **more)


def _pair(frames: dict[str, Any], left: str, right: str) -> wm.Join:
    return wm.join(
        _stream(left, frames[left], time="ts"),
        _stream(right, frames[right], time="ts"),
        where=f"abs({left}.x - {right}.x) < 2",
        select=f"{left}.id AS l, {right}.id AS r, {right}.x AS x",
        strategy=wm.PSP(2),
    )


def _run(join: wm.Join, folder: Path, exchange: str) -> tuple[Counter[Any], list[Any]]:
    writer = join.writeStream.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "ck"))
    query = writer.option("exchange", exchange).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = join.spark.read.parquet(str(folder / "out")).collect() if (folder / "out").exists() else []
    return Counter(tuple(row) for row in rows), query.progress


@through()
def test_a_linear_plan(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    batches = cuts(5, "abc", batches=3)
    harness.write(tmp_path / "in", batches)
    frames = harness.frames(spark, tmp_path / "in", "abc")
    outer = wm.join(
        _stream("ab", _pair(frames, "a", "b")),
        _stream("c", frames["c"], time="ts"),
        where="abs(ab.x - c.x) < 2",
        select="ab.l, ab.r, c.id AS c",
    )
    found, progress = _run(outer, tmp_path, exchange)
    inner = _run_join(_rows(batches, "a"), _rows(batches, "b"), (10, 10), 2)
    wanted = _run_join(inner, _rows(batches, "c"), (10, 10), 2)
    assert found == Counter((*row["id"][0], row["id"][1]) for row in wanted)
    assert len(wanted) > 20
    assert progress[-1]["outputRows"] >= 0


def test_a_bushy_plan_survives_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    batches = cuts(6, NAMES, batches=4, rows=6)
    harness.write(tmp_path / "in", batches[:2])

    def run() -> Counter[Any]:
        frames = harness.frames(spark, tmp_path / "in", NAMES)
        outer = wm.join(
            _stream("ab", _pair(frames, "a", "b")),
            _stream("cd", _pair(frames, "c", "d")),
            where="abs(ab.x - cd.x) < 2",
            select="ab.l AS a, ab.r AS b, cd.l AS c, cd.r AS d",
        )
        return _run(outer, tmp_path, "local")[0]

    run()
    harness.write(tmp_path / "in", batches[2:])
    found = run()
    left = _run_join(_rows(batches, "a"), _rows(batches, "b"), (10, 10), 2)
    right = _run_join(_rows(batches, "c"), _rows(batches, "d"), (10, 10), 2)
    wanted = _run_join(left, right, (10, 10), 2)
    assert found == Counter((*row["id"][0], *row["id"][1]) for row in wanted)
    assert len(wanted) > 20


@pytest.mark.slow
def test_the_watermark_of_a_nested_join_is_the_inner_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    # a and b far apart in time: the inner join has no results, and yet its watermark moves on and lets c's state go.
    batches = [
        {
            "a": [{"id": at, "ts": 20 * at, "x": 0.0, "k": None}],
            "b": [{"id": at, "ts": 20 * at, "x": 100.0, "k": None}],
            "c": [{"id": at, "ts": 20 * at, "x": 0.0, "k": None}],
        }
        for at in range(4)
    ]
    harness.write(tmp_path / "in", batches)
    frames = harness.frames(spark, tmp_path / "in", "abc")
    streams = [wm.stream(n, frames[n], time="ts", window="10 seconds", delay="0 seconds") for n in "abc"]
    inner = wm.join(streams[0], streams[1], where="a.x = b.x")
    outer = wm.join(wm.stream("ab", inner, window="10 seconds"), streams[2], select="c.id AS c")
    found, progress = _run(outer, tmp_path, "local")
    assert not found
    assert [instant(p["watermark"]) for p in progress] == [EPOCH + 20 * at * SECOND for at in range(4)]
    assert progress[-1]["stateRows"] == 1


def test_static_joins_nest(spark: SparkSession, tmp_path: Path) -> None:
    batches = cuts(7, "abc", batches=2)
    frames = {n: spark.createDataFrame(harness.table([r for b in batches for r in b[n]])) for n in "abc"}
    outer = wm.join(
        _stream("ab", _pair(frames, "a", "b")),
        _stream("c", frames["c"], time="ts"),
        where="abs(ab.x - c.x) < 2",
        select="ab.l, ab.r, c.id AS c",
    )
    found = Counter(tuple(row) for row in outer.toDF().collect())
    inner = _run_join(_rows(batches, "a"), _rows(batches, "b"), (10, 10), 2)
    assert found == Counter((*r["id"][0], r["id"][1]) for r in _run_join(inner, _rows(batches, "c"), (10, 10), 2))


def test_an_inner_join_without_its_time_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    harness.write(tmp_path / "in", cuts(7, "ab", batches=1))
    frames = harness.frames(spark, tmp_path / "in", "ab")
    streams = [_stream(name, frames[name], time="ts") for name in "ab"]
    inner = wm.join(*streams, select="a.x + b.x AS total")
    static = {n: spark.createDataFrame(harness.table(cuts(7, "ab", batches=1)[0][n])) for n in "ab"}
    same = wm.join(*(_stream(n, static[n], time="ts") for n in "ab"), select="a.x + b.x AS total, a.ts AS seen")
    for given, text in ((inner, "a.x \\+ b.x AS total"), (same, "a.x \\+ b.x AS total, a.ts AS seen")):
        with pytest.raises(wm.DefinitionError, match=f"add _time to '{text}'"):
            wm.stream("ab", given, window="10 seconds")
    assert wm.stream("ab", same, time="seen", window="10 seconds")._ws_part.schema.names == ["total", "seen"]


TIMES = {
    "plain": ("{l}.id AS l, {r}.id AS r, {r}.x AS x, {l}.ts AS _time", "_time"),
    "computed": ("{l}.id AS l, {r}.id AS r, {r}.x + 0 AS x, {l}.ts AS Seen, _time", "seen"),
}


@pytest.mark.parametrize("how", one_in(2, TIMES))
def test_the_time_of_a_nested_join_may_be_a_members(spark: SparkSession, tmp_path: Path, how: str) -> None:
    # An inner result's time is up to the inner window behind the inner watermark: no result is late for that.
    select, time = TIMES[how]
    batches = cuts(8, "abc", batches=4)
    harness.write(tmp_path / "in", batches)
    frames = harness.frames(spark, tmp_path / "in", "abc")
    a, b, c = (wm.stream(n, frames[n], time="ts", window="20 seconds", delay="12 seconds") for n in "abc")
    inner = wm.join(a, b, where="abs(a.x - b.x) < 2", select=select.format(l="a", r="b"))
    outer = wm.join(
        wm.stream("ab", inner, time=time, window="10 seconds"),
        c,
        where="abs(ab.x - c.x) < 2",
        select="ab.l, ab.r, c.id AS c",
    )
    found, progress = _run(outer, tmp_path, "driver")
    times = {row["id"]: row["ts"] for row in _rows(batches, "a")}
    results = [{**r, "ts": times[r["id"][0]]} for r in _run_join(_rows(batches, "a"), _rows(batches, "b"), (20, 20), 2)]
    wanted = _run_join(results, _rows(batches, "c"), (10, 20), 2)
    assert found == Counter((*row["id"][0], row["id"][1]) for row in wanted)
    assert len(wanted) > 20 and sum(p["lateRows"] for p in progress) == 0
    latest = [min(max(row["ts"] for row in _rows(batches, n)) for n in "ab"), max(r["ts"] for r in _rows(batches, "c"))]
    assert instant(progress[-1]["watermark"]) == min(latest[0] - 20 * SECOND + 1, latest[1]) - 12 * SECOND
    assert progress[-1]["heldBackBy"] == "ab"


def test_a_nested_join_on_another_time_needs_a_delay_and_has_it(spark: SparkSession, tmp_path: Path) -> None:
    batches = cuts(9, "abc", batches=3)
    harness.write(tmp_path / "in", batches)
    frames = harness.frames(spark, tmp_path / "in", "abc")
    a, b, c = (wm.stream(n, frames[n], time="ts", window="20 seconds", delay="12 seconds") for n in "abc")
    select = "a.id AS l, b.id AS r, b.x AS x, a.ts - INTERVAL 30 SECONDS AS at, _time"
    inner = wm.join(a, b, where="abs(a.x - b.x) < 2", select=select)
    with pytest.raises(wm.DefinitionError, match=r"Stream 'ab': its 'at' is neither the results' _time nor the event"):
        wm.stream("ab", inner, time="at", window="10 seconds")
    unbounded = wm.join(wm.stream("a", frames["a"], time="ts"), b, select="a.ts AS at, _time")
    with pytest.raises(wm.DefinitionError, match=r"give delay='...', how far behind the latest one a result may come"):
        wm.stream("ab", unbounded, time="at", window="10 seconds")
    outer = wm.join(
        wm.stream("ab", inner, time="at", window="40 seconds", delay="50 seconds"), c, select="ab.l, ab.r, c.id AS c"
    )
    found, progress = _run(outer, tmp_path, "driver")
    times = {row["id"]: row["ts"] - 30 * SECOND for row in _rows(batches, "a")}
    results = [{**r, "ts": times[r["id"][0]]} for r in _run_join(_rows(batches, "a"), _rows(batches, "b"), (20, 20), 2)]
    wanted = [
        (*r["id"], row["id"])
        for r, row in product(results, _rows(batches, "c"))
        if -40 * SECOND < r["ts"] - row["ts"] < 20 * SECOND
    ]
    assert found == Counter(wanted)
    assert len(wanted) > 20 and sum(p["lateRows"] for p in progress) == 0
    assert instant(progress[-1]["watermark"]) == max(r["ts"] for r in results) - 50 * SECOND
