"""A conjunct that may raise never runs before its guard, wherever the guard is decided."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine import Run
from watersmeet.errors import PredicateError
from watersmeet.kernel.window import Sliding
from watersmeet.placement import PSP, Central, Strategy
from watersmeet.predicate.model import Dialect, PythonPredicate
from watersmeet.predicate.parse import parse_where
from watersmeet.query import Query, StreamSpec
from watersmeet.state.store import Store

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


def test_an_access_path_that_raises_leaves_the_error_to_its_conjunct(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a.k = lower(b.k) AND 1 / a.x > 0")
    with pytest.raises(PredicateError, match=r"`a.k = lower\(b.k\)` raised .*NOT_CARRIED_OVER.* b.k = 'Σ'"):
        run.step(Central(), [*ROWS, (1, {"id": 4, "ts": 2, "x": 5, "k": "Σ"})])


def test_without_a_guard_the_error_names_conjunct_and_values(tmp_path: Path) -> None:
    run = run_of(tmp_path, "1 / (a.x - b.x) > 0")
    with pytest.raises(PredicateError) as caught:
        run.step(Central(), ROWS)
    assert "`1 / (a.x - b.x) > 0` raised" in str(caught.value)
    assert "DIVIDE_BY_ZERO" in str(caught.value)
    assert "a.x = 5 (int32), b.x = 5 (int32)" in str(caught.value)


def test_a_python_predicate_is_not_given_what_is_not_to_be_trusted(tmp_path: Path) -> None:
    same = PythonPredicate("same", lambda one, two: one == two, "pair")
    streams = tuple(StreamSpec(name, SCHEMA, 1, Sliding(1000), 0) for name in "ab")
    where = "same(lower(a.k), b.k)"
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (same,), Dialect())
    query = Query(streams, conjuncts, where, predicates=(same,))
    plain = Run(query, Store(str(tmp_path / "plain")))
    plain.step(Central(), ROWS[:3])
    assert set(plain.results) == {((0, 2), 2)}
    strange = Run(query, Store(str(tmp_path / "strange")))
    with pytest.raises(PredicateError, match="NOT_CARRIED_OVER"):
        strange.step(Central(), [*ROWS[:3], (0, {"id": 4, "ts": 2, "x": 5, "k": "Σ"})])
