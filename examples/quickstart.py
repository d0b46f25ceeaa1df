"""The README's example as a file: three streams of numbers within ten seconds, `a` close to `b` and `b` to `c`.

Run it with `.venv/bin/python examples/quickstart.py`. It generates its data in a temporary folder.
"""

import os
import sys
import tempfile

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from watersmeet.workload import numbers, write

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def main(spark: SparkSession) -> None:
    """Stream three folders of files, join them, show some results."""
    folder = tempfile.mkdtemp()

    def sensor(name: str, seed: int) -> DataFrame:
        write(numbers(10, 30, np.random.default_rng(seed)), f"{folder}/{name}", seconds_per_file=10)
        return spark.readStream.schema("id long, ts timestamp, x double").parquet(f"{folder}/{name}")

    join = wm.join(
        wm.stream("a", sensor("a", 1), time="ts", window="10 seconds"),
        wm.stream("b", sensor("b", 2), time="ts", window="10 seconds"),
        wm.stream("c", sensor("c", 3), time="ts", window="10 seconds"),
        where="abs(a.x - b.x) < 2 AND abs(b.x - c.x) < 2",
        select="a.id AS a, b.id AS b, c.id AS c",
    )
    writer = join.writeStream.option("path", f"{folder}/matches").option("checkpointLocation", f"{folder}/state")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.read.parquet(f"{folder}/matches").orderBy("a", "b", "c").show(4)


if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    main(session)
    session.stop()
