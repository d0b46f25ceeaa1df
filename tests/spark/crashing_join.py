"""A join as a program of its own, to be killed: reads a case, writes one output per format, says each step it takes.

Run as `python -m tests.spark.crashing_join FOLDER SPEC`, where SPEC is JSON: formats, nodes (0 for Central, -1 for what
dice choose before each batch, -2 for Auto), exchange, master, die ([step, how often it is seen before the program exits
there] or null), pause (the same, but it is suspended there), expires (seconds until a lease may be taken over), skew
(seconds that the clock is wrong by), full (how many files may be written until the disk is full), at (the URL of a
folder for the checkpoints and outputs, by default the same folder), settings (more of Spark's), spill (what the hot
state may take, with which policy, or null), final (whether everything is closed for good).

The steps are those of `BatchRunner.after`, and `publishing`: the lease was looked at, and a manifest is about to be
written. A program may also be suspended before those of `RARE_STEPS`.
"""

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

import watersmeet as wm
from tests.batch.scatter import Restless
from tests.spark.harness import Case, cuts, frames, join_of
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.spark.checkpoint import lease
from watersmeet.spark.output.files import Folder
from watersmeet.spark.run.batch import BatchRunner
from watersmeet.state.manifest import claim as claims
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest import rounds
from watersmeet.state.manifest.generations import Fence
from watersmeet.state.store.store import Store
from watersmeet.testing.oracle import Count, Sliding, Stream

CASE = Case(
    [Stream("a", Sliding(12), 6), Stream("b", Sliding(12), 6), Stream("c", Count(6), 6)],
    cuts(31, "abc", batches=5, rows=8, disorder=6, ties=False, nulls=0),
    "a.x < b.x AND abs(b.x - c.x) < 2",
    lambda a, b, c: a["x"] < b["x"] and abs(b["x"] - c["x"]) < 2,
)
SELECT = "a.id AS a, b.id AS b, c.id AS c"


RARE_STEPS: dict[str, tuple[Any, str]] = {
    "claim": (claims, "_publish"),
    "fence": (Fence, "publish"),
    "sweep": (BatchRunner, "sweep"),
    "withdraw": (Folder, "withdraw"),
    "intent": (rounds, "write_intent"),
}
"""Steps that a run takes once, by what does them."""


def session(
    master: str, folder: Path, parallelism: int = 2, settings: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    builder = (
        SparkSession.builder.master(master)
        .config("spark.default.parallelism", str(parallelism))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.executor.extraJavaOptions", os.environ.get("SPARK_SUBMIT_OPTS", ""))
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def leave(step: str) -> None:
    """End the program at once."""
    os._exit(9)


def pause(step: str) -> None:
    """Suspend the program until it is told to go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


class Steps:
    """Says each step of the batch protocol, and stops at the one asked for."""

    def __init__(self, die: Sequence[Any] | None, stop: Callable[[str], None] = leave) -> None:
        self._at: str | None = die[0] if die else None
        self._left: int = die[1] if die else 0
        self._stop = stop

    def __call__(self, step: str) -> None:
        print("step", step, flush=True)
        if step == self._at:
            self._left -= 1
            if self._left <= 0:
                self._stop(step)

    def watching(self, claim: Callable[[BatchRunner], None]) -> Callable[[BatchRunner], None]:
        """Return what opens a runner as `claim` does, and then is told of its steps."""

        def watched(runner: BatchRunner) -> None:
            runner.after = self
            claim(runner)

        return watched

    def before(self, step: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """Return what acts as `act` does, after a step."""

        def acted(*arguments: Any) -> Any:
            self(step)
            return act(*arguments)

        return acted


def arrange(spec: dict[str, Any]) -> None:
    """Make the driver's surroundings what was asked for."""
    lease.EXPIRES = spec.get("expires", lease.EXPIRES)
    lease.RENEW_SECONDS = min(lease.RENEW_SECONDS, lease.EXPIRES / 5)
    if "skew" in spec:
        real, begun = time.time, time.monotonic()  # it jumps after a while
        time.time = lambda: real() + (spec["skew"] if time.monotonic() - begun > 8 else 0)
    if "full" in spec:
        left, write = [spec["full"]], Store.write

        def fill(store: Store, path: str, data: Any) -> None:
            left[0] -= not path.startswith("leases/")
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            write(store, path, data)

        Store.write = fill  # type: ignore[method-assign,assignment]


def main(folder: Path, spec: dict[str, Any]) -> None:
    """Run the join; the last line says how that went."""
    try:
        run(folder, spec)
    except wm.WatersmeetError as error:
        print("refused", " ".join(str(error).split()), flush=True)
    except BaseException as error:
        print("raw", type(error).__name__, " ".join(str(error).split())[:300], flush=True)


def run(folder: Path, spec: dict[str, Any]) -> None:
    """Run the join to its end, or to where it is to die."""
    arrange(spec)
    steps = Steps(spec["pause"], pause) if "pause" in spec else Steps(spec.get("die"))
    BatchRunner.open = steps.watching(BatchRunner.open)  # type: ignore[method-assign,assignment]
    manifests.publish = steps.before("publishing", manifests.publish)
    for step, (owner, name) in RARE_STEPS.items() if "pause" in spec else ():
        setattr(owner, name, steps.before(step, getattr(owner, name)))
    spark = session(spec.get("master", "local[2]"), folder, settings=spec.get("settings", {}))
    queries = started(spark, folder, spec)
    print("started", flush=True)
    for query in queries:
        query.awaitTermination()
    print("done", flush=True)
    spark.stop()


def started(spark: SparkSession, folder: Path, spec: Mapping[str, Any]) -> list[JoinQuery]:
    """Start a query for each format."""
    strategies = {0: wm.Central(), -1: Restless(4), -2: wm.Auto(4, interval=1)}
    strategy = strategies.get(spec["nodes"]) or wm.PSP(spec["nodes"])
    spill = wm.Spill(memory=spec["spill"][0], policy=spec["spill"][1], oldest="1 hour") if spec.get("spill") else None
    joined = join_of(CASE, frames(spark, folder / "in", CASE.names), select=SELECT, strategy=strategy, spill=spill)
    at = spec.get("at", folder)
    return [
        joined.writeStream.format(format)
        .option("checkpointLocation", f"{at}/checkpoint-{format}")
        .option("exchange", spec["exchange"])
        .option("final", spec.get("final", False))
        .trigger(availableNow=True)
        .start(f"{at}/out-{format}")
        for format in spec["formats"]
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
