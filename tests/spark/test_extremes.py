"""Sizes nobody meant: millions of rows in one batch, one key for all of them, rows of 50 columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.harness import EPOCH, EXCHANGES, read, run
from watersmeet.testing import stream_batches, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def stream(spark: SparkSession, folder: Path, name: str, columns: dict[str, Any], window: str = "1 hour") -> Any:
    """Return a stream whose rows come in one batch, a millisecond after each other."""
    rows = len(next(iter(columns.values())))
    times = pa.array(EPOCH + 1000 * np.arange(rows)).cast(pa.timestamp("us", "UTC"))
    write_batches(folder / name, [pa.table({"id": np.arange(rows), "ts": times, **columns})])
    return wm.stream(name, stream_batches(spark, folder / name), time="ts", window=window)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_two_million_rows_in_one_batch(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    dice = np.random.default_rng(3)
    keys = {name: dice.integers(0, 3_000_000, 1_000_000) for name in "ab"}
    streams = [stream(spark, tmp_path, name, {"k": keys[name]}) for name in "ab"]
    run(wm.join(*streams, where="a.k = b.k", select="a.id AS a, b.id AS b").writeStream, tmp_path, exchange)
    found = read(tmp_path / "out")
    a, b = (found.column(name).to_numpy() for name in "ab")
    assert (keys["a"][a] == keys["b"][b]).all()
    assert len(np.unique(a * 10**6 + b)) == len(a)
    counts = [np.bincount(keys[name], minlength=3_000_000) for name in "ab"]
    assert len(a) == counts[0] @ counts[1] > 300_000


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_one_hot_key(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    rows = 4000
    streams = [stream(spark, tmp_path, name, {"k": ["hot"] * rows, "x": np.arange(rows) % 100}) for name in "ab"]
    where, select = "a.k = b.k AND a.x < b.x - 90", "a.id AS a, b.id AS b"
    run(wm.join(*streams, where=where, select=select, strategy=wm.Hash(nodes=4)).writeStream, tmp_path, exchange)
    found = read(tmp_path / "out")
    a, b = (found.column(name).to_numpy() for name in "ab")
    assert (a % 100 < b % 100 - 90).all()
    assert len(np.unique(a * rows + b)) == len(a) == 45 * (rows // 100) ** 2


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_fifty_columns(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    kinds = [pa.int32(), pa.float64(), pa.string(), pa.decimal128(20, 3), pa.list_(pa.int64())]
    values: list[list[Any]] = [[[n, n + at, None][: (n + at) % 4] for n in range(300)] for at in range(50)]
    columns = {
        f"c{at}": pa.array([_value(n, at) for n in range(300)], kind) if not pa.types.is_list(kind) else values[at]
        for at, kind in ((at, kinds[at % len(kinds)]) for at in range(50))
    }
    streams = [stream(spark, tmp_path, name, columns) for name in "ab"]
    where = " AND ".join(f"a.c{at} <=> b.c{at}" for at in range(50))
    run(wm.join(*streams, where=where).writeStream, tmp_path, exchange)
    found = sorted(read(tmp_path / "out").to_pylist(), key=lambda row: row["a"]["id"])
    assert [row["a"]["id"] for row in found] == [row["b"]["id"] for row in found] == list(range(300))
    given = pa.table(columns).to_pylist()
    for row, wanted in zip(found, given, strict=True):
        assert {name: row["a"][name] for name in wanted} == {name: row["b"][name] for name in wanted} == wanted


def _value(row: int, column: int) -> Any:
    if (row + column) % 7 == 0 and column % 5:
        return None
    return {0: row, 1: row / 8, 2: f"r{row}", 3: row}[column % 5]
