"""DSJ: slices shared by all streams, the node each goes to, what is kept between batches, equations 1 and 7."""

import json
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.batch.scatter import Scatter
from tests.batch.test_engine import cases, run_case, scattered
from tests.budget import FEW
from watersmeet.cost.equations import buffer_bound, slices_needed
from watersmeet.errors import DefinitionError
from watersmeet.placement import PSP
from watersmeet.placement.dsj import DSJ, DsjLayout, DsjNotes, DsjPlacement, buffer_bounds, recut
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.manifest.view import LONGEST_SLICE, StateView, StoredNotes, StreamView, Usage


def view(latest: int | None, notes: DsjNotes | None = None, usage: tuple[Usage, ...] = (), **more: Any) -> StateView:
    """Two streams, with windows of 20 and 10, stored for 40 and 30."""
    streams = (StreamView(40, latest, window=20), StreamView(30, None, window=10))
    return StateView(streams, notes=StoredNotes() if notes is None else notes.kept(), usage=usage, **more)


def plan(strategy: DSJ, state: StateView) -> DsjPlacement:
    return strategy.plan(state).placement


def moves(strategy: DSJ, state: StateView) -> dict[str, tuple[int, ...]]:
    chunks = strategy.plan(state).assign_owners(state.chunks)
    return {now.id: now.owners for old, now in zip(state.chunks, chunks, strict=True) if now.owners != old.owners}


def chunk(name: str, low: int, high: int, *owners: int) -> Chunk:
    return Chunk(name, 0, 0, low, high + 1, WHOLE, 10, 80, low, high, owners, Place("p", 0, 0, ""))


def owners(placement: DsjPlacement, *numbers: int) -> list[int]:
    by_stream = [placement.owners(stream, at * placement.length, WHOLE) for at in numbers for stream in (0, 1)]
    assert by_stream[::2] == by_stream[1::2]  # all streams share slices and owners
    return [node for (node,) in by_stream[::2]]


def test_all_streams_share_slices_of_one_length() -> None:
    assert [plan(DSJ(4, slices=8), view(None)).slice_length(stream) for stream in (0, 1)] == [5, 5]
    assert plan(DSJ(4), view(None)).length == 10  # one a node
    assert plan(DSJ(4, slices=100), view(None)).length == 1
    assert plan(DSJ(4, slices=2), StateView((StreamView(None), StreamView(None)))).length == LONGEST_SLICE // 2


def test_slices_go_round_before_anything_is_measured() -> None:
    assert owners(plan(DSJ(3), view(None)), -2, -1, 0, 1, 2, 3) == [1, 2, 0, 1, 2, 0]


def test_a_slice_goes_to_the_least_loaded_node_including_slices_assigned_before() -> None:
    usage = (Usage(memory=3), Usage(memory=1), Usage(memory=0))
    # Loads are 0.75, 0.25 and 0, a slice adds 1/8, and the lower node wins a tie. A window of 20 is 4 slices of 5, too
    # many for 3 nodes to keep apart.
    placement = plan(DSJ(3, slices=8), view(100, usage=usage))
    assert placement.first == 20
    assert placement.table[:6] == (2, 2, 1, 2, 1, 2)


def test_slices_of_a_window_lie_on_distinct_nodes_where_there_are_enough() -> None:
    usage = (Usage(cpu=8), Usage(cpu=1), Usage(cpu=0), Usage(cpu=0), Usage(cpu=0))
    placement = plan(DSJ(5, slices=8), view(100, usage=usage))  # a window of 20 is 4 slices of 5
    assert placement.table[:4] == (2, 3, 4, 1)
    for at in range(len(placement.table) - 3):
        assert len(set(placement.table[at : at + 4])) == 4
    beyond = placement.first + len(placement.table)
    for at in range(beyond - 4, beyond + 20):
        assert len(set(owners(placement, *range(at, at + 4)))) == 4


def test_beyond_the_plan_the_nodes_take_turns() -> None:
    placement = DsjPlacement(4, 10, 5, (0, 1, 2, 1, 0))
    assert owners(placement, *range(3, 15)) == [3, 0, 0, 1, 2, 1, 0, 3, 2, 1, 0, 3]


def test_capacities_and_weights_count() -> None:
    usage = (Usage(cpu=2, memory=1), Usage(cpu=1, memory=1), Usage(cpu=1, memory=2))
    assert plan(DSJ(3, 8, (1, 0, 0)), view(0, usage=usage)).table[0] == 1
    assert plan(DSJ(3, 8, (0, 1, 0), capacities=(2, 1, 1)), view(0, usage=usage)).table[0] == 0


def test_slices_that_began_stay_and_others_are_assigned_anew() -> None:
    strategy = DSJ(3, slices=4)
    layout = strategy.plan(view(100))
    before = layout.placement
    after = view(125, chunks=(chunk("x", 81, 88, 2), chunk("y", 120, 125, 0)))
    notes = DsjNotes.read(StoredNotes(*json.loads(json.dumps(layout.keep(after)))))
    assert notes == DsjNotes(10, 8, tuple(owners(before, 8, 9, 10, 11, 12)))
    loaded = (Usage(cpu=5), Usage(cpu=0), Usage(cpu=5))
    following = plan(strategy, view(125, notes, loaded))
    assert owners(following, 8, 9, 10, 11, 12) == list(notes.owners)
    assert DsjLayout(DsjPlacement(3, 10)).keep(view(None)) == StoredNotes()


