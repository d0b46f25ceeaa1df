"""How far apart conditions let event times be, compared with what Spark says of pairs of moments."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.budget import one_in
from tests.versions import is_there
from watersmeet.query.query import StreamSpec
from watersmeet.query.windows import Window
from watersmeet.spark.run.frames import arrow_schema
from watersmeet.spark.sql.catalyst import items
from watersmeet.spark.sql.dialect import dialect_of
from watersmeet.spark.sql.gaps import GapReader

pytestmark = pytest.mark.spark
SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
COLUMNS = "ts timestamp, n timestamp_ntz, id int"


@contextmanager
def zone(spark: SparkSession, name: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def reaches(spark: SparkSession, condition: str, time: int = 0) -> tuple[int | None, int | None]:
    """Return by how much `l` can be later than `r`, and `r` than `l`."""
    kind = spark.createDataFrame([], COLUMNS).schema
    empty = spark.createDataFrame([], T.StructType([T.StructField(name, kind) for name in "lr"]))
    schema = arrow_schema(spark.createDataFrame([], kind))
    streams = [StreamSpec(name, schema, time, Window(), 0) for name in "lr"]
    read = empty.select(F.expr(condition))._jdf.queryExecution().analyzed().expressions()
    node = items(items(read)[0].children())[0]
    found = {(gap.later, gap.earlier): gap.micros for gap in GapReader(spark, streams, dialect_of(spark)).read(node)}
    return found.get((0, 1)), found.get((1, 0))


EXACT: dict[str, tuple[int | None, int | None]] = {
    "l.ts = r.ts": (0, 0),
    "l.ts <=> r.ts": (0, 0),
    "struct(l.id, l.ts) = struct(r.id, r.ts)": (0, 0),
    "date_trunc('second', l.ts) <=> date_trunc('second', r.ts)": (None, None),
    "l.ts < r.ts": (-1, None),
    "l.ts BETWEEN r.ts AND r.ts + INTERVAL 10 MINUTES": (10 * MINUTE, 0),
    "l.ts < r.ts + 5 * INTERVAL 1 SECOND": (5 * SECOND - 1, None),
    "l.ts <= r.ts + INTERVAL 1 MINUTE + INTERVAL 5 SECONDS": (65 * SECOND, None),
    "l.ts - INTERVAL 5 SECONDS <= r.ts AND r.ts <= l.ts": (5 * SECOND, 0),
    "NOT (l.ts > r.ts + INTERVAL 5 SECONDS)": (5 * SECOND, None),
    "NOT (l.ts >= r.ts + INTERVAL 5 SECONDS OR l.ts < r.ts)": (5 * SECOND - 1, 0),
    "l.ts < r.ts + INTERVAL 5 SECONDS OR l.ts = r.ts + INTERVAL 9 SECONDS": (9 * SECOND, None),
    "l.ts < r.ts + make_dt_interval(0, 1)": (HOUR - 1, None),
    "timestampadd(MINUTE, 10, r.ts) >= l.ts": (10 * MINUTE, None),
    "date_trunc('second', l.ts) = date_trunc('second', r.ts)": (SECOND - 1, SECOND - 1),
    "floor(unix_seconds(l.ts) / 600) = floor(unix_seconds(r.ts) / 600)": (10 * MINUTE - 1, 10 * MINUTE - 1),
    # before the epoch, unix_timestamp takes a moment for a later second
    "floor(unix_timestamp(l.ts) / 600) = floor(unix_timestamp(r.ts) / 600)": (601 * SECOND - 1, 601 * SECOND - 1),
    "floor(unix_millis(l.ts) / 60000) = floor(unix_millis(r.ts) / 60000)": (
        MINUTE + 10_000 - 1,
        MINUTE + 10_000 - 1,
    ),
    "timestamp_seconds(floor(unix_seconds(l.ts) / 60) * 60) = date_trunc('second', r.ts)": (MINUTE - 1, SECOND - 1),
    "unix_seconds(l.ts) - pmod(unix_seconds(l.ts), 60) = unix_seconds(r.ts) - pmod(unix_seconds(r.ts), 60)": (
        MINUTE - 1,
        MINUTE - 1,
    ),
    "unix_seconds(l.ts) - unix_seconds(r.ts) BETWEEN 0 AND 600": (601 * SECOND - 1, SECOND - 1),
    "unix_seconds(l.ts) < unix_seconds(r.ts) + 600": (10 * MINUTE - 1, None),
    "abs(unix_micros(l.ts) - unix_micros(r.ts)) < 1000": (999, 999),
    "2 * unix_micros(l.ts) - unix_micros(r.ts) * 2 <= 10": (5, None),
    "CAST(l.ts AS long) = CAST(r.ts AS long)": (SECOND - 1, SECOND - 1),
    "unix_seconds(l.ts) div 60 = unix_seconds(r.ts) div 60": (2 * MINUTE - 1, 2 * MINUTE - 1),
    # what limits nothing
    "l.id = r.id": (None, None),
    "l.ts < r.ts OR l.id = r.id": (None, None),
    "hour(l.ts) = hour(r.ts)": (None, None),
    "date_trunc('fortnight', l.ts) = date_trunc('fortnight', r.ts)": (None, None),
    "l.ts < r.ts + make_interval(0, 0, 0, 0, 0, 0, r.id)": (None, None),
    "unix_micros(l.ts) * 0 = unix_micros(r.ts)": (None, None),
    "unix_micros(l.ts) + unix_micros(r.ts) < 5": (None, None),
    "l.n = r.n": (None, None),
}
"""What conditions say in any time zone, exactly."""
IN_UTC: dict[str, tuple[int | None, int | None]] = {
    "l.ts - r.ts <= INTERVAL 5 SECONDS": (5 * SECOND, None),
    "abs(l.ts - r.ts) < INTERVAL 5 SECONDS": (5 * SECOND - 1, 5 * SECOND - 1),
    "l.ts <= r.ts + INTERVAL 1 DAY": (DAY, None),
    "l.ts >= r.ts - make_interval(0, 0, 0, 1, 2, 0, 0)": (None, DAY + 2 * HOUR),
    "l.ts <= r.ts + INTERVAL 1 MONTH": (31 * DAY, None),
    "l.ts <= r.ts - INTERVAL 1 MONTH": (-28 * DAY, None),
    "timestampadd(QUARTER, 1, r.ts) > l.ts": (93 * DAY - 1, None),
    "date_trunc('minute', l.ts) = date_trunc('minute', r.ts)": (MINUTE - 1, MINUTE - 1),
    "date_trunc('HOUR', l.ts) = date_trunc('hour', r.ts)": (HOUR - 1, HOUR - 1),
    "date_trunc('DD', l.ts) = date_trunc('day', r.ts)": (DAY - 1, DAY - 1),
    "date_trunc('week', l.ts) = date_trunc('week', r.ts)": (7 * DAY - 1, 7 * DAY - 1),
    "CAST(l.ts AS date) = CAST(r.ts AS date)": (DAY - 1, DAY - 1),
    "to_date(l.ts) = to_date(r.ts)": (DAY - 1, DAY - 1),
    "datediff(l.ts, r.ts) <= 1": (2 * DAY - 1, None),
    "CAST(l.ts AS date) - CAST(r.ts AS date) <= INTERVAL 1 DAY": (2 * DAY - 1, None),
    "timestampdiff(SECOND, r.ts, l.ts) < 600": (10 * MINUTE - 1, None),
    "CAST(CAST(l.ts AS date) AS timestamp) <= r.ts": (DAY - 1, None),
}
if is_there("time_bucket"):
    IN_UTC["time_bucket(INTERVAL 10 MINUTES, l.ts) = time_bucket(INTERVAL 10 MINUTES, r.ts)"] = (10 * MINUTE - 1,) * 2
    IN_UTC["time_bucket(INTERVAL 2 DAYS, l.ts) = time_bucket(INTERVAL 2 DAYS, r.ts)"] = (2 * DAY - 1, 2 * DAY - 1)
"""What they say where clocks always show UTC; elsewhere they say less."""


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin"])
def test_conditions_on_event_times_say_how_far_apart_they_are(spark: SparkSession, name: str) -> None:
    with zone(spark, name):
        assert {text: reaches(spark, text) for text in EXACT} == EXACT


def test_where_clocks_are_never_changed_dates_and_differences_say_as_much(spark: SparkSession) -> None:
    with zone(spark, "UTC"):
        assert {text: reaches(spark, text) for text in IN_UTC} == IN_UTC
        assert reaches(spark, "l.n - r.n < INTERVAL 1 DAY", time=1) == (DAY - 1, None)


def test_where_clocks_are_changed_there_is_room_for_it(spark: SparkSession) -> None:
    with zone(spark, "Europe/Berlin"):
        assert reaches(spark, "l.ts - r.ts <= INTERVAL 5 SECONDS") == (HOUR + 5 * SECOND, None)
        assert reaches(spark, "CAST(l.ts AS date) = CAST(r.ts AS date)") == (25 * HOUR - 1, 25 * HOUR - 1)
        assert reaches(spark, "l.ts <= r.ts + INTERVAL 1 DAY") == (25 * HOUR, None)
        assert reaches(spark, "l.ts <= r.ts + INTERVAL 23 HOURS") == (23 * HOUR, None)
        assert reaches(spark, "l.n <= r.n + INTERVAL 3 DAYS", time=1) == (3 * DAY, None)
        for unit, most in (("minute", MINUTE), ("hour", HOUR), ("day", 25 * HOUR), ("week", 169 * HOUR)):
            found = reaches(spark, f"date_trunc('{unit}', l.ts) = date_trunc('{unit}', r.ts)")
            assert found == (most - 1, most - 1), unit
    with zone(spark, "Europe/Paris"):  # where clocks were set back by 9 minutes and 21 seconds in 1911
        assert reaches(spark, "date_trunc('minute', l.ts) = date_trunc('minute', r.ts)")[0] == 11 * MINUTE - 1


def test_without_ansi_mode_what_may_wrap_round_says_nothing(spark: SparkSession) -> None:
    for ansi, wanted in (("true", 999), ("false", None)):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            assert reaches(spark, "unix_micros(l.ts) - unix_micros(r.ts) < 1000")[0] == wanted
            assert reaches(spark, "unix_seconds(l.ts) - unix_seconds(r.ts) < 1")[0] == SECOND - 1
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")


NEAR = [0, 1, SECOND - 1, SECOND, MINUTE - 1, MINUTE, 10 * MINUTE - 1, 10 * MINUTE, HOUR - 1, HOUR, 2 * HOUR]
NEAR += [23 * HOUR, DAY - 1, DAY, 25 * HOUR - 1, 25 * HOUR, 26 * HOUR, 7 * DAY - 1, 7 * DAY + HOUR, 30 * DAY, 32 * DAY]


def moments(around: datetime) -> list[int]:
    at = int(around.timestamp()) * SECOND
    return sorted({at + sign * near for near in NEAR for sign in (1, -1)})


CHANGES: list[Any] = [
    ("UTC", datetime(1970, 1, 1, tzinfo=UTC)),
    ("UTC", datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2024, 3, 31, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(1893, 3, 31, 23, 6, 32, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2024, 10, 27, 1, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2024, 4, 6, 15, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1993, 8, 21, 12, tzinfo=UTC)),
]


@pytest.mark.parametrize("change", one_in(8, CHANGES), ids=lambda change: f"{change[0]} {change[1].year}")
def test_no_pair_for_which_a_condition_holds_is_further_apart(spark: SparkSession, change: Any) -> None:
    """Around changes of the clocks, before the epoch and on leap days."""
    name, around = change
    with zone(spark, name):
        # [!] Spark would plan the pairs away if it knew that they are literals
        times = spark.createDataFrame([(at,) for at in moments(around)], "us long")
        side = times.selectExpr(
            "struct(timestamp_micros(us) AS ts, CAST(NULL AS timestamp_ntz) AS n, 1 AS id) AS s", "us"
        )
        pairs = side.selectExpr("s AS l", "us AS a").crossJoin(side.selectExpr("s AS r", "us AS b")).persist()
        limits = {text: reaches(spark, text) for text in (*EXACT, *IN_UTC)}
        known = {text: ends for text, ends in limits.items() if ends != (None, None)}
        most = [
            F.max(F.when(F.expr(text), F.col(one) - F.col(two))).alias(f"{at}_{one}")
            for at, text in enumerate(known)
            for one, two in ("ab", "ba")
        ]
        found = pairs.agg(*most).first()
        assert found is not None
        for at, (text, ends) in enumerate(known.items()):
            for one, limit in zip("ab", ends, strict=True):
                reached = found[f"{at}_{one}"]
                assert limit is None or reached is None or reached <= limit, (text, one, reached, limit)
        pairs.unpersist()
