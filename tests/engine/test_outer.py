"""Left, semi and anti joins: random streams through the engine without Spark, compared with the oracle."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from tests.budget import search
from tests.engine.extremes import EXTREMES
from tests.engine.test_engine import ENGINE_WINDOW, ORDERINGS, SCHEMA, _and, _band, _eq, _lt, near, strategies_of
from watersmeet.engine.plan import GIVEN
from watersmeet.limits import limited
from watersmeet.model.query import Query, StreamSpec
from watersmeet.placement import PSP, Hash
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.state.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

CONDITIONS: dict[str, Any] = {
    "{0}.k = {1}.k": lambda a, b: _eq(a["k"], b["k"]),
    "{0}.x = {1}.x": lambda a, b: _eq(a["x"], b["x"]),
    "abs({0}.x - {1}.x) < 3": lambda a, b: _band(a["x"], b["x"]),
    "{0}.x < {1}.x": lambda a, b: _lt(a["x"], b["x"]),
    "near({0}.x, {1}.x)": lambda a, b: _band(a["x"], b["x"]),
    "{0}.k = {1}.k AND {0}.x = {1}.x": lambda a, b: _and(_eq(a["k"], b["k"]), _eq(a["x"], b["x"])),
    "{0}.k = {1}.k AND {1}.x < 5": lambda a, b: _and(_eq(a["k"], b["k"]), _lt(b["x"], 5)),
}
"""What a stream is matched by with an earlier required one, for the engine and for the oracle."""
timed = st.one_of(
    st.integers(1, 12).map(oracle.Sliding),
    st.tuples(st.integers(1, 12), st.integers(1, 12)).map(lambda pair: oracle.Hopping(*pair)),
)
windows_of = st.one_of(timed, timed, timed, st.just(oracle.Unbounded()))


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    m = draw(st.integers(2, 4))
    names = "abcd"[:m]
    hows = draw(st.lists(st.sampled_from(["inner", "left", "semi", "anti"]), min_size=m, max_size=m))
    first = draw(st.integers(0, m - 1))
    hows[first] = "inner"
    if set(hows) == {"inner"}:
        hows[first - 1] = draw(st.sampled_from(["left", "semi", "anti"]))
    streams = [
        oracle.Stream(name, draw(timed if at == first else windows_of), draw(st.integers(0, 15)))
        for at, name in enumerate(names)
    ]
    order = sorted(range(m), key=lambda at: (hows[at] != "inner", at != first))  # each is tied to a required one before
    ties = {
        names[at]: (names[draw(st.sampled_from(order[: min(place, hows.count("inner"))]))], draw(_conditions))
        for place, at in enumerate(order)
        if place
    }
    row = st.tuples(
        st.sampled_from(names),
        st.integers(0, 40),
        st.one_of(st.integers(0, 5).map(float), st.none()),
        st.sampled_from(["p", "q", None]),
    )
    batches = draw(st.lists(st.lists(row, max_size={2: 24, 3: 18, 4: 14}[m]), min_size=1, max_size=5))
    if draw(st.booleans()):  # mostly in order
        batches = [[(n, 8 * b + t // 4, x, k) for n, t, x, k in rows] for b, rows in enumerate(batches)]
    return {
        "streams": streams,
        "how": dict(zip(names, hows, strict=True)),
        "ties": ties,
        "batches": batches,
        "twins": draw(st.booleans()),
        "exchanges": [draw(st.sampled_from(["local", "shuffle"])) for _ in batches],
        "strategies": [draw(strategies_of) for _ in batches],
        "orderings": [draw(st.sampled_from(ORDERINGS)) for _ in batches],
        "limits": [draw(st.sampled_from(EXTREMES)) for _ in batches],
    }


@st.composite
def steady(draw: st.DrawFn) -> dict[str, Any]:
    """Cases in which time goes on from batch to batch and much meets: windows end, state leaves."""
    hows = draw(st.sampled_from([("inner", h, "inner") for h in HOWS] + [("inner", "left", h) for h in HOWS]))
    size = st.integers(3, 8)
    window = st.one_of(size.map(oracle.Sliding), size.map(lambda size: oracle.Hopping(size, size)))
    streams = [oracle.Stream(name, draw(window), 2) for name in "abc"]
    row = st.tuples(
        st.sampled_from("abc"), st.integers(-1, 5), st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from(["p", "p", "q"])
    )
    batches = draw(st.lists(st.lists(row, min_size=6, max_size=10), min_size=4, max_size=7))
    tie = st.sampled_from(["{0}.k = {1}.k", "{0}.x = {1}.x", "{0}.k = {1}.k AND {0}.x = {1}.x"])
    nodes = st.integers(1, 4)
    return {
        "streams": streams,
        "how": dict(zip("abc", hows, strict=True)),
        "ties": {"b": ("a", draw(tie)), "c": ("a", draw(tie))},
        "batches": [[(n, 4 * b + t, x, k) for n, t, x, k in rows] for b, rows in enumerate(batches)],
        "twins": draw(st.booleans()),
        "exchanges": [draw(st.sampled_from(["local", "shuffle"])) for _ in batches],
        "strategies": [draw(st.one_of(nodes.map(PSP), nodes.map(Hash), nodes.map(Hash))) for _ in batches],
        "orderings": [None] * len(batches),
        "limits": [{}] * len(batches),
    }


HOWS = ("left", "semi", "anti")
_conditions = st.one_of(st.just(""), *[st.just(text) for text in CONDITIONS])


def query_of(case: dict[str, Any]) -> Query:
    streams = tuple(
        StreamSpec(s.name, SCHEMA, 1, ENGINE_WINDOW[type(s.window)](s.window), s.delay) for s in case["streams"]
    )
    text = " AND ".join(text.format(other, name) for name, (other, text) in case["ties"].items() if text)
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (near,), Dialect())
    return Query(streams, conjuncts, text, (), (near,), how=tuple(case["how"].values()))


def wanted_of(case: dict[str, Any], arrivals: list[oracle.Arrival]) -> oracle.Outcome:
    optional: Any = {name: how for name, how in case["how"].items() if how != "inner"}

    def holds(name: str) -> Any:
        other, text = case["ties"].get(name, ("", ""))
        return lambda rows: True if not text else CONDITIONS[text](rows[other], rows[name])

    def where(rows: Any) -> bool | None:
        return _and(*(holds(name)(rows) for name in rows))

    on = {name: holds(name) for name in optional}
    return oracle.join(case["streams"], arrivals, where, how=optional, on=on)


def run_case(case: dict[str, Any], folder: str) -> tuple[Run, oracle.Outcome]:
    run, names, arrivals, number = Run(query_of(case), Store(folder)), list(case["how"]), [], 0
    for at, rows in enumerate(case["batches"]):
        made = []
        for name, ts, x, k in rows:
            row = {"id": 0 if case["twins"] else number, "ts": ts, "x": x, "k": k}
            number += 1
            made.append((names.index(name), row))
            arrivals.append(oracle.Arrival(at, name, ts, content_key(row), row))
        with limited(**case["limits"][at]):
            run.step(case["strategies"][at], made, case["exchanges"][at], case["orderings"][at] or GIVEN)
    return run, wanted_of(case, arrivals)


def plain_case(how: str, batches: list[Any], *, twins: bool = False, strategy: Any = None) -> dict[str, Any]:
    """Two streams, of which b is optional, tied by their keys."""
    count = len(batches)
    return {
        "streams": [oracle.Stream(name, oracle.Sliding(10), 2) for name in "ab"],
        "how": {"a": "inner", "b": how},
        "ties": {"b": ("a", "{0}.k = {1}.k")},
        "batches": batches,
        "twins": twins,
        "exchanges": ["shuffle"] * count,
        "strategies": [strategy or PSP(2)] * count,
        "orderings": [None] * count,
        "limits": [{}] * count,
    }


TWINS = [[("b", 5, 1.0, "p")] * 3 + [("a", 5, 1.0, "p")] * 2, [("b", 6, 1.0, "p")] * 2, [("a", 7, 1.0, "p")]]


@search(40)
@given(case=steady())
def test_state_that_is_still_needed_stays(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert run.results == wanted.results


@search(60)
@given(case=cases())
@example(plain_case("semi", TWINS, twins=True))
@example(plain_case("semi", TWINS[::-1], twins=True, strategy=Hash(3)))
@example(plain_case("left", [*TWINS, [("a", 90, 1.0, "p"), ("b", 90, 1.0, "q")]], twins=True))
def test_the_engine_gives_the_oracles_results(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert run.results == wanted.results
        assert sum(p["lateRows"] for p in run.progress) == len(wanted.late)


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_state_leaves_when_nothing_can_be_decided_by_it(tmp_path: Path, how: str) -> None:
    rows = [[(n, 20 * b + t, float(t % 3), "pq"[t % 2]) for n in "ab" for t in range(20)] for b in range(12)]
    run, wanted = run_case(plain_case(how, rows), str(tmp_path))
    assert run.results == wanted.results
    kept = [p["distinctRows"] for p in run.progress]
    assert max(kept[4:]) <= kept[3] + 40


@pytest.mark.parametrize("how", ["left", "anti"])
@pytest.mark.parametrize("second", [oracle.Sliding(5), oracle.Hopping(6, 6), oracle.Sliding(6)])
def test_members_that_expire_together_find_their_combination_once(
    tmp_path: Path, how: str, second: oracle.Window
) -> None:
    case = plain_case(how, [[("a", 1, 1.0, "p"), ("c", 1, 1.0, "p"), ("c", 2, 1.0, "p")], END])
    streams = [oracle.Stream("a", oracle.Sliding(6), 0), case["streams"][1], oracle.Stream("c", second, 0)]
    case |= {"streams": streams, "how": {"a": "inner", "b": how, "c": "inner"}}
    run, wanted = run_case(case, str(tmp_path))
    assert run.results == wanted.results == {((0, None, 1), 1): 1, ((0, None, 2), 2): 1}


END = [("a", 90, 1.0, "a"), ("b", 90, 1.0, "b"), ("c", 90, 1.0, "c")]


def test_a_stream_that_falls_idle_lets_the_next_batch_close_more(tmp_path: Path) -> None:
    """Tasks don't know which streams are idle: they close what the watermark before the batch shows, in any case."""
    query = query_of(plain_case("anti", []))
    query = replace(query, streams=(query.streams[0], replace(query.streams[1], idle=5)))
    run = Run(query, Store(str(tmp_path)))
    told = []
    for now, rows in enumerate([[(0, 1), (1, 0)], [(0, 30)], [(0, 31)], [(0, 32)]]):
        made = [(at, {"id": ts, "ts": ts, "x": 1.0, "k": "pq"[at]}) for at, ts in rows]
        run.step(PSP(2), made, now=10 * now)
        told.append((run.progress[-1]["watermark"], run.progress[-1]["settled"], dict(run.results)))
    assert told[1:] == [(28, -2, {}), (29, 28, {((1, None), 1): 1}), (30, 29, {((1, None), 1): 1})]


def test_what_lacks_a_key_has_no_partner(tmp_path: Path) -> None:
    rows = [("a", 1, 1.0, None), ("b", 1, 1.0, None)]
    run, wanted = run_case(plain_case("left", [rows, END[:2]]), str(tmp_path))
    assert run.results == wanted.results == {((0, None), 1): 1}
