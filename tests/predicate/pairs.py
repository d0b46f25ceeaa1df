"""Pairs of rows, and comparisons over them decided by `kernel.balls`; for comparison with Spark."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.predicate.macros import PRELUDE
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.scope import Scope
from watersmeet.predicate.source import Source
from watersmeet.predicate.terms import Comparison, Input, Leaf, comparison_of
from watersmeet.predicate.translate import Translator
from watersmeet.probe.evaluators.balls import Ball, ball_of, decide
from watersmeet.probe.evaluators.real_comparisons import evaluate_pairs

SCHEMA = pa.schema(
    [
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(9, 3)),
        ("s", pa.string()),
        ("v", pa.list_(pa.float32())),
    ]
)
STREAMS = [("a", SCHEMA), ("b", SCHEMA)]

UGLY = [
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, -1e-310, 5e-324, 1e300, -1e308, float("nan"), float("inf"), float("-inf"),
    3.141592653589793, -1.5707963267948966, 0.7853981633974483, 1e-8, 1e8, 1e17, -2e22, 709.0, 710.0, -745.5, 27.0, 8.0,
    0.9999999999999999, 1.0000000000000002, -0.9999999999999999,
]  # fmt: skip


def rows(count: int, seed: int, *, ugly: float = 0.0, dimension: int = 8) -> list[dict[str, Any]]:
    """Random rows; a share of their numbers is ugly."""
    rng = random.Random(seed)

    def real(low: float, high: float) -> float | None:
        if rng.random() >= ugly:
            return rng.uniform(low, high)
        if rng.random() < 0.2:
            return None
        bits = struct.unpack("<d", rng.randbytes(8))[0]
        return float(rng.choice([rng.choice(UGLY), rng.choice(UGLY), float(rng.randint(-9, 9)), bits]))

    def vector() -> list[float | None] | None:
        size = dimension if rng.random() >= ugly else rng.choice([0, 1, dimension - 1, dimension])
        values = [_single(rng.gauss(0, 1)) if rng.random() >= ugly / 4 else _odd(rng) for _ in range(size)]
        return None if rng.random() < ugly / 4 else [0.0] * size if rng.random() < ugly / 4 else values

    def one() -> dict[str, Any]:
        lat, lon = real(-90, 90), real(-180, 180)
        text = "".join(rng.choice("abcdeé" if rng.random() >= ugly else "aß😀 \0") for _ in range(rng.randint(0, 12)))
        return {
            "x": real(-10, 10), "y": real(-2, 2), "lat": lat, "lon": lon, "i": rng.randint(-9, 9),
            "f": _single(rng.uniform(-5, 5)), "d": Decimal(rng.randint(-9999, 9999)) / 1000, "s": text, "v": vector(),
        }  # fmt: skip

    return [one() for _ in range(count)]


def _odd(rng: random.Random) -> float | None:
    return rng.choice([None, float("nan"), float("inf"), 1e-45, 3e38, -1e30])


def _single(value: float) -> float:
    return float(np.float32(value))


def table(values: list[dict[str, Any]]) -> pa.Table:
    """The rows as Arrow columns."""
    return pa.Table.from_pylist(values, schema=SCHEMA)


class Pairs:
    """Two tables of equal length, whose rows are paired one by one."""

    def __init__(self, left: pa.Table, right: pa.Table, dialect: Dialect) -> None:
        self.tables, self.dialect, self.size = (left, right), dialect, len(left)
        columns = {
            Column(stream, field).name: side.column(field).combine_chunks()
            for stream, side in enumerate(self.tables)
            for field in range(len(SCHEMA))
        }
        self.connection = duckdb.connect(config={"threads": 1})
        for statement in PRELUDE:
            self.connection.execute(statement)
        self.connection.register("t", pa.table({"i": np.arange(self.size), **columns}))

    def comparisons(self, text: str) -> tuple[Comparison, ...] | None:
        """What `comparison_of` makes of a condition."""
        source = Source(text)
        tree = source.parse()
        assert tree is not None
        return comparison_of(tree, Translator(source, Scope(STREAMS), [], self.dialect))

    def decide(self, text: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """For each pair, whether the condition may be TRUE, and whether it is for sure."""
        comparisons = self.comparisons(text)
        assert comparisons is not None, text
        answers = [decide(one, {term: self.ball(term) for term in one.inputs}) for one in comparisons]
        possible, sure = zip(*answers, strict=True)
        return np.logical_and.reduce(possible), np.logical_and.reduce(sure)

    def ball(self, term: Input) -> Ball:
        """The ball of an input."""
        if isinstance(term, Leaf):
            some = "ORDER BY i" if term.columns else "LIMIT 1"
            column = self.connection.sql(f"SELECT {term.sql} AS e FROM t {some}").to_arrow_table()
            return ball_of(column.column(0).combine_chunks(), term.error)
        left, right = (self.tables[side.stream].column(side.field).combine_chunks() for side in term.columns)
        return evaluate_pairs(term, left, right, np.arange(self.size), np.arange(self.size))
