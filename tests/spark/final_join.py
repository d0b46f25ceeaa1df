"""A left join that is closed for good, as a program of its own, to be killed in its final round.

Run as `python -m tests.spark.final_join FOLDER SPEC`, where SPEC is JSON: die (the step of the final round at which it
kills itself and its JVM).
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.crashing_join import session
from tests.spark.harness import Case, cuts, frames, join_of
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.spark.run.batch import BatchRunner
from watersmeet.testing import oracle

CASE = Case(
    [oracle.Stream(name, oracle.Sliding(10), 4) for name in "ab"], cuts(5, "ab", 4), where="a.k = b.k AND a.x < b.x"
)


def started(spark: SparkSession, folder: Path) -> JoinQuery:
    """Start it on all the input there is."""
    join = join_of(CASE, frames(spark, folder / "in", CASE.names), how={"b": "left"})
    writer = join.writeStream.option("checkpointLocation", str(folder / "checkpoint")).option("final", True)
    return writer.trigger(availableNow=True).start(str(folder / "out"))


def dying(open: Callable[[BatchRunner], None], at: str) -> Callable[[BatchRunner], None]:
    """Return what opens a runner that then dies at a step of its round."""

    def opened(runner: BatchRunner) -> None:
        def die(step: str) -> None:
            if runner.protocol.begun is not None and step == at:
                print("dies at", step, flush=True)
                os.killpg(os.getpgrp(), signal.SIGKILL)

        runner.after = die
        open(runner)

    return opened


if __name__ == "__main__":
    BatchRunner.open = dying(BatchRunner.open, json.loads(sys.argv[2])["die"])  # type: ignore[method-assign,assignment]
    started(session("local[2]", Path(sys.argv[1])), Path(sys.argv[1])).awaitTermination()
    print("done", flush=True)
