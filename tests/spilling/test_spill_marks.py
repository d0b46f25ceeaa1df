"""The controller under random marks and clocks: hot state stays below the limit, and nothing is owed for long.

Property 8 of the design.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.budget import search
from tests.spilling.test_spill_controller import policies
from tests.spilling.test_state import row, run_of
from tests.spilling.trees import TreeRun, brute_force, settled, started, states, tree_cases
from tests.spilling.trees import given as by_path
from tests.spilling.watch import state_of
from watersmeet.placement import Central
from watersmeet.query.query import Query
from watersmeet.query.windows import Sliding
from watersmeet.spilling.controller import Controller
from watersmeet.spilling.options import Spill
from watersmeet.spilling.parts import KEY_BYTES
from watersmeet.spilling.paying_tuples import unit_reaches
from watersmeet.state.chunks.chunk import HOT, Chunk
from watersmeet.testing.run import Run

SECOND = 1_000_000
spills_of = st.builds(
    Spill,
    memory=st.sampled_from([1, 300, 1000, 3000]),
    policy=policies,
    pay=st.one_of(st.none(), policies),
    partitions=st.sampled_from([1, 4]),
    share=st.sampled_from([0.1, 0.3, 1.0]),
    low=st.sampled_from([0.3, 0.85]),
    interval=st.sampled_from(["0 seconds", "2 seconds", "5 seconds"]),
    oldest=st.sampled_from(["0 seconds", "3 seconds", "10 minutes"]),
)


def hot(run: Run) -> Iterator[tuple[Query, Chunk]]:
    """Yield the chunks of all joins that are hot and that a tuple may still probe which isn't late."""
    for path, state in states(state_of(run)):
        query = run.inner.get(path, run.query)
        for chunk in state.chunks.values():
            deadline = int(query.streams[chunk.stream].window.deadline(np.array([chunk.high]))[0])
            if chunk.unit == HOT and (state.watermark is None or query.counted_streams or deadline >= state.watermark):
                yield query, chunk


def hot_bytes(run: Run) -> int:
    return sum(
        chunk.bytes + KEY_BYTES * chunk.rows * len(query.indexed_columns[chunk.stream]) for query, chunk in hot(run)
    )


def assert_young(run: Run, spill: Spill, now: int) -> None:
    """What has been owed for long enough is paid in the step that follows, whatever else there is to do."""
    for path, state in states(state_of(run)):
        reach = unit_reaches(run.inner.get(path, run.query), state.chunks.values())
        for unit in state.ledger.units:
            for number, was in state.ledger.owing_batches(unit, reach.get(unit.number)):
                if was.rows and was.at <= now - spill.oldest_us:
                    assert unit.pay is not None and unit.pay > number


@pytest.mark.long
@search(12)
@given(
    case=tree_cases([("a", "b"), ("a", "b", "c"), (("a", "b"), "c")]),
    spill=spills_of,
    clock=st.lists(st.integers(0, 4), min_size=20, max_size=20),
)
def test_what_is_hot_stays_below_the_mark(case: dict[str, Any], spill: Spill, clock: list[int]) -> None:
    expected, now, returns = brute_force(case["setting"], case["batches"]), 0, list[int]()
    with TemporaryDirectory() as folder:
        run = started(case["setting"], folder, Controller(spill, "seed"))
        run.partitions = spill.partitions
        for at, passed in enumerate(clock[: len(case["batches"]) + 4]):
            now += passed * SECOND
            rows = by_path(case["setting"].shape, case["batches"][at] if at < len(case["batches"]) else {})
            run.step(case["strategies"][at % len(case["strategies"])], rows.pop("j"), within=rows, now=now)
            run.watch()
            watched(run, spill, now, returns)
            if passed == 3 and run.run_round(Central(), now=now):
                run.watch()
                watched(run, spill, now, returns)
        run.spilling = Controller(Spill(memory="1 TB"))
        settled(run)
    assert run.results == expected["j"].results()
    intervals = [later - earlier for earlier, later in pairwise(returns)]
    assert min(intervals, default=spill.interval_us) >= spill.interval_us


def watched(run: TreeRun, spill: Spill, now: int, returns: list[int]) -> None:
    assert spill.memory_bytes is not None
    assert hot_bytes(run) < spill.memory_bytes or not [*hot(run)]
    assert_young(run, spill, now)
    if any(unit.back for _, state in states(state_of(run)) for unit in state.ledger.units):
        returns.append(now)


# -- by hand


def overloaded(folder: Path, spill: Spill, steps: int) -> Run:
    """Return a join that was above its mark for some seconds, a step each."""
    run = run_of(folder, Sliding(1000), Sliding(1000), spilling=Controller(spill))
    for at in range(steps):
        run.step(Central(), [(at % 2, row(at, at))], now=at * SECOND)
    return run


@pytest.mark.long
def test_under_a_load_that_is_too_high_for_good_what_is_owed_is_paid_in_time(tmp_path: Path) -> None:
    spill = Spill(memory=1, oldest="3 seconds", interval="1 hour")
    run = run_of(tmp_path, Sliding(1000), Sliding(1000), spilling=Controller(spill))
    for at in range(12):
        run.step(Central(), [(0, row(2 * at, at)), (1, row(2 * at + 1, at))], now=at * SECOND)
        assert run.progress[-1]["spilling"]["decision"]["kind"] == "spill"
        assert_young(run, spill, at * SECOND)
        assert (run.progress[-1]["spilling"]["oldestOwed"] or 0) <= 4
    assert run.progress[-1]["settled"] >= 12 - 5


@pytest.mark.long
def test_when_the_load_is_over_units_return_though_old_results_are_paid(tmp_path: Path) -> None:
    spill = Spill(memory=1, oldest="5 seconds", interval="1 second")
    run = overloaded(tmp_path, spill, 10)
    run.spilling = Controller(replace(spill, memory="1 TB"))
    for at in range(10, 14):
        run.step(Central(), [(at % 2, row(at, at))], now=at * SECOND)
    assert not state_of(run).ledger.units
    assert run.results.total() == sum(one % 2 != two % 2 for one in range(14) for two in range(one))


@pytest.mark.parametrize("oldest", ["3 seconds", "1 hour"])
def test_a_clock_that_was_ahead_holds_nothing_back(tmp_path: Path, oldest: str) -> None:
    """Neither the return of units nor the payment of what is old: the clock of an earlier start may have been wrong."""
    ahead = 10_000 * SECOND
    run = run_of(tmp_path, Sliding(1000), Sliding(1000))
    sizes: list[str | int] = [1, 1, "1 TB", 1, 1]
    for at, size in enumerate(sizes):
        run.spilling = Controller(Spill(memory=size, oldest="1 hour", interval="2 seconds"))
        run.step(Central(), [(at % 2, row(at, at))], now=ahead + at * 10 * SECOND)
    memory: str | int = 1 if oldest == "3 seconds" else "1 TB"
    run.spilling = Controller(Spill(memory=memory, oldest=oldest, interval="2 seconds"))
    for at in range(5, 11):
        run.step(Central(), [(at % 2, row(at, at))], now=at * SECOND)
    if memory == 1:
        assert run.progress[-1]["settled"] >= 5
    else:
        assert not state_of(run).ledger.units
