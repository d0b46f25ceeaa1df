"""What users see of a join that runs: in notebooks, in consoles, in Spark's own screens."""

import gc
import html
import json
import time
import weakref
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import watersmeet as wm
from watersmeet.observe.dashboard.build import build_view
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointReader
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.spark.run import checks, jobs
from watersmeet.spark.run.jobs import DESCRIPTION, job_description
from watersmeet.state.store.places import store_of
from watersmeet.testing import stream_batches, write_batches

START = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.mark.spark
def test_a_join_shows_itself(spark: SparkSession, tmp_path: Path) -> None:
    def stream(name: str) -> Any:
        times = [[START + timedelta(seconds=10 * cut + n) for n in range(3)] for cut in range(2)]
        kind = pa.timestamp("us", "UTC")
        write_batches(tmp_path / name, [pa.table({"id": range(3), "ts": pa.array(found, kind)}) for found in times])
        return wm.stream(name, stream_batches(spark, tmp_path / name), time="ts", window="30 seconds", delay="1 second")

    join = wm.join(stream("a"), stream("b"), where="a.id < b.id", strategy=wm.PSP(nodes=2))
    assert repr(join) == "Join(a [sliding 30 seconds], b [sliding 30 seconds]; where a.id < b.id; PSP(nodes=2))"
    assert html.escape("a.id < b.id") in join._repr_html_() and "1 second" in join._repr_html_()
    names: list[str] = []

    def consume(frame: DataFrame, batch: int) -> None:
        names.append(str(frame.sparkSession.sparkContext.getLocalProperty(DESCRIPTION)))

    writer = join.writeStream.foreachBatch(consume).option("checkpointLocation", str(tmp_path / "state"))
    query = writer.queryName("manners").option("lateWarning", 1).trigger(availableNow=True).start()
    query.awaitTermination()
    last: Any = query.progress[-1]
    assert last["watermark"] == "2024-05-01T00:00:11.000Z" == last["streams"]["a"]["watermark"]
    assert (last["name"], last["lateWarning"]) == ("manners", 1.0)
    assert json.loads(json.dumps(query.progress)) == query.progress
    assert repr(query).startswith("JoinQuery('manners', stopped; batch 1: 6 rows in, ")
    assert "Stopped" in query._repr_html_() and "<svg" in query.progress._repr_html_()
    assert [name.rpartition("<br/>")[2] for name in names] == ["batch 0: sink", "batch 1: sink"]
    shown = build_view(CheckpointReader(store_of(str(tmp_path / "state"))).read(0.0), 0)
    assert (shown.title, shown.verdict.title) == ("manners", "Stopped") and shown.joins[0].where == "a.id < b.id"


@pytest.mark.parametrize("given", ["0", "1", "0.25", "1e-3"])
def test_a_share(given: str) -> None:
    assert checks.parse_share("lateWarning", given) == float(given)


@pytest.mark.parametrize("given", ["-0.01", "1.01", "many", "", "nan", "5 %"])
def test_what_is_no_share(given: str) -> None:
    with pytest.raises(wm.DefinitionError) as caught:
        checks.parse_share("lateWarning", given)
    assert str(caught.value) == f"option('lateWarning', '{given}') must be a share from 0 to 1, such as 0.05."


