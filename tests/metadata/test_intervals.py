"""Bounds closed by ranges: all that a tuple could join lies in what punctuations, or keys, have denied."""

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from tests.budget import one_in
from tests.metadata.test_traps import END, join, side_ids, step
from watersmeet.limits import limited
from watersmeet.metadata.closing import ClosingRules
from watersmeet.metadata.closing_rules import ColumnEnd, IntervalRule, extreme_value, round_outwards
from watersmeet.metadata.constraints import Clustering, Constraint, FlaggedPunctuations, Key, Pattern
from watersmeet.metadata.spans import exact_values
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

ID, K, T, X = 0, 2, 3, 4
RANGES = FlaggedPunctuations(END, (Pattern(K, K, ID),))
"""From k to id."""
BIG = 2**60


def punctuation(low: int, high: int) -> dict[str, Any]:
    return {"id": high, "k": low, "end": True}


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "low", "high"),
    [
        ("abs(a.k - b.k) <= 2", 3, 7),
        ("abs(a.k - b.k) < 2", 3, 7),  # what is computed is taken to be admitted
        ("b.k BETWEEN a.k - 1 AND a.k + 3", 4, 8),
        ("b.k >= a.k AND b.k <= a.id", 5, 9),
        ("b.k > a.k AND b.k < a.id", 6, 8),
        ("a.k <= b.k AND b.k < a.id", 5, 8),
        ("a.k < b.k AND b.k <= a.k + 2", 6, 7),
        ("b.k >= a.k AND b.k <= 11", 5, 11),
        ("b.k >= a.k AND b.k BETWEEN 1 AND a.id AND b.k <= 20", 5, 9),
    ],
)
def test_a_tuple_goes_with_the_first_range_that_holds_its_interval(
    tmp_path: Path, where: str, low: int, high: int
) -> None:
    """a's row has k = 5 and id = 9; b denies all of the interval but an end, then the other end, and then the rest."""
    run = join(tmp_path, where, b=[RANGES])
    step(run, a=[{"id": 9, "k": 5}])
    step(run, b=[punctuation(low, high - 1)])
    assert step(run)["purgedRows"] == 0, "the upper end is missing"
    run = join(tmp_path / "again", where, b=[RANGES])
    step(run, a=[{"id": 9, "k": 5}])
    step(run, b=[punctuation(low + 1, high), punctuation(20, 19)])
    assert step(run)["purgedRows"] == 0, "the lower end is missing"
    step(run, b=[punctuation(low, low)])
    assert step(run)["distinctRows"] == 0
    assert step(run, b=[{"id": 40, "k": low}, {"id": 41, "k": high}])["deniedRows"] == 2
    assert step(run, b=[{"id": 42, "k": low - 1}, {"id": 43, "k": high + 1}])["deniedRows"] == 0


@pytest.mark.parametrize("tables", [2, 100], ids=["one table", "a table a batch"])
def test_every_table_of_marks_counts(tmp_path: Path, tables: int) -> None:
    run = join(tmp_path, "abs(a.k - b.k) <= 2", b=[RANGES])
    with limited(merged_chunks=tables, tier_rows=1):
        step(run, a=[{"id": 9, "k": 5}, {"id": 10, "k": 8}])
        for value in (3, 7, 5, 4):
            step(run, b=[punctuation(value, value)])
        assert step(run)["distinctRows"] == 2
        step(run, b=[punctuation(6, 6)])
        assert step(run)["distinctRows"] == 1


@pytest.mark.parametrize("promise", [Key((K,)), Clustering(K)])
def test_values_that_were_seen_one_by_one_make_a_range(tmp_path: Path, promise: Constraint) -> None:
    run = join(tmp_path, "abs(a.k - b.k) <= 1", b=[promise])
    step(run, a=[{"id": 1, "k": 5}, {"id": 2, "k": 7}])
    for value in (4, 5, 6):
        step(run, b=[{"id": 10 + value, "k": value}])
    step(run, b=[{"id": 20, "k": 40}])  # the run of 6 is over
    step(run)
    assert sum(p["purgedRows"] for p in run.progress) == 1
    step(run, b=[{"id": 21, "k": 7}])
    assert {ids for ids, _ in run.results} == {(1, 14), (1, 15), (1, 16), (2, 16), (2, 21)}


def test_a_range_beside_a_value_that_is_pinned(tmp_path: Path) -> None:
    """[!] A pattern of two columns closes only what lies in both, and several do not add up."""
    both = FlaggedPunctuations(END, (Pattern(K, K, ID), Pattern(T, T, T)))
    run = join(tmp_path, "abs(a.k - b.k) <= 1 AND a.t = b.t", b=[both])
    step(run, a=[{"id": 1, "k": 5, "t": "p"}, {"id": 2, "k": 5, "t": "q"}, {"id": 3, "k": 6, "t": "p"}])
    step(run, b=[punctuation(4, 6) | {"t": "p"}, punctuation(4, 5) | {"t": "q"}, punctuation(6, 6) | {"t": "q"}])
    assert step(run)["purgedRows"] == 1
    step(run, b=[{"id": 10 + k, "k": k, "t": t} for k in (4, 5, 6, 7) for t in "p"])
    assert side_ids(run, "denied") == [14, 15, 16]
    assert {ids for ids, _ in run.results} == {(3, 17)}


