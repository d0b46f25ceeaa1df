"""ATR: segments, alignment, frozen stretches, changes of master; and random streams against the oracle."""

import json
from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.batch.test_engine import band_case, cases, run_case
from tests.budget import FEW
from watersmeet.cost.equations import atr_overhead
from watersmeet.errors import DefinitionError
from watersmeet.placement.atr import ATR, AtrLayout, AtrNotes, AtrPlacement
from watersmeet.placement.base import check_load
from watersmeet.placement.psp import PSP
from watersmeet.placement.segments import ENDLESS, LOWEST, Era, Leftover, SegmentRun
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.view import ANYWHERE, StateView, StoredNotes, StreamView, Usage
from watersmeet.testing.run import Run

NONE = StoredNotes()


def stream(window: int | None, latest: int | None = None, rate: float = 0.0, rows: int = 0) -> StreamView:
    return StreamView(None if window is None else window + 5, latest, rows, 10, window, rate)


def chunk(at: int, low: int, high: int, owners: tuple[int, ...], name: str = "") -> Chunk:
    place = Place("file", 0, 0, "")
    return Chunk(name or f"{at}-{low}-{high}", at, 0, low, high + 1, WHOLE, 10, 100, low, high, owners, place)


def store_notes(layout: AtrLayout, after: StateView) -> StoredNotes:
    """Return the notes stored after a batch, through JSON."""
    return StoredNotes(*json.loads(json.dumps(layout.keep(after))))


def read_notes(kept: StoredNotes) -> AtrNotes:
    notes = AtrNotes.read(kept)
    assert notes is not None
    return notes


def placement_of(
    eras: tuple[Era, ...], windows: tuple[int | None, ...], leftovers: tuple[Leftover, ...] = ()
) -> AtrPlacement:
    masters = tuple(era.master for era in eras)
    return AtrPlacement(4, eras, windows, (1000,) * len(windows), leftovers, masters)


# -- segments and what is aligned with them

SEGMENTS = (SegmentRun(0, 10, (0, 1, 2, 3)),)


def test_a_master_tuple_is_kept_once_and_a_slave_wherever_it_may_join() -> None:
    placement = placement_of((Era(0, LOWEST, SEGMENTS),), (5, 3))
    assert placement.owners(0, 17, WHOLE) == (1,)
    # b@12 joins a from 8 to 14: not 7, which a strict window of 5 excludes, and not 15 by b's window of 3.
    assert placement.owners(1, 12, WHOLE) == (0, 1)
    assert placement.owners(1, 14, WHOLE) == (1,)
    assert placement.owners(1, 17, WHOLE) == (1,)
    assert placement.owners(1, 18, WHOLE) == (1, 2)


def test_slices_of_a_slave_end_where_its_owners_change() -> None:
    placement = placement_of((Era(0, LOWEST, SEGMENTS),), (5, 3))
    ts = np.arange(0, 80)
    for at in (0, 1):
        starts = placement.starts(at, ts)
        assert (starts <= ts).all()
        owners = [placement.owners(at, int(time), WHOLE) for time in ts]
        assert owners == [placement.owners(at, int(start), WHOLE) for start in starts]
    assert sorted(set(placement.starts(1, ts[10:20]).tolist())) == [8, 14, 18]


def test_owners_are_known_for_any_time() -> None:
    plan = ATR(3, "7 us").plan(StateView((stream(5), stream(None), stream(2)))).placement
    for start in (-(10**17), -13, 0, 1, 10**6, 10**17):
        for at in range(3):
            owners = plan.owners(at, start, WHOLE)
            assert owners and len(set(owners)) == len(owners) and set(owners) <= {0, 1, 2}
        assert plan.owners(1, start, WHOLE) == (0, 1, 2) or set(plan.owners(1, start, WHOLE)) == {0, 1, 2}
        assert (plan.starts(0, np.array([start])) <= start).all()


