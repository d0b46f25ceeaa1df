"""What spilling keeps: all members of owed results, and nothing more once they have come."""

from pathlib import Path
from typing import Any

import pytest

from tests.batch.test_engine import SCHEMA
from tests.spilling.dice import Dice
from tests.spilling.hand import Hand, at_times
from tests.spilling.trees import Setting, brute_force, given, settled, started
from tests.spilling.watch import state_of
from watersmeet.placement import Central
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Count, Sliding, Window
from watersmeet.spilling.controller import Controller
from watersmeet.spilling.interface import PayAll
from watersmeet.spilling.options import Spill
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run

EVERYTHING = Dice(spill=1.0, pay=0.0)


def run_of(folder: Path, *windows: Window, delay: int = 0, **more: Any) -> Run:
    streams = tuple(StreamSpec(n, SCHEMA, 1, w, delay) for n, w in zip("abcd", windows, strict=False))
    return Run(Query(streams, (), ""), Store(str(folder)), **more)


def row(number: int, ts: int) -> dict[str, Any]:
    return {"id": number, "ts": ts, "x": 0.0, "k": "p"}


def test_a_unit_goes_with_the_last_of_its_chunks(tmp_path: Path) -> None:
    """Otherwise rows of count windows, and what metadata close, would stay for ever: nobody pays what isn't there."""
    run = run_of(tmp_path, Sliding(5), Count(2))
    run.spilling = Controller(Spill(memory=1, interval="1 hour", oldest="1 hour"))
    run.step(Central(), [(0, row(0, 0))])
    assert state_of(run).ledger.units
    run.spilling = Controller(Spill(memory="1 TB", interval="1 hour", oldest="1 hour"))
    for batch in range(2, 12):
        run.step(Central(), [(0, row(10 * batch, 10 * batch)), (1, row(10 * batch + 1, 10 * batch + 1))])
    assert not state_of(run).ledger.batches and not state_of(run).ledger.units
    assert run.progress[-1]["distinctRows"] == 3  # the last of the first stream, and two rows of the second
    assert not run.run_round(Central(), all=True)


@pytest.mark.parametrize("rounds", [0, 1])
def test_who_puts_nothing_off_any_more_pays_what_is_owed(tmp_path: Path, rounds: int) -> None:
    run = run_of(tmp_path, Sliding(100), Sliding(100), spilling=EVERYTHING)
    for at in range(4):
        run.step(Central(), [(at % 2, row(at, at))])
    assert run.results.total() == 0
    run.spilling = PayAll()
    assert [run.run_round(Central()) for _ in range(rounds)] == [True] * rounds
    run.step(Central(), [(0, row(4, 4))])
    run.step(Central(), [(1, row(5, 5))])
    assert run.results.total() == 9 and not state_of(run).ledger.units
    assert not run.run_round(Central())


def test_a_round_takes_the_place_of_what_the_next_batch_was_to_pay(tmp_path: Path) -> None:
    """The state says what the next batch pays; a round comes first, and pays what it says itself."""
    run = run_of(tmp_path, Sliding(100), Sliding(100), spilling=Dice(spill=1.0, pay=1.0))
    for at in range(6):
        run.step(Central(), [(at % 2, row(at, at))])
        run.run_round(Central())
        assert max(run.results.values(), default=1) == 1
    run.spilling = PayAll()
    run.run_round(Central(), all=True)
    assert run.results.total() == 9


@pytest.mark.parametrize(("spilled", "probing"), [(50, 20), (20, 50)])
def test_what_is_settled_is_as_late_as_it_can_be(tmp_path: Path, spilled: int, probing: int) -> None:
    """An owed result is no earlier than its probing tuple, nor than the earliest tuple of the unit."""
    run = run_of(tmp_path, Sliding(1000), Sliding(1000), delay=100, spilling=Hand(spills=at_times(spilled)))
    run.step(Central(), [(0, row(0, spilled))])
    run.spilling = Hand()
    run.step(Central(), [(1, row(1, probing))])
    run.step(Central(), [(0, row(2, 300)), (1, row(3, 300))])
    assert state_of(run).watermark == 200 and state_of(run).settled == 50
    run.run_round(Central(), all=True)
    assert run.results[(0, 1), 50] == 1 and state_of(run).settled == 200


@pytest.mark.long
@pytest.mark.parametrize("window", [oracle.Unbounded(), oracle.Sliding(1000)])
def test_what_time_closes_waits_for_what_inner_joins_owe(tmp_path: Path, window: oracle.Window) -> None:
    """The tuple of the outer join that only earlier ones can join is dead once all of them have come."""
    windows: dict[str, list[oracle.Window]] = {"j_0": [oracle.Sliding(60)] * 2, "j": [window] * 2}
    where = {"j_0": ["{0}.k = {1}.k"], "j": ["{0}.at < {1}.at"]}
    setting = Setting((("a", "b"), "d"), windows, dict.fromkeys("abd", 0), where)
    batches: list[dict[str, list[dict[str, Any]]]] = [
        {"a": [{"id_a": 1, "at": 30, "x": 0, "k": "p"}]},
        {"b": [{"id_b": 2, "at": 40, "x": 0, "k": "p"}], "d": [{"id_d": 3, "at": 50, "x": 0, "k": "p"}]},
        *({n: [{f"id_{n}": at, "at": at, "x": 0, "k": n}] for n in "abd"} for at in (200, 201, 202)),
    ]
    tree = started(setting, str(tmp_path), Hand(spills=at_times(30, path="j_0")))
    for rows in batches:
        within = given(setting.shape, rows)
        tree.step(Central(), within.pop("j"), within=within)
        tree.watch()
    tree.spilling = Hand()
    settled(tree)
    assert tree.results == brute_force(setting, batches)["j"].results() and tree.results.total() == 4
