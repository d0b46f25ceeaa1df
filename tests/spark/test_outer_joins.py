"""Left, semi and anti joins through real Spark, compared with Spark's own answers and with the oracle."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import SECOND, Case, cuts, frames, join_of, micros, read, run, through, write
from watersmeet.testing import oracle
from watersmeet.testing.oracle import How

pytestmark = pytest.mark.spark
WINDOW = "[RANGE 1000 DAYS]"
HOWS: tuple[How, ...] = ("left", "semi", "anti")


@pytest.fixture(scope="module")
def shop(spark: SparkSession) -> dict[str, DataFrame]:
    """Orders, their payments and their refunds, with columns that are never NULL and some of odd types."""
    orders = "SELECT id, timestamp_seconds(1700000000 + 60 * id) AS ts, id % 3 AS shop, "
    orders += "array(id) AS items, CAST(IF(id = 4, NULL, id) AS INT) AS number FROM range(8)"
    payments = "SELECT id AS paid, timestamp_seconds(1700000030 + 50 * id) AS ts, CAST(id % 5 AS SMALLINT) AS number, "
    payments += "CAST(10 * id AS DECIMAL(10, 2)) AS amount, map('by', 'card') AS `how so`, "
    payments += "INTERVAL '1' DAY AS took FROM range(7)"
    refunds = "SELECT 3L AS back, timestamp_seconds(1700000100) AS ts"
    made = {"orders": spark.sql(orders), "payments": spark.sql(payments), "refunds": spark.sql(refunds)}
    for name, frame in made.items():
        frame.createOrReplaceTempView(name)
    return made


STATEMENTS = [
    "SELECT o.id, p.amount, p.`how so`, p.took, p.paid IS NULL AS open "
    "FROM orders {0} AS o LEFT JOIN payments p {0} ON p.number = o.number AND p.amount > 20 WHERE o.shop < 2",
    "SELECT orders.id, orders.items FROM orders {0} LEFT SEMI JOIN payments {0} ON payments.number = orders.number",
    "SELECT orders.id FROM orders {0} WHERE orders.shop < 2 AND NOT EXISTS "
    "(SELECT 1 FROM payments {0} WHERE payments.number + 0 = orders.number)",
    "SELECT orders.id, payments.paid FROM orders {0} LEFT JOIN payments {0} ON payments.number = orders.number "
    "WHERE NOT EXISTS (SELECT 1 FROM refunds {0} WHERE refunds.back = orders.id)",
    "SELECT orders.id, payments.paid FROM orders {0} LEFT JOIN payments {0} ON TRUE AND payments.amount > 30",
    "SELECT orders.id, payments.paid FROM orders {0} LEFT JOIN payments {0} ON TRUE",
]


@pytest.mark.parametrize("statement", one_in(3, STATEMENTS))
def test_static_frames_give_what_spark_gives(spark: SparkSession, shop: dict[str, DataFrame], statement: str) -> None:
    found = wm.sql(statement.format(WINDOW), shop, time="ts").toDF().collect()
    wanted = spark.sql(statement.format("")).collect()
    assert Counter(map(str, found)) == Counter(map(str, wanted))
    assert len(wanted) > 1


def test_a_missing_member_is_a_null_struct(shop: dict[str, DataFrame]) -> None:
    join = wm.join(
        wm.stream("orders", shop["orders"], time="ts"),
        wm.stream("refunds", shop["refunds"], time="ts"),
        where="refunds.back = orders.id",
        how={"refunds": "left"},
    )
    found = {row.orders.id: (row.refunds and row.refunds.back) for row in join.toDF().collect()}
    assert found == {number: 3 if number == 3 else None for number in range(8)}


def less(one: Any, two: Any) -> bool:
    """Tell whether a tuple has the same key as another and a lower x."""
    return one["k"] is not None and one["k"] == two["k"] and None not in (one["x"], two["x"]) and one["x"] < two["x"]


def expected(case: Case, how: How, *, ended: bool = False) -> Counter[Any]:
    streams = [replace(s, window=oracle.Sliding(10 * SECOND), delay=s.delay * SECOND) for s in case.streams]
    arrivals = [
        oracle.Arrival(at, name, micros(row["ts"]), row["id"], row)
        for at, batch in enumerate(case.batches)
        for name, rows in batch.items()
        for row in rows
    ]
    required = [name for name in case.names if name != "b"]

    def holds(rows: Any) -> bool:
        return all(less(rows[one], rows[two]) for one, two in pairwise(required))

    on = {"b": lambda rows: less(rows["a"], rows["b"])}
    return oracle.join(streams, arrivals, holds, how={"b": how}, on=on, ended=ended).results


def emitted(folder: Path, names: Sequence[str]) -> Counter[Any]:
    found = read(folder / "out")
    none = [None] * found.num_rows
    ids = [pc.struct_field(found[n], "id").to_pylist() if n in found.column_names else none for n in names]
    times = found.column("_time").cast(pa.int64()).to_pylist()
    return Counter(zip(zip(*ids, strict=True), times, strict=True))


@through("driver")
@pytest.mark.parametrize("how", one_in(3, HOWS))
def test_a_query_that_was_stopped_goes_on(spark: SparkSession, tmp_path: Path, exchange: str, how: How) -> None:
    streams = [oracle.Stream(name, oracle.Sliding(10), 4) for name in "ab"]
    case = Case(streams, cuts(5, "ab", 4), where="a.k = b.k AND a.x < b.x")
    for part in (case.batches[:2], case.batches[2:]):
        write(tmp_path / "in", part)
        inputs = frames(spark, tmp_path / "in", case.names)
        query = run(join_of(case, inputs, how={"b": how}).writeStream, tmp_path, exchange)
    found = emitted(tmp_path, case.names)
    assert found == expected(case, how)
    assert sum(found.values()) > 5
    if (how, exchange) == ("left", "driver"):
        changed = join_of(case, inputs, how={"b": "semi"})
        with pytest.raises(wm.WatersmeetError, match="how"):
            run(changed.writeStream, tmp_path, exchange)
    assert query.progress[-1]["stateRows"] < sum(len(rows) for batch in case.batches for rows in batch.values())


ONLY_SPARK = [
    "a.k = b.k AND exp(a.x) < exp(b.x)",
    "a.k = b.k AND lower_than(a.x, b.x, b.id)",
    "lower_than(a.x, b.x, b.id) AND a.k = b.k AND 1 / (b.x - a.x) > 0",
    "a.k = b.k AND exp(a.x) < exp(b.x) AND a.k = c.k AND a.x < c.x",
    "a.k = b.k AND a.x < b.x AND a.k = c.k AND exp(a.x) < exp(c.x)",
    "a.k = b.k AND lower_than(a.x, b.x, b.id) AND a.k = c.k AND lower_than(a.x, c.x, c.id)",
    "a.k = b.k AND lower_than(a.x, b.x, b.id) AND a.k = c.k AND exp(a.x) < exp(c.x) AND 1 / (c.x - a.x) > 0",
]


@through("driver")
@pytest.mark.parametrize("asked", one_in(7, product(ONLY_SPARK, HOWS)))
def test_conditions_that_only_spark_can_decide(
    spark: SparkSession, tmp_path: Path, exchange: str, asked: tuple[str, How]
) -> None:
    """[!] Equal numbers are too close to call: with them, and with a function, it is Spark that knows the partners."""

    def lower_than(one: float | None, two: float | None, identity: int) -> bool:
        assert identity is not None, "a function sees no combination that lacks what it reads"
        return one is not None and two is not None and one < two

    spark.udf.register("lower_than", lower_than, "boolean")
    where, how = asked
    names = "acb" if "c." in where else "ab"
    streams = [oracle.Stream(name, oracle.Sliding(10), 4) for name in names]
    case = Case(streams, cuts(6, names, 4, rows=6, values=3, nulls=0.0), where=where, strategy=wm.PSP(2))
    for part in (case.batches[:2], case.batches[2:]):
        write(tmp_path / "in", part)
        join = join_of(case, frames(spark, tmp_path / "in", names), how={"b": how})
        query = run(join.writeStream, tmp_path, exchange)
    found = emitted(tmp_path, names)
    assert found == expected(case, how) and sum(found.values()) > 2
    told = str(query.why(a={"id": case.batches[-1]["a"][0]["id"]}))
    assert "is stored" in told and "can't be" not in told


@pytest.mark.parametrize("how", one_in(3, HOWS))
def test_static_frames_with_conditions_that_only_spark_can_decide(
    spark: SparkSession, shop: dict[str, DataFrame], how: str
) -> None:
    statement = f"SELECT orders.id {', payments.paid' if how == 'left' else ''} FROM orders {{0}} "
    statement += f"LEFT {how if how != 'left' else ''} JOIN payments {{0}} "
    statement += "ON exp(payments.number) <= exp(orders.number) AND regexp_like(string(payments.paid), '[1-4]')"
    found = wm.sql(statement.format(WINDOW), shop, time="ts").toDF().collect()
    wanted = spark.sql(statement.format("")).collect()
    assert Counter(map(str, found)) == Counter(map(str, wanted))
    assert len(wanted) > 1


def test_what_cannot_be_is_refused_when_the_join_is_defined(spark: SparkSession, shop: dict[str, DataFrame]) -> None:
    rate = spark.readStream.format("rate").load()
    sides = [wm.stream(name, rate, time="timestamp", window="1 minute") for name in ("a", "b")]
    anti: dict[str, Any] = {"where": "a.value = b.value", "how": {"b": "anti"}}
    inner = wm.join(*sides, **anti)
    endless = [wm.stream(name, rate, time="timestamp") for name in ("a", "b")]
    with pytest.raises(wm.DefinitionError, match="Without a window on 'a' a partner may come at any time"):
        wm.join(*endless, **anti)
    during = "a.value = b.value AND b.timestamp BETWEEN a.timestamp AND a.timestamp + INTERVAL 5 MINUTES"
    timed = wm.join(*endless, **{**anti, "where": during}).query.streams
    assert [stream.window.span for stream in timed] == [300 * SECOND + 1, 1]
    assert [stream.delay for stream in timed] == [300 * SECOND] * 2
    assert repr(inner).startswith("Join(a [sliding 1 minute], b [sliding 1 minute, anti]; where a.value = b.value; ")
    with pytest.raises(wm.DefinitionError, match=r"b\.value can't be shown"):
        wm.join(*sides, **anti, select="a.value, b.value + 1 AS more")
    more = wm.stream("c", rate, time="timestamp", window="1 minute")
    with pytest.raises(wm.DefinitionError, match="is left to Spark"):
        both = {"b": "anti", "c": "left"}
        wm.join(*sides, more, where="regexp_like(string(a.value), string(b.value)) AND a.value = c.value", how=both)
    with pytest.raises(wm.DefinitionError, match="spill= can't be combined"):
        wm.join(*sides, **anti, spill=wm.Spill(within="1 second"))
