"""Left, semi and anti joins: random streams through the engine without Spark, compared with the oracle."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given

from tests.batch.extremes import EXTREMES
from tests.batch.test_engine import ENGINE_WINDOW, ORDERINGS, SCHEMA, _and, _band, _eq, _lt, near, strategies_of
from tests.budget import one_in, search
from watersmeet.batch.operator import Operator
from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.errors import PredicateError
from watersmeet.limits import limited
from watersmeet.placement import PSP, Hash
from watersmeet.predicate.model import Column, Conjunct, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query import windows
from watersmeet.query.query import OWN_TIME, RESULT_TIME, NestedTimes, Output, Query, StreamSpec
from watersmeet.state.store.store import Store
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
    "{0}.k = {1}.k AND {0}.x < 3": lambda a, b: _and(_eq(a["k"], b["k"]), _lt(a["x"], 3)),
    "{0}.x < 3": lambda a, b: _lt(a["x"], 3),
    "{0}.k = {1}.k AND 1 = 0": lambda a, b: False,
    "1 = 1": lambda a, b: True,
}
"""What a stream is matched by with an earlier required one, for the engine and for the oracle."""
TIME_WINDOWS = st.one_of(
    st.integers(1, 12).map(oracle.Sliding),
    st.builds(oracle.Hopping, st.integers(1, 12), st.integers(1, 12), st.sampled_from(get_args(windows.Closed))),
)
windows_of = st.one_of(TIME_WINDOWS, TIME_WINDOWS, TIME_WINDOWS, st.just(oracle.Unbounded()))


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    m = draw(st.integers(2, 4))
    names = "abcd"[:m]
    hows = draw(st.lists(st.sampled_from(["inner", "left", "semi", "anti"]), min_size=m, max_size=m))
    first = draw(st.integers(0, m - 1))
    hows[first] = "inner"
    if set(hows) == {"inner"}:
        hows[first - 1] = draw(st.sampled_from(["left", "semi", "anti"]))
    if m == 2 and draw(st.booleans()):
        hows[1 - first] = "full"
    streams = [
        oracle.Stream(
            name, draw(TIME_WINDOWS if at == first or "full" in hows else windows_of), draw(st.integers(0, 15))
        )
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
        "near_misses": draw(st.sampled_from([0, 2])),
    }


def tumbling(size: int) -> oracle.Hopping:
    return oracle.Hopping(size, size, "left")


@st.composite
def steady(draw: st.DrawFn) -> dict[str, Any]:
    """Cases in which time goes on from batch to batch and much meets: windows end, state leaves."""
    three = [("inner", h, "inner") for h in HOWS] + [("inner", "left", h) for h in HOWS]
    hows = draw(st.sampled_from([*three, ("inner", "full"), ("full", "inner")]))
    names = "abc"[: len(hows)]
    size = st.integers(3, 8)
    window = st.one_of(size.map(oracle.Sliding), size.map(lambda size: oracle.Hopping(size, size)), size.map(tumbling))
    streams = [oracle.Stream(name, draw(window), 2) for name in names]
    row = st.tuples(
        st.sampled_from(names), st.integers(-1, 5), st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from(["p", "p", "q"])
    )
    batches = draw(st.lists(st.lists(row, min_size=6, max_size=10), min_size=4, max_size=7))
    tie = st.sampled_from(["{0}.k = {1}.k", "{0}.x = {1}.x", "{0}.k = {1}.k AND {0}.x = {1}.x"])
    nodes = st.integers(1, 4)
    return {
        "streams": streams,
        "how": dict(zip(names, hows, strict=True)),
        "ties": {name: ("a", draw(tie)) for name in names[1:]} if hows[0] == "inner" else {"a": ("b", draw(tie))},
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
        StreamSpec(s.name, SCHEMA, 1, ENGINE_WINDOW[type(s.window)](s.window), s.delay, table=s.table)
        for s in case["streams"]
    )
    names, conjuncts, text = [*case["how"]], list[Conjunct](), ""
    for name, (other, tie) in case["ties"].items():
        text = tie.format(other, name)
        parsed = parse_where(text, [(s.name, s.schema) for s in streams], (near,), Dialect()) if tie else ()
        of = {"inner": [], "full": [0, 1]}.get(case["how"][name], [names.index(name)])
        conjuncts += [conjunct.after_on(of) for conjunct in parsed]
    return Query(streams, tuple(conjuncts), text, (), (near,), how=tuple(case["how"].values()))


def conditions_of(case: dict[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return what the oracle is told of a case: the condition, what is asked of optional streams, and theirs."""
    optional = {name: how for name, how in case["how"].items() if how != "inner"}

    def holds(name: str) -> Any:
        other, text = case["ties"].get(name, ("", ""))
        return lambda rows: True if not text else CONDITIONS[text](rows[other], rows[name])

    def where(rows: Any) -> bool | None:
        return _and(*(holds(name)(rows) for name in rows))

    return where, optional, {name: holds(name) for name in optional}


