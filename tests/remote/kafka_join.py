"""A join of three topics, in a process of its own: `python -m tests.remote.kafka_join <folder> <address> <spec>`.

The spec is JSON: `nodes`, `exchange`, `live` for a query that goes on until it is killed, and `exit` for the batch
whose results are written before the process ends, and which is not committed.
"""

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from examples.servers.broker import connector_jars

TOPICS = "abc"
RESULTS = "results"
WHERE = "a.x < b.x AND abs(b.x - c.x) < 1.5"
SELECT = "_id AS key, to_json(struct(a.id AS a, b.id AS b, c.id AS c)) AS value"
WINDOW = 10


def _topic(spark: SparkSession, address: str, topic: str) -> DataFrame:
    records = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    values = records.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40).load()
    return values.selectExpr("from_json(string(value), 'id long, ts timestamp, x double') AS row").select("row.*")


def main(folder: str, address: str, spec: str) -> None:
    given = json.loads(spec)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", ",".join(map(str, connector_jars())))
        .getOrCreate()
    )
    streams = [
        wm.stream(name, _topic(spark, address, name), time="ts", window=f"{WINDOW} seconds", delay="1 hour")
        for name in TOPICS
    ]
    writer = wm.join(*streams, where=WHERE, select=SELECT, strategy=wm.PSP(given["nodes"])).writeStream
    to = {"kafka.bootstrap.servers": address, "topic": RESULTS}

    def write(frame: DataFrame, batch: int) -> None:
        frame.write.format("kafka").options(**to).save()
        if batch == given["exit"]:
            os._exit(3)

    writer = writer.foreachBatch(write) if "exit" in given else writer.format("kafka").options(**to)
    writer = writer.option("checkpointLocation", folder).option("exchange", given.get("exchange", "driver"))
    writer = writer if given.get("live") else writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
