"""Runs a join of chaos to its end, or to where it is cut: in this process, or as a program of its own, to be killed.

Run as `python -m tests.chaos.program FOLDER SPEC`, where SPEC is JSON: what `Spec` has, and master. It says each step,
and at last how it went.
"""

import json
import os
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.chaos.joins import STRATEGIES, Ids, Subject, subject
from tests.spark.crashing_join import session
from tests.spark.harness import frames, read, side_ids
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.spark.checkpoint import lease
from watersmeet.spark.run.batch import BatchRunner

SINKS = ("parquet", "json", "csv", "orc", "upsert")
EXPIRES = 2.0
"""Seconds after which a lease that is not renewed may be taken."""
LONGEST = 240
"""Seconds after which a query is taken for one that hangs."""


@dataclass(frozen=True)
class Spec:
    """How a start runs.

    Attributes:
        seed: Which join it is.
        sink: One of SINKS.
        strategy: The number of one of STRATEGIES.
        exchange: How partial results travel.
        order: In which order streams are probed.
        spill: What the hot state may take, and what is put off first; None for no spilling.
        final: Whether all is closed for good at the end.
        parts: Whether files lie in folders by partition.
        late: Whether late rows are written.
        label: What the checkpoint and the output are called.
    """

    seed: int
    sink: str
    strategy: int
    exchange: str
    order: str = "given"
    spill: tuple[int, str] | None = None
    final: bool = False
    parts: bool = False
    late: bool = False
    label: str = "main"


class CutShort(Exception):
    """Ends a run where a crash would."""


@dataclass
class Steps:
    """What a start does at its steps: says each, and may be cut at one.

    Attributes:
        die: The step at which it is cut, and how often that is seen before; None for none.
        say: Told each step.
        taken: How many steps there were.
        hit: Whether it was cut.
    """

    die: tuple[str, int] | None = None
    say: Callable[[str], None] = lambda step: None
    taken: int = 0
    hit: bool = False
    _left: int = field(init=False)

    def __post_init__(self) -> None:
        self._left = self.die[1] if self.die else 0

    def __call__(self, step: str) -> None:
        self.taken += 1
        self.say(step)
        if self.die and step == self.die[0]:
            self._left -= 1
            if self._left <= 0:
                self.hit = True
                raise CutShort(step)


def arrange() -> None:
    """Let leases be taken over soon."""
    lease.EXPIRES, lease.RENEW_SECONDS = EXPIRES, EXPIRES / 5


def begun(spark: SparkSession, folder: Path, spec: Spec, steps: Callable[[str], None]) -> JoinQuery:
    """Start a join on all the input there is."""
    played = subject(spec.seed)
    inputs = frames(spark, folder / "in", [*played.batches[0]])
    inputs["a"] = _deadly(inputs["a"], folder / "armed")
    spill = wm.Spill(memory=spec.spill[0], policy=spec.spill[1], oldest="1 hour") if spec.spill else None
    more = ", _id" if spec.sink == "upsert" else f", {played.part} AS part" if spec.parts else ""
    joined = played.join(inputs, more, strategy=STRATEGIES[spec.strategy], order=spec.order, spill=spill)
    writer = joined.writeStream.option("checkpointLocation", str(folder / f"checkpoint-{spec.label}"))
    writer = writer.option("exchange", spec.exchange).option("final", spec.final).trigger(availableNow=True)
    if spec.late:
        writer = writer.option("latePath", str(folder / f"late-{spec.label}"))
    if spec.parts:
        writer = writer.partitionBy("part")
    with _stepping(steps):
        if spec.sink == "upsert":
            return writer.foreachBatch(_upsert(folder / f"{spec.label}.db", played)).start()
        return writer.format(spec.sink).start(str(folder / f"out-{spec.label}"))


@contextmanager
def _stepping(steps: Callable[[str], None]) -> Iterator[None]:
    """Have the runners that are opened meanwhile tell their steps."""
    open = BatchRunner.open

    def opened(runner: BatchRunner) -> None:
        runner.after = steps
        open(runner)

    with mock.patch.object(BatchRunner, "open", opened):
        yield


def _deadly(frame: DataFrame, armed: Path) -> DataFrame:
    """Return a frame that kills the Python worker which reads it, once, if a file says so."""
    if not armed.exists():
        return frame

    def spared(id: int | None) -> int | None:
        try:
            armed.unlink()
        except FileNotFoundError:
            return id
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    return frame.withColumn("id", F.udf(spared, "long")("id"))


def _upsert(path: Path, played: Subject) -> Callable[[DataFrame, int], None]:
    """Return what writes batches into a table whose key is the id of a result.

    [!] By Arrow: collect() may return too few rows when its connection is cut.
    """

    def upsert(frame: DataFrame, batch: int) -> None:
        rows = [(row["_id"], json.dumps([row[name] for name in played.columns])) for row in frame.toArrow().to_pylist()]
        with sqlite3.connect(path) as table:
            table.execute("CREATE TABLE IF NOT EXISTS results (id TEXT PRIMARY KEY, ids TEXT)")
            table.executemany("INSERT INTO results VALUES (?, ?) ON CONFLICT DO NOTHING", rows)

    return upsert


def written(folder: Path, spec: Spec) -> Counter[Ids]:
    """Return the ids that an output holds; reading it fails on a half-written file."""
    columns, out = subject(spec.seed).columns, folder / f"out-{spec.label}"
    match spec.sink:
        case "upsert":
            with sqlite3.connect(folder / f"{spec.label}.db") as table:
                return Counter(tuple(json.loads(ids)) for (ids,) in table.execute("SELECT ids FROM results"))
        case "csv":  # without a header, as Spark does by default
            lines = [line for path in out.rglob("part-*.csv") for line in path.read_text().splitlines()]
            values = ([value.strip('"') for value in line.split(",")] for line in lines)
            return Counter(tuple(int(value) if value else None for value in line) for line in values)
        case "json":
            lines = [line for path in out.rglob("part-*.json") for line in path.read_text().splitlines()]
            return Counter(tuple(map(json.loads(line).get, columns)) for line in lines)
    return Counter(tuple(row[name] for name in columns) for row in read(out, spec.sink).to_pylist())


def late(folder: Path, spec: Spec) -> Counter[Any]:
    """Return the streams and ids of the late rows that were written."""
    return side_ids(folder / f"late-{spec.label}", [*subject(spec.seed).batches[0]])


def remove(folder: Path, spec: Spec) -> None:
    """Remove a checkpoint and its outputs."""
    for what in ("checkpoint", "out", "late"):
        shutil.rmtree(folder / f"{what}-{spec.label}", ignore_errors=True)
    (folder / f"{spec.label}.db").unlink(missing_ok=True)


def outcome(begin: Callable[[], JoinQuery], steps: Steps) -> str:
    """Run a query to its end; return done, refused or stopped with the sentence, or raw with another error."""
    try:
        query = begin()
        if query.awaitTermination(LONGEST) is False:
            query.stop()
            return "raw: it hangs"
    except wm.WatersmeetError as error:
        return f"{'stopped' if steps.taken else 'refused'} {' '.join(str(error).split())}"
    except Exception as error:
        return f"raw {type(error).__name__} {' '.join(str(error).split())[:300]}"
    return "done"


def main(folder: Path, spec: dict[str, Any]) -> None:
    """Run the join; the last line says how that went."""
    arrange()
    spark = session(spec.pop("master", "local[2]"), folder)
    steps = Steps(say=lambda step: print("step", step, flush=True))
    print("started", flush=True)
    print(outcome(lambda: begun(spark, folder, Spec(**spec), steps), steps), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
