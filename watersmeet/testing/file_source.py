"""A file source with exact micro-batches: each Parquet file is one batch."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write_batches(folder: str | os.PathLike[str], batches: Sequence[pa.Table]) -> list[Path]:
    """Write each table as one Parquet file, after the existing ones, and return the new files.

    `stream_batches` reads each as a micro-batch.

    An empty table becomes an empty file, so that the streams of a join stay aligned if each gets a table per batch.

    Args:
        folder: Created if missing. Call again with the same folder to add batches, also while a query runs.
        batches: One table per batch.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    existing = sorted(target.glob("*.parquet"))
    # Spark takes files by modification time, so each gets a later one than all before, however fast they are written.
    latest = max((path.stat().st_mtime for path in existing), default=1_000_000_000.0)
    added = []
    for at, table in enumerate(batches, start=len(existing)):
        draft, path = target / f".{at:05d}.draft", target / f"{at:05d}.parquet"
        pq.write_table(table, draft)
        latest += 1
        os.utime(draft, (latest, latest))
        draft.rename(path)
        added.append(path)
    return added


def stream_batches(spark: "SparkSession", folder: str | os.PathLike[str]) -> "DataFrame":
    """Return a streaming frame over a folder of `write_batches`: one file a micro-batch, in the order written."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
