"""How a program ends that has used the kernel: without a word."""

import subprocess
import sys

PROGRAM = """
import threading, time
import pyarrow as pa
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.predicate.model import Dialect

duck = Duck(Dialect("UTC", True))
assert duck.filter({"a": pa.array([1, 2])}, ["a > 1"], 2).tolist() == [1]
held = threading.Thread(target=lambda *held: time.sleep(100), args=(duck, Duck.filter), daemon=True)
held.start()
"""


def test_threads_that_outlive_the_interpreter_leak_nothing_of_duckdbs() -> None:
    """[!] As Spark's do. DuckDB printed a page of leaked types and functions after each program."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
