"""Cut a table by event time into Parquet files that Spark's file source streams in order."""

import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from watersmeet.workload.poisson import SECOND


def write(
    table: pa.Table, folder: str | os.PathLike[str], seconds_per_file: float, *, time_column: str = "ts"
) -> list[Path]:
    """Write one Parquet file per `seconds_per_file` of event time, counted from the epoch, and return their paths.

    Spark's file source takes files by modification time, so each file is given a later one than the file before: with
    `maxFilesPerTrigger=1` every micro-batch is the next stretch of event time. A stretch without rows between the first
    and the last gets an empty file, so that streams written alike stay in step.

    Args:
        table: Rows in any order; they keep it within a file.
        folder: Made if missing; must hold no Parquet files yet.
        seconds_per_file: Length of a stretch of event time.
        time_column: The event time, a timestamp without NULLs.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if any(target.glob("*.parquet")):
        raise FileExistsError(
            f"{target} already holds Parquet files; Spark would stream them too. Give an empty folder."
        )
    stretches = _stretches(table[time_column], seconds_per_file)
    paths: list[Path] = []
    for stretch in range(int(stretches.min()), int(stretches.max()) + 1) if len(stretches) else ():
        path = target / f"{len(paths):05d}.parquet"
        pq.write_table(table.filter(pa.array(stretches == stretch)), path)
        paths.append(path)
    _date(paths)
    return paths


def _stretches(times: pa.ChunkedArray, seconds_per_file: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if times.null_count:
        raise ValueError(f"Rows can't be cut by event time where it is NULL; {times.null_count} rows have none.")
    if seconds_per_file <= 0:
        raise ValueError(f"seconds_per_file must be positive, got {seconds_per_file}.")
    micros = pc.cast(times.cast(pa.timestamp("us", times.type.tz)), pa.int64()).to_numpy()
    return np.asarray(micros // round(seconds_per_file * SECOND), np.int64)


def _date(paths: list[Path]) -> None:
    """Give the files modification times a second apart, the last one now."""
    now = time.time()
    for age, path in enumerate(reversed(paths)):
        os.utime(path, (now - age, now - age))