def test_a_constant_of_several_columns_is_no_range(tmp_path: Path) -> None:
    """[!] (5, p) and (6, p) say nothing of what lies between two numbers of a column that has no neighbours."""
    run = join(
        tmp_path,
        "abs(a.x - b.x) <= 1 AND a.t = b.t",
        b=[FlaggedPunctuations(END, (Pattern(X, X, X), Pattern(T, T, T)))],
    )
    step(run, a=[{"id": 1, "x": 1.0, "t": "p"}])
    step(run, b=[{"id": 0, "x": float(x), "t": "p", "end": True} for x in range(3)])
    assert step(run)["purgedRows"] == 0
    step(run, b=[{"id": 2, "x": 0.5, "t": "p"}])
    assert {ids for ids, _ in run.results} == {(1, 2)}


def test_large_numbers_are_told_apart(tmp_path: Path) -> None:
    """[!] Where doubles can't tell neighbours apart, an interval is taken to be wider than it is."""
    run = join(tmp_path, "b.k >= a.k AND b.k <= a.id", b=[RANGES])
    step(run, a=[{"id": BIG + 3, "k": BIG + 1}, {"id": BIG + 4, "k": BIG + 1}])
    step(run, b=[punctuation(BIG + 1, BIG + 3)])
    assert step(run)["purgedRows"] == 1
    run = join(tmp_path / "computed", "abs(a.k - b.k) <= 1", b=[RANGES])
    step(run, a=[{"id": 1, "k": BIG}])
    step(run, b=[punctuation(BIG - 1, BIG)])
    assert step(run)["purgedRows"] == 0
    step(run, b=[{"id": 2, "k": BIG + 1}])
    assert {ids for ids, _ in run.results} == {(1, 2)}


def test_a_bound_on_one_side_reaches_to_the_end_of_the_type(tmp_path: Path) -> None:
    first = int(np.iinfo(np.int64).min)
    run = join(tmp_path, "b.k <= a.k", b=[RANGES])
    step(run, a=[{"id": 1, "k": 5}, {"id": 2, "k": 6}])
    step(run, b=[punctuation(first + 1, 5)])
    assert step(run)["purgedRows"] == 0
    step(run, b=[punctuation(first, 5)])
    assert step(run)["purgedRows"] == 1


def test_a_chain_of_bounds(tmp_path: Path) -> None:
    """b is closed for a, and c for the b that matches: a may go; b waits for a."""
    run = join(tmp_path, "abs(a.k - b.k) <= 1 AND abs(b.k - c.k) <= 1", "abc", b=[RANGES], c=[RANGES])
    step(run, a=[{"id": 1, "k": 5}], b=[{"id": 2, "k": 6}])
    step(run, b=[punctuation(0, 9)])
    assert step(run)["purgedRows"] == 0, "c may still come"
    step(run, c=[punctuation(5, 7)])
    assert step(run)["purgedRows"] == 1


# -- every type

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, -3, 0, 100, 127]),
    "int32": (pa.int32(), [-(2**31), -1, 7, 2**31 - 1]),
    "float32": (pa.float32(), [-float("inf"), -0.0, 0.1, 1.5, float("inf"), float("nan")]),
    "float64": (pa.float64(), [-float("inf"), -0.0, 0.1, 1.5, 2.0**53, float("inf"), float("nan")]),
    "date": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), [0, 1, 2**52, 2**60]),
    "local": (pa.timestamp("us"), [0, 1, 2**52, 2**60]),
    "decimal": (pa.decimal128(12, 2), [Decimal("-1.00"), Decimal("0.01"), Decimal("2.50")]),
    "long decimal": (pa.decimal128(30, 2), [Decimal("-1.00"), Decimal("0.01"), Decimal("2.50")]),
    "string": (pa.string(), ["", "a", "ab", "b\0", "ß"]),
    "boolean": (pa.bool_(), [False, True]),
}


ARITHMETIC_TYPES = ["int8", "int32", "float32", "float64", "date", "timestamp"]


