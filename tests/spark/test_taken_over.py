"""A driver that wakes up once another has taken over, and learns it from Spark: its logs have what it would write."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import Case, cuts, frames, join_of, write
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark

PAIR = Case([Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)], cuts(32, "ab", batches=3, nulls=0), "a.x < b.x")
SAYS = r"^Another run has taken over the checkpoint at [^\n]*, and written to Spark's part; this one stops here\.$"


@pytest.mark.parametrize("log", one_in(3, ["offsets", "sources/0", "commits"]))
def test_sparks_logs_go_on_without_it(spark: SparkSession, tmp_path: Path, log: str) -> None:
    checkpoint = tmp_path / "checkpoint"
    write(tmp_path / "in", PAIR.batches[:2])
    writer = join_of(PAIR, frames(spark, tmp_path / "in", "ab")).writeStream
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
        shutil.copy(checkpoint / log / "1", checkpoint / log / "2")
        write(tmp_path / "in", PAIR.batches[2:])
        with pytest.raises(wm.StateError, match=SAYS):
            query.processAllAvailable()
        with pytest.raises(wm.StateError, match=SAYS):
            query.awaitTermination()
        assert isinstance(query.exception(), wm.StateError)
    finally:
        query.stop()
