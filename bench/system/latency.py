"""From arrival to result: how long rows take, and what each knob changes, against a bare foreachBatch in the same run.

Two streams of small files arrive all the time; each row says when its file appeared. A result has arrived with the last
of its rows, and is there once the sink has it in hand. All settings take turns in each round, each time in another
order; ratios are those of one round, and medians over the rounds are shown.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table

import watersmeet as wm
from bench.common import RESULTS, console, progress, session

NAMES = ("a", "b")
EVERY = 0.25
"""Seconds between two files of a stream."""
ROWS = 20
"""Rows of a file."""
WARM_UP = 3.0
"""Seconds of each run that are not counted, from its first results on."""
BACKLOG = 40, 500
"""Files of a stream that wait at the start, and the rows of each."""
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("sent", pa.float64())])
REFERENCE = "bare foreachBatch"


@dataclass(frozen=True)
class Setting:
    """How a run is set: the join or, without one, a foreachBatch over the union of the streams."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    trigger: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, int] = field(default_factory=dict)
    joined: bool = True


LIVE = (
    Setting(REFERENCE, joined=False),
    Setting("join, no trigger"),
    Setting("durable=false", {"durable": "false"}),
    Setting("exchange=local", {"exchange": "local"}),
    Setting("exchange=shuffle", {"exchange": "shuffle"}),
    Setting("trigger 1 second", trigger={"processingTime": "1 second"}),
    Setting("trigger 2 seconds", trigger={"processingTime": "2 seconds"}),
)
WAITING = (
    Setting("no limit"),
    *(Setting(f"maxFilesPerTrigger={files}", source={"maxFilesPerTrigger": files}) for files in (10, 2, 1)),
)


def rows(number: int, count: int, rng: np.random.Generator) -> pa.Table:
    """Return rows that were sent just now."""
    now = time.time()
    ids, times = np.arange(number * count, (number + 1) * count), np.full(count, int(now * 1e6))
    columns = [pa.array(ids), pa.array(times, SCHEMA.field("ts").type), pa.array(rng.uniform(0, 1000, count))]
    return pa.table([*columns, pa.array(np.full(count, now))], schema=SCHEMA)


def send(folder: Path, number: int, count: int, rng: np.random.Generator) -> None:
    """Let a file of each stream appear at once."""
    for name in NAMES:
        hidden = folder / f".{name}.parquet"
        pq.write_table(rows(number, count, rng), hidden)
        hidden.rename(folder / name / f"{number:06d}.parquet")


class Feed(threading.Thread):
    """Sends files at a steady pace while the block runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.over = folder, threading.Event()

    def run(self) -> None:
        number, rng = 0, np.random.default_rng(1)
        while not self.over.wait(EVERY):
            send(self.folder, number, ROWS, rng)
            number += 1


class Sink:
    """Takes batches in hand, and notes how long their rows took."""

    def __init__(self) -> None:
        self.taken: list[tuple[float, float]] = []

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = frame.collect()
        now = time.time()
        self.taken += [(now, now - max(row)) for row in rows]

    def after(self, moment: float) -> list[float]:
        """Return how long the rows took that were sent after a moment."""
        return [latency for now, latency in self.taken if now - latency > moment]


def start(
    spark: SparkSession, folder: Path, setting: Setting, sink: Sink, trigger: Mapping[str, Any], band: float
) -> Any:
    """Start a query over the folder's streams, whose rows match within a band."""
    reader = spark.readStream.schema("id long, ts timestamp, x double, sent double").options(**setting.source)
    frames = {name: reader.parquet(str(folder / name)) for name in NAMES}
    if setting.joined:
        streams = [wm.stream(name, frame, time="ts", window="5 seconds") for name, frame in frames.items()]
        columns = "a.sent AS a, b.sent AS b"
        writer: Any = wm.join(*streams, where=f"abs(a.x - b.x) < {band}", select=columns).writeStream
    else:
        writer = frames["a"].union(frames["b"]).select("sent").writeStream
    writer = writer.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.options(**setting.options)
    return (writer.trigger(**trigger) if trigger else writer).start()


