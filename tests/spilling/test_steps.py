"""After every step of a single join with spilling by dice: what came is all but what is owed; units stay what they are.

Properties 2, 4 and 7 of the design.
"""

from contextlib import nullcontext
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.batch.test_engine import cases, prepared, scattered
from tests.budget import search
from tests.spilling.dice import Dice, without_spilling
from tests.spilling.test_settle import dice_of
from tests.spilling.watch import Watch, state_of
from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.limits import limited
from watersmeet.placement import Central
from watersmeet.query.windows import FOREVER, NEVER
from watersmeet.spilling.paying_tuples import unit_reaches
from watersmeet.testing.run import Run

lulls_of = st.lists(st.integers(0, 2), min_size=6, max_size=6)


def watched(case: dict[str, Any], dice: Dice, lulls: list[int], folder: str) -> Run:
    """Run a case with a look after each step; in the end all is paid."""
    run, batches, wanted = prepared(case, folder)
    run.spilling, watch = dice, Watch(run, wanted)
    for at, rows in enumerate(batches):
        with limited(**case["limits"][at]) if "limits" in case else nullcontext():
            how = case["strategies"][at], case["exchanges"][at], case["orderings"][at] or GIVEN_ORDER
            watch.brought(rows)
            run.step(how[0], rows, how[1], how[2])
            watch.look()
            for _ in range(lulls[at % len(lulls)]):
                if run.run_round(*how):
                    watch.look()
    run.spilling = without_spilling(dice)
    while run.run_round(Central(), all=True):
        watch.look()
    assert run.results == wanted.results
    assert sum(p["lateRows"] for p in run.progress) == len(wanted.late)
    assert sum(p["rejectedRows"] for p in run.progress) == len(wanted.rejected)
    assert not state_of(run).ledger.units and state_of(run).settled == state_of(run).watermark
    return run


@pytest.mark.long
@search(30)
@given(case=cases(), dice=dice_of, lulls=lulls_of)
def test_all_but_what_is_owed_has_come(case: dict[str, Any], dice: Dice, lulls: list[int]) -> None:
    with TemporaryDirectory() as folder:
        watched(case, dice, lulls, folder)


@pytest.mark.long
@search(15)
@given(case=scattered(), dice=dice_of, lulls=lulls_of)
def test_copies_by_several_hashes_are_of_one_unit(case: dict[str, Any], dice: Dice, lulls: list[int]) -> None:
    """Rows stored by several columns, replicas, and slices that share chunks, under merges and moves at every step."""
    with TemporaryDirectory() as folder, limited(many_slices=1, small_rows=3, merged_chunks=2, tier_rows=1):
        watched({name: found for name, found in case.items() if name != "limits"}, dice, lulls, folder)


@search(10)
@given(
    case=cases(),
    dice=dice_of,
    lulls=lulls_of,
    start=st.sampled_from([NEVER, NEVER // 4 - 20, FOREVER - 80]),
)
def test_event_times_are_any_that_a_timestamp_holds(
    case: dict[str, Any], dice: Dice, lulls: list[int], start: int
) -> None:
    moved = [[(n, None if t is None else start + t, x, k) for n, t, x, k in rows] for rows in case["batches"]]
    with TemporaryDirectory() as folder:
        watched(case | {"batches": moved, "limits": [{}] * len(moved)}, dice, lulls, folder)


def owes(run: Run) -> bool:
    """Whether some tuple has not asked all it should."""
    state = state_of(run)
    return state.ledger.owes(unit_reaches(run.query, state.chunks.values()))


UNMERGED = {"merged_chunks": 1 << 30, "merged_bytes": 0}


@pytest.mark.long
@search(40)
@given(case=cases(), dice=dice_of, lulls=lulls_of)
def test_if_nothing_is_owed_state_is_that_of_a_run_without_spilling(
    case: dict[str, Any], dice: Dice, lulls: list[int]
) -> None:
    """Property 4; chunks are not merged here, since they leave as a whole, and units keep others apart."""
    case = case | {"limits": [UNMERGED] * len(case["batches"]), "strategies": [Central()] * len(case["batches"])}
    dice = replace(dice, spill=0.3, pay=0.9)
    with TemporaryDirectory() as folder, TemporaryDirectory() as other:
        (run, batches, _), (plain, *_) = prepared(case, folder), prepared(case, other)
        run.spilling = dice
        with limited(**UNMERGED):
            for at, rows in enumerate(batches):
                plain.step(Central(), rows)
                run.step(Central(), rows)
                while owes(run) and lulls[at] and run.run_round(Central()):
                    pass
                one, two = run.progress[-1], plain.progress[-1]
                assert one["distinctRows"] >= two["distinctRows"] and one["watermark"] == two["watermark"]
                if not owes(run):
                    assert one["distinctRows"] == two["distinctRows"]