def test_with_fewer_nodes_slices_move_as_their_chunks_do() -> None:
    notes = DsjNotes(10, 0, (4, 1, 3))
    state = view(25, notes, chunks=(chunk("x", 0, 9, 4), chunk("y", 10, 19, 1), chunk("z", 20, 25, 3)))
    placement = plan(DSJ(3, slices=4), state)
    assert owners(placement, 0, 1, 2) == [1, 1, 0]
    assert moves(DSJ(3, slices=4), state) == {"x": (1,), "z": (0,)}


def test_chunks_of_another_strategy_go_where_their_times_belong() -> None:
    state = view(25, chunks=(chunk("x", 0, 8, 0), chunk("y", 8, 14, 0, 1), chunk("z", 20, 25, 2)))
    placement = plan(DSJ(3, slices=4), state)
    assert owners(placement, 0, 1, 2) == [0, 1, placement.table[0]] == [0, 1, 0]
    assert moves(DSJ(3, slices=4), state) == {"y": (1,), "z": (0,)}


def test_another_number_of_slices_cuts_anew_and_keeps_the_owners() -> None:
    notes = DsjNotes(10, 1, (2, 0, 1))
    assert owners(plan(DSJ(3, slices=8), view(35, notes)), *range(2, 8)) == [2, 2, 0, 0, 1, 1]
    assert owners(plan(DSJ(3, slices=2), view(35, notes)), 1) == [0]  # the slice from 20
    assert recut(DsjPlacement(2, 10, -2, (1, 0)), 10) == DsjPlacement(2, 10, -2, (1, 0))


def test_slices_are_not_cut_anew_for_little() -> None:
    notes = DsjNotes(10, 1, (2, 0, 1))
    assert plan(DSJ(5), view(35, notes)).length == 10  # 8 would be right
    assert plan(DSJ(8), view(35, notes)).length == 5


def test_equation_1() -> None:
    assert buffer_bound(100, 20) == 2000
    assert buffer_bound(10, 4, calculation=1, transmission=0.5) == 55
    second = 1_000_000
    streams = (StreamView(4 * second, rate=10.0, rows=20), StreamView(3 * second, rate=5.0))
    state = StateView(streams, usage=(Usage(cpu=10), Usage(cpu=20)))
    assert buffer_bounds(state) == (55, 28)  # 1.5 s a tuple
    facts = DsjLayout(DsjPlacement(2, 5_000_000)).facts(replace(state, names=("a", "b")))
    assert facts == {"sliceSeconds": 5.0, "bufferRows": {"a": 55, "b": 28}}


def test_equation_7() -> None:
    assert slices_needed(0.0, 0.0, [1.0], 0, 1) == 1
    assert slices_needed(0.01, 0.01, [100, 200], 0, 1) == 6  # work: 2 x 0.01 s x 300
    assert slices_needed(0.0, 0.0, [1, 1, 1], buffer=10, memory=4) == 8  # memory: 30 / 4
    second = 1_000_000
    busy = StateView((StreamView(4 * second, rate=100.0, rows=100),) * 2, usage=(Usage(cpu=6),))
    assert DSJ(2).slice_count(busy) == 6  # 0.03 s a tuple, 200 tuples a second
    assert DSJ(8).slice_count(busy) == 8  # at least one a node
    assert DSJ(2, slices=3).slice_count(busy) == 3
    large = StateView((StreamView(4 * second, rate=10.0),) * 2, (chunk("x", 0, 9, 0),))  # 40 tuples of 8 bytes each
    assert DSJ(2, memory=100).slice_count(large) == 7


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": 0},
        {"slices": 0},
        {"slices": 2.5},
        {"weights": (1, 1)},
        {"weights": (0, 0, 0)},
        {"weights": (1, -1, 1)},
        {"capacities": (1,)},
        {"nodes": 2, "capacities": (1, 0)},
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="="):
        DSJ(**options)


strategies_of = st.one_of(
    st.builds(DSJ, st.integers(1, 5), st.one_of(st.none(), st.integers(1, 9))),
    st.builds(DSJ, st.integers(1, 5)),
    st.integers(1, 4).map(PSP),
    st.builds(Scatter, st.integers(1, 5), st.integers(0, 1000)),
)


@pytest.mark.long
@FEW
@given(case=st.one_of(cases(), scattered()), data=st.data())
def test_dsj_gives_the_oracles_results_among_other_strategies(case: dict[str, Any], data: st.DataObject) -> None:
    case["strategies"] = [data.draw(strategies_of) for _ in case["batches"]]
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results


@FEW
@given(case=cases(), data=st.data())
def test_dsj_keeps_one_copy_whatever_the_nodes_and_slices(case: dict[str, Any], data: st.DataObject) -> None:
    strategies = st.builds(DSJ, st.integers(1, 5), st.sampled_from([None, None, 2, 7]))
    case["strategies"] = [data.draw(strategies) for _ in case["batches"]]
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results
        assert all(p["stateRows"] == p["distinctRows"] for p in run.progress)
