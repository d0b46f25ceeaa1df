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

WOKEN = r"Another run, such as one that was suspended and has woken up, has written to Spark's part of the checkpoint"
TAKEN = r"Another run has taken over the checkpoint at [^\n]*, since this one did not renew its lease"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "EXPIRES", 0.5)
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.02)


@pytest.mark.parametrize("log", one_in(3, ["offsets", "sources/0", "commits"]))
def test_sparks_logs_go_on_without_it(spark: SparkSession, tmp_path: Path, log: str) -> None:
    """[!] The run that holds the lease is the lawful one: it has not been taken over."""
    checkpoint = tmp_path / "checkpoint"
    write(tmp_path / "in", CASE.batches[:2])
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
        shutil.copy(checkpoint / log / "1", checkpoint / log / "2")
        write(tmp_path / "in", CASE.batches[2:3])
        with pytest.raises(wm.StateError, match=WOKEN):
            query.processAllAvailable()
        with pytest.raises(wm.StateError, match=WOKEN):
            query.awaitTermination()
        assert isinstance(query.exception(), wm.StateError)
    finally:
        query.stop()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("spill", [None, wm.Spill(memory=1, oldest="1 hour")], ids=["plain", "spilling"])
def test_an_idle_query_that_was_taken_over_ends(spark: SparkSession, tmp_path: Path, spill: wm.Spill | None) -> None:
    write(tmp_path / "in", CASE.batches[:2])
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab"), spill=spill).writeStream
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
    query.processAllAvailable()
    assert query._runner.store.publish("leases/000000000099.json", b"another's")
    with pytest.raises(wm.StateError, match=TAKEN):
        query.awaitTermination(20)
    assert not query.isActive and isinstance(query.exception(), wm.StateError)
    with pytest.raises(wm.StateError, match=TAKEN):
        query.processAllAvailable()
    query.stop()


def test_what_a_loss_breaks_is_not_called_damage(spark: SparkSession, tmp_path: Path) -> None:
    """An operator restores a copy, or another run removes files, while a batch runs."""
    write(tmp_path / "in", CASE.batches[:1])
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
    query.processAllAvailable()

    def lose(step: str) -> None:
        for path in (tmp_path / "checkpoint" / "watersmeet" / "leases").iterdir():
            path.unlink()
        raise wm.StateError("The state file x is missing; restore it.")

    query._runner.after = lose
    write(tmp_path / "in", CASE.batches[1:2])
    with pytest.raises(wm.StateError, match="somebody removed or replaced its files while the query ran"):
        query.processAllAvailable()
    query.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_an_idle_driver_that_wakes_does_not_end_the_lawful_one(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches[:2])
    with processes.program(tmp_path, "waking_join") as program:
        said = processes.lines(program)
        assert next(said) == "waits"
        os.killpg(program.pid, signal.SIGSTOP)
        writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
        query.processAllAvailable()
        os.killpg(program.pid, signal.SIGCONT)
        program.wait(30)
        assert re.match(f"refused {TAKEN}", next(said, ""))
        for batch in (2, 3):
            write(tmp_path / "in", CASE.batches[batch : batch + 1])
            query.processAllAvailable()
        query.stop()
    assert results(tmp_path, CASE.names) == expected(CASE).results


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
        assert re.match(f"refused {TAKEN}", next(said, ""))
    assert results(tmp_path, CASE.names) == expected(CASE).results
