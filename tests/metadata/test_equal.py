"""Rows that are equal: what DuckDB's join finds, which is Spark's equality, for every type that marks know."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.metadata.dead_rule import match_equal_rows
from watersmeet.predicate.model import Dialect
from watersmeet.probe.evaluators.duck import Duck

NAN = float("nan")
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [2**53, 2**53 + 1, -1, 0, None]),
    (pa.float64(), [0.0, -0.0, NAN, -NAN, 1.5, float("inf"), None]),
    (pa.float32(), [0.0, -0.0, NAN, 1.5, None]),
    (pa.string(), ["", "a", "aa", "ab", None]),
    (pa.binary(), [b"", b"\x00", b"\x00\x00", None]),
    (pa.bool_(), [True, False, None]),
    (pa.decimal128(38, 0), [Decimal(10**37), Decimal(10**37 + 1), None]),
    (pa.timestamp("us", "UTC"), [0, 1, -1, None]),
]


@pytest.fixture(scope="module")
def duck() -> Duck:
    return Duck(Dialect())


def draw_values(kind: pa.DataType, values: list[Any], rows: int, rng: np.random.Generator) -> pa.Array:
    return pa.array([values[at] for at in rng.integers(0, len(values), rows)], kind)


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_what_duckdb_finds(duck: Duck, kind: pa.DataType, values: list[Any]) -> None:
    rng = np.random.default_rng(0)
    for columns in (1, 2):
        left, right = ([draw_values(kind, values, rows, rng) for _ in range(columns)] for rows in (30, 20))
        named = [{f"{side}{at}": v for at, v in enumerate(found)} for side, found in (("a", left), ("b", right))]
        conditions = [f"a{at} = b{at}" for at in range(columns)]
        blocks = list(duck.join(named[0], named[1], conditions, (30, 20)))
        wanted = {(i, j) for one, two in blocks for i, j in zip(one.tolist(), two.tolist(), strict=True)}
        found = match_equal_rows(left, right, 600)
        assert found is not None
        pairs = list(zip(found[0].tolist(), found[1].tolist(), strict=True))
        assert sorted(pairs) == sorted(wanted)


def test_too_many() -> None:
    ones = pa.array([1] * 4)
    assert match_equal_rows([ones], [ones], 15) is None
    assert match_equal_rows([ones], [ones], 16) is not None


def test_nothing_on_one_side() -> None:
    none, one = pa.array([], pa.int64()), pa.array([1])
    for left, right in ((none, one), (one, none)):
        found = match_equal_rows([left], [right], 10)
        assert found is not None and not len(found[0]) and not len(found[1])