def test_a_master_tuple_visits_the_host_of_its_segment_and_a_slave_the_home_of_the_masters_chunk() -> None:
    placement = placement_of((Era(0, LOWEST, SEGMENTS),), (5, 3, 4))
    assert (placement.lead(0), placement.lead(1), placement.lead(2)) == ((), (0,), (0,))
    assert placement.stays_after() == 1
    assert placement.groups(0, np.array([3, 25]), {}).tolist() == [0, 2]
    assert placement.visit(2, 1, (1, 2), ANYWHERE) == 2
    undecided = placement.groups(1, np.array([12]), {})
    assert undecided.tolist() == [ANYWHERE] and placement.visit(ANYWHERE, 0, (1,), ANYWHERE) == 1
    groups = placement.groups(1, np.array([12]), {0: np.array([9])})
    assert placement.visit(int(groups[0]), 2, (1, 0), 0) == 0


# -- loads

STREAMS = (stream(10, 100, 5, 50), stream(10, 100, 1, 10))


def test_segments_go_to_the_least_loaded_node_and_spread() -> None:
    usage = (Usage(5.0, 10, 10), Usage(1.0, 10, 10), Usage(1.0, 10, 10))
    streams = (stream(100, 100, 5, 50), stream(100, 100, 1, 10))
    layout = ATR(3, "10 us").plan(StateView(streams, (chunk(0, 0, 100, (0,)),), usage=usage))
    ahead = layout.placement.eras[0].runs[-1]
    assert ahead.start == 110 and ahead.hosts[0] == 2
    assert set(ahead.hosts[:3]) == {1, 2} and 0 in ahead.hosts
    # Node 1 has the segment of now.
    assert ATR(3, "10 us").plan(StateView(STREAMS)).placement.eras[0].runs[-1].hosts[:3] == (0, 2, 0)


def test_segments_that_wait_for_data_are_counted() -> None:
    era = Era(0, LOWEST, (SegmentRun(0, 10, (0, 1, 2)), SegmentRun(60, 5, (3,)), SegmentRun(70, ENDLESS, (ANYWHERE,))))
    assert era.segment_counts(25, 69, 4) == [1, 1, 2, 2]
    assert era.segment_counts(70, 69, 4) == era.segment_counts(75, 90, 4) == [0, 0, 0, 0]


def test_a_node_of_twice_the_capacity_gets_twice_the_segments() -> None:
    plan = ATR(2, "1 us", capacities=(1.0, 2.0)).plan(StateView((stream(60, 0), stream(60, 0)))).placement
    nodes = plan.eras[0].runs[-1].hosts
    assert nodes.count(1) == pytest.approx(2 * nodes.count(0), abs=2)


def test_what_a_load_is_made_of_is_checked() -> None:
    with pytest.raises(DefinitionError, match="three numbers"):
        check_load(2, (1, 1), ())
    with pytest.raises(DefinitionError, match="for each of the 2 nodes"):
        ATR(2, capacities=(1.0,))
    with pytest.raises(DefinitionError, match="longer than zero"):
        ATR(2, segment="0 seconds")
    with pytest.raises(DefinitionError, match="position"):
        ATR(2, master=1.5)  # type: ignore[arg-type]
    for wrong in (-1, 2, "c"):
        assert "none of the streams; they are a, b" in (
            ATR(2, master=wrong).refusal(StateView(STREAMS, names=("a", "b"))) or ""
        )
    assert ATR(2, master=1).refusal(StateView(STREAMS)) is None
    assert ATR(2, master="b").resolve_streams(["a", "b"]) == ATR(2, master=1)


# -- the overhead


def test_the_overhead_is_equation_2() -> None:
    # M = S_1: (20 + 10) / 40 * 50 + (30 + 10) / 40 * 10.
    assert atr_overhead([100, 50, 10], [10, 20, 30], 40, 0) == 37.5 + 10
    # M = S_3: (10 + 30) / 40 * 100 + (20 + 30) / 40 * 50.
    assert atr_overhead([100, 50, 10], [10, 20, 30], 40, 2) == 100 + 62.5
    assert atr_overhead([100, 50], [10, inf], 40, 0, nodes=4) == 150


