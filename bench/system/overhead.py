"""A steady micro-batch with nothing to match, against a bare foreachBatch: mapInArrow, a shuffle, mapInArrow again.

Both run in one session over the same files, taking turns; batches are timed by Spark itself.
"""

from __future__ import annotations

import csv
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.table import Table

import watersmeet as wm
from bench.common import RESULTS, STREAMS, band_files, console, progress, session

TARGET = 2.5
ROUNDS = 3
NODES = 2
WARM_UP = 3


def same(blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from blocks


def inputs(spark: SparkSession, files: Path) -> dict[str, DataFrame]:
    schema = spark.read.parquet(str(files / "a")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return {name: reader.parquet(str(files / name)) for name in STREAMS}


def bare(spark: SparkSession, files: Path, out: Path) -> list[float]:
    frames = list(inputs(spark, files).values())

    def batch(frame: DataFrame, number: int) -> None:
        there = frame.mapInArrow(same, frame.schema)
        shuffled = there.repartitionById(NODES, (F.col("id") % NODES).cast("int"))
        shuffled.mapInArrow(same, frame.schema).collect()

    union = frames[0].union(frames[1]).union(frames[2])
    writer = union.writeStream.foreachBatch(batch).option("checkpointLocation", str(out))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [float(p["durationMs"]["triggerExecution"]) for p in query.recentProgress if p["numInputRows"]]


def ours(spark: SparkSession, files: Path, out: Path, durable: bool = True) -> list[float]:
    frames = inputs(spark, files)
    streams = [wm.stream(n, f, time="ts", window="10 seconds", delay="0 seconds") for n, f in frames.items()]
    nothing = "abs(a.x - b.x) < 5 AND abs(b.x - c.x) < 5 AND a.x > 2000"
    join = wm.join(*streams, where=nothing, select="a.id AS a_id", strategy=wm.PSP(nodes=NODES))
    writer = join.writeStream.option("path", str(out / "results")).option("durable", durable)
    query = writer.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sum(p["outputRows"] for p in query.progress) == 0
    return [float(p["durationMs"]["triggerExecution"]) for p in query.recentProgress if p["numInputRows"]]


def main() -> None:
    spark = session({})
    runs: dict[str, Callable[[SparkSession, Path, Path], list[float]]]
    runs = {"bare foreachBatch": bare, "watersmeet": ours, "without durable": partial(ours, durable=False)}
    times: dict[str, list[float]] = {what: [] for what in runs}
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name,
        progress("Overhead", len(runs) * ROUNDS) as bar,
    ):
        folder = Path(name)
        files = band_files(folder / "files", 100)
        for number in range(ROUNDS):
            for what, run in runs.items():
                times[what] += run(spark, files, folder / f"{what}-{number}")[WARM_UP:]
                bar.advance(bar.task_ids[0])
    report(times)


def report(seconds: dict[str, list[float]]) -> None:
    medians = {what: statistics.median(times) for what, times in seconds.items()}
    ratio = medians["watersmeet"] / medians["bare foreachBatch"]
    table = Table(title="A micro-batch of 1,500 rows with nothing to match")
    for heading in ("what", "batches", "median ms", "ratio"):
        table.add_column(heading)
    for what, times in seconds.items():
        table.add_row(
            what, str(len(times)), f"{medians[what]:.0f}", f"{medians[what] / medians['bare foreachBatch']:.2f}"
        )
    console.print(table)
    console.print(f"{ratio:.2f} times a bare batch; at most {TARGET} wanted: {'met' if ratio <= TARGET else 'MISSED'}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "overhead.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["what", "milliseconds"])
        writer.writerows((what, milliseconds) for what, times in seconds.items() for milliseconds in times)
    draw(seconds)


def draw(times: dict[str, list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.boxplot(list(times.values()), tick_labels=list(times))
    axes.set(ylabel="milliseconds a batch", title="A micro-batch with nothing to match", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(RESULTS / "overhead.png", dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
