"""Executors that are processes of their own, one of them killed; shuffle files that vanish in mid-job."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.spark import processes
from tests.spark.crashing_join import CASE
from tests.spark.harness import EXCHANGES, write
from watersmeet.spark.run import checks

pytestmark = pytest.mark.spark


def _executors(driver: int) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.Error):  # short-lived children may end while we look
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["ring", "shuffle"])
def test_an_executor_that_dies_loses_nothing(tmp_path: Path, exchange: str) -> None:
    write(tmp_path / "in", CASE.batches)
    spec: dict[str, Any] = {"master": "local-cluster[2,1,1024]", "formats": ["parquet"], "nodes": 3}
    killed, said = 0, ""
    with processes.program(tmp_path, **spec, exchange=exchange) as process:
        for said in processes.lines(process):
            if said == "step manifest" and not killed:
                executors = _executors(process.pid)
                assert len(executors) == 2
                time.sleep(0.3)  # into the next batch's job
                executors[0].kill()
                killed = executors[0].pid
    assert killed and said == "done"
    assert processes.written(tmp_path, "parquet") == processes.wanted(tmp_path / "checkpoint-parquet")


def test_partial_results_are_shuffled_unless_all_tasks_are_on_this_host() -> None:
    assert checks.choose_exchange(None, local=True) == "driver"
    assert checks.choose_exchange(None, local=False) == "shuffle"
    assert checks.choose_exchange("local", local=False) == "local"


@pytest.mark.slow
def test_a_fetch_failure_that_runs_hop_1_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches)
    said = processes.run(tmp_path, name="losing_join", exchanges=EXCHANGES[1:], nodes=4)
    assert said[-1] == "done"
    for line, exchange in zip(said, EXCHANGES[1:], strict=False):
        assert line.startswith(f"{exchange} again ") and int(line.split()[-1]) > 0
        assert processes.written(tmp_path, "parquet", exchange) == processes.wanted(tmp_path / f"checkpoint-{exchange}")
