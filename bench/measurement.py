"""Runs in processes of their own: how they are started, what they take, and how they tell it.

A bench calls `run` or `run_all`; the module that these start parses `arguments` and calls `measure`, whose JSON line
becomes a `Measurement` here. `report` shows the measurements of a bench.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
from rich.table import Table

from bench.common import RESULTS, ROOT, console, progress, save

INSIDE = "WATERSMEET_BENCH_INSIDE"
"""Environment variable: where a predicate that measures itself keeps its CPU seconds, in a file a process."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of one competitor.

    Attributes:
        name: The competitor.
        seconds: From the start of the query to its end; the start of the session is not counted.
        rows: Results written.
        cpu_seconds: CPU time of the whole process tree; tells more than seconds where others share the machine.
        peak_rss_mb: Most resident memory of the whole process tree, JVM included; shared pages count in each process.
        workers_rss_mb: The same of Spark's Python workers alone.
        note: Why there is no figure, if there is none.
    """

    name: str
    seconds: float | None = None
    rows: int | None = None
    cpu_seconds: float | None = None
    peak_rss_mb: float | None = None
    workers_rss_mb: float | None = None
    note: str = ""


class UsageSampler:
    """Watches memory and CPU time of this process and all its descendants while the block runs, but not its own."""

    def __init__(self, interval: float = 0.2) -> None:
        self.interval = interval
        self.peak_rss_mb = 0.0
        self.workers_rss_mb = 0.0
        self.series: list[tuple[float, float, float]] = []
        """Seconds since the epoch, and the CPU seconds used by then: in all, and inside predicates that measure it."""
        self._own = 0.0
        self._before: dict[int, float] = {}
        self._cpu: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def cpu_seconds(self) -> float:
        """CPU time since the block began, processes that have ended included."""
        return sum(self._cpu.values()) - sum(self._before.values()) - self._own

    def __enter__(self) -> UsageSampler:
        self._sample()
        self._before = dict(self._cpu)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._stop.wait(self.interval):
            self._own = time.thread_time()
            self._sample()

    def _sample(self) -> None:
        me = psutil.Process()
        descendants = [p for p in me.children(recursive=True) if not _is_fork_of_jvm(p)]
        workers = sum(_rss_mb(p) for p in descendants if _is_python(p))
        everything = _rss_mb(me) + sum(_rss_mb(p) for p in descendants)
        self.peak_rss_mb = max(self.peak_rss_mb, everything)
        self.workers_rss_mb = max(self.workers_rss_mb, workers)
        for process in (me, *descendants):
            self._cpu[process.pid] = max(self._cpu.get(process.pid, 0.0), _cpu_seconds(process))
        self.series.append((time.time(), self.cpu_seconds, _inside_seconds()))


def _inside_seconds() -> float:
    folder = os.environ.get(INSIDE)
    return sum(float(np.fromfile(path).sum()) for path in Path(folder).glob("*.seconds")) if folder else 0.0


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _rss_mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.Error:
        return 0.0


def _is_python(process: psutil.Process) -> bool:
    try:
        return "python" in process.name()
    except psutil.Error:
        return False


def _is_fork_of_jvm(process: psutil.Process) -> bool:
    """Hadoop runs chmod and the like; until the fork has turned into it, the JVM's memory would count twice.

    Such a fork bears the name of the thread that made it; only its executable tells.
    """
    try:
        parent = process.parent()
        return parent is not None and process.exe() == parent.exe() and Path(process.exe()).name == "java"
    except psutil.Error:
        return True  # it has ended


def environment() -> dict[str, str]:
    """The environment of a competitor: this interpreter for Spark's workers, the repository importable by them."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run(name: str, module: str, arguments: Sequence[str], timeout: float = 1800) -> Measurement:
    """Run `python -m module name *arguments` and read the measurement from the JSON line it prints last.

    A run that takes longer than `timeout` seconds is killed, with its JVM and workers, and noted as such.
    """
    command = [sys.executable, "-m", module, name, *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _kill(process)
        return Measurement(name, note=f"not done after {timeout:.0f} s")
    if process.returncode:
        console.print(err[-4000:], style="red", markup=False, highlight=False)
        return Measurement(name, note=f"failed with exit code {process.returncode}")
    return Measurement(name=name, **json.loads(out.strip().splitlines()[-1]))


def _kill(process: subprocess.Popen[str]) -> None:
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.communicate()


def run_all(title: str, runs: Mapping[str, tuple[str, Sequence[str]]], timeout: float = 1800) -> list[Measurement]:
    """Run competitors one after the other, name by name, behind a progress bar; each is (module, arguments)."""
    measurements = []
    with progress(title, len(runs)) as bar:
        (task,) = bar.task_ids
        for name, (module, arguments) in runs.items():
            bar.update(task, description=f"{title}: {name}")
            measurements.append(run(name, module, arguments, timeout))
            bar.advance(task)
    return measurements


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Return the parser of a module that `run` starts: it knows the folders, for more to be added."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=Path, required=True, help="folder with a folder of Parquet files per stream")
    parser.add_argument("--out", type=Path, required=True, help="empty folder for results and checkpoint")
    return parser


def measure(out: Path, join: Callable[[], Sequence[Mapping[str, Any]] | None]) -> None:
    """Run a join, and print what it took as a JSON line; leave its CPU time as `cpu.json`.

    Args:
        out: The folder of its results, which are Parquet files under `results`.
        join: Runs it; what its batches did, if it returns that, is written to `batches.json`.
    """
    with UsageSampler() as usage:
        start = time.perf_counter()
        batches = join()
        seconds = time.perf_counter() - start
    (out / "cpu.json").write_text(json.dumps(usage.series))
    if batches is not None:
        (out / "batches.json").write_text(json.dumps(batches))
    result = {
        "seconds": round(seconds, 3),
        "rows": sum(pq.read_metadata(path).num_rows for path in (out / "results").rglob("*.parquet")),
        "cpu_seconds": round(usage.cpu_seconds, 2),
        "peak_rss_mb": round(usage.peak_rss_mb),
        "workers_rss_mb": round(usage.workers_rss_mb),
    }
    print(json.dumps(result))


def report(title: str, slug: str, measurements: Sequence[Measurement], base: str) -> None:
    """Print a table, and write `<slug>.csv` and `<slug>.png` under bench/results; ratios are against `base`."""
    console.print(_table(title, measurements, base))
    save(RESULTS / f"{slug}.csv", [asdict(m) for m in measurements])
    _draw(RESULTS / f"{slug}.png", title, measurements)
    console.print(f"Written: {RESULTS / slug}.csv, .png")


def _table(title: str, measurements: Sequence[Measurement], base: str) -> Table:
    table = Table(title=title, caption=f"ratio: seconds against {base}")
    table.add_column("competitor", no_wrap=True)
    for heading in ("seconds", "ratio", "results", "CPU s", "peak MB", "workers MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("note")
    reference = next((m.seconds for m in measurements if m.name == base), None)
    for m in measurements:
        ratio = f"{m.seconds / reference:.2f}" if m.seconds and reference else "-"
        figures = (_text(m.rows), _text(m.cpu_seconds, 1), _text(m.peak_rss_mb), _text(m.workers_rss_mb))
        table.add_row(m.name, _text(m.seconds, 2), ratio, *figures, m.note)
    return table


def _text(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _draw(path: Path, title: str, measurements: Sequence[Measurement]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    by_name = {m.name: m.seconds for m in reversed(measurements) if m.seconds is not None}
    figure, axes = pyplot.subplots(figsize=(8, 0.5 * len(by_name) + 1.5))
    bars = axes.barh(list(by_name), list(by_name.values()))
    axes.bar_label(bars, [f"{seconds:.1f} s" for seconds in by_name.values()], padding=3)
    axes.set(xscale="log", xlabel="seconds (log scale; less is better)", title=title)
    axes.set_xlim(0.1, 5 * max(by_name.values(), default=1.0))
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
