"""A streaming query with its checkpoint at a URL: `checkpoint.py URL ROWS name=value...`; prints what it wrote."""

import sys

from pyspark.sql import SparkSession

url, rows, *settings = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for setting in settings:
    name, value = setting.split("=", 1)
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.range(int(rows)).write.mode("append").parquet(f"{url}/in")
(
    spark.readStream.schema("id long")
    .parquet(f"{url}/in")
    .writeStream.option("checkpointLocation", f"{url}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{url}/out", format="parquet")
    .awaitTermination()
)
print("ROWS", spark.read.parquet(f"{url}/out").count())
spark.stop()
