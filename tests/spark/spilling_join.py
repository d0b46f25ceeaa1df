"""A join that puts work off, as a program of its own, to be killed: says each step it takes, and whether in a round.

Run as `python -m tests.spark.spilling_join FOLDER SPEC`, where SPEC is JSON: plan (one of `PLANS`), exchange, policy,
and what `crashing_join.arrange` takes.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark.crashing_join import arrange, session
from tests.spark.harness import cuts, frames
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.spark.api.stream import Stream
from watersmeet.spark.run.batch import BatchRunner

BATCHES = cuts(41, "abc", batches=24, rows=12, ties=False, nulls=0)
"""No row is ever late, however the streams' files are cut into batches."""


def stream(name: str, frame: DataFrame) -> Stream:
    return wm.stream(name, frame, time="ts", window="12 seconds", delay="6 seconds")


def by_value(inputs: dict[str, DataFrame], spill: wm.Spill | None) -> wm.Join:
    streams = (stream(name, inputs[name]) for name in "abc")
    where = "a.k = b.k AND b.k = c.k AND a.x <= c.x"
    return wm.join(*streams, where=where, select="a.id AS a, b.id AS b, c.id AS c", strategy=wm.Hash(2), spill=spill)


def by_time(inputs: dict[str, DataFrame], spill: wm.Spill | None) -> wm.Join:
    streams = (stream(name, inputs[name]) for name in "abc")
    where = "abs(a.x - b.x) < 2 AND b.x < c.x"
    return wm.join(*streams, where=where, select="a.id AS a, b.id AS b, c.id AS c", strategy=wm.DSJ(2), spill=spill)


def nested(inputs: dict[str, DataFrame], spill: wm.Spill | None) -> wm.Join:
    inner = wm.join(
        *(stream(name, inputs[name]) for name in "ab"),
        where="a.k = b.k",
        select="a.id AS a, b.id AS b, b.x AS x",
        strategy=wm.Hash(2),
    )
    streams = wm.stream("ab", inner, window="12 seconds"), stream("c", inputs["c"])
    return wm.join(*streams, where="abs(ab.x - c.x) < 2", select="ab.a, ab.b, c.id AS c", spill=spill)


PLANS: dict[str, Callable[[dict[str, DataFrame], wm.Spill | None], wm.Join]] = {
    "by value": by_value,
    "by time": by_time,
    "nested": nested,
}


def started(
    spark: SparkSession, inputs: Path, folder: Path, plan: str, exchange: str, spill: wm.Spill | None = None
) -> JoinQuery:
    """Start a plan on all the input there is."""
    join = PLANS[plan](frames(spark, inputs, "abc"), spill)
    writer = join.writeStream.option("checkpointLocation", str(folder / "checkpoint")).option("exchange", exchange)
    return writer.trigger(availableNow=True).start(str(folder / "out"))


def saying(open: Callable[[BatchRunner], None]) -> Callable[[BatchRunner], None]:
    """Return what opens a runner that then says its steps."""

    def opened(runner: BatchRunner) -> None:
        def say(step: str) -> None:
            print("round" if runner.protocol.begun is not None else "batch", step, flush=True)

        runner.after = say
        open(runner)

    return opened


def main(folder: Path, spec: dict[str, Any]) -> None:
    """Run the plan until all is paid; the last line says how that went."""
    try:
        arrange(spec)
        BatchRunner.open = saying(BatchRunner.open)  # type: ignore[method-assign,assignment]
        spark = session("local[2]", folder)
        spill = wm.Spill(memory=1, partitions=4, policy=spec["policy"], oldest=spec["oldest"])
        started(spark, folder / "in", folder, spec["plan"], spec["exchange"], spill).awaitTermination()
        print("done", flush=True)
        spark.stop()
    except BaseException as error:
        print("failed", type(error).__name__, " ".join(str(error).split())[:300], flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
