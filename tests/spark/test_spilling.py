"""Spilling through Spark: every result comes, exactly once, through rounds, stops and restarts."""

from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark import harness
from tests.spark.harness import Case, cuts, expected, frames, join_of, results, through
from tests.times import instant
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


@through()
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
    assert [instant(p["watermark"]) for p in query.progress if not p["round"]] == list(
        expected(case).watermarks.values()
    )


@pytest.mark.slow
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
    query.settle()  # nothing is owed


def test_stop_can_settle_amid_batches(spark: SparkSession, tmp_path: Path) -> None:
    """The batch under way is finished; the one that Spark begins meanwhile is left to the next start."""
    case = case_of(8, batches=6)
    harness.write(tmp_path / "in", case.batches)
    inputs, under_way = frames(spark, tmp_path / "in", case.names), Event()

    def slow(step: str) -> None:
        if step == "sink":
            under_way.set()
            sleep(1.0)

    writer = join_of(case, inputs, spill=TIGHT).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    query._runner.after = slow
    assert under_way.wait(60)
    query.stop(settle=True)
    done = sum(not p["round"] for p in query.progress)
    assert 0 < done < 6 and query.exception() is None and not query.isActive
    known = expected(Case(case.streams, case.batches[:done], case.where, case.holds, strategy=case.strategy))
    assert results(tmp_path, case.names) == known.results
    harness.run(join_of(case, frames(spark, tmp_path / "in", case.names), spill=TIGHT).writeStream, tmp_path)
    assert results(tmp_path, case.names) == expected(case).results


@pytest.mark.slow
@pytest.mark.parametrize("step", ["sink", "job", "reports", "manifest"])
def test_a_round_that_is_cut_is_finished_first(spark: SparkSession, tmp_path: Path, step: str) -> None:
    case = case_of(4, "abc", wm.Hash(2), batches=5)
    harness.write(tmp_path / "in", case.batches[:3])
    inputs = frames(spark, tmp_path / "in", case.names)
    spill = wm.Spill(memory=1, partitions=3, policy="random", oldest="1 hour")
    writer = join_of(case, inputs, spill=spill).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    assert query._rounds is not None
    query._rounds.end()
    query.processAllAvailable()

    def cut(at: str) -> None:
        if at == step:
            raise RuntimeError("cut")

    query._runner.after = cut
    with pytest.raises(wm.StateError, match="cut"):
        query.settle()
    query.stop()
    harness.write(tmp_path / "in", case.batches[3:])
    harness.run(join_of(case, frames(spark, tmp_path / "in", case.names), spill=spill).writeStream, tmp_path)
    wanted = expected(case).results
    assert results(tmp_path, case.names) == wanted and wanted.total() > 50


