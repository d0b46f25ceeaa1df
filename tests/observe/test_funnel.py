"""What each test lets through, counted: the figures of a batch are those of brute force."""

from itertools import pairwise
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.batch.extremes import ALWAYS_SCAN, NEVER_SCAN
from watersmeet.batch.report import TaskReport, WorkReport
from watersmeet.limits import limited
from watersmeet.observe.funnel import find_hints, format_funnel, funnel, narrower_condition
from watersmeet.placement import PSP
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.predicate.python import predicate
from watersmeet.probe import work
from watersmeet.probe.work import SAMPLE_EVERY, HopWork
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("y", pa.float64())])


@predicate(form="pair")
def alike(x: float, y: float) -> bool:
    return x % 2 == y % 2


CONJUNCTS: dict[str, Any] = {
    "a.x * b.x < 20": lambda a, b: a["x"] * b["x"] < 20,
    "a.x <> b.x": lambda a, b: a["x"] != b["x"],
    "exp(a.y) < b.y + 3": lambda a, b: exp(a["y"]) < b["y"] + 3,
    "alike(a.x, b.x)": lambda a, b: a["x"] % 2 == b["x"] % 2,
    "60 / (b.x + 1) > 5": lambda a, b: 60 / (b["x"] + 1) > 5,
}
WHERE = " AND ".join(CONJUNCTS)


def run_of(folder: Path, where: str, names: str = "ab") -> Run:
    streams = tuple(StreamSpec(name, SCHEMA, 1, Sliding(10), 100) for name in names)
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (alike,), Dialect())
    return Run(Query(streams, conjuncts, where, (), (alike,)), Store(str(folder)))


def rows(seed: int, count: int, names: str = "ab") -> list[tuple[int, dict[str, Any]]]:
    dice = Random(seed)
    values = [(dice.randrange(40), float(dice.randrange(10)), dice.random()) for _ in range(count)]
    records = [{"id": at, "ts": ts, "x": x, "y": y} for at, (ts, x, y) in enumerate(values)]
    return [(at % len(names), row) for at, row in enumerate(records)]


@pytest.mark.long
@pytest.mark.parametrize("forced", [ALWAYS_SCAN, NEVER_SCAN])
@pytest.mark.parametrize("exchange", ["local", "shuffle"])
def test_the_figures_are_those_of_brute_force(tmp_path: Path, forced: dict[str, Any], exchange: str) -> None:
    run, arrivals = run_of(tmp_path, WHERE), rows(1, 120)
    with limited(sampled_pairs=1, **forced):
        run.step(PSP(2), arrivals, exchange)
    funnel = run.progress[0]["funnel"]
    assert [(hop["from"], hop["stream"]) for hop in funnel] == [(["a"], "b"), (["b"], "a")]
    pairs = [(a, b) for at, a in arrivals for other, b in arrivals if (at, other) == (0, 1)]
    remaining = [(a, b) for a, b in pairs if abs(a["ts"] - b["ts"]) < 10]
    assert _sum(funnel, 0, "out") == len(remaining)
    texts = list(CONJUNCTS)
    groups = [texts[:2], *([text] for text in texts[2:])] if forced == ALWAYS_SCAN else [[text] for text in texts]
    for at, together in enumerate(groups, 1):
        assert {hop["tests"][at]["name"] for hop in funnel} == {" AND ".join(together)}
        assert _sum(funnel, at, "in") == len(remaining)
        remaining = [(a, b) for a, b in remaining if all(CONJUNCTS[text](a, b) for text in together)]
        assert _sum(funnel, at, "out") == len(remaining)
    kinds = [test["kind"] for test in funnel[0]["tests"]]
    assert kinds == ["window", *["sql"] * (len(groups) - 3), "near", "python", "raising"]
    assert len(remaining) == run.progress[0]["outputRows"] == sum(hop["matches"] for hop in run.progress[0]["hops"])
    assert format_funnel(funnel[0])[0].startswith("  a -> b: ")


def _sum(funnel: list[dict[str, Any]], at: int, key: str) -> int:
    return sum(hop["tests"][at][key] for hop in funnel)


def test_conjuncts_tested_at_once_are_told_apart_by_samples(tmp_path: Path) -> None:
    run, where = run_of(tmp_path, "a.x * b.x < 20 AND a.x <> b.x"), ("a.x * b.x < 20", "a.x <> b.x")
    with limited(block_rows=50, sampled_pairs=1, **NEVER_SCAN):
        run.step(PSP(1), rows(2, 400))
    for hop in run.progress[0]["funnel"]:
        first, second, last = hop["tests"]
        assert (second["name"], last["name"]) == where
        assert first["out"] == second["in"] >= second["out"] == last["in"] >= last["out"]
        assert abs(second["out"] / second["in"] - 0.6) < 0.25
        assert first["out"] > 50 * SAMPLE_EVERY  # blocks were left out of the sample