@pytest.mark.parametrize("length", [20, 40, 60])
def test_the_overhead_is_what_steady_streams_cost(length: int) -> None:
    windows, rates = (20, 10, 15), (1e6, 1e6, 5e5)
    plan = ATR(8, f"{length} us", master=0).plan(StateView(tuple(stream(w) for w in windows))).placement
    ticks = np.arange(10_000, 16_000)
    copies = [
        sum(len(plan.owners(at, start, WHOLE)) - 1 for start in plan.starts(at, ticks[:: int(1e6 / rate)]).tolist())
        for at, rate in enumerate(rates)
    ]
    extra = sum(copies) / (len(ticks) / 1e6)
    assert extra == pytest.approx(atr_overhead(rates, windows, length, 0), rel=0.1)


def test_the_overhead_is_what_the_engine_keeps(tmp_path: Any) -> None:
    rows = [[("ab"[t % 2], 97 * b + t, float(t % 40), "p") for t in range(97)] for b in range(8)]
    run, _ = run_case(band_case(rows, [30, 20], [ATR(6, "60 us", master=0)] * 8, delay=10_000), str(tmp_path))
    state = manifests.load(run.store, run.batch)
    assert state is not None and run.progress[-1]["distinctRows"] == 8 * 97
    slaves = [chunk for chunk in state.chunks.values() if chunk.stream == 1]
    extra = sum(chunk.rows * (len(chunk.owners) - 1) for chunk in slaves) / sum(chunk.rows for chunk in slaves)
    assert extra == pytest.approx(atr_overhead([0, 1], [30, 20], 60, 0), rel=0.1)
    facts = run.progress[-1]["placement"]
    assert facts["master"] == "a" and facts["segmentSeconds"] == 60e-6
    assert run.progress[-1]["stateRows"] / (8 * 97) == pytest.approx(facts["expectedCopies"], rel=0.1)


# -- frozen stretches


def test_what_tuples_depend_on_is_frozen_and_the_rest_is_free() -> None:
    strategy = ATR(4, "10 us", master=0)
    layout = strategy.plan(StateView((stream(20), stream(5))))
    after = StateView((stream(20, 33, 1.0), stream(5, 30, 1.0)), (chunk(0, 14, 33, (1,)), chunk(1, 3, 30, (0,))))
    after = replace(after, notes=store_notes(layout, after))
    assert read_notes(after.notes).end == 60  # 33 + 20 lies in the segment that ends at 60
    usage = (Usage(9.0, 9, 9), Usage(1.0, 1, 1), Usage(9.0, 9, 9), Usage(9.0, 9, 9))
    following = ATR(4, "7 us", master=0).plan(replace(after, usage=usage))
    first, second = layout.placement, following.placement
    for time in range(0, 60):
        assert first.owners(0, time, WHOLE) == second.owners(0, time, WHOLE)
    # Of the segments that wait for data, 3 and 0 have one each and 1, which did little so far, has one as well.
    assert second.eras[0].segment_end(60) == 67 and second.owners(0, 60, WHOLE) == (2,)
    assert second.owners(0, 67, WHOLE) == (1,)
    for time in range(0, 34):
        assert set(first.owners(1, time, WHOLE)) == set(second.owners(1, time, WHOLE))
    assert not following.moves


def test_segments_that_nothing_depends_on_any_more_are_dropped() -> None:
    strategy, state, runs = ATR(3, "10 us", master=0), StateView((stream(20), stream(5))), []
    for now in range(0, 2000, 50):
        layout = strategy.plan(state)
        live = (chunk(0, now - 30, now, (0,)), chunk(1, now - 30, now, (0,)))
        state = StateView((stream(20, now, 1.0), stream(5, now, 1.0)), live)
        state = replace(state, notes=store_notes(layout, state))
        runs.append(sum(len(nodes) for _, _, era in read_notes(state.notes).eras for _, _, nodes in era))
    assert max(runs) < 30


