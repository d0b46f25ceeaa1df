"""Values formatted for people, in samples of rows and in errors."""

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")
EARLIEST = int(np.iinfo(np.int64).min) + 1
"""The earliest time that can be formatted; the one before it is NumPy's NaT."""


def format_time(time: int, zoned: bool = True) -> str:
    """Return microseconds since the epoch as ISO 8601 text, with `Z` if `zoned`.

    Three digits after the point where that is exact, else six; years beyond 9999 have five digits or more. The earliest
    int64 is shown as the one after it, as it is NumPy's NaT.

    >>> format_time(1_700_000_000_250_000), format_time(1, zoned=False)
    ('2023-11-14T22:13:20.250Z', '1970-01-01T00:00:00.000001')
    """
    text = str(np.datetime64(max(time, EARLIEST), "us")).removesuffix("000")
    return f"{text}Z" if zoned else text


def value_at(values: pa.Array, at: int) -> Any:
    """Return one of the values as a Python object; times that Python can't represent are numbers in the type's unit.

    >>> value_at(pa.array([2**62], pa.timestamp("us", "UTC")), 0)
    4611686018427387904
    """
    try:
        return values[at].as_py()
    except (ValueError, OverflowError):  # a date or timestamp beyond year 9999, or before year 1
        return values.slice(at, 1).cast(_raw_type(values.type))[0].as_py()


def shorten(value: object, limit: int = 60) -> str:
    """Return a value's repr on one line, cut off after `limit` characters.

    >>> shorten("a" * 9, limit=4)
    "'aaa…"
    """
    text = " ".join(map(str.strip, repr(value).splitlines()))  # the repr of a schema, say, has several lines
    return text if len(text) <= limit else f"{text[:limit]}…"


def sanitize(text: str, allowed: str = "\n") -> str:
    """Return a text with the replacement character for each character that is not printable, except `allowed`.

    Such characters may control a terminal, and text from data may contain them.

    >>> sanitize("a\\x1b[31m\\u202eb")
    'a�[31m�b'
    """
    return "".join(one if one.isprintable() or one in allowed else "\N{REPLACEMENT CHARACTER}" for one in text)


def abbreviate(text: str, limit: int = 40) -> str:
    """Return an expression on one line, without runs of whitespace.

    If it is longer than `limit` characters, its parentheses are emptied from the inside out until it fits; failing
    that, it is cut off.

    >>> abbreviate("2 * 6371 * asin(sqrt(pow(sin(x), 2) + cos(a.lat)))", limit=30)
    '2 * 6371 * asin(sqrt(…))'
    """
    line = " ".join(text.split())
    depths = list(accumulate((letter == "(") - (letter == ")") for letter in line))
    for depth in range(max(depths, default=0), 0, -1) if len(line) > limit else ():
        shorter = _empty_parentheses(line, depths, depth)
        if len(shorter) <= limit:
            return shorter
    return line if len(line) <= limit else f"{line[:limit]}…"


def _empty_parentheses(line: str, depths: Sequence[int], depth: int) -> str:
    """Return a line with an ellipsis in place of what is nested that deep in parentheses."""
    letters = [
        letter if at < depth or (letter == "(" and at == depth) else "…" if line[place - 1] == "(" else ""
        for place, (letter, at) in enumerate(zip(line, depths, strict=True))
    ]
    return re.sub("…+", "…", "".join(letters))


def _raw_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with dates, timestamps and durations, nested ones too, replaced by the integers behind them."""
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_raw_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_raw_type(kind.key_type), _raw_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(kind.field(at).name, _raw_type(kind.field(at).type)) for at in range(kind.num_fields)])
    return kind


def count_inputs(streams: int, tables: int) -> str:
    """Return the number of streams and tables in words.

    >>> count_inputs(3, 0), count_inputs(1, 2)
    ('3 streams', '1 stream and 2 tables')
    """
    parts = [(streams, "stream"), *([(tables, "table")] if tables else [])]
    return " and ".join(f"{number} {noun}{'s' * (number != 1)}" for number, noun in parts)


def with_article(noun: str) -> str:
    """Return a noun with its article.

    >>> with_article("int"), with_article("list")
    ('an int', 'a list')
    """
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def format_number(value: float) -> str:
    """Return a number to three digits.

    >>> format_number(0.01234), format_number(999.6), format_number(123456)
    ('0.0123', '1,000', '123,000')
    """
    return f"{value:.3g}" if value < 999.5 else f"{float(f'{value:.3g}'):,.0f}"


def format_bytes(value: float) -> str:
    """Return a number of bytes, to three digits, with its unit by powers of 1000; TB is the largest.

    >>> format_bytes(1234567), format_bytes(999_600)
    ('1.23 MB', '1 MB')
    """
    at = 0
    while value >= 999.5 and at < len(BYTE_UNITS) - 1:
        value, at = value / 1000, at + 1
    return f"{format_number(value)} {BYTE_UNITS[at]}"


def format_seconds(seconds: float) -> str:
    """Return a short time with its unit.

    >>> format_seconds(0.0012)
    '1.2 ms'
    """
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def render_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with columns aligned right.

    >>> render_table(["n", "name"], [["1", "a"], ["20", "b"]])
    [' n  name', ' 1     a', '20     b']
    """
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (headings, *rows)]