@pytest.mark.slow
def test_a_plan_of_joins_settles_as_a_whole(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    batches = cuts(7, "abc", batches=4)
    harness.write(tmp_path / "in", batches)

    def make_join(spill: wm.Spill | None) -> wm.Join:
        inputs = frames(spark, tmp_path / "in", "abc")
        window: Any = {"window": "10 seconds", "delay": "5 seconds", "time": "ts"}
        inner = wm.join(
            *(wm.stream(name, inputs[name], **window) for name in "ab"),
            where="a.k = b.k",
            select="a.id AS l, b.id AS r, b.k AS k",
        )
        streams = wm.stream("ab", inner, window="10 seconds"), wm.stream("c", inputs["c"], **window)
        return wm.join(*streams, where="ab.k = c.k", select="ab.l, ab.r, c.id AS c", spill=spill)

    found = {}
    for name, spill in (("plain", None), ("spilled", wm.Spill(memory=1, partitions=4, oldest="1 hour"))):
        query = harness.run(make_join(spill).writeStream, tmp_path / name)
        found[name] = sorted(map(str, harness.read(tmp_path / name / "out").to_pylist()))
    assert found["spilled"] == found["plain"] and len(found["plain"]) > 50
    assert sum(p["paidRows"] for p in query.progress) > 0
    query.explain()
    shown = capsys.readouterr().out
    assert "├─ ab (" in shown and "│  └─ b (" in shown and "spilled: " in shown


@pytest.mark.parametrize(
    ("strategy", "units"),
    [(wm.Hash(3), "33 partitions of the values, cut by slices of time"), (wm.PSP(2), "'synchronized': slices of time")],
)
def test_explain_says_before_the_start_what_will_be_put_off(
    spark: SparkSession, tmp_path: Path, capsys: Any, strategy: Any, units: str
) -> None:
    case = case_of(1, strategy=strategy, batches=1)
    harness.write(tmp_path / "in", case.batches)
    inputs = frames(spark, tmp_path / "in", case.names)
    join_of(case, inputs).explain()
    assert "spilled" not in capsys.readouterr().out
    join_of(case, inputs, spill=wm.Spill(within="1 second")).explain()
    shown = capsys.readouterr().out
    assert "once batches take longer than 1 second, about 30% of the state is spilled" in shown and units in shown


@pytest.mark.parametrize(
    ("inner", "outer", "says"),
    [
        ({"spill": TIGHT}, {}, "outermost join alone"),
        ({}, {"window": wm.count(3)}, "count window in a join above another"),
        ({}, {"delay": "1 second"}, "delay= can't be used on 'ab'"),
        ({}, {"idle": "1 second"}, "idle= can't be used on 'ab'"),
        ({}, {"constraints": [wm.key("l")]}, r"key\(...\) can't be used on 'ab'"),
        ({}, {"constraints": [wm.foreign_key("k", "c.k")]}, r"foreign_key\(...\) can't be used on 'ab'"),
        ({}, {"punctuations": wm.punctuations(flag="over", on="k")}, "punctuations= can't be used on 'ab'"),
    ],
)
def test_what_depends_on_when_results_come_is_refused(
    spark: SparkSession, tmp_path: Path, inner: dict[str, Any], outer: dict[str, Any], says: str
) -> None:
    harness.write(tmp_path / "in", cuts(1, "abc", batches=1))
    inputs = frames(spark, tmp_path / "in", "abc")
    leaves = {name: wm.stream(name, inputs[name], time="ts", window="10 seconds") for name in "abc"}
    select = "a.id AS l, b.k AS k, a.id IS NULL AS over, _time"
    within = wm.join(leaves["a"], leaves["b"], where="a.k = b.k", select=select, **inner)
    with pytest.raises(wm.DefinitionError, match=says):
        stream = wm.stream("ab", within, **{"window": "10 seconds", **outer})
        wm.join(stream, leaves["c"], where="ab.k = c.k", spill=TIGHT)


def test_a_foreign_key_can_not_refer_to_what_comes_late(spark: SparkSession, tmp_path: Path) -> None:
    harness.write(tmp_path / "in", cuts(1, "abc", batches=1))
    inputs = frames(spark, tmp_path / "in", "abc")
    a, b = (wm.stream(name, inputs[name], time="ts", window="10 seconds") for name in "ab")
    ab = wm.stream("ab", wm.join(a, b, where="a.k = b.k", select="a.k AS k"), window="10 seconds")
    c = wm.stream("c", inputs["c"], time="ts", window="10 seconds", constraints=[wm.foreign_key("k", "ab.k")])
    with pytest.raises(wm.DefinitionError, match=r"foreign_key\(...\) of 'c' can't refer to 'ab', a join, together"):
        wm.join(ab, c, where="ab.k = c.k", spill=TIGHT)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "set memory"),
        ({"within": "0 seconds"}, "longer than zero"),
        ({"memory": "plenty"}, "not a size"),
        ({"memory": "1 GB", "policy": "best"}, "the policies are 'random', 'local'"),
        ({"memory": "1 GB", "low": 1.5}, "above 0 and at most 1"),
        ({"memory": "1 GB", "low": 0.9, "fill": 0.5}, "above fill"),
        ({"memory": "1 GB", "partitions": 0}, "1 or more"),
        ({"memory": "1 GB", "policy": "semantic"}, "what matters"),
        ({"memory": "1 GB", "weight": "a.x"}, "only the policy 'semantic'"),
        ({"memory": "1 GB", "correlation": 2}, "between 0 and 1"),
        ({"memory": "1 GB", "oldest": "soon"}, "not a duration"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(wm.DefinitionError, match=says):
        wm.Spill(**options)


class Once:
    """A sink that takes each number once, and may fail after it has written."""

    def __init__(self, fails: int | None = None) -> None:
        self.seen: dict[int, list[Any]] = {}
        self.fails = fails

    def __call__(self, frame: Any, batch: int) -> None:
        found = [tuple(row) for row in frame.collect()]
        assert self.seen.setdefault(batch, found) == found, f"number {batch} was used for other rows"
        if batch == self.fails:
            self.fails = None
            raise RuntimeError("after it was written")


@pytest.mark.parametrize("later", one_in(3, [None, TIGHT, "settle"]))
def test_a_number_is_never_used_for_other_rows(spark: SparkSession, tmp_path: Path, later: Any) -> None:
    """A batch that was cut may have reached the sink: no round takes its number."""
    case = case_of(5, batches=5)
    harness.write(tmp_path / "in", case.batches)
    sink = Once(fails=3)

    def start_query(spill: wm.Spill | None) -> Any:
        inputs = frames(spark, tmp_path / "in", case.names)
        join = join_of(case, inputs, select="a.id AS a, b.id AS b", spill=spill)
        writer = join.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(sink)
        return writer.trigger(availableNow=True).start()

    query = start_query(TIGHT)
    with pytest.raises(wm.StateError, match="after it was written"):
        query.awaitTermination()
    with suppress(wm.StateError):  # if something is owed: the query has stopped
        query.stop(settle=True)
    query = start_query(TIGHT if later == "settle" else later)
    if later == "settle":
        query.settle()
    query.awaitTermination()
    wanted = {(a, b) for (a, b), _ in expected(case).results}
    found = [row for rows in sink.seen.values() for row in rows]
    assert sorted(found) == sorted(wanted) and len(found) > 50


def test_what_is_owed_is_paid_without_new_rows_too(spark: SparkSession, tmp_path: Path) -> None:
    case = case_of(6, batches=3)
    harness.write(tmp_path / "in", case.batches)
    inputs = frames(spark, tmp_path / "in", case.names)
    writer = join_of(case, inputs, spill=TIGHT).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    query._rounds.end()  # type: ignore[union-attr]
    query.processAllAvailable()
    query.stop()
    assert results(tmp_path, case.names) != expected(case).results
    harness.run(join_of(case, frames(spark, tmp_path / "in", case.names)).writeStream, tmp_path)
    assert results(tmp_path, case.names) == expected(case).results


def test_rounds_compute_as_batches_do_and_are_not_asked_for_within_one(spark: SparkSession, tmp_path: Path) -> None:
    case = case_of(7, batches=3)
    harness.write(tmp_path / "in", case.batches)
    inputs, told, query = frames(spark, tmp_path / "in", case.names), list[str](), None
    hours: set[str] = set()

    def consume(frame: Any, batch: int) -> None:
        hours.update(row["zone"] for row in frame.collect())
        if query is not None and not told:
            for pay in (query.settle, lambda: query._runner.round(all=True)):
                with pytest.raises(wm.StateError, match="within a batch"):
                    pay()
            told.append("refused")

    join = join_of(case, inputs, select="current_timezone() AS zone", spill=TIGHT)
    before = spark.conf.get("spark.sql.session.timeZone")
    query = join.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(consume).start()
    query._rounds.end()  # type: ignore[union-attr]
    query.processAllAvailable()
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        query.settle()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
        query.stop()
    assert hours == {before} and told
