"""Streams with constraints, and spilling by dice: the oracle's results, and the same rows denied."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.budget import search
from tests.metadata.test_denial import arrivals_of, assert_denied_alike, expected, query_of
from tests.metadata.test_denial import cases as denying
from tests.metadata.test_inheritance import ENDS, WHERE, as_stream, make_join, numbered, queries_of, row, spec
from tests.metadata.test_inheritance import cases as inheriting
from tests.metadata.test_inheritance import expected as expected_of_tree
from tests.metadata.test_properties import cases as closing
from tests.spilling.dice import Dice, without_spilling
from tests.spilling.hand import Hand, in_stream
from tests.spilling.test_settle import dice_of
from tests.spilling.watch import state_of
from watersmeet.limits import limited
from watersmeet.placement import Central, Hash
from watersmeet.query.query import OWN_TIME, NestedTimes, Query
from watersmeet.spilling.interface import PayAll, Spilling
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run

pytestmark = pytest.mark.long
lulls_of = st.lists(st.integers(0, 2), min_size=8, max_size=8)


def spilled(case: dict[str, Any], dice: Dice, lulls: list[int], folder: str) -> tuple[Run, oracle.Outcome]:
    """Run a case with rounds in between; in the end all is paid, and what waits is told."""
    run = Run(query_of(case), Store(folder), purge_every=case.get("every", 0), spilling=dice)
    arrivals = arrivals_of(case)
    for batch, lull in zip(range(len(case["batches"])), lulls, strict=False):
        strategy = case["strategies"][batch]
        if isinstance(strategy, Hash) and "=" not in run.query.where.replace("<=", "").replace(">=", ""):
            strategy = Central()
        rows = [(case["names"].index(a.stream), a.row) for a in arrivals if a.batch == batch]
        with limited(**case["extremes"]):
            run.step(strategy, rows, case["exchanges"][batch])
            for _ in range(lull):
                run.run_round(strategy, case["exchanges"][batch])
    pay_all(run, without_spilling(dice))
    with limited(**case["extremes"]):
        for _ in range(6):
            run.step(Central(), [])
    assert not state_of(run).ledger.units
    return run, expected(case, arrivals)


def pay_all(run: Run, spilling: Spilling) -> None:
    """Pay all that is owed, and go on with another way to decide."""
    run.spilling = spilling
    while run.run_round(Central(), all=True):
        pass


@search(15)
@given(case=denying(), dice=dice_of, lulls=lulls_of)
def test_constraints_true_and_false(case: dict[str, Any], dice: Dice, lulls: list[int]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = spilled(case, dice, lulls, folder)
    assert run.results == wanted.results
    assert_denied_alike(run, wanted)
    assert sum(p["punctuations"] for p in run.progress) == len(wanted.punctuations)
    for at, p in enumerate(p for p in run.progress if not p["round"]):
        assert p["watermark"] == wanted.watermarks.get(at, p["watermark"])


@search(8)
@given(case=closing(), dice=dice_of, lulls=lulls_of)
def test_state_that_is_closed_goes_once_nothing_is_owed(case: dict[str, Any], dice: Dice, lulls: list[int]) -> None:
    with TemporaryDirectory() as folder, TemporaryDirectory() as other:
        run, wanted = spilled(case, dice, lulls, folder)
        plain, _ = spilled(case, Dice(spill=0.0), [0] * 8, other)
    assert run.results == wanted.results
    assert_denied_alike(run, wanted)
    assert run.progress[-1]["distinctRows"] == plain.progress[-1]["distinctRows"]


@search(8)
@given(case=inheriting(), dice=dice_of, lulls=lulls_of, last=st.integers(1, 8))
def test_what_an_inner_join_says_comes_after_what_it_owes(
    case: dict[str, Any], dice: Dice, lulls: list[int], last: int
) -> None:
    """Otherwise an outer join would deny results that are paid later, or let go what they would have joined.

    Before some batch the join is perhaps started without spilling, which pays first of all.
    """
    *inner, root = map(nested, queries_of(case, True))
    paths = ["j" + "_0" * depth for depth in range(len(inner), 0, -1)]
    homes = {"a": (paths[0], 0), "b": (paths[0], 1)}
    homes |= {name: (path, 1) for name, path in zip(case["names"][2:], [*paths[1:], "j"], strict=True)}
    with TemporaryDirectory() as folder:
        run = Run(root, Store(folder), inner=dict(zip(paths, inner, strict=True)), spilling=dice)
        for batch, rows in enumerate([*numbered(case), [], []]):
            if batch == last:
                pay_all(run, PayAll())
            given: dict[str, list[Any]] = {}
            for name, row in rows:
                given.setdefault(homes[name][0], []).append((homes[name][1], row))
            with limited(**case["extremes"]):
                strategy = case["strategies"][batch % len(case["strategies"])]
                run.step(strategy, given.pop("j", []), within=given)
                for _ in range(lulls[batch % len(lulls)]):
                    run.run_round(strategy)
        pay_all(run, without_spilling(dice))
        for _ in range(4):
            run.step(Central(), [])
    *within, outer = expected_of_tree(case, run, paths)
    for path, wanted in zip(paths, within, strict=True):
        found = Counter(((row["id"], row["other"]), row["at"]) for _, row in run.within[path])
        assert found == wanted.results
    assert run.results == outer.results
    assert sum(p["deniedRows"] for p in run.progress) == sum(len(wanted.denied) for wanted in (*within, outer))


def nested(query: Query) -> Query:
    """Return a join whose streams that are joins have the times of their results."""
    own = NestedTimes(OWN_TIME, delayed=False)
    return replace(query, streams=tuple(replace(s, nested=own) if len(s.name) > 1 else s for s in query.streams))


def test_punctuations_wait_as_long_as_something_is_owed(tmp_path: Path) -> None:
    """Also those that no tuple matches: the outer join hears of them, and lets tuples go, once all is paid."""
    inner = make_join(spec("a", ENDS), spec("b", ENDS), WHERE["k"][0])
    outer = nested(make_join(as_stream("ab", inner), spec("c"), WHERE["k"][0], flat=False))
    run = Run(outer, Store(str(tmp_path)), inner={"j_0": inner}, spilling=Hand(in_stream(0, "j_0")))
    run.step(Central(), [(1, row(3, 7)), (1, row(4, 8))], within={"j_0": [(0, row(1, 7))]})
    run.step(Central(), [], within={"j_0": [(1, row(2, 7))]})
    run.step(Central(), [], within={"j_0": [(at, row(5, k, True)) for at in (0, 1) for k in (7, 8)]})
    for _ in range(4):
        run.step(Central(), [])
    assert not run.results and not marks(run)
    assert run.progress[-1]["distinctRows"] == 2
    pay_all(run, Hand())
    assert run.results == {((1, 3), 3): 1}
    for _ in range(4):
        run.step(Central(), [])
    assert marks(run) == 4 and run.progress[-1]["distinctRows"] == 1  # the result of the inner join: c is not closed


def marks(run: Run) -> int:
    """Return how many punctuations the outer join has heard of."""
    return sum(file.rows for promised in state_of(run).constraints[0] for file in promised.files)