def wanted_of(case: dict[str, Any], arrivals: list[oracle.Arrival], *, ended: bool = False) -> oracle.Outcome:
    where, optional, on = conditions_of(case)
    return oracle.join(case["streams"], arrivals, where, how=optional, on=on, ended=ended)


def run_case(case: dict[str, Any], folder: str, *, final: bool = False) -> tuple[Run, oracle.Outcome]:
    """Run all batches of a case, and if asked for the final round; return the run, and what the oracle wants of it."""
    run, names, arrivals, number = Run(query_of(case), Store(folder)), list(case["how"]), [], 0
    run.near_misses = case.get("near_misses", 0)
    for at, rows in enumerate(case["batches"]):
        made = []
        for name, ts, x, k in rows:
            row = {"id": 0 if case["twins"] else number, "ts": ts, "x": x, "k": k}
            number += 1
            made.append((names.index(name), row))
            arrivals.append(oracle.Arrival(at, name, ts, content_key(row), row))
        with limited(**case["limits"][at]):
            run.step(case["strategies"][at], made, case["exchanges"][at], case["orderings"][at] or GIVEN_ORDER)
    if final:
        with limited(**case["limits"][-1]):
            run.finish(case["strategies"][-1], case["exchanges"][-1], case["orderings"][-1] or GIVEN_ORDER)
    return run, wanted_of(case, arrivals, ended=final)


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


