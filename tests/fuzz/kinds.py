"""The kinds of columns that random streams have, and the values that make trouble."""

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

Family = Literal[
    "number", "text", "date", "time", "interval", "months", "boolean", "binary", "numbers", "texts", "struct", "map",
    "collated",
]  # fmt: skip
NAN, INF = float("nan"), float("inf")
TINY, HUGE = -(2**63), 2**63 - 1
HOUR, DAY = 3_600_000_000, 86_400_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of column.

    Attributes:
        name: Its name in Spark.
        family: What it can be compared with.
        stored: Its type in the files that a stream is read from.
        pool: Its values there.
        read: The expression that makes the column of what is stored, `{}`.
        whole: Whether it is a whole number.
        weight: How often it is chosen.
    """

    name: str
    family: Family
    stored: pa.DataType
    pool: tuple[Any, ...] = field(repr=False)
    read: str = "{}"
    whole: bool = False
    weight: int = 2


def _micros(*times: str) -> tuple[int, ...]:
    return tuple(round((datetime.fromisoformat(at) - datetime(1970, 1, 1)) / timedelta(microseconds=1)) for at in times)


INSTANTS = (
    *_micros("1970-01-01", "1582-10-04T23:59:59", "1883-11-18T17:00:01", "2024-02-29T12:34:56.789"),
    *_micros("2024-10-27T00:30", "2024-10-27T01:30", "2024-03-31T00:59:59.999999", "2024-03-31T01:00"),  # Berlin
    *_micros("2024-11-03T03:45", "2024-11-03T04:45", "2024-03-10T05:30", "2024-03-10T02:30"),  # St_Johns
    *_micros("2024-04-06T14:45", "2024-04-06T15:15", "2024-10-05T15:30"),  # Lord_Howe
    *_micros("9999-12-31T23:59:59.999999", "0001-01-01"),
    -1, 568_971_820_800_000_000, -377_705_116_800_000_000,
)  # fmt: skip
DAYS = (*((date.fromisoformat(d) - date(1970, 1, 1)).days for d in (
    "1970-01-01", "2024-02-29", "2024-03-31", "2024-10-27", "2023-12-31", "1582-10-15", "9999-12-31", "0001-01-01",
)), 1_000_000, -1_000_000)  # fmt: skip
TEXTS = (
    "", " ", "a", "A", "abc", "ABC", "ab", "a\0", "a\0b", "\0", "é", "e\u0301", "👍", "👍🏽x", "ß", "ſ", "İ", "%", "_",
    "a_c", "a%", "\\", "a\\%", "it's", '"q"', " a ", "12", " 12 ", "1e3", "NaN", "true", "2024-02-29", "日本", "zz",
    "ab" * 30, "\uffff", "a\nb", "-7", "9223372036854775808",
)  # fmt: skip
DOUBLES = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 0.1, 0.3, NAN, INF, -INF, 1e308, 5e-324, 9.3e18, 2.0**53, 3.0, 2.0)


def _decimals(*texts: str) -> tuple[Decimal, ...]:
    return tuple(Decimal(text) for text in texts)


KINDS = (
    Kind("tinyint", "number", pa.int8(), (0, 1, -1, 3, 5, 127, -128), whole=True),
    Kind("smallint", "number", pa.int16(), (0, 1, -1, 2, 100, 32767, -32768), whole=True),
    Kind("int", "number", pa.int32(), (0, 1, -1, 2, 3, 7, 42, 2**31 - 1, -(2**31), 16777217), whole=True, weight=5),
    Kind(
        "bigint",
        "number",
        pa.int64(),
        (0, 1, -1, 2, 5, 2**53, 2**53 + 1, -(2**53) - 1, HUGE, HUGE - 1, TINY, 2**31),
        whole=True,
        weight=5,
    ),
    Kind("float", "number", pa.float32(), (0.0, -0.0, 1.0, 1.5, -2.5, NAN, INF, -INF, 16777216.0, 0.1, 3.4e38)),
    Kind("double", "number", pa.float64(), DOUBLES, weight=6),
    Kind("decimal(7,2)", "number", pa.decimal128(7, 2), _decimals("0.00", "1.00", "-1.00", "2.50", "99999.99")),
    Kind("decimal(38,10)", "number", pa.decimal128(38, 10), _decimals("0", "1", "2.5", "-0.0000000001", "9" * 28)),
    Kind("string", "text", pa.string(), TEXTS, weight=6),
    Kind("binary", "binary", pa.binary(), (b"", b"\0", b"\x7f", b"\x80", b"\xff", b"abc", b"ab")),
    Kind("boolean", "boolean", pa.bool_(), (True, False)),
    Kind("date", "date", pa.int32(), DAYS, "date_from_unix_date({})", weight=3),
    Kind("timestamp", "time", pa.timestamp("us", "UTC"), INSTANTS, weight=3),
    Kind("timestamp_ntz", "time", pa.timestamp("us"), INSTANTS, weight=2),
    Kind(
        "interval day to second",
        "interval",
        pa.int64(),
        (0, 1, -1, HOUR, -HOUR, DAY, 3 * DAY, 10**15),
        "(timestamp_micros({}) - timestamp_micros(0L))",
    ),
    Kind("interval year to month", "months", pa.int32(), (0, 1, -1, 12, 1200), "make_ym_interval(0, {})", weight=1),
    Kind("array<int>", "numbers", pa.list_(pa.int32()), ([], [1], [1, 2, 3], [None, 2], [5, None, 0], [7, 7])),
    Kind("array<double>", "numbers", pa.list_(pa.float64()), ([], [NAN, 1.0], [-0.0, 2.5], [None, 0.1], [0.0, 2.5])),
    Kind("array<string>", "texts", pa.list_(pa.string()), ([], ["a"], ["abc", "A", None], ["", "é"], ["a\0", "👍"])),
    Kind(
        "struct<x:int,end:string>",
        "struct",
        pa.struct([("x", pa.int32()), ("end", pa.string())]),
        ({"x": 1, "end": "a"}, {"x": None, "end": "abc"}, {"x": 2**31 - 1, "end": None}, {"x": 1, "end": "a\0"}),
    ),
    Kind(
        "map<string,int>",
        "map",
        pa.map_(pa.string(), pa.int32()),
        ([], [("a", 1)], [("a", None), ("b", 2)], [("", 7), ("abc", -1)]),
        weight=1,
    ),
    Kind(
        "string collate UTF8_LCASE", "collated", pa.string(), ("a", "A", "b", ""), "({} COLLATE UTF8_LCASE)", weight=1
    ),
)
