"""NumPy answers comparisons of numbers as DuckDB does, which answers as Spark does, for all values there are."""

import math
import random
from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.predicate.expr import Expr
from watersmeet.predicate.model import Column, Conjunct, Dialect
from watersmeet.predicate.numeric import leaf_of
from watersmeet.predicate.parse import parse_where
from watersmeet.predicate.types import DOUBLE, FLOAT
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.evaluators.numpy_comparisons import Numbers, double_values, take_numbers, true_pairs

SCHEMA = pa.schema(
    [
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("t", pa.int8()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("clock", pa.timestamp("us")),
        ("d", pa.decimal128(20, 2)),
        ("s", pa.string()),
    ]
)
STREAMS = [("a", SCHEMA), ("b", SCHEMA), ("c", SCHEMA)]
DOUBLES = [0.0, -0.0, 0.1, 0.2, 0.3, 1.0, -1e-17, 1e16, 1e308, -1e308, math.nan, math.inf, -math.inf, 5e-324, None]
LONGS = [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), None]
TIMES = [0, 1, -1, 10**15, 2**63 - 1, -(2**63) + 1, None]
VALUES: dict[str, list[Any]] = {
    "x": DOUBLES,
    "f": [
        None if x is None else float(np.float32(x)) if abs(x) < 1e38 or not math.isfinite(x) else 1.5 for x in DOUBLES
    ],
    "t": [0, 1, -128, 127, None],
    "i": [0, 1, -1, 2**31 - 1, -(2**31), None],
    "l": LONGS,
    "day": [0, 1, -1, 20000, None],
    "at": TIMES,
    "clock": TIMES,
    "d": [None],
    "s": [None],
}
NUMBERS = ("x", "f", "t", "i", "l")
INSTANTS = ("day", "at", "clock")
ROWS = 400


def table(seed: int, nulls: bool) -> dict[str, pa.Array]:
    """Return columns of all streams by their generated names."""
    dice, columns = random.Random(seed), {}
    for stream in range(len(STREAMS)):
        for at, field in enumerate(SCHEMA):
            pool = [value for value in VALUES[field.name] if nulls or value is not None] or [None]
            values = [dice.choice(pool) for _ in range(ROWS)]
            if field.name in INSTANTS:
                kind = pa.int32() if field.name == "day" else pa.int64()
                columns[Column(stream, at).name] = pa.array(values, kind).view(field.type)
            else:
                columns[Column(stream, at).name] = pa.array(values, field.type)
    return columns


def conditions(seed: int) -> Iterator[str]:
    """Yield conditions by dice: comparisons and BETWEEN of columns, constants and computed doubles."""
    dice = random.Random(seed)

    def column(names: tuple[str, ...]) -> str:
        return f"{dice.choice('abc')}.{dice.choice(names)}"

    def number(depth: int) -> str:
        if depth == 0 or dice.random() < 0.3:
            constants = [
                "0",
                "1",
                "-1",
                "0.1",
                "1e3",
                "1.5",
                "-0.3",
                "CAST('NaN' AS DOUBLE)",
                "0.1F",
                "CAST(0.3 AS FLOAT)",
            ]
            return column(NUMBERS) if dice.random() < 0.7 else dice.choice(constants)
        if dice.random() < 0.2:
            return f"abs({number(depth - 1)})"
        if dice.random() < 0.1:
            return f"(-{number(depth - 1)})"
        return f"({number(depth - 1)} {dice.choice('+-*')} {column(('x',))})"

    while True:
        if dice.random() < 0.25:
            name = dice.choice((*INSTANTS, "i", "l"))
            yield f"{column((name,))} {dice.choice(('<', '<=', '>', '>=', '='))} {column((name,))}"
        elif dice.random() < 0.25:
            yield f"{number(1)} BETWEEN {number(1)} AND {number(2)}"
        else:
            yield f"{number(2)} {dice.choice(('<', '<=', '>', '>=', '='))} {number(2)}"


@pytest.fixture(scope="module")
def duck() -> Duck:
    return Duck(Dialect())


def _parse(text: str) -> Conjunct | None:
    try:
        conjuncts = parse_where(text, STREAMS, [], Dialect())
    except Exception:
        return None
    return conjuncts[0] if len(conjuncts) == 1 else None


@pytest.mark.parametrize("nulls", [False, True])
def test_answers_and_ends_are_those_of_duckdb(duck: Duck, nulls: bool) -> None:
    columns, everywhere = table(7, nulls), np.arange(ROWS)
    compared, ends, texts = 0, 0, conditions(11)

    def gather(column: Column) -> Numbers:
        return take_numbers(columns[column.name], everywhere)

    for text in (next(texts) for _ in range(400)):
        conjunct = _parse(text)
        if conjunct is None or not conjunct.columns:
            continue
        own = {column.name: columns[column.name] for column in conjunct.columns}
        if conjunct.numeric:
            compared += 1
            mask = np.broadcast_to(true_pairs(conjunct.numeric, gather), ROWS)
            expected = duck.attempt(own, [conjunct.condition], ROWS)
            assert expected is not None and np.flatnonzero(mask).tolist() == sorted(expected.tolist()), text
        for bound in conjunct.bounds:
            answer = duck.ends(own, [bound], ROWS)
            if bound.numeric is None or answer is None:
                continue
            for number, theirs in zip(bound.numeric, answer[0][0], strict=True):
                if number is not None:
                    ends += 1
                    np.testing.assert_array_equal(double_values(number, gather, ROWS), theirs, text)
    assert compared > 100 and ends > 100


@pytest.mark.parametrize(
    ("where", "is_numeric"),
    [
        ("abs(a.x - b.x) < 0.5", True),
        ("a.x BETWEEN b.x - 1 AND b.x + 1", True),
        ("a.x < b.i", True),
        ("a.l = b.i", True),
        ("a.at <= b.at", True),
        ("a.day > b.day", True),
        ("a.at <= b.clock", False),  # by the session's time zone
        ("a.at <= b.at + INTERVAL 1 HOUR", False),
        ("abs(a.i - b.i) < 5", False),  # may overflow, and so raise
        ("a.f = b.f", False),
        ("a.x < 0.1F", False),  # 0.10000000149011612
        ("a.f + b.f < c.x", False),  # a sum of floats
        ("a.d < b.d", False),
        ("a.d < b.x", False),
        ("a.x / b.x < 1", False),
        ("a.s = b.s", False),
        ("a.x < b.x OR a.i = b.i", False),
        ("a.x <> b.x", False),
        ("NOT a.x < b.x", False),
    ],
)
def test_which_conditions_numpy_decides(where: str, is_numeric: bool) -> None:
    conjunct = _parse(where)
    assert conjunct is not None and bool(conjunct.numeric) == is_numeric


def test_a_constant_of_32_bits_is_not_the_double_that_its_text_stands_for() -> None:
    leaf = leaf_of(Expr("0.1", DOUBLE, literal=0.1))
    assert leaf is not None and leaf.constant == 0.1
    assert leaf_of(Expr("0.1", FLOAT, literal=0.1)) is None


def test_dates_count_as_days_and_nulls_have_no_value() -> None:
    days = pa.array([date(1970, 1, 3), None, date(1970, 1, 1)])
    values, valid = take_numbers(days, np.array([0, 2, 1, 0]))
    assert valid is not None and valid.tolist() == [True, True, False, True]
    assert values[valid].tolist() == [2, 0, 2]
    assert take_numbers(days.drop_null(), np.array([1, 0])).valid is None
