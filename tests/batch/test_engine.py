"""Random streams through the engine without Spark, compared with the oracle."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from tests.batch.extremes import ALWAYS_SCAN, EXTREMES, NEVER_SCAN
from tests.batch.scatter import Scatter, ScatterOrdering
from tests.budget import search
from watersmeet.adapt.auto import Auto
from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.limits import limited
from watersmeet.ordering import Histogram, Selectivity
from watersmeet.placement import ATR, CTR, DSJ, PSP, Central, Hash, Strategy
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.predicate.python import predicate
from watersmeet.query import windows
from watersmeet.query.query import Output, Query, StreamSpec
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Rows, Run, content_key

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("k", pa.string())])


@predicate
def near(x: float, ys: Any) -> Any:
    return abs(ys - x) < 3


@predicate(form="pair", nulls=True)
def both_null(x: float | None, y: float | None) -> bool | None:
    return x is None and y is None


@predicate(form="matrix")
def matrix_less(xs: Any, ys: Any) -> Any:
    return xs[:, None] < ys[None, :]


def _num(op: Any) -> Any:
    def compare(*values: float | None) -> bool | None:
        return None if any(value is None for value in values) else op(*values)

    return compare


def _and(*parts: bool | None) -> bool | None:
    return False if False in parts else None if None in parts else True


_lt, _band = _num(lambda a, b: a < b), _num(lambda a, b: abs(a - b) < 3)
_eq, _sum = _num(lambda a, b: a == b), _num(lambda a, b, c: a + b > c)
_begins, _not_below = _num(str.startswith), _num(lambda a, b: a >= b)

# Each predicate twice: for the engine as text, for the oracle as Python. Values are small integers, where both agree.
PREDICATES: dict[str, Any] = {
    "": lambda r: True,
    "abs(a.x - b.x) < 3": lambda r: _band(r["a"]["x"], r["b"]["x"]),
    "a.x < b.x": lambda r: _lt(r["a"]["x"], r["b"]["x"]),
    "a.k = b.k": lambda r: _eq(r["a"]["k"], r["b"]["k"]),
    "a.k = b.k AND a.x = b.x": lambda r: _and(_eq(r["a"]["k"], r["b"]["k"]), _eq(r["a"]["x"], r["b"]["x"])),
    "a.x = b.x OR a.k = b.k": lambda r: (
        True
        if True in (_eq(r["a"]["x"], r["b"]["x"]), _eq(r["a"]["k"], r["b"]["k"]))
        else _and(_eq(r["a"]["x"], r["b"]["x"]), _eq(r["a"]["k"], r["b"]["k"]))
    ),
    "near(a.x, b.x)": lambda r: _band(r["a"]["x"], r["b"]["x"]),
    "near(a.x, b.x) AND a.k = b.k": lambda r: _and(_band(r["a"]["x"], r["b"]["x"]), _eq(r["a"]["k"], r["b"]["k"])),
    "NOT near(a.x, b.x) AND a.x < 5": lambda r: _and(
        None if _band(r["a"]["x"], r["b"]["x"]) is None else not _band(r["a"]["x"], r["b"]["x"]),
        _num(lambda v: v < 5)(r["a"]["x"]),
    ),
    "both_null(b.x, a.x)": lambda r: r["a"]["x"] is None and r["b"]["x"] is None,
    "matrix_less(a.x, b.x)": lambda r: _lt(r["a"]["x"], r["b"]["x"]),
    "a.k LIKE concat(b.k, '%')": lambda r: _begins(r["a"]["k"], r["b"]["k"]),
    "b.k LIKE 'p%' AND a.k >= b.k": lambda r: _and(_begins(r["b"]["k"], "p"), _not_below(r["a"]["k"], r["b"]["k"])),
    "a.x BETWEEN b.x - 1 AND b.x + 2 AND b.k <> 'p'": lambda r: _and(
        _num(lambda a, b: b - 1 <= a <= b + 2)(r["a"]["x"], r["b"]["x"]), _num(lambda k: k != "p")(r["b"]["k"])
    ),
}
THIRD: dict[str, Any] = {
    "": lambda r: True,
    "abs(b.x - c.x) < 3": lambda r: _band(r["b"]["x"], r["c"]["x"]),
    "b.x = c.x": lambda r: _eq(r["b"]["x"], r["c"]["x"]),
    "a.x + b.x > c.x": lambda r: _sum(r["a"]["x"], r["b"]["x"], r["c"]["x"]),
    "startswith(c.k, b.k)": lambda r: _begins(r["c"]["k"], r["b"]["k"]),
    "a.k = c.k AND near(b.x, c.x)": lambda r: _and(_eq(r["a"]["k"], r["c"]["k"]), _band(r["b"]["x"], r["c"]["x"])),
}

SECOND = 1_000_000
windows_of = st.one_of(
    st.integers(1, 12).map(oracle.Sliding),
    st.integers(1, 6).map(oracle.Count),
    st.builds(oracle.Hopping, st.integers(1, 12), st.integers(1, 12), st.sampled_from(get_args(windows.Closed))),
    st.just(oracle.Unbounded()),
)
ENGINE_WINDOW: dict[type, Any] = {
    oracle.Sliding: lambda w: windows.Sliding(w.size),
    oracle.Count: lambda w: windows.Count(w.rows),
    oracle.Hopping: lambda w: windows.Hopping(w.size, w.step, w.closed),
    oracle.Unbounded: lambda w: windows.Window(),
}


ORDERINGS = [GIVEN_ORDER, Selectivity(), Histogram(), ScatterOrdering()]
strategies_of: st.SearchStrategy[Strategy] = st.one_of(
    st.just(Central()),
    st.integers(1, 5).map(PSP),
    st.integers(1, 5).map(DSJ),
    st.builds(ATR, st.integers(1, 5), st.integers(1, 12).map(lambda size: timedelta(microseconds=size))),
    st.builds(CTR, st.integers(1, 5), st.integers(1, 12).map(lambda size: timedelta(microseconds=size))),
    st.integers(1, 5).map(Hash),
    st.integers(1, 5).map(Auto),
    st.builds(Scatter, st.integers(1, 5), st.integers(0, 1000)),
)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    m = draw(st.integers(2, 4))
    names = "abcd"[:m]
    specs = [oracle.Stream(name, draw(windows_of), draw(st.integers(0, 15))) for name in names]
    row = st.tuples(
        st.sampled_from(names),
        st.one_of(st.integers(0, 40), st.none() if draw(st.booleans()) else st.integers(0, 40)),
        st.one_of(st.integers(0, 8).map(float), st.none()),
        st.sampled_from(["p", "q", "pq", None]),
    )
    size = {2: 30, 3: 24, 4: 16}[m]
    batches = draw(st.lists(st.lists(row, max_size=size), min_size=1, max_size=5))
    if draw(st.booleans()):  # mostly in order: batch b around time 10 b
        batches = [
            [(n, None if t is None else 8 * b + t // 4, x, k) for n, t, x, k in rows] for b, rows in enumerate(batches)
        ]
    strategies = [draw(strategies_of) for _ in batches]
    orderings = [draw(st.sampled_from(ORDERINGS)) for _ in batches]
    where = [draw(st.sampled_from(sorted(PREDICATES))), draw(st.sampled_from(sorted(THIRD))) if m > 2 else ""]
    exchanges = [draw(st.sampled_from(["local", "shuffle"])) for _ in batches]
    return {"streams": specs, "batches": batches, "where": where, "exchanges": exchanges} | {
        "strategies": strategies,
        "orderings": orderings,
        "limits": [draw(st.sampled_from(EXTREMES)) for _ in batches],
        "near_misses": draw(st.sampled_from([0, 2])),
    }


def band_case(batches: list[Any], windows: list[int], strategies: list[Any], delay: int = 4) -> dict[str, Any]:
    """Streams with windows as given, joined by a band, each batch under a strategy of its own."""
    return {
        "streams": [oracle.Stream(name, oracle.Sliding(w), delay) for name, w in zip("abcd", windows, strict=False)],
        "batches": batches,
        "where": ["abs(a.x - b.x) < 3", "abs(b.x - c.x) < 3" if len(windows) > 2 else ""],
        "exchanges": ["shuffle"] * len(batches),
        "strategies": strategies,
        "orderings": [None] * len(batches),
    }


def prepared(case: dict[str, Any], folder: str) -> tuple[Run, list[Rows], oracle.Outcome]:
    """Return the join of a case before its first batch, the rows of its batches, and what the oracle makes of them."""
    streams = tuple(
        StreamSpec(s.name, SCHEMA, 1, ENGINE_WINDOW[type(s.window)](s.window), s.delay, ahead=s.ahead)
        for s in case["streams"]
    )
    clock: list[int] | None = case.get("clock")
    text = " AND ".join(f"({part})" if " OR " in part else part for part in case["where"] if part)
    python = (near, both_null, matrix_less)
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], python, Dialect())
    run = Run(Query(streams, conjuncts, text, (), python), Store(folder), near_misses=case.get("near_misses", 0))
    position = {s.name: at for at, s in enumerate(streams)}
    arrivals, batches, number = [], list[Rows](), 0
    for batch, rows in enumerate(case["batches"]):
        made = []
        for name, ts, x, k in rows:
            row = {"id": number, "ts": ts, "x": x, "k": k}
            number += 1
            made.append((position[name], row))
            arrivals.append(oracle.Arrival(batch, name, ts, content_key(row), row))
        batches.append(made)
    parts = [PREDICATES[case["where"][0]], THIRD[case["where"][1]]]
    clocks = None if clock is None else dict(enumerate(clock))
    wanted = oracle.join(case["streams"], arrivals, lambda r: _and(*(part(r) for part in parts)), clock=clocks)
    return run, batches, wanted


def run_case(case: dict[str, Any], folder: str) -> tuple[Run, oracle.Outcome]:
    run, batches, wanted = prepared(case, folder)
    clock: list[int] | None = case.get("clock")
    for at, rows in enumerate(batches):
        with limited(**case["limits"][at]) if "limits" in case else nullcontext():
            ordering, now = case["orderings"][at] or GIVEN_ORDER, clock[at] if clock else None
            run.step(case["strategies"][at], rows, case["exchanges"][at], ordering, now)
    return run, wanted


def assert_alike(run: Run, wanted: oracle.Outcome) -> None:
    """Assert that results, late and rejected rows and watermarks are the oracle's."""
    assert run.results == wanted.results
    assert sum(p["lateRows"] for p in run.progress) == len(wanted.late)
    assert sum(p["rejectedRows"] for p in run.progress) == len(wanted.rejected)
    for p in run.progress:
        assert p["watermark"] == wanted.watermarks.get(p["batchId"], p["watermark"])


