"""An output folder may be shared: a run replaces only what its own checkpoint left there."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark import harness

pytestmark = pytest.mark.spark


def test_a_second_checkpoint_adds_to_the_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.write(tmp_path / "in", harness.cuts(3, "ab", batches=2))
    monkeypatch.chdir(tmp_path)
    counts = []
    for checkpoint in ("first", "second", "second"):  # relative paths; the last run has nothing left to do
        frames = harness.frames(spark, tmp_path / "in", "ab")
        streams = [wm.stream(name, frames[name], time="ts", window="10 seconds") for name in "ab"]
        join = wm.join(*streams, where="a.x = b.x", select="a.id AS a, b.id AS b")
        writer = join.writeStream.option("path", str(tmp_path / "out")).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        rows = Counter(tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect())
        counts.append(set(rows.values()))
    assert counts == [{1}, {2}, {2}]
    assert (tmp_path / "first" / "watersmeet").is_dir()