@pytest.mark.spark
def test_nothing_holds_a_query_that_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    """[!] Python holds what the JVM calls, and the JVM what Python refers to: a cycle that no collector sees."""
    for name in "ab":
        times = pa.array([START + timedelta(seconds=n) for n in range(3)], pa.timestamp("us", "UTC"))
        write_batches(tmp_path / name, [pa.table({"id": range(3), "ts": times})])
    frames = {name: stream_batches(spark, tmp_path / name) for name in "ab"}
    callbacks: Any = spark.sparkContext._gateway
    runners, before = [], len(callbacks.gateway_property.pool)
    for at in range(2):
        join = wm.join(*(wm.stream(name, frame, time="ts", window="30 seconds") for name, frame in frames.items()))
        writer = join.writeStream.format("noop").option("checkpointLocation", str(tmp_path / f"state{at}"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert query.progress[-1]["outputRows"] == 9
        runners.append(weakref.ref(query._runner))
    del join, writer, query
    jvm: Any = spark._jvm
    end = time.monotonic() + 30
    while time.monotonic() < end:
        gc.collect()
        jvm.System.gc()  # Spark's part of a query goes with its last reference, and then Python's callback
        if [runner() for runner in runners] == [None, None] and len(callbacks.gateway_property.pool) <= before:
            return
        time.sleep(0.2)
    pytest.fail(f"{[runner() for runner in runners]}, callbacks: {before} and {len(callbacks.gateway_property.pool)}")


@pytest.mark.spark
def test_names_of_jobs_are_given_back(spark: SparkSession) -> None:
    context = spark.sparkContext
    for before in ("the user's own", None):
        context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]
        with pytest.raises(ZeroDivisionError), job_description(spark, "hop"):
            assert context.getLocalProperty(DESCRIPTION) == (f"{before}<br/>hop" if before else "hop")
            _ = 1 / 0
        assert context.getLocalProperty(DESCRIPTION) == before


class Listener(StreamingQueryListener):
    """Notes what Spark says of the batches of all queries."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        self.told.append(event.progress.observedMetrics)

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


@pytest.mark.spark
@pytest.mark.parametrize("exchange", ["driver", "local"])
def test_a_listener_is_told_the_figures(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    listener, at = Listener(), pa.array([START + timedelta(seconds=n) for n in range(3)], pa.timestamp("us", "UTC"))
    for name in "ab":
        write_batches(tmp_path / name, [pa.table({"id": range(3), "ts": at})] * 2)
    frames = {name: stream_batches(spark, tmp_path / name) for name in "ab"}
    join = wm.join(
        *(wm.stream(name, frames[name], time="ts", window="9 seconds") for name in "ab"), where="a.id < b.id"
    )
    spark.streams.addListener(listener)
    try:
        writer = join.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state"))
        query = writer.option("exchange", exchange).trigger(availableNow=True).start()
        query.awaitTermination()
        until = time.monotonic() + 30
        while len(listener.told) < 2 and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    for told, progress in zip(listener.told, query.progress, strict=True):
        row = told["watersmeet"].asDict()
        assert row["inputRows"] == 6 and row["outputRows"] == progress["outputRows"] > 0
        assert row["watermark"] == progress["watermark"] and row["heldBackBy"] == progress["heldBackBy"]
        assert row["durationMs"] == progress["durationMs"]["total"] and row["stateRows"] == progress["stateRows"]
        assert row["lateRows"] == row["rejectedRows"] == row["deniedRows"] == 0


@pytest.mark.spark
def test_a_batch_does_not_fail_for_what_nobody_hears(spark: SparkSession) -> None:
    jobs.report_figures(spark, {"inputRows": {"a": 1}, "durationMs": {"total": 2.0}})  # no query runs here


@wm.predicate(form="pair")
def slow(x: float, y: float) -> bool:
    time.sleep(0.002)
    return x < y


@pytest.mark.spark
def test_findings_before_a_join_starts(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS id", "timestamp AS ts", "1.0D AS x")
    join = wm.join(
        *(wm.stream(name, stream, time="ts", window="5 seconds", delay="1 second") for name in "ab"),
        where="slow(a.x, b.x)",
        predicates=[slow],
        strategy=wm.PSP(nodes=64),
    )
    assert [(found.severity, found.kind) for found in join.check()] == [("note", "nodes")]
    times = "timestamp_seconds(1700000000 + CASE WHEN id = 7 THEN 2 ELSE id END) AS ts"
    sample = spark.range(0, 12, 1, 1).selectExpr("id", times, "cast(id AS double) AS x")
    found = {finding.kind: finding.says for finding in join.check({"a": sample, "b": sample})}
    assert list(found) == ["nodes", "delay", "predicate"]
    assert "'b': in the sample, tuples come up to 4 seconds after later ones" in found["delay"]
    assert "Predicate 'slow' takes" in found["predicate"]
    assert [finding.kind for finding in join.check({"a": sample})] == ["nodes", "delay"]
    with pytest.raises(wm.DefinitionError, match="'c'"):
        join.check({"c": sample})
    wrong: list[tuple[Any, str]] = [
        (5, "The sample of stream 'a' needs a Spark DataFrame"),
        (sample.drop("ts"), "The sample of stream 'a' has no column 'ts', which the stream has"),
        (stream, "The sample of stream 'a' is streaming; give a static frame"),
    ]
    for given, problem in wrong:
        with pytest.raises(wm.DefinitionError, match=problem):
            join.check({"a": given})


def test_a_jvm_that_has_ended_is_told_in_a_sentence() -> None:
    class Ended:
        """A query whose JVM nobody can ask any more."""

        def __getattribute__(self, name: str) -> Any:
            raise ConnectionRefusedError(111, "Connection refused")

    lease = SimpleNamespace(end=lambda: None)
    runner: Any = SimpleNamespace(checkpoint=SimpleNamespace(lease=lease), has_rounds=False, active=None, error=None)
    ended: Any = Ended()
    query = JoinQuery(ended, SimpleNamespace(), runner)  # type: ignore[arg-type]
    assert not query.isActive and "Spark is gone" in str(query.exception())
    for ask in (query.awaitTermination, query.processAllAvailable, query.stop):
        with pytest.raises(wm.StateError, match=r"Spark is gone: its JVM has ended.* Start the program again"):
            ask()
