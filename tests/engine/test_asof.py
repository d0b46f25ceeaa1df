"""As-of joins: random streams through the engine without Spark, compared with the oracle."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from tests.budget import search
from tests.engine.extremes import EXTREMES
from tests.engine.test_engine import ENGINE_WINDOW, ORDERINGS, SCHEMA, near, strategies_of
from tests.engine.test_optional import CONDITIONS, conditions_of, with_tables
from watersmeet.engine.asof import Newest
from watersmeet.engine.operator import Operator
from watersmeet.engine.plan import GIVEN
from watersmeet.errors import PredicateError
from watersmeet.limits import limited
from watersmeet.model import windows
from watersmeet.model.asof import AsOf, within_tolerance
from watersmeet.model.outer import check_outer, hows, windowed
from watersmeet.model.query import Query, StreamSpec
from watersmeet.placement import PSP, Hash
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.state.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

asked = st.builds(oracle.AsOf, st.one_of(st.none(), st.integers(0, 12)), st.booleans())
timed = st.one_of(
    st.integers(1, 12).map(oracle.Sliding),
    st.tuples(st.integers(1, 12), st.integers(1, 12)).map(lambda pair: oracle.Hopping(*pair)),
)
windows_of = st.one_of(timed, st.just(oracle.Unbounded()))
any_condition = st.sampled_from(["", *CONDITIONS])
key_condition = st.sampled_from(["{0}.k = {1}.k", "{0}.x = {1}.x", "{0}.k = {1}.k AND {0}.x = {1}.x"])


@st.composite
def cases(draw: st.DrawFn, condition: Any = any_condition) -> dict[str, Any]:
    """Two or three streams, of which at least one is asked for its newest tuples; another may be optional, too."""
    m = draw(st.integers(2, 3))
    names = "abc"[:m]
    kinds = {"a": "inner", "b": draw(asked)}
    beside = draw(st.sampled_from(["inner", "inner", "asof", "left", "semi", "anti"]))
    kinds |= {"c": draw(asked) if beside == "asof" else beside} if m == 3 else {}
    others = beside in ("left", "semi", "anti") and m == 3
    streams = [
        oracle.Stream(
            name,
            oracle.Unbounded()
            if isinstance(kinds[name], oracle.AsOf) and kinds[name].tolerance is not None
            else draw(timed if others and name == "a" else windows_of),
            draw(st.integers(0, 15)),
        )
        for name in names
    ]
    ties = {name: ("a", draw(condition)) for name in names[1:]}
    row = st.tuples(
        st.sampled_from(names),
        st.integers(0, 40),
        st.one_of(st.integers(0, 3).map(float), st.none()),
        st.sampled_from(["p", "q", None]),
    )
    batches = draw(st.lists(st.lists(row, max_size={2: 24, 3: 16}[m]), min_size=1, max_size=6))
    pace = draw(st.sampled_from([1, 4, 8]))  # out of order, or with many of the same time
    if pace > 1:
        batches = [[(n, 8 * b + t // pace, x, k) for n, t, x, k in rows] for b, rows in enumerate(batches)]
    return {
        "streams": streams,
        "how": kinds,
        "ties": ties,
        "batches": batches,
        "twins": draw(st.booleans()),
        "exchanges": [draw(st.sampled_from(["local", "shuffle"])) for _ in batches],
        "strategies": [draw(strategies_of) for _ in batches],
        "orderings": [draw(st.sampled_from(ORDERINGS)) for _ in batches],
        "limits": [draw(st.sampled_from(EXTREMES)) for _ in batches],
        "purge_every": draw(st.sampled_from([1, 1, 3])),
    }


def query_of(case: dict[str, Any]) -> Query:
    """Return the join as a user's definition becomes one: tolerances and as-of streams give windows."""
    streams = tuple(
        StreamSpec(s.name, SCHEMA, 1, ENGINE_WINDOW[type(s.window)](s.window), s.delay, table=s.table)
        for s in case["streams"]
    )
    text = " AND ".join(text.format(other, name) for name, (other, text) in case["ties"].items() if text)
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (near,), Dialect())
    how: dict[str, Any] = {
        name: AsOf(kind.tolerance, kind.left) if isinstance(kind, oracle.AsOf) else kind
        for name, kind in case["how"].items()
    }
    made = Query(within_tolerance(streams, how), conjuncts, text, (), (near,), how=hows(how, streams))
    check_outer(windowed(made), streaming=True, spilling=False)
    return windowed(made)


