"""Upserts as docs/kafka.md has them, in a process of its own: `python -m tests.remote.postgres_join <folder> <spec>`.

The spec is JSON: `connection`, `nodes`, and perhaps `exit`: the batch of which only some results are written before the
process ends.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.remote.kafka_join import page
from tests.spark.harness import frames, join_of, run
from tests.spark.test_identity import PAIR

SELECT = "_id, a.id AS a, b.id AS b, _time AS time"


def main(folder: str, spec: str) -> None:
    given = json.loads(spec)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    write = page()["upsert"](given["connection"], "matches")

    def consume(frame: DataFrame, batch: int) -> None:
        write(frame.limit(7) if batch == given.get("exit") else frame, batch)
        if batch == given.get("exit"):
            os._exit(3)

    join = join_of(PAIR, frames(spark, Path(folder, "in"), "ab"), select=SELECT, strategy=wm.PSP(given["nodes"]))
    run(join.writeStream.foreachBatch(consume), Path(folder), given["exchange"])


if __name__ == "__main__":
    main(*sys.argv[1:])
