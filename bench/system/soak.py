"""Thousands of micro-batches in one process: what grows? Memory, files, descriptors, mappings, time a batch.

`python bench/system/soak.py [--batches 5000] [--exchange driver] [--all spill]`: flat from batch 500 on means that a
line fitted through the samples rises by at most 2 % in 1,000 batches. With `--all` it is a join of a join and a stream,
with keys that are remembered, a Python predicate, ids, near-misses, side outputs, files in folders, and either spilling
or a left join and a table, which don't go together; at the end the results are compared with DuckDB's.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import duckdb
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import psutil
from pyspark.sql import SparkSession
from rich.table import Table

import watersmeet as wm
from bench.common import RESULTS, console, progress, session
from watersmeet.spark.api.join_query import JoinQuery

TARGET = 2.0
"""Per cent in 1,000 batches."""
WARM_UP_BATCHES = 500
EVERY = 25
"""Batches between two samples."""
ROWS = 20
"""Of each stream in a batch."""
REPEATS = {"a": 97, "b": 97, "c": 89}
"""After how many rows the values of a stream come again."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the processes and the checkpoint take after some batches; memory in MB."""

    batch: int
    ms_per_batch: float
    driver_mb: float
    jvm_mb: float
    heap_mb: float
    workers_mb: float
    descriptors: int
    mappings: int
    deleted: int
    files: int
    checkpoint_kb: float


def stream(spark: SparkSession, name: str, **more: Any) -> wm.Stream:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 1)
    frame = rate.option("advanceMillisPerBatch", 1000).option("startTimestamp", 1_700_000_000_000).load()
    frame = frame.selectExpr("value AS id", "timestamp AS ts", f"cast(value % {REPEATS[name]} AS double) AS x")
    return wm.stream(name, frame, time="ts", window="10 seconds", delay="1 second", **more)


def start(spark: SparkSession, folder: Path, exchange: str) -> JoinQuery:
    streams = [stream(spark, "a"), stream(spark, "b")]
    join = wm.join(*streams, where="abs(a.x - b.x) < 1", select="a.id AS a, b.id AS b", strategy=wm.PSP(nodes=2))
    writer = join.writeStream.format("noop").option("checkpointLocation", str(folder / "state"))
    return writer.option("exchange", exchange).start()


def start_all(spark: SparkSession, folder: Path, exchange: str, more: str) -> JoinQuery:
    """Start a join that uses as many features as go together."""
    zones = spark.range(97).selectExpr("cast(id AS double) AS x", "id AS number")
    tables, where, options = [wm.table("zones", zones)], "ab.x = zones.x AND ", dict[str, Any](how={"c": "left"})
    if more == "spill":
        spill = wm.Spill(memory="20 KB", policy="synchronized", oldest="30 seconds")
        tables, where, options = [], "", {"spill": spill}
    inner = wm.join(
        stream(spark, "a"),
        stream(spark, "b"),
        where="abs(a.x - b.x) < 1",
        select="a.id AS a, b.id AS b, a.x AS x, a.ts AS at, _time AS ts",
    )
    join = wm.join(
        wm.stream("ab", inner, time="ts", window="10 seconds"),
        stream(spark, "c", constraints=[wm.key("id")]),
        *tables,
        where=f"{where}ab.x <= c.x AND near(ab.x, c.x)",
        select="ab.a, ab.b, c.id AS c, cast(ab.x % 5 AS int) AS zone, _time, _id",
        predicates={"near": lambda x, ys: ys < x + 2},
        remember="10 minutes",
        strategy=wm.PSP(nodes=2),
        **options,
    )
    writer = join.writeStream.format("parquet").partitionBy("zone").option("checkpointLocation", str(folder / "state"))
    for kind in ("late", "rejected", "denied"):
        writer = writer.option(f"{kind}Path", str(folder / kind))
    return writer.option("nearMisses", 3).option("exchange", exchange).start(str(folder / "out"))


def compare(folder: Path, rows: int, last: datetime, more: str) -> bool:
    """Compare the results of so many rows a stream, and of times up to one, with DuckDB's; no id may come twice."""
    kind = "LEFT" if more == "left" else "INNER"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, repeats in REPEATS.items():
            view = f"SELECT i AS id, i % {repeats} AS x, 1700000000 + i // {ROWS} AS s FROM range({rows}) r(i)"
            connection.execute(f"CREATE VIEW {name} AS {view}")
        connection.execute(
            "CREATE TABLE ab AS SELECT a.id AS a, b.id AS b, a.x, greatest(a.s, b.s) AS s FROM a JOIN b "
            "ON a.x = b.x AND b.s BETWEEN a.s - 9 AND a.s + 9"
        )
        connection.execute(
            "CREATE TABLE wanted AS SELECT a, b, c.id AS c, make_timestamptz(1000000 * greatest(ab.s, c.s)) AS _time "
            f"FROM ab {kind} JOIN c ON c.x BETWEEN ab.x AND ab.x + 1 AND c.s BETWEEN ab.s - 9 AND ab.s + 9"
        )
        connection.execute(f"CREATE VIEW results AS FROM read_parquet('{folder}/out/*/*.parquet')")
        until = f"_time < '{last.isoformat()}'"
        one, other = (f"SELECT a, b, c, _time FROM {name} WHERE {until}" for name in ("wanted", "results"))
        counts = {
            "wanted": f"SELECT count(*) FROM ({one})",
            "lost": f"SELECT count(*) FROM ({one} EXCEPT ALL {other})",
            "too many": f"SELECT count(*) FROM ({other} EXCEPT ALL {one})",
            "ids twice": "SELECT count(*) - count(DISTINCT _id) FROM results",
        }
        figures = {name: connection.sql(query).fetchall()[0][0] for name, query in counts.items()}
    console.print(f"results up to {last}: {figures}")
    return figures["wanted"] > 0 and not any(figures[name] for name in ("lost", "too many", "ids twice"))


