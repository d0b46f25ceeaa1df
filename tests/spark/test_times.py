"""Timestamps have one type in state and one zone in predicates, whichever process took them in."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import frames, read, run
from watersmeet.limits import limited
from watersmeet.testing import write_batches

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("ts", TIME), ("t", TIME), ("many", pa.list_(TIME))])


@wm.predicate(form="pair")
def both_at_noon(t: Any, ts: Any, later: Any, u: Any, many: Any) -> bool:
    return all(time.hour == 12 and time.utcoffset() == timedelta(0) for time in (t, ts, u, *many)) and later.hour == 13


def rows(first: int, size: int) -> pa.Table:
    times = [NOON + timedelta(seconds=second) for second in range(first, first + size)]
    plain = [{"id": at, "ts": t, "t": t, "many": [t]} for at, t in enumerate(times, first)]
    return pa.Table.from_pylist(plain, SCHEMA)


@pytest.mark.parametrize(
    ("exchange", "processes"),
    one_in(
        3,
        [
            ("driver", ["driver", "task"]),
            ("driver", ["driver"] * 2),
            ("local", ["task"] * 2),
            ("shuffle", ["task"] * 2),
        ],
        unpack=True,
    ),
    ids=["driver, then tasks", "driver", "local", "shuffle"],
)
def test_every_process_writes_and_shows_the_same_timestamps(
    spark: SparkSession, tmp_path: Path, exchange: str, processes: list[str]
) -> None:
    for name in "ab":
        write_batches(tmp_path / "in" / name, [rows(0, 4), rows(4, 4)])
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        given = frames(spark, tmp_path / "in", "ab")
        joined = wm.join(
            *(wm.stream(name, given[name], time="ts", window="1 hour") for name in "ab"),
            where="a.t <= b.t AND both_at_noon(a.t, a.ts, a.t + INTERVAL 1 HOUR, b.t, b.many)",
            predicates=[both_at_noon],
            select="a.id AS a, b.id AS b, b.t, a.many",
        )
        with limited(driver_seconds=1e-9 if len(set(processes)) > 1 else 1e9):
            query = run(joined.writeStream, tmp_path, exchange)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [p["process"] for p in query.progress] == processes
    found = read(tmp_path / "out").to_pylist()
    assert sorted((row["a"], row["b"]) for row in found) == [(a, b) for a in range(8) for b in range(a, 8)]
    assert all(row["t"] == NOON + timedelta(seconds=row["b"]) for row in found)
