"""A driver that is suspended at a step of its commit, while another one finishes its work, and then wakes."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.budget import one_in
from tests.spark import processes
from tests.spark.crashing_join import CASE, RARE_STEPS
from tests.spark.harness import write

pytestmark = pytest.mark.spark

BATCH_STEPS = ("publishing", "sink", "reports", "job", "manifest", "delivery")
CASES = [*((step, times) for step in BATCH_STEPS for times in (2, 1)), *((step, 1) for step in RARE_STEPS)]
HOW: dict[str, Any] = {"nodes": 2, "exchange": "driver", "formats": ["parquet"], "expires": 2.0}


def is_suspended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def wait_until_suspended(program: processes.Program, step: str, times: int) -> None:
    """Wait until a program is suspended at a step."""
    for line in processes.lines(program):
        assert not line.startswith(("refused", "raw", "done")), line
        times -= line == f"step {step}"
        if not times:
            break
    while not is_suspended(program.pid):
        time.sleep(0.01)


@pytest.mark.parametrize("beside", one_in(2, ["a running driver", "none"]))
@pytest.mark.parametrize("case", one_in(len(CASES), CASES), ids=lambda case: "-".join(map(str, case)))
def test_a_driver_that_wakes_harms_nothing(tmp_path: Path, case: tuple[str, int], beside: str) -> None:
    step, times = case
    how = HOW | {"final": step == "intent"}
    write(tmp_path / "in", CASE.batches[:3])
    with processes.program(tmp_path, pause=[step, times], **how) as first:
        wait_until_suspended(first, step, times)
        write(tmp_path / "in", CASE.batches[3:])
        with processes.program(tmp_path, **how) as second:
            lines = processes.lines(second)
            if beside == "none":
                *_, last = lines
                assert last == "done"
            else:
                assert any(line == "step job" for line in lines)
            os.kill(first.pid, signal.SIGCONT)
            *_, refusal = processes.lines(first)
            if beside != "none":
                *_, last = lines
                assert last == "done"
    assert refusal.startswith("refused") and "Another run has taken over the checkpoint" in refusal, refusal
    results = processes.written(tmp_path, "parquet")
    assert results == processes.wanted(tmp_path / "checkpoint-parquet")
    assert processes.run(tmp_path, **how)[-1] == "done", "the checkpoint is not dead"
    assert processes.written(tmp_path, "parquet") == results