@search(80)
@given(case=cases())
def test_the_engine_gives_the_oracles_results(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert_alike(run, wanted)
        for p in run.progress:
            if not any(isinstance(strategy, Scatter | Hash | ATR | CTR | Auto) for strategy in case["strategies"]):
                assert p["stateRows"] == p["distinctRows"]  # PSP, DSJ and Central keep one copy of a tuple


@search(20)
@given(case=cases(), start=st.sampled_from([windows.NEVER, windows.NEVER // 4 - 20, windows.FOREVER - 80]))
def test_event_times_are_any_that_a_timestamp_holds(case: dict[str, Any], start: int) -> None:
    moved = [[(n, None if t is None else start + t, x, k) for n, t, x, k in rows] for rows in case["batches"]]
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case | {"batches": moved, "limits": [{}] * len(moved)}, folder)
        assert run.results == wanted.results
        assert sum(p["lateRows"] for p in run.progress) == len(wanted.late)


@st.composite
def with_clock(draw: st.DrawFn) -> dict[str, Any]:
    """Cases with a clock that may lag behind, and some rows from far ahead."""
    case = draw(cases())
    far = st.one_of(st.integers(0, 60), st.sampled_from([10**17, windows.FOREVER]))
    bad = st.tuples(st.sampled_from([s.name for s in case["streams"]]), far, st.just(1.0), st.just("p"))
    ahead = st.one_of(st.none(), st.integers(0, 30))
    return case | {
        "streams": [replace(s, ahead=draw(ahead)) for s in case["streams"]],
        "batches": [[*rows, *draw(st.lists(bad, max_size=3))] for rows in case["batches"]],
        "clock": [draw(st.integers(0, 40)) for _ in case["batches"]],
        "limits": [{}] * len(case["batches"]),
    }


@pytest.mark.long
@search(50)
@given(case=with_clock())
def test_event_times_too_far_ahead_are_rejected(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert_alike(run, wanted)


def test_a_believed_row_from_the_end_of_time_breaks_no_ring(tmp_path: Path) -> None:
    rows = [[("a", 0, 1.0, "p"), ("a", 2, 1.0, "p")], [], [("a", windows.FOREVER, 1.0, "p")], [("b", 1, 1.0, "p")]]
    case = band_case(rows, [1, 1], [Central(), Central(), PSP(4), PSP(1)])
    assert_alike(*run_case(case, str(tmp_path)))


def test_a_row_from_the_year_9999_in_each_stream_makes_none_late(tmp_path: Path) -> None:
    rows = [[(n, 10 * b + t, float(t % 3), "p") for n in "ab" for t in range(8)] for b in range(6)]
    garbage = [(name, 253_402_300_000_000_000, 1.0, "p") for name in "ab"]
    case = band_case(rows, [9, 9], [PSP(2)] * 6)
    case |= {"streams": [replace(s, ahead=86_400_000_000) for s in case["streams"]], "clock": [100] * 6}
    dirty = case | {"batches": [*rows[:2], rows[2] + garbage, *rows[3:]]}
    run, wanted = run_case(case, str(tmp_path / "clean"))
    found, _ = run_case(dirty, str(tmp_path / "dirty"))
    assert found.results.total() == run.results.total() == wanted.results.total() > 100
    assert [p["rejectedRows"] for p in found.progress] == [0, 0, 2, 0, 0, 0]
    assert [p["watermark"] for p in found.progress] == [p["watermark"] for p in run.progress]
    believing = dirty | {"streams": [replace(s, ahead=None) for s in case["streams"]]}
    lost, _ = run_case(believing, str(tmp_path / "believing"))
    assert sum(p["lateRows"] for p in lost.progress) == 3 * 16


EQUAL = ["a.k = b.k", "a.k = b.k AND a.x = b.x", "near(a.x, b.x)"]


@st.composite
def scattered(draw: st.DrawFn) -> dict[str, Any]:
    """Cases in which many results meet, under placements and orders by dice alone."""
    row = st.tuples(
        st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 3).map(float), st.sampled_from(["p", "q"])
    )
    batches = draw(st.lists(st.lists(row, min_size=8, max_size=24), min_size=2, max_size=4))
    dice = st.builds(Scatter, st.integers(2, 5), st.integers(0, 10_000))
    strategy = st.one_of(dice, dice, dice, st.integers(1, 4).map(Hash))
    return {
        "streams": [oracle.Stream(name, draw(st.one_of(windows_of, st.just(oracle.Sliding(9)))), 10) for name in "abc"],
        "batches": batches,
        "where": [draw(st.sampled_from(EQUAL)), draw(st.sampled_from(["b.x = c.x", ""]))],
        "exchanges": [draw(st.sampled_from(["local", "shuffle", "shuffle"])) for _ in batches],
        "strategies": [draw(strategy) for _ in batches],
        "orderings": [draw(st.sampled_from(ORDERINGS)) for _ in batches],
        "limits": [draw(st.sampled_from([{}, {}, ALWAYS_SCAN, NEVER_SCAN])) for _ in batches],
    }


@pytest.mark.long
@search(15)
@given(case=scattered())
def test_no_placement_and_no_order_changes_the_results(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert run.results == wanted.results


@pytest.mark.parametrize("exchange", ["local", "shuffle"])
def test_columns_that_only_predicates_read_reach_them(tmp_path: Any, exchange: str) -> None:
    streams = tuple(StreamSpec(name, SCHEMA, 1, windows.Sliding(1000), 0) for name in "abc")
    text = "near(a.x, b.x) AND a.k = c.k AND near(b.x, c.x) AND 1 / (a.x + c.x + 1) > 0"
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (near,), Dialect())
    shown = tuple(Output(s.name, Column(at, 0)) for at, s in enumerate(streams))
    run = Run(Query(streams, conjuncts, text, shown, (near,)), Store(str(tmp_path)))
    made: list[tuple[int, dict[str, Any]]] = [
        (at % 3, {"id": at, "ts": at, "x": float(at % 7), "k": "pq"[at % 2]}) for at in range(60)
    ]
    run.step(PSP(3), made[:40], exchange)
    run.step(PSP(2), made[40:], exchange)
    rows = [row for _, row in made]
    wanted = sum(
        abs(a["x"] - b["x"]) < 3 and a["k"] == c["k"] and abs(b["x"] - c["x"]) < 3
        for a in rows[0::3]
        for b in rows[1::3]
        for c in rows[2::3]
    )
    assert sum(p["outputRows"] for p in run.progress) == wanted > 0