def live(spark: SparkSession, folder: Path, setting: Setting, seconds: float) -> list[float]:
    """Return how long rows took while files kept coming, and of these the part that `latencyMs` tells."""
    sink, feed = Sink(), Feed(folder)
    feed.start()
    query = start(spark, folder, setting, sink, setting.trigger, 20)
    while not sink.taken:
        time.sleep(EVERY)
    time.sleep(WARM_UP)
    begin = time.time()
    time.sleep(seconds)
    feed.over.set()
    feed.join()
    query.processAllAvailable()
    query.stop()
    latencies = sink.after(begin)
    read = [batch["latencyMs"]["p50"] for batch in query.progress if batch["latencyMs"]] if setting.joined else []
    reported = statistics.median(read) / 1000 if read else float("nan")
    return [float(np.quantile(latencies, share)) for share in (0.5, 0.99)] + [reported]


def waiting(spark: SparkSession, folder: Path, setting: Setting) -> list[float]:
    """Return how long it took from the first batch on until a backlog's first and last results were there."""
    sink, rng = Sink(), np.random.default_rng(1)
    for number in range(BACKLOG[0]):
        send(folder, number, BACKLOG[1], rng)
    query = start(spark, folder, setting, sink, {"availableNow": True}, 0.05)
    query.awaitTermination()
    first_batch = datetime.fromisoformat(query.progress[0]["timestamp"]).timestamp()
    there = [now for now, _ in sink.taken]
    return [min(there) - first_batch, max(there) - first_batch, float(len(query.progress))]


Latencies = dict[str, list[list[float]]]


def turned(settings: Sequence[Setting], number: int) -> Sequence[Setting]:
    """Return settings in the order of a round: each is the first one in turn."""
    at = number % len(settings)
    return [*settings[at:], *settings[:at]]


def _in(folder: Path, measure: Callable[[Path], list[float]]) -> list[float]:
    """Return what is measured in a place with empty streams, which is removed afterwards."""
    place = folder / "run"
    for name in NAMES:
        (place / name).mkdir(parents=True)
    latencies = measure(place)
    shutil.rmtree(place)
    return latencies


def run(rounds: int, seconds: float) -> tuple[Latencies, Latencies, float]:
    """Return what each setting measured in each round, and how busy the machine was with all of it, from 0 to 1."""
    spark = session({})
    first: Latencies = {setting.name: [] for setting in LIVE}
    second: Latencies = {setting.name: [] for setting in WAITING}
    psutil.cpu_percent()
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name,
        progress("Latency", rounds * (len(LIVE) + len(WAITING))) as bar,
    ):
        folder = Path(name)
        for setting in LIVE[:2]:  # the JVM has yet to compile what all of them use
            _in(folder, partial(live, spark, setting=setting, seconds=seconds))
        for number in range(rounds):
            for setting in turned(LIVE, number):
                latencies = _in(folder, partial(live, spark, setting=setting, seconds=seconds))
                first[setting.name].append(latencies)
                bar.advance(bar.task_ids[0])
            for setting in turned(WAITING, number):
                latencies = _in(folder, partial(waiting, spark, setting=setting))
                second[setting.name].append(latencies)
                bar.advance(bar.task_ids[0])
    return first, second, psutil.cpu_percent() / 100


def table(title: str, headings: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    grid = Table(title=title)
    for heading in headings:
        grid.add_column(heading)
    for line in lines:
        grid.add_row(*line)
    console.print(grid)


def report(first: Latencies, second: Latencies, busy: float) -> None:
    medians = {name: [statistics.median(column) for column in zip(*runs, strict=True)] for name, runs in first.items()}
    ratios = {
        name: statistics.median(mine[0] / bare[0] for mine, bare in zip(runs, first[REFERENCE], strict=True))
        for name, runs in first.items()
    }
    table(
        f"Milliseconds from arrival to result, {EVERY:g} s between files",
        ("setting", "median", "99 %", "latencyMs p50", "ratio to bare"),
        [
            [name, *(f"{1000 * value:,.0f}" for value in values), f"{ratios[name]:.2f}"]
            for name, values in medians.items()
        ],
    )
    table(
        f"Seconds from the first batch on, {BACKLOG[0]} files of {BACKLOG[1]} rows waiting per stream",
        ("setting", "first results", "last results", "batches"),
        [
            [name, *(f"{statistics.median(column):.2f}" for column in zip(*runs, strict=True))]
            for name, runs in second.items()
        ],
    )
    console.print(f"{psutil.cpu_count()} cores, {busy:.0%} busy on average, this bench included")
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "latency_knobs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["setting", "round", "first", "second", "third"])
        for took in (first, second):
            writer.writerows((name, at, *row) for name, runs in took.items() for at, row in enumerate(runs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    arguments = parser.parse_args()
    report(*run(arguments.rounds, arguments.seconds))
