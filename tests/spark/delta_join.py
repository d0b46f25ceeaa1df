"""A join into a Delta table as a program of its own, to be killed: says each step it takes.

Run as `python -m tests.spark.delta_join FOLDER SPEC`, where SPEC is JSON: source (`delta`, or `parquet` as `harness`
writes it), checkpoint (a folder's name), spill (whether nearly all is put off), die ([step, how often it is seen before
the program is killed there] or null; steps of rounds are `round job` and so on), settings (more of Spark's).
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark.crashing_join import Steps, session
from tests.spark.harness import Case, cuts, frames, join_of, table
from watersmeet.spark.run.batch import BatchRunner
from watersmeet.testing import oracle

CASE = Case(
    [oracle.Stream(name, oracle.Sliding(12), 6) for name in "ab"],
    cuts(5, "ab", batches=4, rows=12),
    "a.k = b.k AND abs(a.x - b.x) < 4",
    lambda a, b: None not in (a["k"], a["x"], b["x"]) and a["k"] == b["k"] and abs(a["x"] - b["x"]) < 4,
    strategy=wm.Hash(2),
)
TIGHT = wm.Spill(memory=1, partitions=4, policy="local", oldest="1 hour")
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def kill(step: str) -> None:
    """Kill the driver with its JVM, without a chance to tidy up."""
    os.killpg(0, signal.SIGKILL)


def watch(die: list[Any] | None) -> None:
    """Have runners say their steps, and kill the program at one of them."""
    steps, opened = Steps(die, kill), BatchRunner.open

    def watched(runner: BatchRunner) -> None:
        runner.after = lambda step: steps(f"round {step}" if runner.protocol.begun is not None else step)
        opened(runner)

    BatchRunner.open = watched  # type: ignore[method-assign,assignment]


def tables(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """Return streams over Delta tables that hold the case, a commit and a file a batch; made if they aren't there."""
    if not (folder / "fed").exists():
        for batch in CASE.batches:
            for name, rows in batch.items():
                made = spark.createDataFrame(table(rows)).coalesce(1)
                made.write.format("delta").mode("append").save(str(folder / "in" / name))
        (folder / "fed").touch()
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
    return {name: reader.load(str(folder / "in" / name)) for name in CASE.names}


def run(folder: Path, spec: dict[str, Any]) -> None:
    """Run the join to its end, or to where it is to die."""
    watch(spec.get("die"))
    spark = session("local[2]", folder, settings={**DELTA, **spec["settings"]})
    inputs = tables(spark, folder) if spec["source"] == "delta" else frames(spark, folder / "in", CASE.names)
    join = join_of(CASE, inputs, select="a.id AS a, b.id AS b", spill=TIGHT if spec.get("spill") else None)
    writer = join.writeStream.format("delta").option("checkpointLocation", str(folder / spec["checkpoint"]))
    writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()
    print("done", flush=True)
    spark.stop()


def main(folder: Path, spec: dict[str, Any]) -> None:
    """Run the join; the last line says how that went."""
    try:
        run(folder, spec)
    except wm.WatersmeetError as error:
        print("refused", " ".join(str(error).split()), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
