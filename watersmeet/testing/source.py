"""A file source whose micro-batches are cut exactly where a test says: one Parquet file is one batch."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write_batches(folder: str | os.PathLike[str], batches: Sequence[pa.Table]) -> list[Path]:
    """Write each table as one Parquet file, after those already there; `stream_batches` makes each a micro-batch.

    An empty table is an empty file: streams of a join stay in step when each gets one table per batch.

    Args:
        folder: Made if missing. Call again with the same folder to add batches later, also while a query runs.
        batches: One table per batch.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = sorted(target.glob("*.parquet"))
    # Spark takes files by modification time, so each gets a later one than all before it, however fast they are made.
    latest = max((path.stat().st_mtime for path in written), default=1_000_000_000.0)
    made = []
    for at, table in enumerate(batches, start=len(written)):
        draft, path = target / f".{at:05d}.draft", target / f"{at:05d}.parquet"
        pq.write_table(table, draft)
        latest += 1
        os.utime(draft, (latest, latest))
        draft.rename(path)
        made.append(path)
    return made


def stream_batches(spark: "SparkSession", folder: str | os.PathLike[str]) -> "DataFrame":
    """Return a streaming frame over a folder of `write_batches`: one file a micro-batch, in the order written."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