def test_frozen_segments_follow_a_change_of_nodes_as_chunks_do() -> None:
    state = StateView((stream(20), stream(5)))
    layout = ATR(5, "10 us", master=0).plan(state)
    after = StateView(
        (stream(20, 49, 1.0), stream(5, 49, 1.0)),
        tuple(chunk(0, at, at + 9, layout.placement.owners(0, at, WHOLE)) for at in range(0, 50, 10)),
    )
    for nodes in (2, 5):
        layout = ATR(nodes, "10 us", master=0).plan(replace(after, notes=store_notes(layout, after)))
        chunks = layout.assign_owners(after.chunks)
        assert [c.owners for c in chunks] == [layout.placement.owners(0, c.low, WHOLE) for c in chunks]
        assert not layout.placement.leftovers
        after = replace(after, chunks=chunks)


# -- after another strategy


def test_chunks_of_another_strategy_are_segments_of_their_own() -> None:
    old = (chunk(0, 30, 49, (2, 1)), chunk(1, 35, 49, (3,)), chunk(1, 20, 25, (3,)), chunk(0, 50, 52, (7,)))
    state = StateView((stream(20, 52, 1.0), stream(5, 52, 1.0)), old)
    layout = ATR(4, "1000 us", master=0).plan(state)
    plan, moves = layout.placement, layout.moves
    host = plan.eras[0].nodes_at(np.array([52]))[0]
    assert host == 0 and set(plan.leftovers) == {Leftover(30, 49, 2), Leftover(50, 52, 3)}
    assert moves["0-30-49"] == (2,) and moves["0-50-52"] == (3,)
    assert set(moves["1-35-49"]) == {0, 2, 3} and set(moves["1-20-25"]) == {0}
    assert set(plan.owners(1, 68, WHOLE)) == {0, 2, 3}
    assert set(plan.owners(1, 69, WHOLE)) == {0, 3}
    assert set(plan.owners(1, 72, WHOLE)) == {0}


# -- changes of master


def changing() -> AtrPlacement:
    """A (window 6) is the master until 10, on node 1 at the last; then b (window 6), on node 2."""
    old = Era(0, LOWEST, (SegmentRun(0, 10, (1,)), SegmentRun(10, ENDLESS, (ANYWHERE,))))
    new = Era(1, 10, (SegmentRun(LOWEST, ENDLESS, (1,)), SegmentRun(10, 10, (2, 3))))
    return placement_of((old, new), (6, 6, 6))


def test_a_result_across_a_change_of_master_meets_on_one_node() -> None:
    placement = changing()
    assert placement.tracked == (0, 1) and placement.stays_after() == 2
    assert [placement.lead(at) for at in range(3)] == [(1,), (0,), (0, 1)]
    # a@9, c@11, b@12 with t_s = 10: the node of a's last segment has them all.
    owners = [placement.owners(at, ts, WHOLE) for at, ts in ((0, 9), (2, 11), (1, 12))]
    assert owners[0] == (1,) and all(1 in nodes for nodes in owners)
    assert placement.groups(0, np.array([9]), {}).tolist() == [1]
    # a@11, b@9: the node of a's last segment; a@11, b@12: that of b's.
    assert placement.groups(1, np.array([9, 12]), {0: np.array([11, 11])}).tolist() == [1, 2]
    assert placement.groups(2, np.array([11]), {0: np.array([11])}).tolist() == [ANYWHERE]
    assert placement.owners(1, 12, WHOLE)[0] == 2
    # c@11 with a@11 goes to where b's tuples are at home, even if it finds some of them where it is.
    assert placement.visit(ANYWHERE, 1, (2, 1), 1) == 2


