"""A join whose predicates wait rather than burn, so that eight nodes can overlap on a machine with fewer cores.

What nodes do is emulated by `time.sleep`, so much for each pair; Spark runs with as many slots as there may be nodes.
To wake up takes CPU time, so that a node sleeps seldom and long rather than for each call. Everything else, planning,
tasks, shuffles, is real, and shares the cores there are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

import watersmeet as wm
from bench.common import session
from watersmeet.placement import Strategy
from watersmeet.spark.api.join_query import JoinQuery

SLOTS = 8
SLEEP = 0.02
"""Seconds that a node sleeps at once, at the least; what a task owes at its end is forgiven."""
CAPTION = f"Node work is emulated by waiting: {SLOTS} tasks overlap, whatever the number of cores."


def waiting_session() -> SparkSession:
    return session({"spark.master": f"local[{SLOTS}]", "spark.sql.shuffle.partitions": str(SLOTS)})


def predicates(seconds: float, epsilon: float) -> list[Any]:
    """Two predicates that take some seconds a pair and hold for numbers that lie close together."""

    seconds_owed = 0.0

    def close(x: float, ys: Any) -> Any:
        nonlocal seconds_owed
        seconds_owed += seconds * len(ys)
        if seconds_owed > SLEEP:
            time.sleep(seconds_owed)
            seconds_owed = 0.0
        return np.abs(ys - x) < epsilon

    def near(x: float, ys: Any) -> Any:
        return close(x, ys)

    return [wm.predicate(close), wm.predicate(near)]


def run(
    spark: SparkSession,
    files: Path,
    out: Path,
    strategy: Strategy,
    wait: float,
    epsilon: float,
    window: float,
    names: Sequence[str] = ("a", "b", "c"),
    live: tuple[Path, float] | None = None,
) -> JoinQuery:
    """Join files, one a stream and batch, and return the query when all are joined.

    If `live` is given, files are looked for there every so many seconds, and the query is returned at once.
    """
    schema = spark.read.parquet(str(files / names[0])).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    streams = [
        wm.stream(
            n,
            reader.parquet(str((live[0] if live else files) / n)),
            time="ts",
            window=f"{window:g} seconds",
            delay="0 seconds",
        )
        for n in names
    ]
    calls = ["close(a.x, b.x)", "near(b.x, c.x)"][: len(names) - 1]
    select = ", ".join(f"{n}.id AS {n}_id" for n in names)
    join = wm.join(
        *streams, where=" AND ".join(calls), select=select, predicates=predicates(wait, epsilon), strategy=strategy
    )
    writer = join.writeStream.option("checkpointLocation", str(out / "checkpoint")).option("exchange", "shuffle")
    if live:
        return writer.trigger(processingTime=f"{live[1]:g} seconds").start(str(out / "results"))
    query = writer.trigger(availableNow=True).start(str(out / "results"))
    query.awaitTermination()
    return query
