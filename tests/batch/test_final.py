"""Joins that are closed for good: after the final round all that the oracle wants of ended streams is out."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from tests.batch import test_engine
from tests.batch.test_optional import (
    TWINS,
    cases,
    cases_with_tables,
    join_within,
    plain_case,
    run_case,
    steady,
    step_within,
)
from tests.budget import search
from tests.metadata.test_corners import run_of, step, unneeded
from tests.spilling.dice import Dice, without_spilling
from tests.spilling.test_settle import dice_of
from tests.spilling.trees import brute_force, started, stepped, tree_cases
from watersmeet.errors import StateError
from watersmeet.metadata.constraints import Constraint, ForeignKey, Key, SortOrder
from watersmeet.placement import PSP
from watersmeet.predicate.model import Column
from watersmeet.query import windows
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest import rounds
from watersmeet.state.manifest.rounds import Round
from watersmeet.state.store.file_format import seal, unseal
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

OPEN = [[("a", 1, 1.0, "p"), ("a", 2, 1.0, "q"), ("b", 3, 1.0, "q")], [("a", 7, 1.0, "p"), ("b", 7, 1.0, "q")]]
"""Nothing of it is closed by the watermark."""
PARTLY = plain_case("left", [[("a", t, 1.0, "p") for t in (1, 1, 2, 2)], [(n, 13, 1.0, n) for n in "ab"]])
PARTLY |= {"limits": [{"many_slices": 0}] * 2}
"""Tuples that the watermark closes stay in chunks with others that it does not."""


def assert_closed(run: Run) -> None:
    """Assert that a run is closed for good, and that nothing is left of its state."""
    state = manifests.last(run.store)
    assert state is not None and state.final and not state.chunks and not state.files
    assert all(part.final and not part.chunks for part in state.inner.values())
    assert run.progress[-1]["final"] and run.progress[-1]["round"] and run.progress[-1]["stateRows"] == 0
    assert not any(told["final"] for told in run.progress[:-1])
    assert unneeded(run.store, state) == set()


@pytest.mark.long
@search(25)
@given(case=st.one_of(cases(), cases_with_tables(), steady()))
@example(plain_case("left", [*TWINS, []], twins=True))
@example(plain_case("anti", OPEN))
@example(PARTLY)
def test_everything_is_closed_by_the_final_round(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder, final=True)
        assert run.results == wanted.results
        assert sum(told["lateRows"] for told in run.progress) == len(wanted.late)
        assert run.progress[-1]["watermark"] == run.progress[-2]["watermark"]
        assert_closed(run)


@pytest.mark.long
@search(15)
@given(case=cases(), start=st.sampled_from([windows.NEVER, windows.FOREVER - 80]))
def test_event_times_are_any_that_a_timestamp_holds(case: dict[str, Any], start: int) -> None:
    moved = [[(n, start + t, x, k) for n, t, x, k in rows] for rows in case["batches"]]
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case | {"batches": moved, "limits": [{}] * len(moved)}, folder, final=True)
        assert run.results == wanted.results


@pytest.mark.parametrize(("how", "more"), [("left", 2), ("semi", 0), ("anti", 2)])
def test_what_is_open_comes_in_the_final_round_and_in_no_other(tmp_path: Path, how: str, more: int) -> None:
    run, wanted = run_case(plain_case(how, OPEN), str(tmp_path), final=True)
    assert run.results == wanted.results
    assert run.progress[-1]["outputRows"] == more
    assert not run.finish(PSP(2)), "once is enough"
    assert len(run.progress) == len(OPEN) + 1 and run.results == wanted.results


def test_rows_that_come_afterwards_are_refused_and_batches_without_rows_are_not(tmp_path: Path) -> None:
    run, wanted = run_case(plain_case("anti", OPEN), str(tmp_path), final=True)
    run.step(PSP(2), [])
    row = {"id": 9, "ts": 90, "x": 1.0, "k": "p"}
    with pytest.raises(StateError, match=r"closed for good with option\('final', True\).*were not joined.*new output"):
        run.step(PSP(2), [(0, row)])
    state = manifests.last(run.store)
    assert state is not None and state.final and state.offered == len(OPEN) and not state.chunks
    assert run.results == wanted.results


def test_a_join_that_has_seen_no_rows_can_be_closed(tmp_path: Path) -> None:
    run, wanted = run_case(plain_case("anti", []) | {"limits": [{}], "strategies": [PSP(2)]}, str(tmp_path))
    assert run.finish(PSP(2)) and run.results == wanted.results == {}
    assert_closed(run)


@pytest.mark.parametrize("exchange", ["local", "shuffle"])
def test_joins_within_are_closed_along(tmp_path: Path, exchange: str) -> None:
    """The last pair is closed by its inner join's end, and so is the one that the watermark would close next."""
    run = join_within(tmp_path)
    for at in range(3):
        step_within(run, at, exchange)
    assert run.results == {((1, 9), 22): 1, ((0, None), 1): 1}
    run.finish(PSP(2), exchange)
    assert run.results == {((1, 9), 22): 1, ((0, None), 1): 1, ((2, None), 41): 1}
    assert_closed(run)
    with pytest.raises(StateError, match="closed for good"):
        step_within(run, 4, exchange)


