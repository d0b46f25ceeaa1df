"""As-of joins: random streams through the engine without Spark, compared with the oracle."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given

from tests.batch import test_optional
from tests.batch.extremes import EXTREMES
from tests.batch.test_engine import ORDERINGS, SCHEMA, strategies_of
from tests.batch.test_optional import CONDITIONS, conditions_of, with_tables
from tests.budget import one_in, search
from watersmeet.batch.operator import Operator
from watersmeet.batch.outer_joins import Newest
from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.errors import PredicateError
from watersmeet.limits import limited
from watersmeet.metadata.expiry import is_keyed, superseding_columns
from watersmeet.placement import PSP, Hash
from watersmeet.predicate.model import Column, Conjunct, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query import windows
from watersmeet.query.optional_streams import AsOf, apply_tolerances, check_optional, derive_windows
from watersmeet.query.query import Query, StreamSpec
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

AS_OF = st.builds(oracle.AsOf, st.one_of(st.none(), st.integers(0, 12)), st.booleans())
TIME_WINDOWS = st.one_of(
    st.integers(1, 12).map(oracle.Sliding),
    st.tuples(st.integers(1, 12), st.integers(1, 12)).map(lambda pair: oracle.Hopping(*pair)),
)
windows_of = st.one_of(TIME_WINDOWS, st.just(oracle.Unbounded()))
any_condition = st.sampled_from(["", *CONDITIONS])
key_condition = st.sampled_from(["{0}.k = {1}.k", "{0}.x = {1}.x", "{0}.k = {1}.k AND {0}.x = {1}.x"])


@st.composite
def cases(draw: st.DrawFn, condition: Any = any_condition) -> dict[str, Any]:
    """Two or three streams, of which at least one is asked for its newest tuples; another may be optional, too."""
    m = draw(st.integers(2, 3))
    names = "abc"[:m]
    kinds: dict[str, Any] = {"a": "inner", "b": draw(AS_OF)}
    beside = draw(st.sampled_from(["inner", "inner", "asof", "left", "semi", "anti"]))
    kinds |= {"c": draw(AS_OF) if beside == "asof" else beside} if m == 3 else {}
    others = beside in ("left", "semi", "anti") and m == 3
    streams = [
        oracle.Stream(
            name,
            oracle.Unbounded()
            if isinstance(kinds[name], oracle.AsOf) and kinds[name].tolerance is not None
            else draw(TIME_WINDOWS if others and name == "a" else windows_of),
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
    how: dict[str, Any] = {
        name: AsOf(kind.tolerance, kind.left) if isinstance(kind, oracle.AsOf) else kind
        for name, kind in case["how"].items()
    }
    kinds = {name: kind.kind if isinstance(kind, AsOf) else kind for name, kind in how.items()}
    plain = test_optional.query_of(case | {"how": kinds})
    made = derive_windows(replace(plain, streams=apply_tolerances(plain.streams, how)))
    check_optional(made, streaming=True, spilling=False)
    return made


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
            run.step(case["strategies"][at], rows, case["exchanges"][at], case["orderings"][at] or GIVEN_ORDER)
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


@search(30)
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
    kinds = {"a": "inner", "b": draw(AS_OF)} | ({} if beside is None else {"c": beside})
    kinds |= {"c": draw(AS_OF)} if beside == "asof" else {}
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


@pytest.mark.long
@search(12)
@given(case=steady())
def test_state_that_is_still_needed_stays(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        assert run_case(case, folder).results == wanted_of(case).results


@st.composite
def cut_anew(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A case in which nothing is late, and the same rows in other batches."""
    case = draw(cases(condition=key_condition))
    rows = [row for batch in case["batches"] for row in batch]
    case["streams"] = [replace(stream, delay=100) for stream in case["streams"]]
    end = [[(name, at, 1.0, name) for name in case["how"]] for at in (200, 400)]
    edges = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    again = [rows[a:b] for a, b in zip([0, *edges], [*edges, len(rows)], strict=True)]
    return with_batches(case, [*case["batches"], *end]), with_batches(case, [*again, *end])


def with_batches(case: dict[str, Any], batches: list[Any]) -> dict[str, Any]:
    """Return a case with other batches, run by its own strategies in turn."""
    turns = ("exchanges", "strategies", "orderings", "limits")
    return case | {"batches": batches} | {t: [case[t][at % len(case[t])] for at in range(len(batches))] for t in turns}


