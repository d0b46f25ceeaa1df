"""A driver that wakes up once another has taken over, and learns it from Spark: its logs have what it would write."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark import processes
from tests.spark.harness import expected, frames, join_of, results, run, write
from tests.spark.waking_join import CASE
from watersmeet.spark.checkpoint import lease as leases

pytestmark = pytest.mark.spark

SAYS = r"Another run has taken over the checkpoint at [^\n]*, and written to Spark's part; this one stops here\."


@pytest.mark.parametrize("log", one_in(3, ["offsets", "sources/0", "commits"]))
def test_sparks_logs_go_on_without_it(spark: SparkSession, tmp_path: Path, log: str) -> None:
    checkpoint = tmp_path / "checkpoint"
    write(tmp_path / "in", CASE.batches[:2])
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
        shutil.copy(checkpoint / log / "1", checkpoint / log / "2")
        write(tmp_path / "in", CASE.batches[2:3])
        with pytest.raises(wm.StateError, match=SAYS):
            query.processAllAvailable()
        with pytest.raises(wm.StateError, match=SAYS):
            query.awaitTermination()
        assert isinstance(query.exception(), wm.StateError)
    finally:
        query.stop()


@pytest.mark.slow
def test_a_driver_wakes_up(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "EXPIRES", 0.5)
    write(tmp_path / "in", CASE.batches[:2])
    with processes.program(tmp_path, "waking_join") as program:
        said = processes.lines(program)
        assert next(said) == "waits"
        os.killpg(program.pid, signal.SIGSTOP)
        write(tmp_path / "in", CASE.batches[2:])
        run(join_of(CASE, frames(spark, tmp_path / "in", CASE.names)).writeStream, tmp_path)
        os.killpg(program.pid, signal.SIGCONT)
        assert re.fullmatch(f"refused {SAYS}", next(said, ""))
    assert results(tmp_path, CASE.names) == expected(CASE).results
