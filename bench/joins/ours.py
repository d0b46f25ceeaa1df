"""Watersmeet as a competitor: the same joins of the same files, one file a trigger."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

import watersmeet as wm
from bench.common import STREAMS, WINDOW, Task
from bench.joins.baselines import Competitor
from bench.measurement import INSIDE
from watersmeet.workload import similar as compare

NODES = 2


@wm.predicate
def similar(x: bytes, ys: Sequence[bytes]) -> Any:
    """The paper's pixel similarity; the CPU time it takes is added up in a file, where the bench asks for it."""
    start = time.thread_time()
    answer = compare(x, ys)
    _cpu_seconds()[0] += time.thread_time() - start
    return answer


@cache
def _cpu_seconds() -> Any:
    """Return a number that outlives this process, if the bench says where it is to be kept."""
    folder = os.environ.get(INSIDE)
    if folder is None:
        return np.zeros(1)
    return np.asarray(np.memmap(Path(folder) / f"{os.getpid()}.seconds", np.float64, "w+", shape=(1,)))


def _stream(spark: SparkSession, task: Task, name: str) -> Any:
    folder = str(task.files / name)
    schema = spark.read.parquet(folder).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
    return wm.stream(name, frame, time="ts", window=f"{WINDOW} seconds", delay="0 seconds")


def _run(spark: SparkSession, task: Task, where: str, exchange: str | None = None) -> None:
    join = wm.join(
        *(_stream(spark, task, name) for name in STREAMS),
        where=where,
        select="a.id AS a_id, b.id AS b_id, c.id AS c_id",
        predicates=[similar],
        strategy=wm.PSP(nodes=NODES),
    )
    writer = join.writeStream.format("parquet").option("path", str(task.results)).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(task.out / "checkpoint")).option("exchange", exchange)
    query = writer.start()
    query.awaitTermination()
    task.out.mkdir(parents=True, exist_ok=True)
    (task.out / "progress.json").write_text(json.dumps(query.progress))
    if os.environ.get("WATERSMEET_BENCH_VERBOSE"):
        for progress in query.progress:
            print(progress["batchId"], progress["outputRows"], progress["durationMs"])


def band(spark: SparkSession, task: Task) -> None:
    """The band join."""
    _run(spark, task, f"abs(a.x - b.x) < {task.epsilon!r} AND abs(b.x - c.x) < {task.epsilon!r}")


def band_shuffle(spark: SparkSession, task: Task) -> None:
    """The band join, partial results travelling by Spark's shuffle."""
    _run(spark, task, f"abs(a.x - b.x) < {task.epsilon!r} AND abs(b.x - c.x) < {task.epsilon!r}", "shuffle")


def images(spark: SparkSession, task: Task) -> None:
    """The image join."""
    _run(spark, task, "similar(a.img, b.img) AND similar(b.img, c.img)")


def images_shuffle(spark: SparkSession, task: Task) -> None:
    """The image join, partial results travelling by Spark's shuffle."""
    _run(spark, task, "similar(a.img, b.img) AND similar(b.img, c.img)", "shuffle")


OURS = {
    "watersmeet": Competitor(band, {}),
    "watersmeet-shuffle": Competitor(band_shuffle, {}),
    "watersmeet-images": Competitor(images, {}),
    "watersmeet-images-shuffle": Competitor(images_shuffle, {}),
}
