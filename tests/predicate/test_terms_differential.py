"""What balls decide, Spark decides alike; and on ordinary data they decide nearly all."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.predicate.pairs import Pairs, rows, table
from tests.versions import LATEST, there
from watersmeet.predicate.model import Dialect
from watersmeet.spark.run.versions import SPARK

pytestmark = pytest.mark.spark

UNARY = [
    "sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "expm1", "ln",
    "log", "log10", "log2", "log1p", "cbrt",
]  # fmt: skip
HAVERSINE = (
    "12742 * asin(sqrt(pow(sin(radians(b.lat - a.lat) / 2), 2) + cos(radians(a.lat)) * cos(radians(b.lat)) "
    "* pow(sin(radians(b.lon - a.lon) / 2), 2)))"
)
SQUARES = (
    "(sin(radians((b.lat - a.lat) / 2)) * sin(radians((b.lat - a.lat) / 2)) + cos(radians(a.lat)) * cos(radians(b.lat))"
    " * sin(radians((b.lon - a.lon) / 2)) * sin(radians((b.lon - a.lon) / 2)))"
)
LAW = (
    "degrees(acos(sin(radians(a.lat)) * sin(radians(b.lat)) "
    "+ cos(radians(a.lat)) * cos(radians(b.lat)) * cos(radians(a.lon - b.lon))))"
)
EVERY = [
    *(f"{name}(a.y * b.y / 9 + 0.5) < {name}(b.y / 9 + 0.5)" for name in UNARY),
    *(
        f"{name}(a.y * b.y) < 0.4"
        for name in UNARY
        if name not in {"ln", "log", "log10", "log2", "log1p", "asin", "acos"}
    ),
    f"{HAVERSINE} < 5000",
    f"6371.0 * 2 * atan2(sqrt({SQUARES}), sqrt(1 - {SQUARES})) BETWEEN 1000 AND 9000",
    f"2 * asin(sqrt({SQUARES})) * 6371 <= 10000",
    f"{LAW} < 60",
    "exp(-(a.x - b.x) * (a.x - b.x) / 2) > 0.01",
    "1 / (1 + exp(a.x * b.y)) >= 0.25",
    "pow(a.x - b.x, 2) + pow(a.y - b.y, 2) < 9",
    "pow(abs(a.x - b.x), 1.5) > 4e0",
    "pow(a.x, b.i) > 2",
    "hypot(a.x - b.x, a.y - b.y) < 3.0",
    "atan2(a.x, b.x) > 1",
    "NOT (atan2(a.i, b.i) < 1.25)",
    "log(2, abs(a.x * b.x)) > 3",
    "sin(a.i * b.i) > cos(b.i)",
    "sin(a.f + b.f) > cast(0.25 AS float)",
    "cos(a.d - b.d) <> 0.5",
    "abs(-tanh(a.f * b.f)) < 0.9D",
    "cast(sin(a.x * b.x) AS float) < cast(cos(b.x) AS float)",
    "vector_cosine_similarity(a.v, b.v) > 0.3",
    "1 - vector_cosine_similarity(b.v, a.v) <= 0.6F",
    "vector_inner_product(a.v, b.v) BETWEEN -1 AND 1.5",
    "vector_l2_distance(a.v, b.v) < 3.5",
    "vector_l2_distance(a.v, b.v) * vector_l2_distance(b.v, a.v) < a.f + 9",
    "jaro_winkler_similarity(a.s, b.s) > 0.6",
    "jaro_winkler_similarity(a.s, b.s) = 0.0",
    "levenshtein(a.s, b.s) <= 6",
    "levenshtein(b.s, a.s, 7) >= 0",
    "levenshtein(a.s, b.s) / (1 + length(a.s)) < 0.75",
    "jaro_winkler_similarity(a.s, b.s) * 2 - 1 <= a.y",
]
ORDINARY = [text for text in there(EVERY) if SPARK >= LATEST or "vector_" not in text]
"""Older versions add up vectors in 32 bits: these are left to Spark."""


class Generator:
    """Random comparisons with inexact functions."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def condition(self) -> str:
        function = f"{self.rng.choice(UNARY)}({self.term(2)})"
        sign = self.rng.choice(["<", "<=", ">", ">=", "=", "<>"])
        sides = [f"{function} {self.rng.choice('+-*')} {self.term(1)}", self.term(2)]
        self.rng.shuffle(sides)
        return f"{sides[0]} {sign} {sides[1]}"

    def term(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.2:
            return self.rng.choice(
                ["a.x", "b.x", "a.y", "b.y", "a.i", "b.i", "a.f", "b.f", "a.d", "2", "0.5", "1e0", "a.lat"]
            )
        kind = self.rng.random()
        if kind < 0.4:
            return f"{self.rng.choice([*UNARY, 'sqrt', 'abs', 'degrees', 'radians'])}({self.term(depth - 1)})"
        if kind < 0.5:
            name = self.rng.choice(["pow", "atan2", "hypot", "log"])
            return f"{name}({self.term(depth - 1)}, {self.term(depth - 1)})"
        if kind < 0.55:
            return f"float({self.term(depth - 1)})"
        return f"({self.term(depth - 1)} {self.rng.choice('+-*/')} {self.term(depth - 1)})"


def close_pairs(pairs: pa.Table, seed: int) -> pa.Table:
    """The rows, some as they are and some moved a little: distances of 0 and near 0."""
    rng = np.random.default_rng(seed)
    moved = pairs
    for name in ("lat", "lon", "x"):
        values = pairs.column(name).to_numpy()
        step = rng.choice([0.0, 0.0, 1e-12, 1e-6, 1e-3], len(values))
        moved = moved.set_column(moved.schema.get_field_index(name), name, pa.array(values + step))
    return moved


def spark_answers(spark: Any, pairs: Pairs, texts: list[str], open_pairs: list[Any]) -> Iterator[list[bool | None]]:
    """Spark's answers, each condition asked only where asked."""
    sides = [
        pa.StructArray.from_arrays([c.combine_chunks() for c in side.columns], schema_names(side))
        for side in pairs.tables
    ]
    flags = {f"k{n}": pa.array(mask) for n, mask in enumerate(open_pairs)}
    table = pa.table({"id": np.arange(pairs.size), "a": sides[0], "b": sides[1], **flags})
    frame = spark.createDataFrame(table).coalesce(1)
    answers = frame.selectExpr("id", *(f"CASE WHEN k{n} THEN ({text}) END AS e{n}" for n, text in enumerate(texts)))
    answers = answers.toArrow().sort_by("id")
    for n in range(len(texts)):
        yield answers.column(f"e{n}").to_pylist()


def schema_names(side: pa.Table) -> list[str]:
    return list(side.schema.names)


def check(spark: Any, pairs: Pairs, texts: list[str]) -> dict[str, float]:
    """Compare all decided answers with Spark's; return the share left open per condition."""
    decisions = [pairs.decide(text) for text in texts]
    open_pairs = [~(possible & ~sure) for possible, sure in decisions]
    spark.conf.set("spark.sql.ansi.enabled", str(pairs.dialect.ansi).lower())
    spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    try:
        for text, (_, sure), mask, answers in zip(
            texts, decisions, open_pairs, spark_answers(spark, pairs, texts, open_pairs), strict=True
        ):
            wrong = [row for row in np.flatnonzero(mask).tolist() if bool(sure[row]) != (answers[row] is True)]
            assert not wrong, f"{text}: pair {wrong[0]}: Spark {answers[wrong[0]]}; {len(wrong)} pairs"
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.unset("spark.sql.subexpressionElimination.enabled")
    return {text: 1 - float(np.mean(mask)) for text, mask in zip(texts, open_pairs, strict=True)}


def test_ordinary_data_is_decided_and_as_spark_decides(spark: Any) -> None:
    pairs = Pairs(table(rows(2000, 1)), table(rows(2000, 2)), Dialect())
    open_ = {text: share for text, share in check(spark, pairs, ORDINARY).items() if share > 0.002}
    assert open_ == {}


def test_close_pairs(spark: Any) -> None:
    one = table(rows(2000, 3))
    pairs = Pairs(one, close_pairs(one, 4), Dialect())
    shares = check(spark, pairs, ORDINARY)
    assert max(share for text, share in shares.items() if "sqrt" in text) < 0.002


@pytest.mark.parametrize("ansi", [True, False])
def test_ugly_data(spark: Any, ansi: bool) -> None:
    pairs = Pairs(table(rows(1500, 5, ugly=0.3)), table(rows(1500, 6, ugly=0.3)), Dialect(ansi=ansi))
    check(spark, pairs, ORDINARY)


def test_generated_conditions(spark: Any) -> None:
    pairs = Pairs(table(rows(400, 7, ugly=0.1)), table(rows(400, 8, ugly=0.1)), Dialect())
    generator = Generator(9)
    texts = [text for text in (generator.condition() for _ in range(120)) if pairs.comparisons(text) is not None]
    assert len(texts) > 100
    check(spark, pairs, texts)
