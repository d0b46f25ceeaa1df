"""Punctuations that an inner join puts out close its outer join's stream: the same results, and less state."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.batch.extremes import EXTREMES
from tests.batch.test_engine import strategies_of
from tests.budget import search
from tests.metadata.test_denial import CONSTRAINTS, SCHEMA
from watersmeet.limits import limited
from watersmeet.metadata.constraints import (
    Constraint,
    FlaggedPunctuations,
    ForeignKey,
    InheritedPunctuations,
    Key,
    Pattern,
)
from watersmeet.metadata.outlook import Outlook
from watersmeet.metadata.propagation import drop_useless_punctuations, inherit_punctuations
from watersmeet.observe.explain import explain
from watersmeet.ordering import Given
from watersmeet.placement import PSP, Central
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import RESULT_TIME, Output, Query, StreamSpec
from watersmeet.query.windows import Sliding, Window
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

SAYING = ("ends", "ends by time", "ends of two", "ranges", "range and text")
LONG = 1000
ENDS = FlaggedPunctuations(5, (Pattern(2, 2, 2),))


def output_positions(query: Query) -> dict[Column, list[int]]:
    """Return where a join shows its columns, as `inherited` takes it."""
    found: dict[Column, list[int]] = {}
    for at, output in enumerate(query.outputs):
        found.setdefault(output.column, []).append(at)
    return found


def make_join(left: StreamSpec, right: StreamSpec, where: str, which: int = 0, flat: bool = True) -> Query:
    """Return a join of two streams; flat, it shows an id, the key of one of them, and the texts of both."""
    text = where.format(left=left.name, right=right.name)
    conjuncts = parse_where(text, [(s.name, s.schema) for s in (left, right)], (), Dialect())

    def column(at: int, name: str) -> Column:
        return Column(at, (left, right)[at].schema.names.index(name))

    sources = {"id": column(0, "id"), "other": column(1, "id"), "k": column(which, "k")}
    sources |= {"t": column(0, "t"), "u": column(1, "t"), "at": RESULT_TIME}
    outputs = tuple(Output(name, source) for name, source in sources.items())
    return Query((left, right), conjuncts, text, outputs if flat else ())


def as_stream(name: str, query: Query, inherits: bool = True) -> StreamSpec:
    promises = tuple(inherit_punctuations(query, output_positions(query))) if inherits else ()
    return StreamSpec(name, query.output_schema, len(query.outputs) - 1, Window(), LONG, constraints=promises)


def spec(name: str, *promises: Constraint, window: int | None = None, delay: int = LONG) -> StreamSpec:
    return StreamSpec(name, SCHEMA, 1, Window() if window is None else Sliding(window), delay, constraints=promises)


WHERE: dict[str, Any] = {
    "k": ("{left}.k = {right}.k", lambda p, q: p["k"] is not None and p["k"] == q["k"]),
    "k and t": (
        "{left}.k = {right}.k AND {left}.t = {right}.t",
        lambda p, q: None not in (p["k"], p["t"]) and (p["k"], p["t"]) == (q["k"], q["t"]),
    ),
    "k and u": (
        "{left}.k = {right}.k AND {left}.u = {right}.t",
        lambda p, q: None not in (p["k"], p["u"]) and (p["k"], p["u"]) == (q["k"], q["t"]),
    ),
}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """A join of a and b that is a stream of a join with c, and that perhaps of one with d."""
    names = draw(st.sampled_from(["abc", "abcd"]))
    saying = st.lists(st.sampled_from(SAYING), min_size=1, max_size=2, unique=True)
    row = st.fixed_dictionaries(
        {
            "ts": st.integers(0, 9),
            "k": st.sampled_from([0, 0, 1, None]),
            "x": st.none(),
            "t": st.sampled_from(["p", "p", "q"]),
            "end": st.sampled_from([None, False, True]),
            "low": st.integers(0, 2),
            "high": st.integers(0, 3),
        }
    )
    batches: list[list[tuple[str, dict[str, Any]]]] = draw(
        st.lists(st.lists(st.tuples(st.sampled_from(names), row), min_size=2, max_size=12), min_size=4, max_size=6)
    )
    where = [draw(st.sampled_from(["k", "k and t"]))]
    where += [draw(st.sampled_from(sorted(WHERE))) for _ in names[2:]]
    return {
        "names": names,
        "promises": {name: draw(saying) for name in "ab"}
        | {name: draw(st.sampled_from([[], ["key"], ["ends"]])) for name in names[2:]},
        "where": where,
        "which": [draw(st.sampled_from([0, 1])) for _ in where],
        "window": draw(st.sampled_from([None, None, 8])),
        "steady": draw(st.booleans()),
        "delay": draw(st.sampled_from([0, 5, LONG])),
        "batches": [[(n, r | {"ts": 5 * b + r["ts"]}) for n, r in rows] for b, rows in enumerate(batches)],
        "strategies": [draw(strategies_of) for _ in batches],
        "exchanges": [draw(st.sampled_from(["local", "shuffle"])) for _ in batches],
        "extremes": draw(st.sampled_from(EXTREMES)) | draw(st.sampled_from([{}, {"purge_pairs": 0}])),
    }


def queries_of(case: dict[str, Any], inherits: bool) -> list[Query]:
    """Return the joins of a case, the innermost first."""
    names, made = case["names"], list[Query]()
    for at, name in enumerate(names[1:]):
        promises = [CONSTRAINTS[found][0] for found in case["promises"][name]]
        if not at:
            first = [CONSTRAINTS[found][0] for found in case["promises"]["a"]]
            left = spec("a", *first, window=case["window"], delay=case["delay"])
            right = spec(name, *promises, window=case["window"], delay=case["delay"])
        else:
            left, right = as_stream(names[: at + 1], made[-1], inherits), spec(name, *promises)
        flat = at < len(names) - 2
        made.append(make_join(left, right, WHERE[case["where"][at]][0], case["which"][at], flat))
    return made


def numbered(case: dict[str, Any]) -> list[list[tuple[str, dict[str, Any]]]]:
    """Return the batches of a case with an id for each row."""
    ids = iter(range(10_000))
    return [[(name, {"id": next(ids), **row}) for name, row in rows] for rows in case["batches"]]


def run_case(case: dict[str, Any], folder: str, inherits: bool) -> tuple[Run, list[str]]:
    """Run the joins of a case; return them with the paths of the inner ones, the innermost first."""
    *inner, root = queries_of(case, inherits)
    paths = ["j" + "_0" * depth for depth in range(len(inner), 0, -1)]
    run = Run(root, Store(folder), inner=dict(zip(paths, inner, strict=True)), steady=case["steady"])
    homes = {"a": (paths[0], 0), "b": (paths[0], 1)}
    homes |= {name: (path, 1) for name, path in zip(case["names"][2:], [*paths[1:], "j"], strict=True)}
    for batch, rows in enumerate([*numbered(case), [], [], []]):  # what was said last comes to the outermost join, too
        given: dict[str, list[Any]] = {}
        for name, row in rows:
            given.setdefault(homes[name][0], []).append((homes[name][1], row))
        with limited(**case["extremes"]):
            last = batch >= len(case["strategies"])
            strategy, exchange = (Central(), "local") if last else (case["strategies"][batch], case["exchanges"][batch])
            run.step(strategy, given.pop("j", []), exchange, within=given)
    return run, paths


def arrivals(name: str, rows: Sequence[tuple[int, Mapping[str, Any]]], time: str) -> list[oracle.Arrival]:
    return [oracle.Arrival(batch, name, row[time], content_key(row), row) for batch, row in rows]


def holds(where: str, left: str, right: str, rows: Mapping[str, Mapping[str, Any]]) -> bool:
    return bool(WHERE[where][1](rows[left], rows[right]))


def expected(case: dict[str, Any], run: Run, paths: list[str]) -> list[oracle.Outcome]:
    """Return what the oracle says of each join, the innermost first; inner results are the rows that there were."""
    leaves: dict[str, list[tuple[int, dict[str, Any]]]] = {name: [] for name in case["names"]}
    for batch, rows in enumerate(numbered(case)):
        for name, row in rows:
            leaves[name].append((batch, row))
    found = []
    for at, name in enumerate(case["names"][1:]):
        window = oracle.Unbounded() if at or case["window"] is None else oracle.Sliding(case["window"])
        delay, left = LONG if at else case["delay"], case["names"][: at + 1]
        own = [
            oracle.Stream(n, window, delay, constraints=[CONSTRAINTS[p][1] for p in case["promises"].get(n, [])])
            for n in (left, name)
        ]
        came = arrivals(left, run.within.get(paths[at - 1], []), "at") if at else arrivals("a", leaves["a"], "ts")
        came += arrivals(name, leaves[name], "ts")
        found.append(oracle.join(own, came, partial(holds, case["where"][at], left, name)))
    return found


@pytest.mark.long
@search(12)
@given(cases())
def test_results_are_those_without_and_state_is_less(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder, TemporaryDirectory() as other:
        (run, paths), (plain, _) = run_case(case, folder, True), run_case(case, other, False)
        assert_put_out_alike(case, run, plain)
        assert_nothing_after_its_punctuation(run, paths[0])
        assert_nothing_lingers(run)
    *inner, outer = expected(case, run, paths)
    for path, wanted in zip(paths, inner, strict=True):
        assert Counter(((row["id"], row["other"]), row["at"]) for _, row in run.within[path]) == wanted.results
    assert run.results == outer.results == plain.results
    assert sum(p["deniedRows"] for p in run.progress) == sum(
        len(wanted.denied) for wanted in (*inner, outer)
    )  # never a result of an inner join
    for one, two in zip(run.progress, plain.progress, strict=False):
        assert one["distinctRows"] <= two["distinctRows"] and one["watermark"] == two["watermark"]
        assert (one["inputRows"], one["punctuations"]) == (two["inputRows"], two["punctuations"])


def assert_put_out_alike(case: dict[str, Any], run: Run, plain: Run) -> None:
    """The innermost join puts out the same at the same time; others sooner, as they store less; none what it heard."""
    for name in "ab":
        assert run.sides.get(("punctuation", name)) == plain.sides.get(("punctuation", name))
    for name in case["names"][2:]:
        with_, without = (Counter(str(row) for _, row in r.sides.get(("punctuation", name), [])) for r in (run, plain))
        assert with_ >= without
    assert {name for kind, name in run.sides if kind == "punctuation"} <= {*case["names"]}


def assert_nothing_after_its_punctuation(run: Run, innermost: str) -> None:
    """No result of the inner join in the batch of a punctuation that it puts out, or later, matches it."""
    for name, text in (("a", "t"), ("b", "u")):
        for batch, said in run.sides.get(("punctuation", name), []):
            told = {"k_low": said.get("k"), "k_high": said.get("k"), "t": None, **said}
            for made, row in run.within[innermost]:
                other = told["t"] not in (None, row[text])
                assert made < batch or other or not told["k_low"] <= row["k"] <= told["k_high"]


def assert_nothing_lingers(run: Run) -> None:
    """The store holds what manifests name, and what was handed on in the very last batch."""
    run.step(Central(), [])
    states = [manifests.load(run.store, batch) for batch in (run.batch - 1, run.batch)]
    named = frozenset[str]().union(*(state.files for state in states if state is not None))
    assert not {*run.store.names("sides"), *run.store.names("results")}
    assert all(f"-b{run.batch}-" in name for name in set(run.store.names("marks")) - named)


# -- by hand


def row(number: int, k: int | None, end: bool | None = None, **more: Any) -> dict[str, Any]:
    return dict.fromkeys(SCHEMA.names) | {"id": number, "ts": number, "k": k, "t": "p", "end": end} | more


@pytest.mark.long
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("inherits", [True, False])
def test_the_state_of_the_outer_join_goes(tmp_path: Path, which: int, inherits: bool) -> None:
    """Also where the inner join shows another column that is equal to the one that its punctuations speak of."""
    inner = make_join(spec("a", ENDS), spec("b", ENDS), WHERE["k"][0], which)
    outer = make_join(as_stream("ab", inner, inherits), spec("c", ENDS), WHERE["k"][0], flat=False)
    run = Run(outer, Store(str(tmp_path)), inner={"j_0": inner}, steady=True)
    run.step(Central(), [(1, row(3, 7))], within={"j_0": [(0, row(1, 7)), (1, row(2, 7))]})
    run.step(Central(), [], within={"j_0": [(0, row(4, 7, True)), (1, row(5, 7, True))]})
    for _ in range(4):
        run.step(Central(), [])
    assert run.results == {((1, 3), 3): 1}
    assert [p["distinctRows"] for p in run.progress] == [2, 2, 2, 2, 2 - inherits, 2 - inherits]
    run.step(Central(), [(1, row(6, 7, True))])
    for _ in range(2):
        run.step(Central(), [])
    assert run.progress[-1]["distinctRows"] == (0 if inherits else 1)
    assert [p["inputRows"] for p in run.progress[1:6]] == [{"ab": 0, "c": 0}] * 5
    assert {p["watermark"] for p in run.progress[:6]} == {2 - LONG}


def test_a_join_hands_on_what_it_was_handed(tmp_path: Path) -> None:
    first = make_join(spec("a", ENDS), spec("b", ENDS), WHERE["k"][0])
    second = make_join(as_stream("ab", first), spec("c", Key((2,))), WHERE["k"][0])
    third = make_join(as_stream("abc", second), spec("d"), WHERE["k"][0], flat=False)
    run = Run(third, Store(str(tmp_path)), inner={"j_0": second, "j_0_0": first}, steady=True)
    ended = row(5, 7, True)
    run.step(Central(), [(1, row(4, 7))], within={"j_0_0": [(0, row(1, 7)), (1, row(2, 7))], "j_0": [(1, row(3, 7))]})
    run.step(Central(), [], within={"j_0_0": [(0, ended), (1, ended)]})
    for _ in range(6):
        run.step(Central(), [])
    assert run.results == {((1, 4), 4): 1}
    assert [p["distinctRows"] for p in run.progress] == [2, 2, 2, 2, 2, 1, 1, 1]  # the tuple of d
    assert {name: len(rows) for name, rows in run.sides.items()} == {("punctuation", "a"): 1}  # as the paths show


def test_only_what_results_show_is_inherited() -> None:
    two = FlaggedPunctuations(5, (Pattern(2, 6, 7), Pattern(4, 4, 4)))
    inner = make_join(spec("a", ENDS), spec("b", two), WHERE["k"][0])
    assert [*inherit_punctuations(inner, output_positions(inner))] == [
        InheritedPunctuations((0, 0), (2,), (False,)),
        InheritedPunctuations((1, 0), (2, 4), (True, False)),
    ]
    outer = make_join(as_stream("ab", inner), spec("c"), WHERE["k"][0])
    assert [*inherit_punctuations(outer, output_positions(outer))] == [
        InheritedPunctuations((0, 0), (2,), (False,))
    ]  # u is not shown, or not as u
    both = replace(inner, outputs=(*inner.outputs, Output("k2", Column(1, 2))))
    assert [promise.fields for promise in inherit_punctuations(both, output_positions(both))] == [
        (2,),
        (6,),
        (6, 4),
        (2, 4),
    ]
    assert not [*inherit_punctuations(inner, {Column(0, 3): [0]})]
    apart = make_join(spec("a", ENDS), spec("b", two), "{left}.k < {right}.k")
    assert [promise.source for promise in inherit_punctuations(apart, output_positions(apart))] == [(0, 0)]


def test_what_is_of_no_use_is_not_kept() -> None:
    two = FlaggedPunctuations(5, (Pattern(2, 6, 7), Pattern(4, 4, 4)))
    inner = make_join(spec("a", ENDS), spec("b", two, ENDS), WHERE["k"][0])

    def left(outer: Query) -> list[Any]:
        return [promise.source for promise in drop_useless_punctuations(outer).streams[0].constraints]  # type: ignore[union-attr]

    assert left(make_join(as_stream("ab", inner), spec("c"), WHERE["k"][0], flat=False)) == [(0, 0), (1, 1)]
    assert left(make_join(as_stream("ab", inner), spec("c"), "{left}.id = {right}.id", flat=False)) == []
    assert left(make_join(as_stream("ab", inner), spec("c"), "{left}.id = {right}.id")) == [(0, 0), (1, 1)]  # goes on
    child = spec("c", ForeignKey(2, Column(0, 2)))
    orphans = make_join(as_stream("ab", inner), child, "{left}.id = {right}.id", flat=False)
    assert left(orphans) == [(0, 0), (1, 0), (1, 1)] and drop_useless_punctuations(orphans).streams[1] == child


def test_people_are_told() -> None:
    two = FlaggedPunctuations(5, (Pattern(2, 6, 7), Pattern(4, 4, 4)))
    inner = make_join(spec("a", ENDS), spec("b", two), WHERE["k"][0])
    outer = make_join(as_stream("ab", inner), spec("c", ENDS), WHERE["k"][0])
    said = ["those of the join itself on ab.k", "those of the join itself on ranges of ab.k and ab.u"]
    assert outer.description()["punctuations of 'ab'"] == said
    told = explain(outer, PSP(1), Given()).splitlines()
    assert told[2:5] == [
        *(f"    punctuations: {each}" for each in said),
        "    closed by `ab.k = c.k` and the join's punctuations of ab.k",
    ]
    assert [*Outlook(outer).warn()] == []  # nobody promised the one that is of no use