def rows_of(case: dict[str, Any]) -> list[list[tuple[int, dict[str, Any]]]]:
    """Return the rows of each batch, with the positions of their streams."""
    names, number, batches = list(case["how"]), 0, []
    for rows in case["batches"]:
        made = []
        for name, ts, x, k in rows:
            made.append((names.index(name), {"id": 0 if case["twins"] else number, "ts": ts, "x": x, "k": k}))
            number += 1
        batches.append(made)
    return batches


def wanted_of(case: dict[str, Any], *, ended: bool = False) -> oracle.Outcome:
    where, optional, on = conditions_of(case)
    names = list(case["how"])
    arrivals = [
        oracle.Arrival(at, names[stream], row["ts"], content_key(row), row)
        for at, rows in enumerate(rows_of(case))
        for stream, row in rows
    ]
    return oracle.join(case["streams"], arrivals, where, how=optional, on=on, ended=ended)


def run_case(case: dict[str, Any], folder: str) -> Run:
    run = Run(query_of(case), Store(folder), purge_every=case.get("purge_every", 1))
    for at, rows in enumerate(rows_of(case)):
        with limited(**case["limits"][at]):
            run.step(case["strategies"][at], rows, case["exchanges"][at], case["orderings"][at] or GIVEN)
    return run


def plain_case(kind: oracle.AsOf, batches: list[Any], *, strategy: Any = None, twins: bool = False) -> dict[str, Any]:
    """Two streams without windows, of which b is asked for its newest tuple of the same key."""
    count = len(batches)
    return {
        "streams": [oracle.Stream(name, oracle.Unbounded(), 2) for name in "ab"],
        "how": {"a": "inner", "b": kind},
        "ties": {"b": ("a", "{0}.k = {1}.k")},
        "batches": batches,
        "twins": twins,
        "exchanges": ["shuffle"] * count,
        "strategies": [strategy or PSP(2)] * count,
        "orderings": [None] * count,
        "limits": [{}] * count,
    }


def END(at: int = 90) -> list[Any]:
    return [(name, at, 1.0, name) for name in "abc"]


TIES = [[("b", 5, x, "p") for x in (1.0, 2.0, 3.0)], [("a", 5, 1.0, "p"), ("b", 5, 4.0, "p")], END()[:2]]


@search(60)
@given(case=cases())
@example(plain_case(oracle.AsOf(), TIES))
@example(plain_case(oracle.AsOf(), TIES[::-1], strategy=Hash(3), twins=True))
def test_the_engine_gives_the_oracles_results(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder), wanted_of(case)
        assert run.results == wanted.results
        assert sum(p["lateRows"] for p in run.progress) == len(wanted.late)


@st.composite
def steady(draw: st.DrawFn) -> dict[str, Any]:
    """Cases in which time goes on from batch to batch and much meets: windows end, tuples are superseded."""
    beside = draw(st.sampled_from(["inner", "asof", "left", "semi", "anti", None]))
    kinds = {"a": "inner", "b": draw(asked)} | ({} if beside is None else {"c": beside})
    kinds |= {"c": draw(asked)} if beside == "asof" else {}
    size = st.integers(3, 8)
    window = st.one_of(size.map(oracle.Sliding), size.map(lambda size: oracle.Hopping(size, size)))
    streams = [
        oracle.Stream(name, oracle.Unbounded() if isinstance(kind, oracle.AsOf) else draw(window), 2)
        for name, kind in kinds.items()
    ]
    row = st.tuples(
        st.sampled_from([*kinds]), st.integers(-1, 5), st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from(["p", "q"])
    )
    batches = draw(st.lists(st.lists(row, min_size=6, max_size=10), min_size=4, max_size=8))
    nodes = st.integers(1, 4)
    count = len(batches)
    return {
        "streams": streams,
        "how": kinds,
        "ties": {name: ("a", draw(key_condition)) for name in [*kinds][1:]},
        "batches": [[(n, 4 * b + t, x, k) for n, t, x, k in rows] for b, rows in enumerate(batches)],
        "twins": draw(st.booleans()),
        "exchanges": [draw(st.sampled_from(["local", "shuffle"])) for _ in batches],
        "strategies": [draw(st.one_of(nodes.map(PSP), nodes.map(Hash), nodes.map(Hash))) for _ in batches],
        "orderings": [None] * count,
        "limits": [draw(st.sampled_from([{}, {"merged_chunks": 2, "tier_rows": 1}])) for _ in batches],
        "purge_every": draw(st.sampled_from([1, 1, 3])),
    }


@search(40)
@given(case=steady())
def test_state_that_is_still_needed_stays(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        assert run_case(case, folder).results == wanted_of(case).results