def test_three_streams(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a.x < b.x AND b.x < c.x AND a.x + b.x + c.x > 9", "abc")
    run.step(PSP(2), rows(3, 90, "abc"))
    funnel = run.progress[0]["funnel"]
    assert sum(hop["tests"][-1]["out"] for hop in funnel if len(hop["from"]) == 2) == run.progress[0]["outputRows"]
    assert all(hop["into"] == hop["tests"][0]["in"] for hop in funnel)
    for hop in funnel:
        assert all(first["out"] >= second["out"] for first, second in pairwise(hop["tests"]))


def test_tests_come_in_the_order_in_which_they_are_made(tmp_path: Path) -> None:
    early = "60 / (b.x + 1) > 20"  # it may raise, and so denies before predicates are asked, except at the last hop
    run = run_of(tmp_path, f"alike(a.x, b.x) AND {early} AND a.x < b.x + 3 AND b.x < c.x", "abc")
    run.step(PSP(1), rows(3, 90, "abc"))
    for hop in run.progress[0]["funnel"]:
        counts = [test["in"] for test in hop["tests"]]
        assert counts == sorted(counts, reverse=True)
        names = [test["name"] for test in hop["tests"]]
        if (hop["from"], hop["stream"]) == (["a"], "b"):
            assert names == ["window", "a.x < b.x + 3", early, "alike(a.x, b.x)"]


def test_predicates_come_in_the_order_in_which_most_pairs_met_them(tmp_path: Path) -> None:
    dear, cheap = "alike(a.x, b.x)", "alike(a.y, b.y)"
    mixed = HopWork(tests={(dear,): work.TestCounts(10, 10), (cheap,): work.TestCounts(50, 10)})
    same = HopWork(
        tests={(dear,): work.TestCounts(50, 5), (cheap,): work.TestCounts(50, 50)}
    )  # the first lets all pass
    for counts in (mixed, same):
        counts.rows_in = 1
        (hop,) = funnel(run_of(tmp_path, f"{dear} AND {cheap}").query, [TaskReport(0, WorkReport({((0,), 1): counts}))])
        assert [test["name"] for test in hop["tests"]] == ["window", cheap, dear]


# -- hints

HAVERSINE = (
    "2 * 6371 * asin(sqrt(pow(sin(radians(b.y - a.y) / 2), 2) + "
    "cos(radians(a.y)) * cos(radians(b.y)) * pow(sin(radians(b.x - a.x) / 2), 2))) < 2"
)


UNUSUAL = HAVERSINE.replace("sqrt(", "pow(").replace(")) < 2", ", 0.5)) < 2")
"""A great circle that is written in a way of its own, so that it is not looked up."""


def counts_of_tests(name: str, **changed: Any) -> list[dict[str, Any]]:
    window = {"name": "window", "kind": "window", "in": 10**6, "out": 10**6, "ms": 10.0}
    test = {"name": name, "kind": "near", "in": 10**6, "out": 100, "ms": 3000.0} | changed
    return [{"stream": "b", "from": ["a"], "inTime": 10**6, "into": 10**6, "tests": [window, test]}]


def test_a_hint_where_it_pays(tmp_path: Path) -> None:
    query = run_of(tmp_path, UNUSUAL).query
    (hint,) = find_hints(query, counts_of_tests(UNUSUAL))
    assert hint.endswith("Adding `abs(a.y - b.y) <= 0.0180` loses no result, and can be looked up in an index.")
    other = "a.x * b.x < 5"
    (hint,) = find_hints(run_of(tmp_path, other).query, counts_of_tests(other))
    assert "An additional condition on a and b that can be looked up" in hint


@pytest.mark.parametrize("changed", [{"in": 1000}, {"ms": 50.0}, {"out": 500_000}, {"in": 200_000}])
def test_no_hint_where_it_does_not(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert not find_hints(run_of(tmp_path, UNUSUAL).query, counts_of_tests(UNUSUAL, **changed))


def test_no_hint_for_what_an_index_looks_up(tmp_path: Path) -> None:
    for text in ("abs(a.x - b.x) < 3", HAVERSINE):
        assert not find_hints(run_of(tmp_path, text).query, counts_of_tests(text))


@pytest.mark.parametrize(
    ("text", "narrower"),
    [
        (HAVERSINE, "abs(a.y - b.y) <= 0.0180"),
        (f"({HAVERSINE})", "abs(a.y - b.y) <= 0.0180"),
        ("hypot(a.x - b.x, a.y - b.y) < 3", "abs(a.x - b.x) <= 3"),
        ("9 >= sqrt((a.x - b.x) * (a.x - b.x) + power(a.y - b.y, 2))", "abs(a.x - b.x) <= 9"),
        ("(a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y) < 9", "abs(a.x - b.x) <= 3.01"),
        ("sqrt(pow(a.x - b.x, 2) + pow(a.y, 2)) < 3", None),
        ("sqrt(pow(a.x - a.y, 2)) < 3", None),
        ("sqrt(pow(a.x - b.x, 2)) > 3", None),
        ("sqrt(pow(a.x - b.x, 3)) < 3", None),
        ("sqrt(pow(a.x - b.x, 2)) < b.x", None),
        ("sin(a.x) * cos(b.x) < 3", None),
        ("not a condition (", None),
    ],
)
def test_what_follows_from_a_distance(text: str, narrower: str | None) -> None:
    assert narrower_condition(text) == narrower