@pytest.mark.long
@search(25)
@given(case=steady())
def test_state_that_is_still_needed_stays(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert run.results == wanted.results


@search(40)
@given(case=cases())
@example(plain_case("semi", TWINS, twins=True))
@example(plain_case("semi", TWINS[::-1], twins=True, strategy=Hash(3)))
@example(plain_case("left", [*TWINS, [("a", 90, 1.0, "p"), ("b", 90, 1.0, "q")]], twins=True))
def test_the_engine_gives_the_oracles_results(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert run.results == wanted.results
        assert sum(p["lateRows"] for p in run.progress) == len(wanted.late)


@pytest.mark.long
@search(15)
@given(case=cases(), start=st.sampled_from([windows.NEVER, windows.FOREVER - 80]))
def test_event_times_are_any_that_a_timestamp_holds(case: dict[str, Any], start: int) -> None:
    moved = [[(n, start + t, x, k) for n, t, x, k in rows] for rows in case["batches"]]
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case | {"batches": moved, "limits": [{}] * len(moved)}, folder)
        assert run.results == wanted.results


def with_tables(case: dict[str, Any], tables: set[str]) -> dict[str, Any]:
    """Return a case in which some streams are tables, all of whose rows come in the first batch."""
    streams = [replace(s, table=True, window=oracle.Unbounded()) if s.name in tables else s for s in case["streams"]]
    moved = [(n, windows.BEFORE_ALL, x, k) for rows in case["batches"] for n, _, x, k in rows if n in tables]
    others = [[row for row in rows if row[0] not in tables] for rows in case["batches"]]
    return case | {"streams": streams, "batches": [moved + others[0], *others[1:]]}


@st.composite
def cases_with_tables(draw: st.DrawFn) -> dict[str, Any]:
    """Cases with tables, required or optional; a required stream has a window of time."""
    case = draw(st.one_of(cases(), steady()))
    case["how"] = {name: "left" if how == "full" else how for name, how in case["how"].items()}
    timely = [s.name for s in case["streams"] if s.window != oracle.Unbounded() and case["how"][s.name] == "inner"]
    kept = draw(st.sampled_from(timely))
    return with_tables(case, set(draw(st.lists(st.sampled_from([*case["how"]]), min_size=1))) - {kept})


@pytest.mark.long
@search(20)
@given(case=cases_with_tables())
@example(with_tables(plain_case("anti", [[("b", 0, 1.0, "p"), ("a", 0, 1.0, "q")], [("a", 90, 1.0, "p")]]), {"b"}))
def test_tables_hold_nothing_back(case: dict[str, Any]) -> None:
    """What has no partner comes in the batch that moves the watermark far enough, beside tables too."""
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert run.results == wanted.results


@search(15)
@given(case=cases(), unbounded=st.booleans())
def test_static_frames_end_with_everything_closed(case: dict[str, Any], unbounded: bool) -> None:
    if unbounded:
        case = case | {"streams": [replace(stream, window=oracle.Unbounded()) for stream in case["streams"]]}
    with TemporaryDirectory() as folder:
        run, names, rows = Run(query_of(case), Store(folder)), list(case["how"]), case["batches"][0]
        made = [(names.index(n), {"id": at, "ts": ts, "x": x, "k": k}) for at, (n, ts, x, k) in enumerate(rows)]
        operator = Operator(run.query, case["strategies"][0], run.store, run.name)
        plan = operator.plan(operator.start())
        plan = replace(plan, intake=replace(plan.intake, repeatable=True))
        for report in run.exchanged(plan, made):
            for file in report.results.files:
                for found in pq.read_table(f"{folder}/{file}").to_batches():
                    run.add(found)
        arrivals = [oracle.Arrival(0, names[at], row["ts"], content_key(row), row) for at, row in made]
        assert run.results == wanted_of(case, arrivals, ended=True).results


def join_within(folder: Path) -> Run:
    """Return a join of a join, which is required, with a stream that is optional."""
    sides = tuple(StreamSpec(name, SCHEMA, 1, windows.Sliding(5), 0) for name in "ab")
    shown = (Output("id", Column(0, 0)), Output("x", Column(1, 2)), Output("_time", RESULT_TIME))
    inner = Query(sides, parse_where("a.k = b.k", [(s.name, s.schema) for s in sides], (), Dialect()), "", shown)
    pairs = StreamSpec("ab", inner.output_schema, 2, windows.Sliding(5), 0, nested=NestedTimes(OWN_TIME, False))
    other = StreamSpec("c", SCHEMA, 1, windows.Sliding(5), 0)
    text = "ab.x = c.x"
    conjuncts = parse_where(text, [(s.name, s.schema) for s in (pairs, other)], (), Dialect())
    return Run(Query((pairs, other), conjuncts, text, how=("inner", "left")), Store(str(folder)), inner={"j_0": inner})


def step_within(run: Run, at: int, exchange: str) -> None:
    """Run a batch of it: a pair within, and a partner for that of batch 1."""
    rows = [(side, {"id": at, "ts": 20 * at + side, "x": float(at), "k": "p"}) for side in range(2)]
    met = [(1, {"id": 9, "ts": 20 * at + 2, "x": 1.0, "k": "q"})]
    run.step(PSP(2), met, exchange, within={"j_0": rows})


@pytest.mark.parametrize("exchange", ["local", "shuffle"])
def test_a_required_stream_may_be_a_join(tmp_path: Path, exchange: str) -> None:
    """Its watermark is known only after the batch, so that what it shows is closed by the next one."""
    run, told = join_within(tmp_path), []
    for at in range(5):
        step_within(run, at, exchange)
        told.append(dict(run.results))
    assert told[1] == {((1, 9), 22): 1}
    assert told[2] == told[3] == {((1, 9), 22): 1, ((0, None), 1): 1}
    assert told[4] == told[3] | {((2, None), 41): 1}


@pytest.mark.long
@pytest.mark.parametrize("how", one_in(4, ["left", "semi", "anti", "full"]))
def test_state_leaves_when_nothing_can_be_decided_by_it(tmp_path: Path, how: str) -> None:
    rows = [[(n, 20 * b + t, float(t % 3), "pq"[t % 2]) for n in "ab" for t in range(20)] for b in range(12)]
    run, wanted = run_case(plain_case(how, rows), str(tmp_path))
    assert run.results == wanted.results
    kept = [p["distinctRows"] for p in run.progress]
    assert max(kept[4:]) <= kept[3] + 40


@pytest.mark.parametrize("how", ["left", "anti"])
@pytest.mark.parametrize(
    "second", [oracle.Sliding(5), oracle.Hopping(6, 6), oracle.Hopping(6, 6, "left"), oracle.Sliding(6)]
)
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


def raising(text: str, folder: Path, how: Any, rows: list[tuple[int, float, str]], schema: pa.Schema = SCHEMA) -> Run:
    """Run a join of a and b, of which b is optional, over rows of a stream, an x and a key, and close them all."""
    streams = tuple(StreamSpec(name, schema, 1, ENGINE_WINDOW[oracle.Sliding](oracle.Sliding(9)), 0) for name in "ab")
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    assert any(conjunct.raises for conjunct in conjuncts)
    run = Run(Query(streams, conjuncts, text, (), (), how=("inner", how)), Store(str(folder)))
    run.step(PSP(2), [(at, {"id": n, "ts": 1, "x": x, "k": k}) for n, (at, x, k) in enumerate(rows)])
    run.step(PSP(2), [(at, {"id": 9, "ts": 90, "x": 5.0, "k": "ab"[at]}) for at in range(2)])
    return run


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_a_condition_that_raises_is_asked_only_of_what_the_others_let_pass(tmp_path: Path, how: str) -> None:
    text = "a.k = b.k AND 1 / (a.x - b.x) > 0"
    run = raising(text, tmp_path / "guarded", how, [(0, 2.0, "p"), (1, 2.0, "q"), (1, 1.0, "p")])
    assert run.results == ({} if how == "anti" else {((0, 2 if how == "left" else None), 1): 1})
    with pytest.raises(PredicateError, match="DIVIDE_BY_ZERO"):
        raising(text, tmp_path / "raising", how, [(0, 2.0, "p"), (1, 2.0, "p")])


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_a_condition_over_the_only_required_stream_may_raise(tmp_path: Path, how: str) -> None:
    text = "a.k = b.k AND 1 / a.x > 0"
    run = raising(text, tmp_path / "fine", how, [(0, 2.0, "p"), (0, -2.0, "p")])
    assert run.results == ({} if how == "semi" else {((0, None), 1): 1})
    rows = [(0, 0.0, "p"), (1, 0.0, "p" if how == "semi" else "q")]
    with pytest.raises(PredicateError, match="DIVIDE_BY_ZERO"):
        raising(text, tmp_path / "raising", how, rows)


@st.composite
def nested_cases(draw: st.DrawFn) -> dict[str, Any]:
    """A join with an optional stream that is a stream of another; rows are no more out of order than delays allow."""
    row = st.tuples(
        st.sampled_from("abc"), st.integers(0, 6), st.sampled_from([0.0, 1.0]), st.sampled_from(["p", "q", "r"])
    )
    batches = draw(st.lists(st.lists(row, max_size=8), min_size=2, max_size=5))
    how = st.sampled_from(["left", "anti", "full", "semi"])
    return {
        "inner": draw(how),
        "outer": draw(
            st.one_of(st.just(()), how.map(lambda kind: ("inner", kind)), how.map(lambda kind: (kind, "inner")))
        ),
        "windows": draw(st.tuples(*[st.integers(1, 9)] * 4)),
        "batches": [[(n, 5 * b + t, x, k) for n, t, x, k in rows] for b, rows in enumerate(batches)],
        "exchange": draw(st.sampled_from(["local", "shuffle"])),
        "strategy": draw(strategies_of),
    }


@pytest.mark.long
@search(40)
@given(case=nested_cases())
def test_a_join_that_waits_for_partners_may_be_a_stream(case: dict[str, Any]) -> None:
    """Its results without a partner come late by its own watermark, and are never late for the outer join."""
    of_a, of_b, of_ab, of_c = case["windows"]
    sides = tuple(StreamSpec(n, SCHEMA, 1, windows.Sliding(size), 12) for n, size in (("a", of_a), ("b", of_b)))
    pairs = parse_where("a.k = b.k", [(s.name, s.schema) for s in sides], (), Dialect())
    shown = (Output("id", Column(0, 0)), Output("x", Column(0, 2)), Output("_time", RESULT_TIME))
    inner = Query(sides, pairs, "", shown, how=("inner", case["inner"]))
    nested = NestedTimes(OWN_TIME, False, inner.waits)
    ab = StreamSpec("ab", inner.output_schema, 2, windows.Sliding(of_ab), 0, nested=nested)
    c = StreamSpec("c", SCHEMA, 1, windows.Sliding(of_c), 12)
    met = parse_where("ab.x = c.x", [("ab", ab.schema), ("c", SCHEMA)], (), Dialect())
    with TemporaryDirectory() as folder:
        run = Run(Query((ab, c), met, "", how=case["outer"]), Store(folder), inner={"j_0": inner})
        ends = [[(n, 1000 * b, -float(b), n) for n in "abc"] for b in range(1, 5)]
        for at, rows in enumerate([*case["batches"], *ends]):
            made = [(n, {"id": 100 * at + i, "ts": t, "x": x, "k": k}) for i, (n, t, x, k) in enumerate(rows)]
            within = {"j_0": [("ab".index(n), row) for n, row in made if n != "c"]}
            run.step(case["strategy"], [(1, row) for n, row in made if n == "c"], case["exchange"], within=within)
    found = Counter({key: number for key, number in run.results.items() if key[1] < 500})
    assert found == wanted_of_nested(case)


def wanted_of_nested(case: dict[str, Any]) -> Counter[Any]:
    """Return the results of the outer join over all results of the inner one, once nothing more comes."""
    rows = [
        (n, {"id": 100 * at + i, "ts": t, "x": x, "k": k})
        for at, batch in enumerate(case["batches"])
        for i, (n, t, x, k) in enumerate(batch)
    ]
    by_id = {row["id"]: row for _, row in rows}
    a, b, ab, c = (
        oracle.Stream(n, oracle.Sliding(w)) for n, w in zip(["a", "b", "ab", "c"], case["windows"], strict=True)
    )
    arrivals = [oracle.Arrival(0, n, row["ts"], row["id"], row) for n, row in rows]
    same = {"b": lambda rows: rows["a"]["k"] == rows["b"]["k"]}
    how: Any = {"b": case["inner"]}
    inner = oracle.join(
        [a, b], [x for x in arrivals if x.stream != "c"], lambda rows: True, how=how, on=same, ended=True
    )
    pairs = [
        oracle.Arrival(0, "ab", time, number, {"id": ids[0], "x": by_id[ids[0]]["x"] if ids[0] is not None else None})
        for number, (ids, time) in enumerate(inner.results.elements())
    ]
    every = [*pairs, *(x for x in arrivals if x.stream == "c")]

    def met(rows: Any) -> bool | None:
        return bool(_eq(rows["ab"]["x"], rows["c"]["x"]))

    if not case["outer"]:
        return oracle.join([ab, c], every, met).results
    how = {name: kind for name, kind in zip(("ab", "c"), case["outer"], strict=True) if kind != "inner"}
    return oracle.join([ab, c], every, lambda rows: True, how=how, on=dict.fromkeys(how, met), ended=True).results


def test_a_condition_that_may_overflow_for_some_tuples_finds_each_partner_once(tmp_path: Path) -> None:
    """Tuples for which its range can't be relied upon probe the same chunks apart from the others."""
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    streams = tuple(StreamSpec(name, schema, 1, windows.Sliding(9), 0) for name in "abc")
    text = "abs(a.n - b.n) < 5 AND a.n = c.n"
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    run = Run(Query(streams, conjuncts, text, how=("inner", "left", "left")), Store(str(tmp_path)))
    rows = [(0, {"id": n, "ts": 1, "n": 3 - 2**63 if n % 2 else n}) for n in range(20)]
    rows += [(1, {"id": 100 + n, "ts": 1, "n": n}) for n in range(-50, 0)]
    run.step(PSP(1), rows)
    run.step(PSP(1), [(at, {"id": 999, "ts": 90, "n": 5000}) for at in range(3)])
    met = {(a, 100 + n) for a in range(0, 20, 2) for n in range(-50, 0) if a - n < 5}
    alone = {(a, None) for a in range(20)} - {(a, None) for a, _ in met}
    assert run.results == {((a, b, None), 1): 1 for a, b in met | alone}