@pytest.mark.long
@search(8)
@given(both=cut_anew())
def test_results_are_the_same_however_batches_are_cut(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    with TemporaryDirectory() as one, TemporaryDirectory() as two:
        assert run_case(both[0], one).results == run_case(both[1], two).results == wanted_of(both[0]).results


@search(10)
@given(case=cases(), start=st.sampled_from([windows.NEVER, windows.FOREVER - 80]))
def test_event_times_are_any_that_a_timestamp_holds(case: dict[str, Any], start: int) -> None:
    moved = [[(n, start + t, x, k) for n, t, x, k in rows] for rows in case["batches"]]
    case = case | {"batches": moved, "limits": [{}] * len(moved)}
    with TemporaryDirectory() as folder:
        assert run_case(case, folder).results == wanted_of(case).results


@search(8)
@given(case=cases())
def test_a_required_table_has_no_say_in_the_time(case: dict[str, Any]) -> None:
    if "c" not in case["how"]:
        return
    case = with_tables(case | {"how": case["how"] | {"c": "inner"}}, {"c"})
    with TemporaryDirectory() as folder:
        assert run_case(case, folder).results == wanted_of(case).results


@search(15)
@given(case=cases())
def test_static_frames_end_with_everything_closed(case: dict[str, Any]) -> None:
    case = with_batches(case, case["batches"][:1])
    with TemporaryDirectory() as folder:
        run = Run(query_of(case), Store(folder))
        operator = Operator(run.query, case["strategies"][0], run.store, run.name)
        plan = operator.plan(operator.start())
        plan = replace(plan, intake=replace(plan.intake, repeatable=True))
        for report in run.exchanged(plan, rows_of(case)[0]):
            for file in report.results.files:
                for found in pq.read_table(f"{folder}/{file}").to_batches():
                    run.add(found)
        assert run.results == wanted_of(case, ended=True).results


@pytest.mark.long
@pytest.mark.parametrize("strategy", one_in(2, [PSP(2), Hash(3)]))
@pytest.mark.parametrize(("condition", "bounded"), [("{0}.k = {1}.k", True), ("{0}.x < {1}.x", False)])
def test_without_a_window_one_tuple_a_key_stays(tmp_path: Path, strategy: Any, condition: str, bounded: bool) -> None:
    rows = [[(n, 20 * b + t, float(20 * b + t), "pq"[t % 2]) for n in "ab" for t in range(20)] for b in range(12)]
    case = plain_case(oracle.AsOf(), rows, strategy=strategy) | {"ties": {"b": ("a", condition)}}
    run = run_case(case, str(tmp_path))
    assert run.results == wanted_of(case).results
    kept = [p["distinctRows"] for p in run.progress]
    assert (max(kept[4:]) <= kept[3] + 40) is bounded


def test_a_tolerance_lets_state_go(tmp_path: Path) -> None:
    rows = [[(n, 20 * b + t, float(20 * b + t), "pq"[t % 2]) for n in "ab" for t in range(20)] for b in range(12)]
    case = plain_case(oracle.AsOf(tolerance=15), rows) | {"ties": {"b": ("a", "{0}.x < {1}.x")}}
    run = run_case(case, str(tmp_path))
    assert run.results == wanted_of(case).results
    assert run.progress[-1]["distinctRows"] <= 80


TIMELY: dict[str, Any] = {
    "b.ts <= a.ts": lambda a, b: b["ts"] <= a["ts"],
    "b.ts < a.ts": lambda a, b: b["ts"] < a["ts"],
    "a.ts >= b.ts AND b.ts >= a.ts": lambda a, b: a["ts"] == b["ts"],
    "b.x <= a.x AND b.k = a.k": lambda a, b: b["x"] <= a["x"] and b["k"] == a["k"],
}


@pytest.mark.long
@pytest.mark.parametrize("text", TIMELY)
def test_conditions_on_event_times_are_as_good_as_none(tmp_path: Path, text: str) -> None:
    """Written out, as DuckDB wants it, `b.ts <= a.ts` changes nothing, and tuples are superseded all the same."""
    streams = tuple(StreamSpec(name, SCHEMA, 1, windows.Window(), 2) for name in "ab")
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    query = derive_windows(Query(streams, conjuncts, text, how=("inner", "asof")))
    assert bool(superseding_columns(query))
    assert is_keyed(query, 1) is ("b.x" not in text)
    case = plain_case(
        oracle.AsOf(), [[(n, 4 * b + t, float(t % 3), "pq"[t % 2]) for n in "ab" for t in range(5)] for b in range(6)]
    )
    run, arrivals = Run(query, Store(str(tmp_path))), []
    for at, rows in enumerate(rows_of(case)):
        run.step(PSP(2), rows)
        arrivals += [oracle.Arrival(at, "ab"[stream], row["ts"], content_key(row), row) for stream, row in rows]
    on = {"b": lambda rows: TIMELY[text](rows["a"], rows["b"])}
    wanted = oracle.join(case["streams"], arrivals, lambda rows: True, how={"b": oracle.AsOf()}, on=on)
    assert run.results == wanted.results and len(wanted.results) > 10


@pytest.mark.parametrize("text", ["b.ts <= a.at", "a.at <= b.ts AND b.x <= a.x + b.x", "1 / b.x > a.x"])
def test_what_tells_a_newer_tuple_apart_supersedes_nothing(text: str) -> None:
    schema = SCHEMA.append(pa.field("at", SCHEMA.field(1).type))
    streams = tuple(StreamSpec(name, schema, 1, windows.Window(), 0) for name in "ab")
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    query = Query(streams, conjuncts, text, how=("inner", "asof"))
    assert (1 in superseding_columns(query)) is text.startswith("a.at")
    assert not is_keyed(query, 1)


def test_of_several_required_streams_no_time_is_that_of_the_combination() -> None:
    text = "b.ts <= a.ts AND a.k = c.k"
    streams = tuple(StreamSpec(name, SCHEMA, 1, windows.Window(), 0) for name in "abc")
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    assert not superseding_columns(Query(streams, conjuncts, text, how=("inner", "asof", "inner")))


def test_tuples_with_values_that_cannot_be_compared_are_not_superseded() -> None:
    schema = SCHEMA.append(pa.field("v", pa.list_(pa.float64())))
    streams = tuple(StreamSpec(name, schema, 1, windows.Window(), 0) for name in "ab")
    alike = Conjunct("alike(a.v, b.v)", None, (Column(0, 4), Column(1, 4)))
    assert not superseding_columns(Query(streams, (alike,), how=("inner", "asof")))
    by_key = replace(alike, columns=(Column(0, 4), Column(1, 3)))
    assert superseding_columns(Query(streams, (by_key,), how=("inner", "asof"))) == {1: (Column(1, 3),)}


def test_a_condition_that_raises_is_asked_of_older_tuples_as_well(tmp_path: Path) -> None:
    """Whether a query stops must not depend on where the newest tuple happened to be found."""
    streams = tuple(StreamSpec(name, SCHEMA, 1, windows.Window(), 0) for name in "ab")
    text = "a.k = b.k AND 1 / (a.x - b.x) > 0"
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    for name, older, raises in (("fine", 0.0, False), ("raising", 2.0, True)):
        run = Run(derive_windows(Query(streams, conjuncts, text, how=("inner", "asof"))), Store(str(tmp_path / name)))
        run.step(PSP(2), [(1, {"id": 0, "ts": 1, "x": older, "k": "p"})])
        run.step(PSP(2), [(1, {"id": 1, "ts": 5, "x": 1.0, "k": "p"}), (0, {"id": 2, "ts": 9, "x": 2.0, "k": "p"})])
        last = [(at, {"id": 9, "ts": 90, "x": 5.0, "k": "ab"[at]}) for at in range(2)]
        if raises:
            with pytest.raises(PredicateError, match="DIVIDE_BY_ZERO"):
                run.step(PSP(2), last)
        else:
            run.step(PSP(2), last)
            assert run.results == {((2, 1), 9): 1}


def test_the_newest_is_the_same_in_whatever_order_partners_are_offered() -> None:
    rng = np.random.default_rng(1)
    partners = np.stack([rng.integers(0, n, 200) for n in (5, 4, 3)])
    chosen = set()
    for _ in range(5):
        newest, order = Newest(6), rng.permutation(200)
        newest.offer(order[:0], order[:0], order[:0], order[:0])
        for part in np.array_split(order, 7):
            newest.offer(partners[0, part], partners[1, part], partners[2, part], part)
        assert newest.row[5] == -1
        chosen.add((*newest.ts.tolist(), *newest.content.tolist()))
    best = [max(zip(*partners[1:, partners[0] == at], strict=True)) for at in range(5)]
    assert chosen == {(*(ts for ts, _ in best), windows.NEVER, *(content for _, content in best), windows.NEVER)}


@pytest.mark.long
@pytest.mark.parametrize("tie", one_in(2, ["{0}.k = {1}.k", "{0}.x < {1}.x", "near({0}.x, {1}.x)"]))
@pytest.mark.parametrize(("tail_rows", "few"), [(4, True), (1 << 40, False)])
def test_the_newest_partner_is_looked_for_among_few(tmp_path: Path, tie: str, tail_rows: int, few: bool) -> None:
    """A trade has hundreds of partners; those that are much older than the newest are not looked at."""
    rows = [(n, t, 1.0 + (n == "b") * t % 2, "pq"[t % 2]) for n in "ab" for t in range(400)]
    batches = [rows, END(900)[:2]]
    limit = {"tail_rows": tail_rows, "scan_setup": float("inf")}
    case = plain_case(oracle.AsOf(), batches, strategy=PSP(1)) | {"ties": {"b": ("a", tie)}, "limits": [limit] * 2}
    run = run_case(case, str(tmp_path))
    assert run.results == wanted_of(case).results
    tested = sum(hop["into"] and hop["tests"][-1]["out"] for p in run.progress for hop in p["funnel"])
    assert (tested < 400 * 40) is few
