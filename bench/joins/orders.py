"""A chain join of four streams, skewed keys and evenly spread ones: histogram order (TJM) against the given order."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import watersmeet as wm
from bench.common import RESULTS, console, listing, progress, session
from watersmeet.workload import gps, write, zipf

STREAMS = ("a", "b", "c", "d")
RATE, SECONDS, WINDOW = 60.0, 60, 20
CHAIN = "a.b = b.a AND b.b = c.a AND c.b = d.a"
ORDERS = ("given", "selectivity", "histogram")
TARGET = 0.3
Row = dict[str, Any]


def files(folder: Path, make: Callable[..., pa.Table]) -> Path:
    for at, name in enumerate(STREAMS):
        write(make(RATE, SECONDS, np.random.default_rng((0, at))), folder / name, 5)
    return folder


def run(spark: SparkSession, folder: Path, out: Path, order: str) -> Row:
    schema = spark.read.parquet(str(folder / "a")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    streams = [
        wm.stream(n, reader.parquet(str(folder / n)), time="ts", window=f"{WINDOW} seconds", delay="0 seconds")
        for n in STREAMS
    ]
    join = wm.join(*streams, where=CHAIN, select="a.id AS a_id, d.id AS d_id", strategy=wm.DSJ(4), order=order)
    start = time.perf_counter()
    writer = join.writeStream.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True)
    query = writer.option("exchange", "local").start(str(out / "results"))
    query.awaitTermination()
    batches = query.progress
    return {
        "order": order,
        "seconds": round(time.perf_counter() - start, 2),
        "results": sum(p["outputRows"] for p in batches),
        "pairs": sum(hop["pairs"] for p in batches for hop in p["hops"]),
        "partials": sum(hop["matches"] for p in batches for hop in p["hops"][:-1]),
    }


def report(rows: list[Row]) -> None:
    title = f"Chain join of four streams, {RATE:g}/s each, {SECONDS} s, {WINDOW} s windows: {CHAIN}"
    listing(title, "orders", rows)
    for keys in dict.fromkeys(row["keys"] for row in rows):
        mine = {row["order"]: row for row in rows if row["keys"] == keys}
        fewer = 1 - mine["histogram"]["pairs"] / mine["given"]["pairs"]
        verdict = "" if keys != "zipf" else f"; at least {TARGET:.0%} wanted: {'met' if fewer >= TARGET else 'MISSED'}"
        same = len({row["results"] for row in mine.values()}) == 1
        console.print(f"{keys}: histogram order tests {fewer:.0%} fewer pairs than the given order{verdict}")
        console.print("All orders gave the same number of results." if same else "RESULTS DIFFER")
    draw(rows)


def draw(rows: list[Row]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kinds = list(dict.fromkeys(row["keys"] for row in rows))
    figure, axes = pyplot.subplots(1, len(kinds), figsize=(9, 3.5), constrained_layout=True)
    for axis, keys in zip(axes, kinds, strict=True):
        mine = [row for row in rows if row["keys"] == keys]
        bars = axis.bar([row["order"] for row in mine], [row["pairs"] / 1e6 for row in mine])
        axis.bar_label(bars, [f"{row['seconds']:.1f} s" for row in mine])
        axis.set(title=f"{keys} keys", ylabel="million pairs tested")
    figure.savefig(RESULTS / "orders.png", dpi=120)
    console.print(f"Written: {RESULTS / 'orders'}.csv, .png")


def main() -> None:
    spark, rows = session({}), list[Row]()
    makers = {"zipf": zipf, "even": gps}
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name, progress("Orders", 7) as bar:
        folder = Path(name)
        inputs = {keys: files(folder / keys, make) for keys, make in makers.items()}
        run(spark, inputs["even"], folder / "warm-up", "given")
        bar.advance(bar.task_ids[0])
        for keys in makers:
            for order in ORDERS:
                rows.append({"keys": keys} | run(spark, inputs[keys], folder / f"{keys}-{order}", order))
                bar.advance(bar.task_ids[0])
    report(rows)


if __name__ == "__main__":
    main()
