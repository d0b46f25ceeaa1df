"""The bench of a join whose state is larger than its workers' address space, at a smaller size."""

import subprocess
import sys

import pytest

from bench.common import ROOT
from bench.measurement import environment


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["local", "shuffle"])
def test_workers_of_one_gigabyte_join_two(exchange: str) -> None:
    command = [sys.executable, "bench/system/memory.py", "--gigabytes", "2", "--memory", "2g", "--exchange", exchange]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "2.00 GiB live" in done.stdout and "all right" in done.stdout