def sample(batch: int, folder: Path, seconds: float, heap: float) -> Sample:
    me = psutil.Process()
    others = me.children(recursive=True)
    jvms = [p for p in others if p.name() == "java"]
    workers = [p for p in others if "python" in p.name()]
    maps = [line for p in (me, *workers) for line in _lines(p)]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return Sample(
        batch,
        1000 * seconds / EVERY,
        _mb([me]),
        _mb(jvms),
        heap,
        _mb(workers),
        sum(p.num_fds() for p in (me, *workers)),
        len(maps),
        sum("(deleted)" in line and ".arrow" in line for line in maps),
        len(files),
        sum(path.stat().st_size for path in files) / 1024,
    )


def _lines(process: psutil.Process) -> list[str]:
    try:
        return Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    except OSError:
        return []


def _mb(processes: Sequence[psutil.Process]) -> float:
    return float(sum(process.memory_info().rss for process in processes)) / 2**20


def live_heap(spark: SparkSession) -> float:
    """Return how many MB of the JVM's heap are in use once its garbage is gone."""
    jvm: Any = spark._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def watch(spark: SparkSession, query: JoinQuery, folder: Path, batches: int, seconds: float) -> list[Sample]:
    samples, batch_count, at = list[Sample](), 0, time.monotonic()
    end = at + seconds
    with progress("Soak", batches) as bar:
        while batch_count < batches and query.isActive and at < end:
            time.sleep(0.05)
            last = batches_of(query)
            if last < batch_count + EVERY:
                continue
            now = time.monotonic()
            try:
                samples.append(sample(last, folder, (now - at) * EVERY / (last - batch_count), live_heap(spark)))
            except (psutil.Error, FileNotFoundError):
                continue  # a process or a file that went while it was looked at
            bar.update(bar.task_ids[0], completed=last)
            batch_count, at = batches_of(query), time.monotonic()
    return samples


def batches_of(query: JoinQuery) -> int:
    """Return how many batches are done, from Spark: to format the progress of 500 of ours takes as long as a batch."""
    last = query.lastProgress
    return 0 if last is None else int(last["batchId"]) + 1


def slope(samples: Sequence[Sample], name: str) -> float:
    """Return by how many per cent of its mean a figure rises in 1,000 batches, once all has settled."""
    steady = [one for one in samples if one.batch >= WARM_UP_BATCHES]
    values = np.array([getattr(one, name) for one in steady], float)
    if len(values) < 2 or not values.mean():
        return 0.0
    rise, _ = np.polyfit([one.batch for one in steady], values, 1)
    return float(100 * 1000 * rise / values.mean())


def report(samples: Sequence[Sample], exchange: str) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    names = [field.name for field in fields(Sample)][1:]
    with (RESULTS / f"soak-{exchange}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["batch", *names])
        writer.writeheader()
        writer.writerows(asdict(one) for one in samples)
    table = Table("figure", f"at batch {WARM_UP_BATCHES}", "at the end", "% in 1,000 batches", "flat?")
    first = next((one for one in samples if one.batch >= WARM_UP_BATCHES), samples[0])
    for name in names:
        rise = slope(samples, name)
        cells = [f"{getattr(one, name):,.1f}" for one in (first, samples[-1])]
        table.add_row(name, *cells, f"{rise:+.1f}", "yes" if rise <= TARGET else "NO")
    console.print(table)
    draw(samples, names, RESULTS / f"soak-{exchange}.png", exchange)


def draw(samples: Sequence[Sample], names: Sequence[str], path: Path, exchange: str) -> None:
    figure, axes = plt.subplots(2, 5, figsize=(18, 7), sharex=True)
    for axis, name in zip(axes.flat, names, strict=True):
        axis.plot([one.batch for one in samples], [getattr(one, name) for one in samples], linewidth=1)
        axis.set_title(f"{name} ({slope(samples, name):+.1f} % in 1,000)", fontsize=9)
        axis.set_ylim(bottom=0)
        axis.axvline(WARM_UP_BATCHES, color="grey", linewidth=0.5)
    for axis in axes[-1]:
        axis.set_xlabel("batch")
    figure.suptitle(f"{samples[-1].batch:,} micro-batches in one process, exchange {exchange}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    console.print(f"picture: {path.relative_to(RESULTS.parent.parent)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="for how long at the most")
    parser.add_argument("--exchange", default="driver")
    parser.add_argument("--all", choices=["spill", "left"], help="use as many features as go together")
    options = parser.parse_args()
    # The heap has one size from the start: what grows then is more than room that was not used yet.
    spark = session({"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-Xms1g -XX:+AlwaysPreTouch"})
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        folder = Path(name)
        how = (spark, folder, options.exchange)
        query = start_all(*how, options.all) if options.all else start(*how)
        samples = watch(spark, query, folder, options.batches, options.seconds)
        if not query.isActive:
            query.awaitTermination()
        query.stop(settle=True)
        report(samples, "-".join(filter(None, [options.exchange, options.all])))
        last = datetime.fromisoformat(query.progress[-1]["watermark"]) - timedelta(seconds=60)
        rows = ROWS * (1 + query.progress[-1]["batchId"])
        exact = not options.all or compare(folder, rows, last, options.all)
    spark.stop()
    if not exact:
        sys.exit(1)


if __name__ == "__main__":
    main()
