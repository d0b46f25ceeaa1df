"""Whenever a conjunct is TRUE, the column lies within each bound the conjunct offers."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.budget import one_in
from watersmeet.predicate.bounds import MARGIN
from watersmeet.predicate.macros import PRELUDE
from watersmeet.predicate.model import Bound, Conjunct, Dialect
from watersmeet.predicate.numbers import numbers as as_numbers
from watersmeet.predicate.parse import parse_where

SCHEMA = pa.schema(
    [
        ("x", pa.float64()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.decimal128(20, 2)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("b", pa.bool_()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("p", pa.string()),
        ("y", pa.binary()),
    ]
)
STREAMS = [("a", SCHEMA), ("b", SCHEMA), ("c", SCHEMA)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

BOUNDED = [
    "a.x = b.x", "a.x < b.x", "a.x >= b.x", "a.x = b.i", "a.i < b.x", "a.l = b.x", "a.l <= b.l", "a.d > b.x",
    "a.d = b.d", "a.f = b.x", "abs(a.x - b.x) < 0.3",
    "abs(a.x - b.x) <= 1", "1 >= abs(b.x - a.x)", "abs(a.i - b.i) < 5",
    "abs(a.d - b.d) <= 0.5", "abs(a.l - b.x) < 2", "a.x - b.x < 1", "a.x - b.x > 1", "a.x - b.x BETWEEN -1 AND 1",
    "a.x + b.x <= c.x", "a.x < b.x * 2 + c.x", "a.x BETWEEN b.x - 1 AND b.x + 1", "b.x BETWEEN a.x AND c.x",
    "a.x > 0.1", "a.i BETWEEN 1 AND 3", "a.day = b.day", "a.day < b.day", "a.ts >= b.ts", "a.b = b.b",
    "a.ts BETWEEN b.ts - INTERVAL 5 SECONDS AND b.ts", "abs(a.ts - b.ts) < INTERVAL 1 HOUR",
    "a.ts > b.ts + INTERVAL 1 DAY", "abs(a.x - b.x) < c.x", "a.x - b.x >= c.x",
    "a.x - b.x BETWEEN -1 AND c.x", "a.x = b.x + 0.1", "a.day - b.day >= INTERVAL 3 DAYS",
    "abs(a.day - b.day) < INTERVAL 2 DAYS", "a.day - b.day BETWEEN INTERVAL 1 DAY AND INTERVAL 3 DAYS",
    "abs(b.x) <= a.x",
    "a.ts BETWEEN b.ts AND c.day", "a.ts BETWEEN TIMESTAMP'1969-01-01' AND b.day", "a.day BETWEEN b.day AND c.ts",
    "a.x BETWEEN b.i AND c.f", "a.x > 0.1F", "a.x BETWEEN b.x AND 0.1F",
    "a.s = b.s", "a.s < b.s", "a.s <= b.s", "a.s > b.s", "b.s >= a.s", "a.s BETWEEN b.s AND c.s",
    "'b' BETWEEN a.s AND b.s", "a.s = 'ab'", "a.s = concat(b.s, c.s)", "a.s = substring(b.s, 1, 7)", "a.s LIKE 'ab%'",
    "a.s LIKE 'b_a'", "a.s LIKE r'a\\%b%'", "a.s LIKE 'a/%%' ESCAPE '/'", "a.s LIKE b.p", "a.s LIKE b.p ESCAPE '/'",
    "like(a.s, b.p)", "a.s LIKE concat(b.p, '%')", "a.s LIKE concat(b.p, c.p, '%')", "startswith(a.s, b.p)",
    "startswith(a.s, 'ab')",
]  # fmt: skip

numbers = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 0.1, 0.2, 0.3, 1.0, -1e-17, 1e16, 1e308, -1e308, math.nan, math.inf, -math.inf, 5e-324]
    ),
    st.integers(-40, 40).map(lambda n: n / 10),
    st.floats(),
)
# Texts that often begin alike; patterns in which both escape characters stand only where they may.
letters = ["a", "b", "%", "_", "\\", "/", "é", "日", "👍", "\0", "\x7f", "\uffff", "\U0010ffff", "abbab"]
texts = st.one_of(
    st.lists(st.sampled_from(letters[:2]), max_size=8), st.lists(st.sampled_from(letters), max_size=8)
).map("".join) | st.text(max_size=8)
pieces = ["a", "b", "%", "_", "%", "\\%", "\\_", "\\\\", "/%", "/_", "//", "é", "日", "👍", "\0", "\U0010ffff", "abbab"]
patterns = st.lists(st.sampled_from(pieces), max_size=5).map("".join)
longs = st.one_of(st.integers(-5, 5), st.sampled_from([2**53 + 1, 2**63 - 1, -(2**63), 2**53]))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "x": numbers,
    "i": st.integers(-5, 5),
    "l": longs,
    "d": st.integers(-(10**19), 10**19).map(lambda n: Decimal(n).scaleb(-2)) | st.integers(-9, 9).map(Decimal),
    "day": st.integers(-3, 3).map(lambda n: date(1970, 1, 1) + timedelta(days=n)),
    "ts": st.integers(-(10**10), 10**10).map(lambda n: EPOCH + timedelta(microseconds=n)),
    "b": st.booleans(),
    "f": st.floats(width=32) | st.sampled_from([0.5, 1.0]),
    "s": texts,
    "p": patterns,
}
COMMON: dict[str, Any] = {
    "x": 0.0,
    "i": 0,
    "l": 0,
    "d": Decimal(0),
    "day": date(1970, 1, 1),
    "ts": EPOCH,
    "b": False,
    "f": 0.0,
    "s": "",
    "p": "",
    "y": b"",
}


def rows(conjunct: Conjunct, stream: int) -> st.SearchStrategy[dict[str, Any]]:
    """Rows whose columns vary where the conjunct reads them."""
    read = [SCHEMA.names[column.field] for column in conjunct.columns if column.stream == stream]
    return st.fixed_dictionaries({name: VALUES[name] for name in read}).map(lambda row: {**COMMON, **row})


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    for statement in PRELUDE:
        connection.execute(statement)
    return connection


def table(triples: list[tuple[dict[str, Any], ...]]) -> pa.Table:
    return pa.table(
        {
            f"s{stream}_{field}": pa.array([triple[stream][column.name] for triple in triples], column.type)
            for stream in range(len(STREAMS))
            for field, column in enumerate(SCHEMA)
        }
    )


def number(value: Any) -> float:
    if isinstance(value, str):
        return float(int.from_bytes(value.encode()[:6].ljust(6, b"\0")))
    if isinstance(value, datetime):
        return float((value - EPOCH) // timedelta(microseconds=1))
    return float((value - date(1970, 1, 1)).days) if isinstance(value, date) else float(value)


def above(one: float, two: float) -> bool:
    """Whether one is greater than two, NaN above all."""
    return not math.isnan(two) and (math.isnan(one) or one > two)


@pytest.mark.parametrize("text", one_in(3, BOUNDED))
def test_bounds_hold(text: str, connection: duckdb.DuckDBPyConnection) -> None:
    (conjunct,) = parse_where(text, STREAMS, [], Dialect())
    assert conjunct.bounds

    @settings(max_examples=8, deadline=None, database=None, phases=[Phase.generate])
    @given(st.lists(st.tuples(*(rows(conjunct, stream) for stream in range(3))), min_size=15, max_size=25))
    def holds(triples: list[tuple[dict[str, Any], ...]]) -> None:
        check(conjunct, triples, connection)

    holds()


def check(conjunct: Conjunct, triples: list[tuple[dict[str, Any], ...]], connection: duckdb.DuckDBPyConnection) -> None:
    ends = [end or "NULL" for bound in conjunct.bounds for end in (bound.low, bound.high)]
    connection.register("given", table(triples))
    rows = connection.execute(f"SELECT {conjunct.sql}, {', '.join(ends)} FROM given").fetchall()
    for triple, (true, *values) in zip(triples, rows, strict=True):
        for place, bound in enumerate(conjunct.bounds if true else ()):
            within(bound, triple, values[2 * place], values[2 * place + 1])


def within(bound: Bound, triple: tuple[dict[str, Any], ...], low: float | None, high: float | None) -> None:
    value = number(triple[bound.column.stream][SCHEMA.names[bound.column.field]])
    assert (bound.low is None) == (low is None) and (bound.high is None) == (high is None)
    assert low is None or not above(low, value)
    assert high is None or not above(value, high)


@pytest.mark.parametrize(
    "text",
    [
        "a.x < 1 OR b.x < 1", "NOT a.x < b.x", "a.x <> b.x", "a.x <=> b.x", "a.x < a.i", "a.f + b.f < 1",
        "abs(a.x) > 1", "a.day < b.ts", "a.i * b.i < 5", "sqrt(a.x) < 2",
        "a.s <> b.s", "a.s <=> b.s", "a.s = b.i", "a.s < b.day", "a.s + b.x < 1", "a.s BETWEEN 5 AND b.s", "a.y = b.y",
        "a.s NOT LIKE 'a%'", "NOT a.s LIKE b.p", "a.s ILIKE 'a%'", "a.s RLIKE 'a'", "a.s LIKE '%a'", "a.s LIKE a.p",
        "a.s LIKE '/%a' ESCAPE '/'", "startswith(a.s, '')", "endswith(a.s, b.s)", "a.s = NULL",
        "lower(a.s) = lower(b.s)",
    ],
)  # fmt: skip
def test_no_bounds_where_none_is_sure(text: str) -> None:
    (conjunct,) = parse_where(text, STREAMS, [], Dialect())
    assert conjunct.bounds == ()


def test_wrapping_integers_and_moving_clocks_give_no_bounds() -> None:
    assert parse_where("abs(a.i - b.i) < 5", STREAMS, [], Dialect(ansi=False))[0].bounds == ()
    assert parse_where("a.f < b.i", STREAMS, [], Dialect(ansi=False))[0].bounds == ()
    assert parse_where("a.ts - b.ts < INTERVAL 1 HOUR", STREAMS, [], Dialect("America/New_York"))[0].bounds == ()


def test_a_bound_names_its_column_and_what_it_reads() -> None:
    (conjunct,) = parse_where("b.x < a.x * 2 + c.i", STREAMS, [], Dialect())
    by_column = {bound.column.name: bound for bound in conjunct.bounds}
    assert [column.name for column in by_column["s1_0"].columns] == ["s0_0", "s2_1"]
    assert by_column["s1_0"].low is None and str(MARGIN) in str(by_column["s1_0"].high)


def test_only_what_may_round_has_a_margin() -> None:
    def widened(where: str) -> list[bool]:
        bounds = parse_where(where, STREAMS, [], Dialect())[0].bounds
        return [str(MARGIN) in f"{bound.low} {bound.high}" for bound in bounds]

    assert widened("a.i = b.i") == widened("a.s = b.s") == [False, False]
    assert widened("a.i = b.i + 1") == [True, True]
    (constant,) = parse_where("a.x > 5", STREAMS, [], Dialect())[0].bounds
    assert widened("a.x > 5") == [False] and constant.columns == () and constant.high is None


@settings(max_examples=60, deadline=None, database=None, phases=[Phase.generate])
@given(st.lists(texts | st.none(), max_size=12), st.integers(0, 6), st.sampled_from([pa.string(), pa.large_string()]))
def test_a_text_is_one_number_in_arrow_and_in_duckdb(
    connection: duckdb.DuckDBPyConnection, values: list[str | None], skipped: int, kind: pa.DataType
) -> None:
    array = pa.array(values, kind).slice(skipped)
    expected = [None if value is None else number(value) for value in array.to_pylist()]
    actual = as_numbers(array)
    assert [None if math.isnan(value) else value for value in actual.tolist()] == expected
    connection.register("given", pa.table({"x": array}))
    assert [value for (value,) in connection.execute("SELECT ws_text(x) FROM given").fetchall()] == expected
    rising = sorted((value for value in array.to_pylist() if value is not None), key=str.encode)
    assert sorted(map(number, rising)) == list(map(number, rising))


def test_a_pattern_that_raises_has_no_limits(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    (bound,) = parse_where("a.s LIKE b.p", STREAMS, [], Dialect())[0].bounds
    connection.register("given", pa.table({"s1_9": ["ab%", "a\\b", None]}))
    rows = connection.execute(f"SELECT {bound.low}, {bound.high} FROM given").fetchall()
    assert rows == [(0x6162 << 32, (0x6163 << 32) - 1), (0, (1 << 48) - 1), (None, None)]
