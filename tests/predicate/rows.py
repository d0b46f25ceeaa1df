"""A small table of nasty values, the same for Spark and for DuckDB."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

EPOCH = datetime(1970, 1, 1)
NAN, INF = float("nan"), float("inf")

TIMES = [
    EPOCH,
    EPOCH - timedelta(microseconds=1),
    datetime(1582, 10, 4, 23, 59, 59),
    datetime(1582, 10, 15),
    datetime(1883, 11, 18, 17, 0, 1),
    datetime(2024, 3, 10, 6, 59, 59, 999999),
    datetime(2024, 3, 10, 2, 30),
    datetime(2024, 3, 10, 7, 0),
    datetime(2024, 11, 3, 1, 30),
    datetime(2024, 11, 3, 5, 30),
    datetime(2024, 11, 3, 6, 30),
    datetime(2024, 2, 29, 12, 34, 56, 789000),
    datetime(2023, 12, 31, 23, 59, 59),
    datetime(2024, 1, 31, 8),
    datetime(9999, 12, 30, 1),
    datetime(1, 1, 3),
]
STRINGS = [
    "", " ", "a", "A", "abc", "ABC", "aBc%", "a_c", "a\\c", "a\\%", "%", "_", "é", "日本語", "👍x", "e\u0301", "ab\nc",
    "\tabc ", "  abc  ", "it's", '"q"', "0", "1", " 12 ", "+7", "-3", "12.7", "1e3", "abcabc", "true", "no",
    "2024-02-29", "2024-2-9", "2024-13-01", "zz", "9223372036854775808", "NaN", "-inf", "banana", "x.y", "a.c", "127",
]  # fmt: skip


def decimals(*texts: str) -> list[Decimal]:
    return [Decimal(text) for text in texts]


POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "t": (pa.int8(), [0, 1, -1, 3, 5, 127, -128, -7]),
    "h": (pa.int16(), [0, 1, -1, 2, 100, 32767, -32768]),
    "i": (pa.int32(), [0, 1, -1, 2, 3, -3, 7, 10, 42, 2**31 - 1, -(2**31), 16777217]),
    "l": (pa.int64(), [0, 1, -1, 2, 5, -8, 1000, 2**53 + 1, 2**63 - 1, -(2**63), 2**31]),
    "f": (pa.float32(), [0.0, -0.0, 1.0, 1.5, -2.5, NAN, INF, -INF, 16777216.0, 0.1, 3.4e38]),
    "x": (pa.float64(), [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 0.1, 0.3, NAN, INF, -INF, 1e308, 1e-300, 9.3e18,
                       2.0**63, 3.999]),
    "d": (pa.decimal128(7, 2), decimals("0.00", "1.00", "-1.00", "2.50", "-2.50", "0.05", "99999.99", "-99999.99")),
    "g": (pa.decimal128(20, 6), decimals("0.000000", "1.000000", "-0.000001", "12345678901234.567891", "2.500000")),
    "s": (pa.string(), STRINGS),
    "q": (pa.string(), STRINGS),
    "y": (pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"abc"]),
    "b": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [when.date() for when in TIMES]),
    "ts": (pa.timestamp("us", tz="UTC"), [when.replace(tzinfo=UTC) for when in TIMES]),
    "ntz": (pa.timestamp("us"), TIMES),
    "xs": (pa.list_(pa.int32()), [[], [1], [1, 2, 3], [None, 2], [5, None, 0], [7, 7]]),
    "zs": (pa.list_(pa.float64()), [[], [NAN, 1.0], [-0.0, 2.5], [None, 0.1]]),
    "ws": (pa.list_(pa.string()), [[], ["a"], ["abc", "A", None], ["", "é"]]),
    "p": (
        pa.struct([("x", pa.int32()), ("Name", pa.string()), ("in", pa.struct([("y", pa.float64())]))]),
        [{"x": 1, "Name": "a", "in": {"y": 0.5}}, {"x": None, "Name": "abc", "in": None},
         {"x": 7, "Name": "", "in": {"y": NAN}}],
    ),
}  # fmt: skip
FIELDS = [pa.field(name, type_) for name, (type_, _) in POOLS.items()]
SCHEMA = pa.schema(FIELDS)
STREAMS = [("a", SCHEMA), ("b", SCHEMA)]


def rows(count: int, seed: int) -> list[dict[str, dict[str, Any]]]:
    """Rows of two structs `a` and `b`, their values drawn from the pools, one in ten NULL."""
    chosen = random.Random(seed)

    def value(pool: Sequence[Any]) -> Any:
        return None if chosen.random() < 0.1 else chosen.choice(pool)

    return [
        {stream: {name: value(pool) for name, (_, pool) in POOLS.items()} for stream in ("a", "b")}
        for _ in range(count)
    ]


def structs(rows: list[dict[str, dict[str, Any]]]) -> pa.Table:
    """The rows as Spark takes them: an `id` and one struct a stream."""
    columns = {stream: pa.array([row[stream] for row in rows], pa.struct(FIELDS)) for stream in ("a", "b")}
    return pa.table({"id": pa.array(range(len(rows)), pa.int32()), **columns})


def flat(rows: list[dict[str, dict[str, Any]]]) -> pa.Table:
    """The rows as DuckDB takes them: an `id` and the columns under their generated names."""
    columns = {
        f"s{stream}_{field}": pa.array([row[name][column.name] for row in rows], column.type)
        for stream, name in enumerate(("a", "b"))
        for field, column in enumerate(FIELDS)
    }
    return pa.table({"id": pa.array(range(len(rows)), pa.int32()), **columns})
