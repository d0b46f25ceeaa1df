"""A driver that is suspended at a step of its commit, while another one finishes its work, and then wakes."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.budget import one_in
from tests.spark import processes
from tests.spark.crashing_join import CASE
from tests.spark.harness import write

pytestmark = pytest.mark.spark

STEPS = ("publishing", "sink", "reports", "job", "manifest", "delivery")
HOW: dict[str, Any] = {"nodes": 2, "exchange": "driver", "formats": ["parquet"], "expires": 2.0}


def is_suspended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("times", one_in(2, (2, 1)))
@pytest.mark.parametrize("step", one_in(len(STEPS), STEPS))
def test_a_driver_that_wakes_harms_nothing(tmp_path: Path, step: str, times: int) -> None:
    write(tmp_path / "in", CASE.batches[:3])
    with processes.program(tmp_path, pause=[step, times], **HOW) as first:
        for line in processes.lines(first):
            assert not line.startswith(("refused", "raw")), line
            if line == f"step {step}":
                times -= 1
            if not times:
                break
        while not is_suspended(first.pid):
            time.sleep(0.01)
        write(tmp_path / "in", CASE.batches[3:])
        assert processes.run(tmp_path, **HOW)[-1] == "done"
        results = processes.written(tmp_path, "parquet")
        assert results == processes.wanted(tmp_path / "checkpoint-parquet")
        os.kill(first.pid, signal.SIGCONT)
        last = list(processes.lines(first))[-1]
    assert last.startswith("refused") and "Another run has taken over the checkpoint" in last, last
    assert processes.run(tmp_path, **HOW)[-1] == "done", "the checkpoint is not dead"
    assert processes.written(tmp_path, "parquet") == results
