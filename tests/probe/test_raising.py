"""A conjunct that may raise never runs before its guard, wherever the guard is decided."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.budget import one_in
from watersmeet.errors import PredicateError
from watersmeet.placement import PSP, Central, Strategy
from watersmeet.predicate.model import Column, Conjunct, Dialect, HiddenColumn
from watersmeet.predicate.parse import parse_where
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.evaluators.sql import error_columns
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.int32()), ("k", pa.string())])


def run_of(folder: Path, where: str) -> Run:
    streams = tuple(StreamSpec(name, SCHEMA, 1, Sliding(1000), 0) for name in "abc")
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect())
    assert any(conjunct.raises for conjunct in conjuncts)
    return Run(Query(streams, conjuncts, where), Store(str(folder)))


ROWS: list[tuple[int, dict[str, Any]]] = [
    (0, {"id": 0, "ts": 0, "x": 5, "k": "p"}),
    (0, {"id": 1, "ts": 1, "x": 7, "k": "q"}),
    (1, {"id": 2, "ts": 2, "x": 5, "k": "p"}),
    (2, {"id": 3, "ts": 3, "x": 1, "k": "q"}),
]


@pytest.mark.parametrize("strategy", [Central(), PSP(3)], ids=["Central", "PSP"])
@pytest.mark.parametrize("exchange", ["local", "shuffle"])
@pytest.mark.parametrize(
    "where",
    [
        "a.x <> b.x AND 1 / (a.x - b.x) > 0",
        "1 / (a.x - b.x) > 0 AND a.x <> b.x",  # the guard is written second, and still goes first
        "1 / (a.x - b.x) > 0 AND a.k = c.k",  # the guard is decided on a later hop than the streams of the other
    ],
)
def test_a_guard_in_any_place_protects(tmp_path: Path, where: str, exchange: str, strategy: Strategy) -> None:
    run = run_of(tmp_path, where)
    run.step(strategy, ROWS, exchange)
    assert set(run.results) == {((1, 2, 3), 3)}


def test_without_a_guard_the_error_names_conjunct_and_values(tmp_path: Path) -> None:
    run = run_of(tmp_path, "1 / (a.x - b.x) > 0")
    with pytest.raises(PredicateError) as caught:
        run.step(Central(), ROWS)
    assert "`1 / (a.x - b.x) > 0` raised" in str(caught.value)
    assert "DIVIDE_BY_ZERO" in str(caught.value)
    assert "a.x = 5 (int), b.x = 5 (int)" in str(caught.value)


@pytest.mark.parametrize(
    ("beside", "names"),
    [((), ""), ((Column(0, 2), Column(0, 5), Column(1, 4)), " for a.x = 5 (int), b.x * 2 = 10 (bigint)")],
)
def test_the_error_shows_no_columns_that_only_we_know(beside: tuple[Column, ...], names: str) -> None:
    computed = (HiddenColumn("1 / a.x", pa.int64()), HiddenColumn("1 / a.x failed", pa.bool_(), failed=True))
    streams = tuple(StreamSpec(name, SCHEMA, 1, Sliding(1000), 0, hidden=computed) for name in "ab")
    doubled = replace(streams[1], hidden=(HiddenColumn("b.x * 2", pa.int64()),))
    query = Query((streams[0], doubled), flags=(Column(0, 5),))
    columns = (Column(0, 4), Column(0, 5), *beside)
    conjunct = Conjunct("1 / a.x > 0", "CASE WHEN s0_5 THEN error('no') ELSE s0_4 > 0 END", columns, raises=True)
    table = {"s0_2": pa.array([5], pa.int32()), "s0_4": pa.array([None], pa.int64()), "s0_5": pa.array([True])}
    with pytest.raises(PredicateError) as caught:
        Duck(Dialect()).check(table | {"s1_4": pa.array([10])}, conjunct, 1, error_columns(query, conjunct))
    assert str(caught.value) == f"`1 / a.x > 0` raised no{names}."


LONGEST = 2**63 - 1
NUMBERS = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("i", pa.int32())])


def numbers_run(folder: Path, where: str, names: str = "ab", *, bounded: bool = True) -> Run:
    streams = tuple(StreamSpec(name, NUMBERS, 1, Sliding(1000), 0) for name in names)
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect())
    if not bounded:
        conjuncts = tuple(replace(conjunct, bounds=()) for conjunct in conjuncts)
    return Run(Query(streams, conjuncts, where), Store(str(folder)))


def numbered(*values: tuple[int, int | None]) -> list[tuple[int, dict[str, Any]]]:
    return [(stream, {"id": at, "ts": at, "n": n, "i": 1}) for at, (stream, n) in enumerate(values)]


@pytest.mark.parametrize("values", [(LONGEST, 1), (1, LONGEST)], ids=["probing", "stored"])
@pytest.mark.parametrize("where", ["a.n + b.n < 5", "5 > a.n + b.n", "a.n + b.n + b.n < 5"])
def test_access_paths_hide_no_overflow(tmp_path: Path, where: str, values: tuple[int, int]) -> None:
    run = numbers_run(tmp_path, where)
    with pytest.raises(PredicateError, match=r"raised .*Overflow"):
        for row in numbered((0, 1), (1, 2), (0, values[0]), (1, values[1])):
            run.step(Central(), [row])


def test_an_overflow_that_another_conjunct_rules_out_stops_nothing(tmp_path: Path) -> None:
    run = numbers_run(tmp_path, "a.n + b.n < 5 AND a.n < 10 AND b.n < 10")
    run.step(Central(), numbered((0, 1), (1, 2), (0, LONGEST), (1, LONGEST)))
    assert set(run.results) == {((0, 1), 1)}


@pytest.mark.parametrize("where", ["1 / a.n > 0 AND abs(a.n - b.n) < 5", "abs(a.n - b.n) < 5 AND 1 / a.n > 0"])
def test_of_two_that_may_raise_one_may_rule_out_what_the_other_raises_for(tmp_path: Path, where: str) -> None:
    for bounded in (True, False):
        run = numbers_run(tmp_path / str(bounded), where, bounded=bounded)
        run.step(Central(), numbered((0, 0), (1, 9), (0, 7), (1, 8), (0, -LONGEST)))
        assert set(run.results) == {((2, 1), 2), ((2, 3), 3)}


PARTS = [
    "a.n + b.n < 5", "abs(a.n - b.n) < 5", "a.n - b.n >= 0", "a.i + b.i = 2", "a.n BETWEEN b.n - 1 AND b.n + 1",
    "a.n < b.n * 2", "abs(a.n) < b.n", "a.i - b.n > -3", "1 / a.n > 0", "a.n <= b.n", "-a.n = b.n", "a.i < 3",
    "a.n + a.i < b.n", "a.n + b.i - b.n < 2", "a.i * b.i < a.n",
]  # fmt: skip
THIRD = ["b.n + c.n > 0", "abs(a.i - c.i) <= 2", "a.n + b.n = c.n", "c.n - b.n < a.n", "c.n < 3", "b.n <> c.n"]
LONGS = [0, 1, 2, 3, 4, -1, -2, None, 0, 1, 2, 3, LONGEST, -LONGEST - 1, 2**62, 2**53 + 1]
INTS = [0, 1, 2, 3, -1, None, 0, 1, 2, 2**31 - 1, -(2**31), 2**30]


@pytest.mark.long
@pytest.mark.parametrize("seed", one_in(4, range(16)))
def test_whether_a_join_raises_does_not_depend_on_access_paths(tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    names = dice.choice(["ab", "abc"])
    where = dice.sample(PARTS, dice.randint(1, 2)) + (dice.sample(THIRD, 1) if names == "abc" else [])
    ordinary = dice.randint(6, 12)  # the extremes come last, if at all
    rows = [
        (dice.randrange(len(names)), {"id": at, "ts": at, "n": dice.choice(longs), "i": dice.choice(ints)})
        for at in range(18)
        for longs, ints in [(LONGS, INTS) if at >= ordinary else (LONGS[:12], INTS[:9])]
    ]
    outcomes = []
    for bounded in (True, False):
        run = numbers_run(tmp_path / str(bounded), " AND ".join(where), names, bounded=bounded)
        outcomes.append(outcome(run, [rows[:ordinary], rows[ordinary:15], rows[15:]]))
    assert outcomes[0] == outcomes[1]


def outcome(run: Run, batches: list[list[tuple[int, dict[str, Any]]]]) -> Any:
    """The results, and the batch that stopped the join, if one did."""
    for at, batch in enumerate(batches):
        before = run.results.copy()
        try:
            run.step(PSP(2), batch)
        except PredicateError:
            return at, before
    return None, run.results
