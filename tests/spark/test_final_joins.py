"""Joins that are closed for good, through real Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark import processes
from tests.spark.final_join import CASE, started
from tests.spark.harness import cuts, frames, join_of, run, through, write
from tests.spark.test_outer_joins import emitted, expected
from watersmeet.limits import limited
from watersmeet.spark.run import round_scheduler
from watersmeet.testing.oracle import How

pytestmark = pytest.mark.spark
CLOSED_MESSAGE = (
    r"checkpoint at .* was closed for good with option\('final', True\) .* were not joined: .* a new checkpoint"
)


@through("driver")
@pytest.mark.parametrize("how", one_in(2, ["left", "anti"]))
def test_a_join_that_is_closed_for_good(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    exchange: str,
    how: How,
) -> None:
    write(tmp_path / "in", CASE.batches)
    writer = join_of(CASE, frames(spark, tmp_path / "in", CASE.names), how={"b": how}).writeStream
    with limited(driver_rows=20 if how == "anti" else 1000):  # a batch has at most 16, the state more
        query = run(writer.option("final", True), tmp_path, exchange)
    wanted = expected(CASE, how, ended=True)
    assert emitted(tmp_path, CASE.names) == wanted > expected(CASE, how)
    told = query.progress
    assert [progress["final"] for progress in told] == [False] * len(CASE.batches) + [True]
    assert (told[-1]["round"], told[-1]["stateRows"], told[-1]["watermark"]) == (True, 0, told[-2]["watermark"])
    if exchange == "driver":
        assert [progress["process"] for progress in told[-2:]] == ["driver", "task" if how == "anti" else "driver"]
    assert not [*(tmp_path / "checkpoint" / "watersmeet" / "chunks").iterdir()]
    assert "closed for good; batch 4" in repr(query) and "Finished" in query._repr_html_()
    query.explain()
    assert "closed for good: all results have been emitted" in capsys.readouterr().out
    assert "no state is left of it" in str(query.why(b={"id": 999}))
    for again in (writer.option("final", True), writer):  # a scheduler that repeats the job
        assert len(run(again, tmp_path, exchange).progress) == len(told)
    write(tmp_path / "in", cuts(6, "ab", 1))
    # The checkpoint of a query that has failed is free at once.
    monkeypatch.setattr(round_scheduler, "POLL_SECONDS", 2.0)
    for refused in (writer.option("final", True), writer):
        with pytest.raises(wm.StateError, match=CLOSED_MESSAGE):
            run(refused, tmp_path, exchange)
    with pytest.raises(wm.StateError, match=CLOSED_MESSAGE):
        writer.trigger(processingTime="1 second").option("checkpointLocation", str(tmp_path / "checkpoint")).start(
            str(tmp_path / "out")
        )
    assert emitted(tmp_path, CASE.names) == wanted


def test_a_query_that_was_stopped_is_closed_by_the_start_that_reads_everything(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's own handle stops it in its first batch: what is left must not be taken for nothing."""
    write(tmp_path / "in", CASE.batches)
    join, seen = join_of(CASE, frames(spark, tmp_path / "in", CASE.names), how={"b": "anti"}), list[int]()

    def stopping(frame: object, batch: int) -> None:
        seen.append(batch)
        if len(seen) == 1:
            for query in spark.streams.active:
                query.stop()

    writer = join.writeStream.option("checkpointLocation", str(tmp_path / "state")).option("final", True)
    writer = writer.foreachBatch(stopping).trigger(availableNow=True)
    query = writer.start()
    with pytest.raises(wm.StateError, match="stopped before it had read all input, so it was not closed"):
        query.awaitTermination()
    assert isinstance(query.exception(), wm.StateError) and not any(told["final"] for told in query.progress)
    with pytest.raises(wm.StateError, match=r"cut short.* comes first: start the query again to close it for good"):
        query._runner.finish()
    query = writer.start()
    query.awaitTermination()
    assert query.exception() is None and query.progress[-1]["final"]
    assert seen[-1] == len(CASE.batches) and sorted({*seen}) == [*range(len(CASE.batches) + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("step", ["sink", "manifest"])
def test_a_kill_in_the_final_round_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path, step: str) -> None:
    """Before its manifest, or between that and the delivery of its files."""
    write(tmp_path / "in", CASE.batches)
    assert processes.run(tmp_path, name="final_join", die=step)[-1] == f"dies at {step}"
    assert emitted(tmp_path, CASE.names) == expected(CASE, "left")
    query = started(spark, tmp_path)
    query.awaitTermination()
    assert emitted(tmp_path, CASE.names) == expected(CASE, "left", ended=True)
    assert [told["final"] for told in query.progress] == [False] * len(CASE.batches) + [True]


def test_final_is_refused_where_rows_may_be_left_unread(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches[:1])
    writer = join_of(CASE, frames(spark, tmp_path / "in", CASE.names)).writeStream.option("final", "TRUE")
    writer = writer.option("checkpointLocation", str(tmp_path / "state")).format("noop")
    for trigger in ({"processingTime": "1 second"}, {"once": True}):
        with pytest.raises(wm.DefinitionError, match=r"'final', True\) needs trigger\(availableNow=True\)"):
            writer.trigger(**trigger).start()
    with pytest.raises(wm.DefinitionError, match=r"needs trigger"):
        writer.start()
    with pytest.raises(wm.DefinitionError, match=r"option\('final', 'yes'\) must be 'true' or 'false'"):
        writer.option("final", "yes").trigger(availableNow=True).start()
    assert not (tmp_path / "state").exists()
