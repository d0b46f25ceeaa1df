"""Left, semi and anti joins through real Spark, compared with Spark's own answers and with the oracle."""

from collections import Counter
from dataclasses import replace
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
    "SELECT orders.id, payments.amount, payments.`how so`, payments.took, payments.paid IS NULL AS open "
    "FROM orders {0} LEFT JOIN payments {0} ON payments.number = orders.number AND payments.amount > 20 "
    "WHERE orders.shop < 2",
    "SELECT orders.id, orders.items FROM orders {0} LEFT SEMI JOIN payments {0} ON payments.number = orders.number",
    "SELECT orders.id FROM orders {0} WHERE orders.shop < 2 AND NOT EXISTS "
    "(SELECT 1 FROM payments {0} WHERE payments.number + 0 = orders.number)",
    "SELECT orders.id, payments.paid FROM orders {0} LEFT JOIN payments {0} ON payments.number = orders.number "
    "WHERE NOT EXISTS (SELECT 1 FROM refunds {0} WHERE refunds.back = orders.id)",
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


def expected(case: Case, how: How) -> Counter[Any]:
    streams = [replace(s, window=oracle.Sliding(10 * SECOND), delay=s.delay * SECOND) for s in case.streams]
    arrivals = [
        oracle.Arrival(at, name, micros(row["ts"]), row["id"], row)
        for at, batch in enumerate(case.batches)
        for name, rows in batch.items()
        for row in rows
    ]
    on = {"b": lambda rows: rows["a"]["k"] is not None and rows["a"]["k"] == rows["b"]["k"]}
    near = {"b": lambda rows: on["b"](rows) and None not in (x := (rows["a"]["x"], rows["b"]["x"])) and x[0] < x[1]}
    return oracle.join(streams, arrivals, lambda rows: True, how={"b": how}, on=near).results


def emitted(folder: Path, how: How) -> Counter[Any]:
    found = read(folder / "out")
    ids = pc.struct_field(found.column("a"), "id").to_pylist()
    others = pc.struct_field(found.column("b"), "id").to_pylist() if how == "left" else [None] * len(ids)
    times = found.column("_time").cast(pa.int64()).to_pylist()
    return Counter(zip(zip(ids, others, strict=True), times, strict=True))


@through("driver")
@pytest.mark.parametrize("how", one_in(3, ["left", "semi", "anti"]))
def test_a_query_that_was_stopped_goes_on(spark: SparkSession, tmp_path: Path, exchange: str, how: How) -> None:
    streams = [oracle.Stream(name, oracle.Sliding(10), 4) for name in "ab"]
    case = Case(streams, cuts(5, "ab", 4), where="a.k = b.k AND a.x < b.x")
    for part in (case.batches[:2], case.batches[2:]):
        write(tmp_path / "in", part)
        inputs = frames(spark, tmp_path / "in", case.names)
        query = run(join_of(case, inputs, how={"b": how}).writeStream, tmp_path, exchange)
    found = emitted(tmp_path, how)
    assert found == expected(case, how)
    assert sum(found.values()) > 5
    if (how, exchange) == ("left", "driver"):
        changed = join_of(case, inputs, how={"b": "semi"})
        with pytest.raises(wm.WatersmeetError, match="how"):
            run(changed.writeStream, tmp_path, exchange)
    assert query.progress[-1]["stateRows"] < sum(len(rows) for batch in case.batches for rows in batch.values())


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
    with pytest.raises(wm.DefinitionError, match="a join with how= can't be a stream of another join"):
        wm.stream("ab", inner, window="1 minute")
    with pytest.raises(wm.DefinitionError, match=r"b\.value can't be shown"):
        wm.join(*sides, **anti, select="a.value, b.value + 1 AS more")
    with pytest.raises(wm.DefinitionError, match="is left to Spark"):
        wm.join(*sides, **{**anti, "where": "regexp_like(string(a.value), string(b.value))"})
    with pytest.raises(wm.DefinitionError, match="spill= can't be combined"):
        wm.join(*sides, **anti, spill=wm.Spill(within="1 second"))
    with pytest.raises(wm.DefinitionError, match="WHERE paid IS NULL: payments is optional"):
        wm.sql(
            f"SELECT orders.id FROM orders {WINDOW} LEFT JOIN payments {WINDOW} ON payments.number = orders.number "
            "WHERE paid IS NULL",
            shop,
            time="ts",
        )
    with pytest.raises(wm.DefinitionError, match=r"orders\.shop > 1 says nothing of payments"):
        wm.sql(
            f"SELECT orders.id FROM orders {WINDOW} LEFT JOIN payments {WINDOW} ON payments.number = orders.number "
            "AND orders.shop > 1",
            shop,
            time="ts",
        )