@pytest.mark.long
@search(20)
@given(case=test_engine.cases(), dice=dice_of)
def test_what_is_owed_is_paid_first(case: dict[str, Any], dice: Dice) -> None:
    with TemporaryDirectory() as folder:
        run, batches, wanted = test_engine.prepared(case, folder)
        run.spilling = dice
        for rows, strategy, exchange in zip(batches, case["strategies"], case["exchanges"], strict=True):
            run.step(strategy, rows, exchange)
        run.spilling = without_spilling(dice)
        run.finish(case["strategies"][-1], case["exchanges"][-1])
        assert run.results == wanted.results
        assert_closed(run)


@pytest.mark.long
@search(8)
@given(case=tree_cases(), dice=dice_of)
def test_what_joins_within_owe_is_paid_first(case: dict[str, Any], dice: Dice) -> None:
    with TemporaryDirectory() as folder:
        run = started(case["setting"], folder, dice)
        for at in range(len(case["batches"])):
            stepped(run, case, at)
        run.spilling = without_spilling(dice)
        run.finish(PSP(2))
        assert run.results == brute_force(case["setting"], case["batches"])["j"].results()
        assert_closed(run)


def test_orphans_of_the_last_batch_are_told_of(tmp_path: Path) -> None:
    """They are known after it, and told of in the next; what still waits for a parent that might come is no orphan."""
    promises: dict[str, Sequence[Constraint]] = {"a": (Key((2,)), SortOrder(2)), "b": (ForeignKey(2, Column(0, 2)),)}
    run = run_of(tmp_path, "a.k = b.k", promises)
    step(run, *(("b", {"id": at, "ts": 0, "k": k, "j": 5}) for at, k in enumerate([3, 5, 99])))
    step(run, ("a", {"id": 3, "ts": 0, "k": 5, "j": 9}), ("a", {"id": 4, "ts": 0, "k": 9, "j": 9}))
    run.finish(PSP(2))
    assert [row["id"] for _, row in run.sides["orphan", "b"]] == [0]
    assert [told["orphanRows"] for told in run.progress] == [0, 0, 1]
    assert_closed(run)


@pytest.mark.parametrize("final", [True, False])
def test_what_a_round_does_is_read_as_it_was_written(tmp_path: Path, final: bool) -> None:
    store = Store(str(tmp_path))
    rounds.write_intent(store, Round(3, {}, final))
    assert rounds.read_intent(store, 3) == Round(3, {}, final)


def test_manifests_and_rounds_of_earlier_versions_are_read(tmp_path: Path) -> None:
    run, _ = run_case(plain_case("anti", OPEN[:1]), str(tmp_path))
    path = tmp_path / manifests.path_of(0)
    body = unseal(path.read_bytes(), "The manifest")
    assert body.pop("final") is False
    path.write_bytes(seal(body))
    state = manifests.last(run.store)
    assert state is not None and not state.final and state.chunks
    run.store.publish(rounds.path_of(1), seal({"batch": 1, "choices": {}}))
    assert rounds.read_intent(run.store, 1) == Round(1, {})
