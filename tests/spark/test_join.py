"""Joins of every kind through real Spark, streaming from files, compared with the oracle."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.oracle import Count, Hopping, Sliding, Stream, Unbounded
from tests.spark.harness import (
    EXCHANGES,
    Case,
    check,
    cuts,
)

pytestmark = pytest.mark.spark


@wm.predicate
def near(x: float, ys: Any) -> Any:
    return abs(ys - x) < 2


@wm.predicate(form="pair", nulls=True)
def alike(x: str | None, y: str | None) -> bool | None:
    return x == y


@wm.predicate(form="matrix")
def below(xs: Any, ys: Any) -> Any:
    return xs[:, None] < ys[None, :]


def less(x: Any, y: Any) -> bool | None:
    return None if x is None or y is None else x < y


def band(x: Any, y: Any, width: float = 2) -> bool | None:
    return None if x is None or y is None else abs(x - y) < width


def same(x: Any, y: Any) -> bool | None:
    return None if x is None or y is None else x == y


def every(*parts: bool | None) -> bool:
    return all(part is True for part in parts)


CASES = {
    "sliding, two streams": Case(
        [Stream("a", Sliding(10), 5), Stream("b", Sliding(6), 5)],
        cuts(1, "ab", nulls=0.2),
        "a.x < b.x",
        lambda a, b: less(a["x"], b["x"]),
        strategy=wm.PSP(1),
    ),
    "late rows": Case(
        [Stream("a", Sliding(8), 0), Stream("b", Sliding(8), 1)],
        cuts(2, "ab", batches=5, disorder=12),
        "abs(a.x - b.x) < 2",
        lambda a, b: band(a["x"], b["x"]),
        strategy=wm.PSP(3),
    ),
    "no event time": Case(
        [Stream("a", Sliding(8), 4), Stream("b", Sliding(8), 4)],
        cuts(3, "ab", null_times=0.25),
        "a.k = b.k",
        lambda a, b: same(a["k"], b["k"]),
        strategy=wm.Central(),
    ),
    "count windows, ties": Case(
        [Stream("a", Count(4), 3), Stream("b", Count(3), 3)],
        cuts(4, "ab", step=4, disorder=5),
        "a.x <= b.x",
        lambda a, b: every(None if None in (a["x"], b["x"]) else a["x"] <= b["x"]),
        strategy=wm.PSP(2),
    ),
    "hopping windows": Case(
        [Stream("a", Hopping(10, 5), 6), Stream("b", Hopping(6, 8), 6)],
        cuts(5, "ab"),
        "near(a.x, b.x)",
        lambda a, b: band(a["x"], b["x"]),
        (near,),
        wm.PSP(4),
    ),
    "unbounded": Case(
        [Stream("a", Unbounded(), 0), Stream("b", Unbounded(), 0)],
        cuts(6, "ab", batches=3),
        "a.x = b.x AND a.k <> b.k",
        lambda a, b: every(same(a["x"], b["x"]), None if None in (a["k"], b["k"]) else a["k"] != b["k"]),
        strategy=wm.PSP(2),
    ),
    "every window at once, four streams": Case(
        [Stream("a", Sliding(9), 5), Stream("b", Count(3), 5), Stream("c", Hopping(12, 4), 5), Stream("d", Unbounded())],
        cuts(7, "abcd", rows=5, batches=4, values=4),
        "a.x = b.x AND near(b.x, c.x) AND c.k = d.k",
        lambda a, b, c, d: every(same(a["x"], b["x"]), band(b["x"], c["x"]), same(c["k"], d["k"])),
        (near,),
        wm.PSP(3),
    ),
    "an OR across streams, Python and SQL mixed": Case(
        [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5), Stream("c", Sliding(5), 5)],
        cuts(8, "abc", rows=6),
        "(a.x = b.x OR alike(a.k, b.k)) AND below(b.x, c.x)",
        lambda a, b, c: every(same(a["x"], b["x"]) or a["k"] == b["k"], less(b["x"], c["x"])),
        (alike, below),
        wm.PSP(2),
    ),
    "a condition over three streams": Case(
        [Stream("a", Sliding(7), 5), Stream("b", Sliding(7), 5), Stream("c", Sliding(7), 5)],
        cuts(9, "abc", rows=6, nulls=0.2),
        "a.x + b.x > c.x AND a.k LIKE 'p%'",
        lambda a, b, c: every(None if None in (a["x"], b["x"], c["x"]) else a["x"] + b["x"] > c["x"], a["k"] == "p"),
        strategy=wm.PSP(4),
    ),
    "a cross product": Case(
        [Stream("a", Sliding(4), 4), Stream("b", Sliding(4), 4), Stream("c", Sliding(4), 4)],
        cuts(10, "abc", rows=6),
        strategy=wm.PSP(2),
    ),
    "equal times everywhere": Case(
        [Stream("a", Sliding(1), 0), Stream("b", Count(2), 0)],
        cuts(11, "ab", step=1, disorder=0),
        strategy=wm.PSP(2),
    ),
    "nine streams": Case(
        [Stream(name, Sliding(9), 6) for name in "abcdefghi"],
        cuts(12, "abcdefghi", batches=3, rows=2, nulls=0, values=2),
        " AND ".join(f"{one}.x = {two}.x" for one, two in zip("abcdefgh", "bcdefghi", strict=True)),
        lambda *rows: len({row["x"] for row in rows}) == 1,
        strategy=wm.PSP(2),
    ),
}


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_the_oracles(spark: SparkSession, tmp_path: Path, name: str, exchange: str) -> None:
    query = check(spark, CASES[name], tmp_path, exchange)
    assert sum(p["outputRows"] for p in query.progress) > 0
