"""What users see of a join that runs: in notebooks, in consoles, in Spark's own screens."""

import html
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from watersmeet.dashboard.build import view
from watersmeet.dashboard.recorded import Reader, store_of
from watersmeet.spark.naming import DESCRIPTION, named
from watersmeet.testing import stream_batches, write_batches

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.mark.spark
def test_a_join_shows_itself(spark: SparkSession, tmp_path: Path) -> None:
    def stream(name: str) -> Any:
        times = [[BEGIN + timedelta(seconds=10 * cut + n) for n in range(3)] for cut in range(2)]
        kind = pa.timestamp("us", "UTC")
        write_batches(tmp_path / name, [pa.table({"id": range(3), "ts": pa.array(found, kind)}) for found in times])
        return wm.stream(name, stream_batches(spark, tmp_path / name), time="ts", window="30 seconds", delay="1 second")

    join = wm.join(stream("a"), stream("b"), where="a.id < b.id", strategy=wm.PSP(nodes=2))
    assert repr(join) == "Join(a [sliding 30 s], b [sliding 30 s]; where a.id < b.id; PSP(nodes=2))"
    assert html.escape("a.id < b.id") in join._repr_html_() and "1 second" in join._repr_html_()
    names: list[str] = []

    def consume(frame: DataFrame, batch: int) -> None:
        names.append(str(frame.sparkSession.sparkContext.getLocalProperty(DESCRIPTION)))

    writer = join.writeStream.foreachBatch(consume).option("checkpointLocation", str(tmp_path / "state"))
    query = writer.queryName("manners").trigger(availableNow=True).start()
    query.awaitTermination()
    last: Any = query.progress[-1]
    assert last["watermark"] == "2024-05-01T00:00:11.000Z" == last["streams"]["a"]["watermark"]
    assert json.loads(json.dumps(query.progress)) == query.progress
    assert repr(query).startswith("JoinQuery('manners', stopped; batch 1: 6 rows in, ")
    assert "Stopped" in query._repr_html_() and "<svg" in query.progress._repr_html_()
    assert [name.rpartition("<br/>")[2] for name in names] == ["batch 0: sink", "batch 1: sink"]
    shown = view(Reader(store_of(str(tmp_path / "state"))).read(0.0), 0)
    assert shown.verdict.title == "Stopped" and shown.joins[0].where == "a.id < b.id"


@pytest.mark.spark
def test_names_of_jobs_are_given_back(spark: SparkSession) -> None:
    context = spark.sparkContext
    for before in ("the user's own", None):
        context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]
        with pytest.raises(ZeroDivisionError), named(spark, "hop"):
            assert context.getLocalProperty(DESCRIPTION) == (f"{before}<br/>hop" if before else "hop")
            _ = 1 / 0
        assert context.getLocalProperty(DESCRIPTION) == before


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
