"""Run one competitor in this process and print one JSON line: seconds, rows, peak memory.

python -m bench.run_baseline dummy-key --files FOLDER --out FOLDER --epsilon 5
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from bench import references
from bench.common import Task, UsageSampler

IN_PROCESS = {
    "duckdb": references.duckdb_band,
    "numpy": references.numpy_band,
    "numpy-images": references.numpy_images,
}


def prepare(name: str, task: Task, settings: Mapping[str, str]) -> Callable[[], None]:
    """What to time: the join alone, with the Spark session it needs already there."""
    if name in IN_PROCESS:
        return partial(IN_PROCESS[name], task)
    from bench.baselines import COMPETITORS, session
    from bench.ours import OURS

    competitor = (COMPETITORS | OURS)[name]
    return partial(competitor.join, session({**competitor.settings, **settings}), task)


def count(folder: Path) -> int:
    """Rows of all Parquet files under a folder."""
    return sum(pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description="Run one competitor and print what it took as JSON.")
    parser.add_argument("name", help="dummy-key, buckets, images-udf, duckdb, numpy or numpy-images")
    parser.add_argument("--files", type=Path, required=True, help="folder with a folder of Parquet files per stream")
    parser.add_argument("--out", type=Path, required=True, help="empty folder for results and checkpoint")
    parser.add_argument("--epsilon", type=float, default=0.0, help="width of the band")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting to override")
    parser.add_argument("--warm", type=int, default=0, help="how often to run before, in the same session, untimed")
    given = parser.parse_args(arguments)
    task = Task(given.files.resolve(), given.out.resolve(), given.epsilon)
    settings = dict(setting.split("=", 1) for setting in given.set)
    for number in range(given.warm):
        prepare(given.name, replace(task, out=task.out.with_name(f"{task.out.name}-warm-up-{number}")), settings)()
    join = prepare(given.name, task, settings)
    with UsageSampler() as usage:
        start = time.perf_counter()
        join()
        seconds = time.perf_counter() - start
    (task.out / "cpu.json").write_text(json.dumps(usage.series))
    result = {
        "seconds": round(seconds, 3),
        "rows": count(task.results),
        "cpu_seconds": round(usage.cpu_seconds, 2),
        "peak_rss_mb": round(usage.peak_rss_mb),
        "workers_rss_mb": round(usage.workers_rss_mb),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
