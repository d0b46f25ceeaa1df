"""As-of joins through real Spark, compared with DuckDB's, with pandas' and with the oracle."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import SECOND, Case, content_hashes, cuts, frames, join_of, micros, read, run, through, write
from tests.spark.test_outer_joins import emitted, less
from watersmeet.testing import oracle, write_batches

pytestmark = pytest.mark.spark
SELECT = "trades.id, trades.symbol, trades.ts, quotes.price, quotes.ts AS quoted"


@pytest.fixture(scope="module")
def market(spark: SparkSession) -> dict[str, pa.Table]:
    """Trades and quotes of three symbols; the quotes of a symbol have distinct times, some those of trades."""
    time = "timestamp_seconds(1700000000 + CAST({0} AS DOUBLE))"
    trades = f"SELECT id, substr('xyz', id % 3 + 1, 1) AS symbol, {time.format('pmod(id * 37, 101)')} AS ts "
    quotes = f"SELECT substr('xyy', id % 3 + 1, 1) AS symbol, {time.format('pmod(id * 17, 103) + 3')} AS ts, "
    made = {
        "trades": spark.sql(f"{trades} FROM range(90)").toArrow(),
        "quotes": spark.sql(f"{quotes} id * 1.5 AS price FROM range(40)").toArrow(),
    }
    assert made["quotes"].group_by(["symbol", "ts"]).aggregate([]).num_rows == 40
    return made


def by_duckdb(market: dict[str, pa.Table], kind: str, beside: str = "") -> set[tuple[Any, ...]]:
    """Return what DuckDB's ASOF JOIN gives, in the columns of SELECT."""
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for name, table in market.items():
            duck.register(name, table)
        on = f"trades.symbol = quotes.symbol AND trades.ts >= quotes.ts {beside}"
        return rows_of(duck.sql(f"SELECT {SELECT} FROM trades {kind} JOIN quotes ON {on}").to_arrow_table())


