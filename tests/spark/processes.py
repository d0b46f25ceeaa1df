"""Runs the crashing join as a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark

from tests.spark.crashing_join import CASE
from tests.spark.harness import Batches, expected, read

ROOT = Path(__file__).parents[2]
Program = subprocess.Popen[str]


@contextmanager
def program(
    folder: Path, name: str = "crashing_join", package: str = "tests.spark", **spec: Any
) -> Iterator[subprocess.Popen[str]]:
    """Start a program in a process group of its own; whatever is left of it is killed at the end."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_HOME": os.path.dirname(pyspark.__file__)}
    env |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", f"{package}.{name}", str(folder), json.dumps(spec)]
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the driver, its JVM and its workers, at once and without a chance to tidy up."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield what the program says, line by line."""
    assert process.stdout is not None
    for line in process.stdout:
        yield line.strip()


def run(folder: Path, **spec: Any) -> list[str]:
    """Run the program to its end, wherever that is, and return what it said."""
    with program(folder, **spec) as process:
        return list(lines(process))


def wanted(checkpoint: Path) -> Counter[tuple[int, ...]]:
    """Return the ids of the oracle's results, for the batches that Spark really made."""
    found = Counter[tuple[int, ...]]()
    for (ids, _), times in expected(replace(CASE, batches=batches(checkpoint, CASE.batches))).results.items():
        found[ids] += times
    return found


def batches(checkpoint: Path, files: Batches) -> list[dict[str, list[Any]]]:
    """Return the rows of input files as the batches that Spark really made of them.

    Spark's file source notes a file before the query's offsets do: a kill between the two lets that stream be a file
    ahead ever after. Which tuples a count window holds depends on such cuts, so they are read from the offsets.

    Args:
        checkpoint: Where the offsets are.
        files: The rows, a file for each stream at a time; all of them have been read.
    """
    logs = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets = [[json.loads(line)["logOffset"] for line in log.read_text().splitlines()[2:]] for log in logs]
    cut: list[dict[str, list[Any]]] = [{name: [] for name in files[0]} for _ in logs]
    for at, rows in enumerate(files):
        for stream, name in enumerate(rows):
            batch = next(number for number, ends in enumerate(offsets) if ends[stream] >= at)
            cut[batch][name] += rows[name]
    return cut


def written(folder: Path, format: str, name: str | None = None) -> Counter[tuple[int, ...]]:
    """Return the ids an output folder holds; reading it fails on a half-written file."""
    if format == "csv":  # written without a header, as Spark does by default
        files = (folder / "out-csv").glob("part-*.csv")
        return Counter(tuple(map(int, line.split(","))) for file in files for line in file.read_text().splitlines())
    return Counter(tuple(row.values()) for row in read(folder / f"out-{name or format}", format).to_pylist())