def test_any_result_across_a_change_of_master_is_kept_whole_on_its_node() -> None:
    placement, times = changing(), range(0, 24)
    for a in times:
        for b in times:
            for c in times:
                if max(a, b, c) - min(a, b, c) < 6:
                    group = int(placement.groups(2, np.array([c]), {0: np.array([a]), 1: np.array([b])})[0])
                    assert all(group in placement.owners(at, ts, WHOLE) for at, ts in enumerate((a, b, c)))


def test_the_master_changes_when_rates_do_but_only_by_a_margin() -> None:
    strategy = ATR(4, "20 us")
    state = StateView((stream(10, 100, 9.0), stream(10, 100, 10.0)))
    layout = strategy.plan(state)
    assert layout.placement.tracked == (1,)
    state = replace(state, notes=store_notes(layout, state))
    near = replace(state, streams=(stream(10, 100, 11.0), stream(10, 100, 10.0)))
    assert strategy.plan(near).placement.tracked == (1,)
    far = replace(state, streams=(stream(10, 100, 40.0), stream(10, 100, 10.0)))
    plan = strategy.plan(far).placement
    assert plan.tracked == (1, 0) and plan.eras[1].start == read_notes(state.notes).end


def test_a_second_change_of_master_waits_for_the_first() -> None:
    def after(now: int, low: int, kept: StoredNotes = NONE) -> StateView:
        return StateView((stream(10, now), stream(10, now)), (chunk(0, low, now, (0,)),), kept)

    first = ATR(4, "20 us", master=0)
    one = store_notes(first.plan(StateView((stream(10), stream(10)))), after(5, 0))
    second, third = ATR(4, "20 us", master=1), ATR(4, "20 us", master=0)
    layout = second.plan(after(5, 0, one))
    assert layout.placement.tracked == (0, 1) and layout.placement.eras[1].start == 20
    two = store_notes(layout, after(60, 15))
    assert third.plan(after(60, 15, two)).placement.tracked == (0, 1)
    assert third.plan(after(60, 25, two)).placement.tracked == (1, 0)


def test_a_change_of_master_that_no_tuple_reached_is_taken_back() -> None:
    first, second = ATR(4, "20 us", master=0), ATR(4, "20 us", master=1)
    state = StateView((stream(10, 5), stream(10, 5)))
    state = replace(state, notes=store_notes(first.plan(StateView((stream(10), stream(10)))), state))
    layout = second.plan(state)
    assert layout.placement.tracked == (0, 1)
    assert first.plan(replace(state, notes=store_notes(layout, state))).placement.tracked == (0,)


# -- the segment length


def test_a_segment_length_that_is_not_given_follows_the_windows() -> None:
    state = StateView((stream(30), stream(20), stream(None)))
    assert ATR(2, None).plan(state).search.segment == 60
    assert ATR(2, None).describe() == "ATR(nodes=2, segment=by windows)"


def test_the_search_climbs_to_the_segment_length_of_the_best_throughput() -> None:
    strategy, now = ATR(2, "40 us", master=0, search=True), 0
    state = StateView((stream(10), stream(10)))
    lengths = []
    for _ in range(60):
        layout = strategy.plan(state)
        now += 100
        lengths.append(layout.search.segment)
        # Throughput is best at 60: the busiest node is slower the further away the length is.
        usage = (Usage(0.5), Usage(1.0 + abs(layout.search.segment - 60) / 20))
        state = StateView((stream(10, now, 1, 100), stream(10, now, 1, 100)), usage=usage)
        state = replace(state, notes=store_notes(layout, state))
    assert lengths[0] == 40 and 70 in lengths and lengths[-1] == 60
    assert {b - a for a, b in pairwise(lengths)} <= {-20, -10, 0, 10}