@pytest.mark.long
@pytest.mark.parametrize("kind", one_in(4, KINDS))
@pytest.mark.parametrize("where", one_in(2, ["b.v > a.lo AND b.v < a.hi", "b.v BETWEEN a.lo AND a.hi"]))
def test_no_tuple_goes_whose_partner_may_come(tmp_path: Path, kind: str, where: str) -> None:
    """For every pair of ends and every range: whoever of b is let in afterwards finds its partners."""
    type_, values = KINDS[kind]
    ends = [(low, high) for at, low in enumerate(values) for high in values[at:]]
    ends_of = [(name, type_) for name in ("v", "lo", "hi")]
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), *ends_of, ("end", pa.bool_())])
    streams = tuple(
        StreamSpec(name, schema, 1, Window(), 1000, constraints=promises)
        for name, promises in (("a", ()), ("b", (FlaggedPunctuations(5, (Pattern(2, 3, 4),)),)))
    )
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect())
    query, gone = Query(streams, conjuncts, where), 0
    for number, (low, high) in enumerate(ends):
        run = Run(query, Store(str(tmp_path / str(number))))
        blank = dict.fromkeys(schema.names) | {"ts": 0}
        rows = [blank | {"id": at, "lo": first, "hi": end} for at, (first, end) in enumerate(ends)]
        news = [blank | {"id": at, "v": value} for at, value in enumerate(values)]
        batches = [[(0, row) for row in rows], [(1, blank | {"lo": low, "hi": high, "end": True})], [], []]
        for arrived in (*batches, [(1, row) for row in news]):
            run.step(Central(), arrived)
        gone += sum(p["purgedRows"] for p in run.progress)
        denied = set(side_ids(run, "denied"))
        assert {ids for ids, _ in run.results} == {
            (at, new)
            for at, (first, end) in enumerate(ends)
            for new, value in enumerate(values)
            if new not in denied and admits(where, values, first, value, end)
        }
    assert gone


def admits(where: str, values: list[Any], low: Any, value: Any, high: Any) -> bool:
    """Tell by the places of values, which are given in rising order."""
    first, at, end = (next(n for n, v in enumerate(values) if v is x) for x in (low, value, high))
    return first < at < end if ">" in where else first <= at <= end


@given(st.floats(allow_nan=False) | st.integers(-(2**64), 2**64).map(float), st.sampled_from(ARITHMETIC_TYPES))
def test_ends_are_rounded_outwards(end: float, kind: str) -> None:
    """The next value beyond an end, as the double that it is taken for, lies beyond the end, too."""
    type_ = KINDS[kind][0]
    for upper in (False, True):
        found = round_outwards(np.array([end, np.nan]), upper, type_)
        assert found.null_count == 1 and found.type == type_
        outermost = extreme_value(type_, upper)
        assert outermost is not None
        if pa.types.is_floating(type_):
            assert (found[0].as_py() >= end) if upper else (found[0].as_py() <= end)
        elif found[0] != outermost:
            beyond = float(int(exact_values(found)[0].as_py()) + (1 if upper else -1))
            assert (beyond > end) if upper else (beyond < end)


def test_columns_of_other_types_are_no_ends() -> None:
    """2^53 + 1 as a double is 2^53, so that a double may equal what a whole number does not."""
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("k", pa.int64()), ("x", pa.float64())])
    ranges = (Key((2,)),)
    streams = tuple(StreamSpec(name, schema, 1, Window(), 5, constraints=ranges) for name in "ab")
    where = "a.k >= b.x AND a.k <= b.id"
    query = Query(streams, parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect()), where)
    (way,) = ClosingRules(query).rules_for(0, (1,))
    assert isinstance(way, IntervalRule)
    (sides,) = way.between
    assert ColumnEnd(Column(1, 0)) in sides[1] and not any(isinstance(end, ColumnEnd) for end in sides[0])


def test_an_integer_that_spark_takes_past_a_float(tmp_path: Path) -> None:
    """[!] 16777217 is no float: what is looked up and what is closed is not rounded where the condition isn't."""
    numbers = [(name, pa.float64()) for name in ("x", "lo", "hi")]
    schema = pa.schema(
        [("id", pa.int64()), ("ts", pa.timestamp("us")), ("i", pa.int32()), *numbers, ("end", pa.bool_())]
    )
    where = "b.x BETWEEN cast(a.i AS float) - 1D AND cast(a.i AS float)"
    streams = tuple(
        StreamSpec(name, schema, 1, Window(), 1000, constraints=promises)
        for name, promises in (("a", ()), ("b", (FlaggedPunctuations(6, (Pattern(3, 4, 5),)),)))
    )
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect())
    run, blank = Run(Query(streams, conjuncts, where), Store(str(tmp_path))), dict.fromkeys(schema.names) | {"ts": 0}
    run.step(Central(), [(0, blank | {"id": 1, "i": 16777217})])
    run.step(Central(), [(1, blank | {"lo": 0.0, "hi": 16777216.5, "end": True})])
    run.step(Central(), [])
    run.step(Central(), [(1, blank | {"id": 2, "x": 16777217.0})])
    run.step(Central(), [(0, blank | {"id": 3, "i": 16777217})])
    assert {ids for ids, _ in run.results} == {(1, 2), (3, 2)}
