"""Constants in `where` that pin constrained columns, as Spark reads them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark import harness
from tests.spark.harness import Case, through
from watersmeet.predicate.conjunct_values import value_of
from watersmeet.testing import oracle

pytestmark = pytest.mark.spark

COLUMNS = (
    "id bigint, ts timestamp, n tinyint, x double, f float, t string, d date, ok boolean, price decimal(4,2), "
    "at timestamp_ntz, c string collate UNICODE_CI, raw binary, s struct<a: bigint>"
)


def fixed(spark: SparkSession, condition: str, window: Any = None, columns: str = COLUMNS) -> list[tuple[str, Any]]:
    """Return which columns of b a condition gives one value, and these values."""
    frame = spark.createDataFrame([], columns)
    streams = wm.stream("a", frame, time="ts"), wm.stream("b", frame, time="ts", window=window)
    query = wm.join(*streams, where=f"a.id = b.id AND {condition}", select="a.id").query
    made = [(found, value_of(found, query.type_of(found.column))) for found in query.fixed_columns]
    assert all(found.column.stream == 1 and found.text == condition.strip("()") for found, _ in made)
    return [(query.name_of(found.column), value.as_py()) for found, value in made]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("b.t = 'bid'", "b.t bid"),
        ("('bid' = B.`T`)", "b.t bid"),
        ("b.id = 5", "b.id 5"),
        ("b.id = -9223372036854775808", "b.id -9223372036854775808"),
        ("b.n = 5", "b.n 5"),
        ("b.n = -128L", "b.n -128"),
        ("b.x = -0.0D", "b.x -0.0"),
        ("b.f = 0.1F", "b.f 0.10000000149011612"),
        ("b.d = DATE '1969-12-31'", "b.d 1969-12-31"),
        ("b.ts = TIMESTAMP '2026-01-01 00:00:00+02:00'", "b.ts 2025-12-31 22:00:00+00:00"),
        ("b.at = TIMESTAMP_NTZ '2026-01-01 00:00:00.000001'", "b.at 2026-01-01 00:00:00.000001"),
        ("b.ok = true", "b.ok True"),
        ("b.price = 12.50", "b.price 12.50"),
    ],
)
def test_what_fixes_a_column(spark: SparkSession, condition: str, wanted: str) -> None:
    assert [f"{name} {value}" for name, value in fixed(spark, condition)] == [wanted]


@pytest.mark.parametrize(
    "condition",
    one_in(
        3,
        [
            "b.t = 5",
            "b.t = 'bid' COLLATE UNICODE_CI",
            "b.t COLLATE UTF8_LCASE = 'bid'",
            "b.c = 'bid'",
            "b.t <=> 'bid'",
            "b.t = NULL",
            "b.t = 'b' || 'id'",
            "b.t IN ('bid')",
            "NOT b.t = 'bid'",
            "b.t = 'bid' OR b.ok = true",
            "b.id = 5.0",
            "b.id = '5'",
            "b.id = 5D",
            "b.id = CAST(5 AS BIGINT)",
            "b.n = 128",
            "b.s.a = 5",
            "b.id = 9223372036854775808",
            "b.x = 1",
            "b.x = 1.0",
            "b.f = 0.1D",
            "b.price = 12.5",
            "b.price = 12.500",
            "b.d = '1969-12-31'",
            "b.d = TIMESTAMP '2026-01-01 00:00:00'",
            "b.ts = DATE '2026-01-01'",
            "b.at = TIMESTAMP '2026-01-01 00:00:00'",
            "b.raw = X'00'",
            "b.ok = 'true'",
        ],
    ),
)
def test_what_fixes_nothing(spark: SparkSession, condition: str) -> None:
    assert fixed(spark, condition) == []


def test_a_column_of_a_count_window_is_fixed_too(spark: SparkSession) -> None:
    assert fixed(spark, "b.t = 'bid'", wm.count(5)) == [("b.t", "bid")]


def test_text_of_a_fixed_length_is_padded_by_spark(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE padded (id bigint, ts timestamp, t char(5)) USING parquet")
    try:
        frame = spark.table("padded")
        streams = wm.stream("a", frame, time="ts"), wm.stream("b", frame, time="ts")
        assert wm.join(*streams, where="b.t = 'bid'", select="a.id").query.fixed_columns == ()
    finally:
        spark.sql("DROP TABLE padded")


SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("t", pa.string()), ("end", pa.bool_())]
)


def row(number: int, key: int, text: str | None = None, end: bool | None = None) -> dict[str, Any]:
    return {"id": number, "ts": number, "k": key, "t": text, "end": end}


BATCHES = [
    {"a": [row(1, 78), row(2, 79)], "b": [row(3, 79, "bid"), row(4, 78, "ask")]},
    {"a": [], "b": [row(5, 79, "ask", True)]},
    {"a": [], "b": [row(6, 79, "bid"), row(7, 79, "ask"), row(8, 78, "bid", True)]},
    {"a": [], "b": [row(9, 79, "bid"), row(10, 78, "bid")]},
    {"a": [], "b": [row(11, 79, "bid")]},
]


@through("shuffle")
def test_a_pattern_closes_by_a_constant(
    spark: SparkSession, tmp_path: Path, exchange: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(
        [
            oracle.Stream("a", oracle.Unbounded(), 100, constraints=[oracle.UniqueKey(("k",))]),
            oracle.Stream(
                "b", oracle.Unbounded(), 100, constraints=[oracle.PunctuationFlag("end", {"k": "k", "t": "t"})]
            ),
        ],
        BATCHES,
        "a.k = b.k AND b.t = 'bid'",
        lambda a, b: a["k"] == b["k"] and b["t"] == "bid",
        schema=SCHEMA,
        promises=lambda inputs: {
            "a": {"constraints": [wm.key("k")]},
            "b": {"punctuations": wm.punctuations(flag="end", on=["k", "t"])},
        },
    )
    harness.write(tmp_path / "in", case.batches, SCHEMA)
    join = harness.join_of(case, harness.frames(spark, tmp_path / "in", "ab"))
    query = harness.run(join.writeStream, tmp_path, exchange)
    wanted = harness.expected(case)
    assert harness.results(tmp_path, "ab") == wanted.results and len(wanted.results) == 4
    assert sum(p["deniedRows"] for p in query.progress) == len(wanted.denied) == 2
    assert query.progress[-1]["distinctRows"] == 2  # the auction 79, whose bids have not ended, and the last of these
    assert not [record for record in caplog.records if record.name == "watersmeet"]


def test_explain_names_the_constant(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    frame = spark.createDataFrame([], COLUMNS)
    ends = wm.punctuations(flag="ok", on=["id", "t"])
    streams = wm.stream("a", frame, time="ts"), wm.stream("b", frame, time="ts", punctuations=ends)
    wm.join(*streams, where="a.id = b.id AND b.t = 'bid'", select="a.id").explain()
    told = capsys.readouterr().out
    assert "closed by `a.id = b.id` and `b.t = 'bid'` and punctuations of b.id, b.t" in told
