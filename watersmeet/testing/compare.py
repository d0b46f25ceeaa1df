"""Batches with exact cuts for tests, the oracle's join over plain rows, and a comparison that shows what differs."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.testing import oracle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Row = Mapping[str, Any]


def brute_force(
    streams: Mapping[str, Sequence[Row]],
    where: Callable[..., bool | None],
    *,
    windows: Mapping[str, timedelta | None] | None = None,
    time: str = "ts",
) -> list[dict[str, Row]]:
    """Return every combination of one row per stream that the predicate and the sliding windows accept.

    It knows no lateness: use delays that are long enough, or leave late rows out.

    Args:
        streams: The rows of each stream.
        where: The predicate, called with one row per stream in the order of `streams`; None is not a match.
        windows: The sliding window of each stream; a stream left out, or with None, is unbounded.
        time: The event-time column.

    >>> a = [{"ts": datetime(2024, 1, 1, 0, 0, s), "x": s} for s in (0, 5)]
    >>> found = brute_force({"a": a, "b": a}, lambda a, b: a["x"] < b["x"], windows={"a": timedelta(seconds=10)})
    >>> [(r["a"]["x"], r["b"]["x"]) for r in found]
    [(0, 5)]
    """
    inputs = [oracle.Stream(name, _window((windows or {}).get(name))) for name in streams]
    every = [(name, row) for name, rows in streams.items() for row in rows]
    arrivals = [
        oracle.Arrival(
            0, name, (row[time] - _origin(row[time])) // timedelta(microseconds=1), at, {"id": at, "row": row}
        )
        for at, (name, row) in enumerate(every)
    ]
    outcome = oracle.join(inputs, arrivals, lambda by_name: where(*(by_name[name]["row"] for name in streams)))
    return [dict(zip(streams, (every[at][1] for at in ids), strict=True)) for ids, _ in outcome.results]


def _window(size: timedelta | None) -> oracle.Window:
    return oracle.Unbounded() if size is None else oracle.Sliding(size // timedelta(microseconds=1))


def _origin(moment: datetime) -> datetime:
    return datetime(1970, 1, 1, tzinfo=moment.tzinfo)


def assert_same(found: Iterable[Any], wanted: Iterable[Any], *, shown: int = 5) -> None:
    """Assert that two collections hold the same results, all hashable, each as often, in any order.

    Args:
        found: The join's results, e.g. `[tuple(row) for row in frame.collect()]`.
        wanted: The expected results.
        shown: How many differences the error shows.

    >>> assert_same([(1, 2), (1, 3)], [(1, 3), (1, 4)])
    Traceback (most recent call last):
    AssertionError: 2 results found, 2 wanted; 1 missing: [(1, 4)]; 1 too many: [(1, 2)]
    """
    here, there = Counter(found), Counter(wanted)
    missing, extra = there - here, here - there
    if missing or extra:
        raise AssertionError(
            f"{here.total()} results found, {there.total()} wanted; "
            f"{missing.total()} missing: {list(missing.elements())[:shown]}; "
            f"{extra.total()} too many: {list(extra.elements())[:shown]}"
        )


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
