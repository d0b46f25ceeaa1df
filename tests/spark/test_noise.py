"""What a program prints that runs a join: nothing that nobody asked for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.spark
def test_a_stop_in_the_middle_of_a_batch_is_quiet(tmp_path: Path) -> None:
    """[!] Spark printed 1,024 frames of a StackOverflowError, DuckDB its leaks, and batches were late for 0 seconds."""
    program = [sys.executable, "-m", "tests.spark.mannered_join", str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=540)
    assert "stopped False None 2 False" in done.stdout, done.stderr[-2000:]
    for noise in ("StackOverflowError", "Exception in thread", "leaked", "took longer than", "MicroBatchExecution"):
        assert noise not in done.stderr, done.stderr[:4000]
    assert not re.search(r"e\+\d\d s a second", done.stdout)
    assert "before anything is measured" in done.stdout and "s a second" not in done.stdout
