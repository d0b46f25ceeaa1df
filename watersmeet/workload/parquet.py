"""Parquet files that Spark's file source streams in order: a table cut by event time, or batches of auctions."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from watersmeet.arrays import Ints
from watersmeet.workload.auctions import Batch
from watersmeet.workload.tuples import SECOND

_MONTH = 30 * 86_400


def write(
    table: pa.Table, folder: str | os.PathLike[str], seconds_per_file: float, *, time_column: str = "ts"
) -> list[Path]:
    """Write one Parquet file per `seconds_per_file` of event time, counted from the epoch, and return their paths.

    Spark's file source takes files by modification time, so each file gets a later one than the file before: with
    `maxFilesPerTrigger=1` every micro-batch is the next stretch of event time. A stretch without rows between the first
    and the last gets an empty file, so that streams written alike stay in step.

    Args:
        table: Rows in any order, which is kept within a file.
        folder: Created if missing; must contain no Parquet files yet.
        seconds_per_file: Length of a stretch of event time.
        time_column: The event time, a timestamp without NULLs.

    Raises:
        FileExistsError: If the folder holds Parquet files.
        ValueError: If a time is NULL, or files span no time.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if any(target.glob("*.parquet")):
        raise FileExistsError(
            f"{target} already holds Parquet files; Spark would stream them too. Give an empty folder."
        )
    stretches = _number_files(table[time_column], seconds_per_file)
    paths: list[Path] = []
    for stretch in range(int(stretches.min()), int(stretches.max()) + 1) if len(stretches) else ():
        path = target / f"{len(paths):05d}.parquet"
        pq.write_table(table.filter(pa.array(stretches == stretch)), path)
        paths.append(path)
    _set_dates(paths)
    return paths


def _number_files(times: pa.ChunkedArray, seconds_per_file: float) -> Ints:
    """Return the number of the file that each row belongs to, by its time.

    Raises:
        ValueError: If a time is NULL, or files span no time.
    """
    if times.null_count:
        raise ValueError(f"Rows can't be cut by event time where it is NULL; {times.null_count} rows have none.")
    if seconds_per_file <= 0:
        raise ValueError(f"seconds_per_file must be positive, got {seconds_per_file}.")
    micros = pc.cast(times.cast(pa.timestamp("us", times.type.tz)), pa.int64()).to_numpy()
    return np.asarray(micros // round(seconds_per_file * SECOND), np.int64)


def _set_dates(paths: list[Path]) -> None:
    """Give the files modification times a second apart, the last one now."""
    now = time.time()
    for age, path in enumerate(reversed(paths)):
        os.utime(path, (now - age, now - age))


def write_batches(batches: Iterable[Batch], folder: str | os.PathLike[str]) -> list[int]:
    """Write one Parquet file per batch and stream, under `folder`/auctions, bids and payments; return rows by batch.

    The files are dated a second apart, as by `write`. Every batch has a file, even if it is empty: payments begin half
    a minute after the auctions, and the streams must stay in step.

    Raises:
        FileExistsError: If the folder holds Parquet files.
    """
    target = _make_folders(folder)
    first = time.time() - _MONTH  # dates would reach the future after 2.6 million batches only
    rows = []
    for number, batch in enumerate(batches):
        for name, table in batch.tables.items():
            _publish(table, target / name, number, first + number)
        rows.append(sum(table.num_rows for table in batch.tables.values()))
    return rows


def feed(
    batches: Iterable[Batch],
    folder: str | os.PathLike[str],
    *,
    seconds_per_batch: float = 5.0,
    speed: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Write the batches as they would come live, `speed` times as fast; return by how many seconds it fell behind.

    A batch is written once its stretch of event time is over, whether or not the one before has been read. The call
    blocks until the last batch is written: run it in a thread or a process beside the query. `seconds_per_batch` must
    be what the batches were made with.

    Raises:
        FileExistsError: If the folder holds Parquet files.
        ValueError: If the speed is not above 0.
    """
    if not speed > 0:
        raise ValueError(f"Batches are fed at a speed above 0, got {speed}.")
    target, start, behind = _make_folders(folder), clock(), 0.0
    for number, batch in enumerate(batches):
        wait = start + (number + 1) * seconds_per_batch / speed - clock()
        behind = max(behind, -wait)
        sleep(max(0.0, wait))
        for name, table in batch.tables.items():
            _publish(table, target / name, number, time.time())
    return behind


def _make_folders(folder: str | os.PathLike[str]) -> Path:
    """Create the folders of the three streams below a folder, and return it.

    Raises:
        FileExistsError: If it holds Parquet files already.
    """
    target = Path(folder)
    if any(target.glob("*/*.parquet")):
        raise FileExistsError(
            f"{target} already holds Parquet files; Spark would stream them too. Give an empty folder."
        )
    for name in ("auctions", "bids", "payments"):
        (target / name).mkdir(parents=True, exist_ok=True)
    return target


def _publish(table: pa.Table, folder: Path, number: int, date: float) -> None:
    """Write a table as the file of that number in a folder, atomically; `date` becomes its time of modification."""
    draft = folder / f".{number:05d}.parquet"
    pq.write_table(table, draft)
    os.utime(draft, (date, date))
    draft.rename(folder / f"{number:05d}.parquet")