def test_a_search_can_be_started_and_stopped_between_batches() -> None:
    state = StateView((stream(10, 5), stream(10, 5)))
    steps = []
    for search in (False, True, False):
        strategy = ATR(2, "40 us", search=search)
        layout = strategy.plan(state)
        steps.append(layout.search.step)
        state = replace(state, notes=store_notes(layout, state))
    assert steps == [0, 10, 0]


# -- through the engine


def masters(run: Run) -> list[int]:
    state = manifests.load(run.store, run.batch)
    assert state is not None
    return [era.master for era in read_notes(state.learned.strategy).eras]


@pytest.mark.long
@pytest.mark.slow
def test_results_and_places_are_right_through_changes_of_master(tmp_path: Any) -> None:
    rows = [[("abcd"[(i * 7) % 4], 6 * b + (i * 5) % 11, 1.0, "p") for i in range(20)] for b in range(12)]
    strategies = [ATR(4, "3 us", master=(0, 1, 2)[b // 4]) for b in range(12)]
    run, expected = run_case(band_case(rows, [6, 5, 7, 4], strategies), str(tmp_path))
    assert run.results == expected.results and sum(run.results.values()) > 1000
    assert all(p["strays"] == 0 for p in run.progress)
    leads = ["".join(p["order"]["d"][0]) for p in run.progress]
    assert leads[0] == "abc" and leads[-1].startswith("c") and {"bac", "bca"} & set(leads)
    assert masters(run)[-1] == 2
    assert [p["changes"]["master"] for p in run.progress if "master" in p["changes"]] == [["a", "b"], ["b", "c"]]


@pytest.mark.long
def test_rates_that_change_make_another_stream_the_master(tmp_path: Any) -> None:
    def name(batch: int, t: int) -> str:
        return ("aaab" if batch < 3 else "bbba")[t % 4] if t % 9 else "c"

    rows = [[(name(b, t), 10 * b + t % 10, float(t % 5), "p") for t in range(36)] for b in range(10)]
    run, expected = run_case(band_case(rows, [5, 5, 5], [ATR(4, "10 us")] * 10), str(tmp_path))
    assert run.results == expected.results
    assert all(p["strays"] == 0 for p in run.progress)
    assert masters(run) == [1]


options = st.builds(
    ATR,
    st.integers(1, 5),
    st.sampled_from(["1 us", "3 us", "7 us", "12 us", None]),
    st.sampled_from([None, 0, 1]),
    st.booleans(),
)


@FEW
@given(case=cases(), data=st.data())
def test_atr_gives_the_oracles_results_and_nothing_strays(case: dict[str, Any], data: st.DataObject) -> None:
    case["strategies"] = [data.draw(options) for _ in case["batches"]]
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results
        assert [p["strays"] for p in run.progress] == [0] * len(run.progress)


@pytest.mark.long
@FEW
@given(case=cases(), data=st.data())
def test_atr_in_turn_with_other_strategies(case: dict[str, Any], data: st.DataObject) -> None:
    some = st.one_of(options, options, st.integers(1, 5).map(PSP))
    case["strategies"] = [data.draw(some) for _ in case["batches"]]
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results
        assert [p["strays"] for p in run.progress] == [0] * len(run.progress)


@st.composite
def dense(draw: st.DrawFn) -> dict[str, Any]:
    """Four streams of which all meets that is in time, so that a tuple kept on a node too few is missed there."""
    dice = Random(draw(st.integers(0, 10**6)))
    batches = [
        [(dice.choice("abcd"), 6 * b + dice.randrange(11), 1.0, "p") for _ in range(14)]
        for b in range(draw(st.integers(5, 9)))
    ]
    strategies = [draw(st.one_of(options, options, options, st.integers(2, 5).map(PSP))) for _ in batches]
    return band_case(batches, [draw(st.integers(2, 7)) for _ in "abcd"], strategies)


@pytest.mark.long
@FEW
@given(case=dense())
def test_atr_keeps_results_together_through_any_number_of_changes(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results
        assert [p["strays"] for p in run.progress] == [0] * len(run.progress)
