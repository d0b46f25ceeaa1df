"""What why says of a condition that fails: the values that it compares, and never such as contradict the answer."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.observe.why.answer import Check
from watersmeet.observe.why.join_state import JoinState
from watersmeet.observe.why.question import parse_question
from watersmeet.observe.why.state_evidence import StateEvidence
from watersmeet.observe.why.why_pair import answer_question
from watersmeet.placement import PSP
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.predicate.python import predicate
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

DUCK = Duck(Dialect())
SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("n", pa.int32())),
        *(("k", pa.string()), ("lat", pa.float64()), ("lon", pa.float64())),
    ]
)
HAVERSINE = (
    "2 * 6371 * asin(sqrt(pow(sin(radians(b.lat - a.lat) / 2), 2) + "
    "cos(radians(a.lat)) * cos(radians(b.lat)) * pow(sin(radians(b.lon - a.lon) / 2), 2))) < 0.2"
)
A: dict[str, Any] = {"id": 1, "ts": 1_000_000, "x": 30.0, "n": 6, "k": "Ada", "lat": 52.5, "lon": 13.4}
B: dict[str, Any] = {"id": 2, "ts": 8_000_000, "x": 11.5, "n": 3, "k": "bob", "lat": 52.502, "lon": 13.401}


@predicate(form="pair")
def close(x: float, y: float) -> bool:
    return abs(x - y) < 3


def check(
    folder: Path, where: str, a: dict[str, Any] | None = None, b: dict[str, Any] | None = None, size: int = 10**8
) -> Check:
    """What why says of the only conjunct."""
    streams = tuple(StreamSpec(name, SCHEMA, 1, Sliding(size), 100) for name in "ab")
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (close,), Dialect())
    query = Query(streams, conjuncts, where, (), (close,))
    run = Run(query, Store(str(folder)))
    run.step(PSP(1), [(0, A | (a or {})), (1, B | (b or {}))])
    assert run.state is not None
    question = parse_question(query, {"a": {"id": 1}, "b": {"id": 2}}, DUCK)
    (combination,) = answer_question(
        StateEvidence(JoinState(query, run.store, run.state), DUCK, float), question
    ).combinations
    (tests,) = (test for test in combination.tests if test.kind == "conjunct")
    return tests


@pytest.mark.parametrize(
    ("where", "says"),
    [
        (HAVERSINE, ": 2 * 6371 * asin(sqrt(…)) = 0.232463, and it must be < 0.2"),
        ("abs(a.x - b.x) < 2", ": abs(a.x - b.x) = 18.5, and it must be < 2 (a.x = 30.0, b.x = 11.5)"),
        ("2 >= abs(a.x - b.x)", ": abs(a.x - b.x) = 18.5, and it must be <= 2 (a.x = 30.0, b.x = 11.5)"),
        ("a.x < b.x + 1", ": a.x = 30.0, and it must be < b.x + 1 = 12.5 (b.x = 11.5)"),
        ("NOT (a.x >= b.x * 2)", ": a.x = 30.0, and it must be < b.x * 2 = 23.0 (b.x = 11.5)"),
        ("a.n + b.n = 5 * 2", ": a.n + b.n = 9, and it must equal 5 * 2 = 10 (a.n = 6, b.n = 3)"),
        ("a.n + b.n <> 9", ": a.n + b.n = 9, and it must differ from 9 (a.n = 6, b.n = 3)"),
        (
            "a.x BETWEEN b.x - 1 AND b.x + 2",
            ": a.x = 30.0, and it must lie between b.x - 1 = 10.5 and b.x + 2 = 13.5 (b.x = 11.5)",
        ),
        (
            "exp(b.n - a.n) BETWEEN 1 AND b.n",
            ": exp(b.n - a.n) = 0.0497871, and it must lie between 1 and b.n = 3 (a.n = 6)",
        ),
        (
            "b.ts - a.ts < INTERVAL 5 SECONDS",
            ": b.ts - a.ts = 7 seconds, and it must be < INTERVAL '5' SECONDS (a.ts = ",
        ),
        ("lower(a.k) = b.k", ": lower(a.k) = 'ada', and it must equal b.k = 'bob' (a.k = 'Ada')"),
        ("a.x < b.x", " (a.x = 30.0, b.x = 11.5)"),
        ("a.k = b.k", " (a.k = 'Ada', b.k = 'bob')"),
        ("close(a.x + 1, b.x)", " (a.x + 1 = 31.0, b.x = 11.5, a.x = 30.0)"),
        ("abs(a.x - b.x) < 2 OR a.n = b.n", " (abs(a.x - b.x) = 18.5, a.n = 6, b.n = 3, a.x = 30.0, b.x = 11.5)"),
        ("startswith(upper(a.k), b.k)", " (upper(a.k) = 'ADA', b.k = 'bob', a.k = 'Ada')"),
        ("a.n / b.n > 2", ": a.n / b.n = 2.0, and it must be > 2 (a.n = 6, b.n = 3)"),
    ],
)
def test_the_values_that_are_compared(tmp_path: Path, where: str, says: str) -> None:
    tests = check(tmp_path, where)
    assert tests.name == where and tests.holds == "FALSE"
    assert "is FALSE" + says in tests.message
    assert where == HAVERSINE or tests.message.startswith(f"`{where}`")


def test_programs_see_them_too(tmp_path: Path) -> None:
    tests = check(tmp_path, "abs(a.x - b.x) < 2")
    assert tests.values == {"abs(a.x - b.x)": 18.5, "a.x": 30.0, "b.x": 11.5}
    distance, lat = HAVERSINE.removesuffix(" < 0.2"), check(tmp_path / "near", HAVERSINE).values
    assert lat[distance] == pytest.approx(0.2324633) and lat["a.lat"] == 52.5


def test_null(tmp_path: Path) -> None:
    rest = ", and it must be < 2 (a.x = NULL, b.x = 11.5)"
    tests = check(tmp_path, "abs(a.x - b.x) < 2", {"x": None})
    assert tests.message == f"`abs(a.x - b.x) < 2` is NULL: abs(a.x - b.x) = NULL{rest}"
    near = check(tmp_path / "near", "exp(a.x - b.x) < 2", {"x": None})
    assert near.message == f"`exp(a.x - b.x) < 2` is NULL: exp(a.x - b.x) = NULL{rest}"


def test_what_raises_is_not_shown(tmp_path: Path) -> None:
    tests = check(tmp_path, "a.n / b.n > 2", b={"n": 0}, size=1)  # windows keep them apart, or the join would stop
    assert tests.holds == "raises" and tests.values == {"a.n": 6, "b.n": 0}


@pytest.mark.parametrize(
    ("over", "shown"),
    [(1e-3, "1.001"), (1e-7, "1.0000001"), (1e-12, "1.000000000001"), (0.0, "1, but for the last digits")],
)
def test_as_many_digits_as_it_takes(tmp_path: Path, over: float, shown: str) -> None:
    """The value of exp is known but for its last bits; it is never shown such that it would pass."""
    tests = check(tmp_path, "exp(a.x - b.x) < 1", {"x": 1 + float(np.log1p(over))}, {"x": 1.0})
    assert f"exp(a.x - b.x) = {shown}, and it must be < 1 " in tests.message
