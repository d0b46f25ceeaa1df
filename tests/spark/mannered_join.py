"""A join that is stopped in the middle of a batch, as a program of its own: what it prints is what users see.

Run as `python -m tests.spark.mannered_join FOLDER`.
"""

import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame

import watersmeet as wm
from tests.spark.crashing_join import session
from tests.spark.harness import cuts, frames, write


def main(folder: Path) -> None:
    """Run batches as soon as possible, then stop amid one."""
    write(folder / "in", cuts(5, "ab", batches=4))
    spark = session("local[2]", folder)
    spark.sparkContext.setLogLevel("ERROR")
    inputs, amid = frames(spark, folder / "in", "ab"), threading.Event()
    joined = wm.join(
        *(wm.stream(name, inputs[name], time="ts", window="10 seconds") for name in "ab"), where="a.x < b.x"
    )

    def linger(frame: DataFrame, batch: int) -> None:
        while batch == 3:
            frame.count()
            amid.set()

    writer = joined.writeStream.option("checkpointLocation", str(folder / "state")).foreachBatch(linger)
    query = writer.trigger(processingTime="0 seconds").start()
    query.explain()
    amid.wait(300)
    query.stop()
    print("stopped", query.isActive, query.exception(), query.progress[-1]["batchId"], "overload" in query.progress[-1])
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
