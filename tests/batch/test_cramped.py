"""A join whose state is larger than its process's address space."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batch.cramped_join import pairs
from watersmeet.spark.run.workers import FRUGAL

ROOT = Path(__file__).parents[2]
GB = 1 << 30


@pytest.mark.slow
@pytest.mark.parametrize("frugal", [True, False])
def test_state_of_three_times_the_address_space(tmp_path: Path, frugal: bool) -> None:
    spec = {"space": GB, "state": 3 * GB, "bytes": 1 << 20}
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | (FRUGAL if frugal else {})
    command = [sys.executable, "-m", "tests.batch.cramped_join", str(tmp_path), json.dumps(spec)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [tuple(pair) for pair in said["pairs"]] == sorted(pairs(said["rows"]))
    assert said["state"] > 2.9 * GB > said["peak"]