def rows_of(table: pa.Table) -> set[tuple[Any, ...]]:
    plain = [pa.int64() if pa.types.is_timestamp(kind) else kind for kind in table.schema.types]
    cast = [c.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    columns = [c.cast(kind).to_pylist() for c, kind in zip(cast, plain, strict=True)]
    found = list(zip(*columns, strict=True))
    assert len(found) == len(set(found))
    return set(found)


def make_join(inputs: dict[str, DataFrame], how: Any, beside: str = "") -> wm.Join:
    streams = [wm.stream(name, frame, time="ts", delay="3 minutes") for name, frame in inputs.items()]
    where = f"quotes.symbol = trades.symbol {beside}"
    return wm.join(*streams, where=where, how={"quotes": how}, select=SELECT)


def statics(spark: SparkSession, market: dict[str, pa.Table]) -> dict[str, DataFrame]:
    return {name: spark.createDataFrame(table) for name, table in market.items()}


def test_static_frames_give_what_duckdb_and_pandas_give(spark: SparkSession, market: dict[str, pa.Table]) -> None:
    inputs = statics(spark, market)
    inner, left = (rows_of(make_join(inputs, how).toDF().toArrow()) for how in ("asof", wm.asof(left=True)))
    assert inner == by_duckdb(market, "ASOF") and len(inner) > 40
    assert left == by_duckdb(market, "ASOF LEFT") and len(left) == 90
    trades, quotes = (market[name].to_pandas().sort_values("ts") for name in ("trades", "quotes"))
    quotes["quoted"] = quotes["ts"]
    tolerant = pd.merge_asof(trades, quotes, on="ts", by="symbol", tolerance=pd.Timedelta("5s"))
    wanted = [(row.id, row.symbol, row.price if row.price == row.price else None) for row in tolerant.itertuples()]
    found = rows_of(make_join(inputs, wm.asof("5 seconds", left=True)).toDF().toArrow())
    assert {row[:2] + row[3:4] for row in found} == set(wanted) and any(row[3] is None for row in found)


@pytest.mark.parametrize("kind", one_in(2, ["ASOF LEFT", "ASOF"]))
def test_streams_give_what_duckdb_gives(
    spark: SparkSession, tmp_path: Path, market: dict[str, pa.Table], kind: str
) -> None:
    """Cut into batches, started twice, with the condition on times written out as DuckDB wants it."""
    for part in range(2):
        for name, table in market.items():
            half = len(table) // 2
            last = {"id": 99, "price": Decimal(0), "symbol": "end", "ts": datetime(2023, 11, 15, tzinfo=UTC)}
            end = pa.Table.from_pylist([{key: last[key] for key in table.schema.names}], table.schema)
            rows = [table.slice(half), end] if part else [table.slice(0, half)]
            write_batches(tmp_path / name, [pa.concat_tables(rows)])
        join = make_join(frames(spark, tmp_path, [*market]), KINDS[kind], "AND quotes.ts <= trades.ts")
        query = run(join.writeStream, tmp_path, "driver")
    assert rows_of(read(tmp_path / "out")) == by_duckdb(market, kind)
    assert query.progress[-1]["stateRows"] < 130
    assert not [finding for finding in join.check() if finding.kind == "state"]


KINDS = {"ASOF LEFT": "asof left", "ASOF": "asof"}
CONDITIONS = [
    "a.k = b.k AND lower_than(a.x, b.x)",
    "a.k = b.k AND exp(a.x) < exp(b.x)",
    "a.k = b.k AND a.x < b.x",
]


@through("driver")
@pytest.mark.parametrize("where", one_in(3, CONDITIONS))
def test_equally_new_tuples_and_conditions_that_only_spark_can_decide(
    spark: SparkSession, tmp_path: Path, exchange: str, where: str
) -> None:
    """Many have the same time. Spark is asked which of them are partners, and chooses the newest."""
    spark.udf.register("lower_than", lambda one, two: None not in (one, two) and one < two, "boolean")
    kind = oracle.AsOf(6 * SECOND, left=True)
    streams = [oracle.Stream(name, oracle.Unbounded(), 4) for name in "ab"]
    case = Case(streams, cuts(7, "ab", 5, rows=9, values=3, nulls=0.0, disorder=3), where=where)
    for part in (case.batches[:2], case.batches[2:]):
        write(tmp_path / "in", part)
        join = join_of(case, frames(spark, tmp_path / "in", "ab"), how={"b": wm.asof("6 seconds", left=True)})
        query = run(join.writeStream, tmp_path, exchange)
    key = content_hashes(spark, case.batches)
    arrivals = [
        oracle.Arrival(at, name, micros(row["ts"]), key[row["id"]], row)
        for at, batch in enumerate(case.batches)
        for name, rows in batch.items()
        for row in rows
    ]
    scaled = [replace(stream, delay=stream.delay * SECOND) for stream in streams]
    on = {"b": lambda rows: less(rows["a"], rows["b"])}
    wanted = oracle.join(scaled, arrivals, lambda rows: True, how={"b": kind}, on=on).results
    found = emitted(tmp_path, "ab")
    assert found == wanted
    assert sum(None not in ids for ids, _ in found) > 5 and sum(None in ids for ids, _ in found) > 2
    latest = max(case.batches[-1]["a"], key=lambda row: row["ts"])
    assert "It is still open: " in str(query.why(a={"id": latest["id"]}))


def test_what_cannot_be_is_refused(spark: SparkSession, market: dict[str, pa.Table]) -> None:
    inputs = statics(spark, market)
    trades = wm.stream("trades", inputs["trades"], time="ts")
    where = "quotes.symbol = trades.symbol"
    with pytest.raises(wm.DefinitionError, match="Table 'quotes' has no times"):
        wm.join(trades, wm.table("quotes", inputs["quotes"]), where=where, how={"quotes": "asof"})
    with pytest.raises(wm.DefinitionError, match="both a window and a tolerance"):
        quotes = wm.stream("quotes", inputs["quotes"], time="ts", window="1 minute")
        wm.join(trades, quotes, where=where, how={"quotes": wm.asof("5 minutes")})


@pytest.mark.slow
def test_why_tells_which_quote_was_the_newest(spark: SparkSession, market: dict[str, pa.Table]) -> None:
    join = make_join(statics(spark, market), wm.asof(left=True))
    shown = [row for row in join.toDF().collect() if row.price is not None]
    one = max(shown, key=lambda row: row.ts)
    told = join.why(trades={"id": one.id}, quotes={"price": one.price})
    assert told.joined and "its newest partner in quotes is that of" in str(told)
    older = next(row.price for row in shown if row.symbol == one.symbol and row.quoted < one.quoted)
    told = join.why(trades={"id": one.id}, quotes={"price": older})
    assert told.joined is False and "quotes is not the newest partner of trades." in str(told)
    early = min(shown, key=lambda row: row.ts)
    later = next(row.price for row in shown if row.symbol == early.symbol and row.quoted > early.ts)
    told = join.why(trades={"id": early.id}, quotes={"price": later})
    assert told.joined is False and "later than trades, and an as-of partner is no later" in str(told)
