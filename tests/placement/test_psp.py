"""PSP: the ring, the balance of work, thresholds and their steps, relocation, ring lengths, what is told of them."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import floor
from tempfile import TemporaryDirectory
from typing import Any, get_args

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.batch.scatter import Scatter
from tests.batch.test_engine import band_case, cases, run_case, scattered
from tests.budget import FEW, one_in
from watersmeet.errors import DefinitionError
from watersmeet.placement import DSJ, PSP, Central, psp
from watersmeet.placement.base import Relocation
from watersmeet.placement.psp import INTERVAL
from watersmeet.placement.slices_by_age import PspLayout, PspNotes, PspPlacement, build_curve, probed_share, resize_ring
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.manifest.view import LONGEST_SLICE, HopView, StateView, StoredNotes, StreamView, Usage

SECOND = 1_000_000
WINDOW = 60 * SECOND


def chunk(stream: int, low: int, high: int, rows: int, owner: int = 0, *more: int) -> Chunk:
    place = Place("p", 0, 0, "")
    return Chunk(f"{stream}-{low}", stream, 0, low, high + 1, WHOLE, rows, 8, low, high, (owner, *more), place)


def stream(latest: int | None, rows: int = 0, advance: int = 0, window: int | None = WINDOW) -> StreamView:
    return StreamView(window, latest, rows, advance, window, rows / max(advance, 1) * 1e6)


def still(parts: int = 600, streams: int = 1) -> StateView:
    """A full window of one tuple per chunk; the next batch is expected to bring next to nothing."""
    chunks = (chunk(at, t, t, 1) for at in range(streams) for t in range(WINDOW // parts, WINDOW + 1, WINDOW // parts))
    return StateView((stream(WINDOW, advance=1),) * streams, tuple(chunks), names=tuple("abcd"[:streams]))


def plan(strategy: PSP, state: StateView) -> PspPlacement:
    return strategy.plan(state).placement


def after(strategy: PSP, state: StateView) -> tuple[PspLayout, StateView]:
    """Return the layout of a batch, and the state with moved owners and stored notes, through JSON."""
    layout = strategy.plan(state)
    state = replace(state, chunks=layout.assign_owners(state.chunks))
    return layout, replace(state, notes=StoredNotes(*json.loads(json.dumps(layout.keep(state)))))


def read_notes(state: StateView) -> PspNotes:
    notes = PspNotes.read(state.notes)
    assert notes is not None
    return notes


def shares(state: StateView, of: int = 0) -> Counter[int]:
    rows: Counter[int] = Counter()
    for c in state.chunks:
        rows[c.owners[0]] += c.rows * (c.stream == of)
    return rows


def rows_between(before: StateView, now: StateView) -> Counter[tuple[int, int]]:
    """Return the rows moved between nodes."""
    ways: Counter[tuple[int, int]] = Counter()
    for old, new in zip(before.chunks, now.chunks, strict=True):
        if old.owners != new.owners:
            ways[old.owners[0], new.owners[0]] += old.rows
    return ways


def flowing(strategies: Sequence[PSP], rates: Sequence[int], window: int = 10) -> Iterator[tuple[PspLayout, Any]]:
    """Yield the layouts and states of batches of a second, with a chunk for each tenth of it, at rates per chunk."""
    state = StateView((StreamView(window * SECOND, window=window * SECOND),), names=("a",))
    tenth = SECOND // 10
    for second, (strategy, rate) in enumerate(zip(strategies, rates, strict=True)):
        before = state
        layout, state = after(strategy, before)
        placement = layout.placement
        fresh = tuple(
            chunk(
                0, t, t + tenth - 1, rate, *placement.owners(0, t // placement.slices[0] * placement.slices[0], WHOLE)
            )
            for t in range(second * SECOND, (second + 1) * SECOND, tenth)
        )
        yield layout, (before, state, fresh)
        live = [c for c in state.chunks if c.high >= (second + 1 - window) * SECOND]
        now = StreamView(window * SECOND, (second + 1) * SECOND - 1, 10 * rate, SECOND, window * SECOND, 10.0 * rate)
        state = replace(state, streams=(now,), chunks=(*live, *fresh))


# -- the ring


def test_new_nodes_stand_where_the_state_handed_on_fills_them() -> None:
    assert resize_ring((0, 1, 2), 4) == (0, 1, 2, 3)  # after the third: (1/3) 3 >= 1
    assert resize_ring((0, 1, 2, 3), 6) == (0, 1, 4, 2, 3, 5)
    assert resize_ring((0,), 3) == (0, 1, 2)
    assert resize_ring((0, 1), 6) == (0, 2, 3, 1, 4, 5)
    assert resize_ring((0, 1, 4, 2, 3, 5), 3) == (0, 1, 2)
    assert resize_ring((1, 0), 2) == (1, 0)


@given(st.integers(1, 40), st.integers(1, 40))
def test_a_ring_holds_each_node_once_and_forgets_removed_nodes(old: int, new: int) -> None:
    ring = resize_ring(range(old), new)
    assert sorted(ring) == list(range(new))
    if new > old:
        assert resize_ring(ring, old) == tuple(range(old))


# -- the balance of work


def test_the_part_of_the_probes_that_a_tuple_meets_is_a_trapezoid() -> None:
    times = np.linspace(-12, 6, 73)
    probes = np.linspace(0, 5, 50_001)
    share = [np.mean((probes - 10 < time) & (time <= probes)) for time in times]
    assert probed_share(times, 0, 5, 10) == pytest.approx(share, abs=1e-3)
    assert probed_share(np.array([-99.0, 0.0, 2.5, 5.0]), 0, 5, None).tolist() == [1, 1, 0.5, 0]
    assert probed_share(times, 0, 20, 10).max() == pytest.approx(0.5)  # a batch that outlasts the window


def test_with_short_batches_work_is_count() -> None:
    curve = build_curve(still(), 0)
    assert curve is not None
    assert curve.balance(4) == pytest.approx([150, 300, 450], abs=1)


@pytest.mark.parametrize("advance", [0, 1, SECOND])
def test_times_of_our_days_are_as_good_as_small_ones(advance: int) -> None:
    def borders(origin: int, streams: int = 1) -> list[int]:
        chunks = tuple(replace(c, low=c.low + origin, high=c.high + origin) for c in still().chunks)
        views = stream(WINDOW + origin, 5, advance), StreamView(WINDOW, 1 << 62, window=WINDOW)
        return [border - origin for border in plan(PSP(4), StateView(views[:streams], chunks)).borders[0]]

    assert borders(1_800_000_000 * SECOND) == borders(0)
    assert len(borders(0, streams=2)) == 3  # beside a stream whose clock is wild


def test_what_no_probe_will_meet_is_cut_by_count() -> None:
    ahead = replace(still(), streams=(stream(WINDOW), stream(100 * WINDOW, advance=1)))
    curve = build_curve(ahead, 0)
    assert curve is not None
    assert curve.balance(2) == pytest.approx([300], abs=1)


@pytest.mark.parametrize("smooth", [True, False])
def test_a_placement_answers_for_any_time(smooth: bool) -> None:
    for state in (
        StateView((stream(None),)),
        still(),
        replace(still(), chunks=()),
        StateView((stream(7, window=None),)),
    ):
        placement = plan(PSP(4, smooth), state)
        far = [placement.owners(0, time, WHOLE)[0] for time in (-(1 << 60), 0, WINDOW, 1 << 60)]
        assert far[-1] == 0 and all(0 <= node < 4 for node in far)
    assert [plan(PSP(4, smooth), still()).owners(0, t, WHOLE) for t in (-WINDOW, 2 * WINDOW)] == [(3,), (0,)]


def test_slices_are_as_short_as_their_rows_allow() -> None:
    def length(rate: float, window: int | None = WINDOW) -> int:
        return plan(PSP(4), StateView((StreamView(window, window=window, rate=rate),))).slice_length(0)

    assert [WINDOW // length(rate) for rate in (0, 1, 8, 100)] == [16, 4, 8, 16]
    assert length(100, None) == LONGEST_SLICE


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "batch"), one_in(3, [(4, 50), (4, 10), (3, 100)], unpack=True))
def test_the_busiest_node_looks_at_little_more_pairs_than_the_mean(
    nodes: int, batch: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psp, "FEWEST_ROWS", 1)  # a window of 96 tuples is to have slices as one of thousands
    count = 500 // batch
    rows = [[(name, batch * b + t, float(t % 10), "p") for t in range(batch) for name in "ab"] for b in range(count)]
    run, _ = run_case(band_case(rows, [96, 96], [PSP(nodes)] * count, delay=0), str(tmp_path))
    pairs = np.array([[node["pairs"] for node in p["nodes"]] for p in run.progress[-2:]])
    assert (pairs.max(axis=1) / pairs.mean(axis=1)).mean() < 1.15


# -- smoothing


def test_thresholds_stay_where_rates_do_and_tuples_age() -> None:
    batches = list(flowing([PSP(4)] * 30, [10] * 30))
    thresholds = [layout.notes.thresholds[0] for layout, _ in batches[14:]]
    assert np.ptp(np.array(thresholds), axis=0).max() <= 20  # of 1,000 tuples
    ring = batches[-1][0].notes.ring
    for layout, (before, state, _) in batches[14:]:
        ways = rows_between(before, state)
        assert set(ways) <= set(pairwise(ring))  # from head to tail, to the next node
        assert layout.handover.between == tuple((*way, rows) for way, rows in sorted(ways.items()))


@pytest.mark.parametrize("step", [0.1, 0.25, 1.0])
@pytest.mark.parametrize("rates", [[10] * 20 + [20] * 40, [20] * 20 + [10] * 40, [10] * 20 + [0, 30] * 20])
def test_no_more_than_a_step_moves_beyond_ageing(step: float, rates: list[int]) -> None:
    before: Sequence[int] = ()
    for (layout, (state, _, _)), rate in zip(flowing([PSP(4, step=step)] * 60, rates), [0, *rates], strict=False):
        now = layout.notes.thresholds[0]
        if before and len(now) == len(before):
            total = sum(c.rows for c in state.chunks) + 10 * rate
            most = step * total / 4 + 1
            steps = zip(before, now, strict=True)
            assert all(min(was, total) - most <= to <= was + 10 * rate + most for was, to in steps)
        before = now


def test_balance_comes_back_after_rates_double() -> None:
    batches = list(flowing([PSP(4)] * 40, [10] * 20 + [20] * 20))
    for _, (_, state, fresh) in batches[35:]:
        rows = shares(replace(state, chunks=(*state.chunks, *fresh)))
        assert max(rows.values()) < 1.2 * sum(rows.values()) / 4
    kinds = {layout.handover.kind for layout, _ in batches[20:30]}
    assert "smoothing" in kinds


def test_without_smoothing_ages_are_even_whatever_the_rates() -> None:
    batches = list(flowing([PSP(4, smooth=False)] * 30, [10] * 15 + [40] * 15))
    for second, (layout, _) in enumerate(batches[12:], 12):
        horizon = second * SECOND - 1 + SECOND
        assert layout.placement.borders[0] == pytest.approx(
            [horizon - k * 2.5 * SECOND for k in (3, 2, 1)], abs=SECOND // 5
        )
        assert layout.handover.kind == "ageing"
    _, (_, state, fresh) = batches[18]
    rows = shares(replace(state, chunks=(*state.chunks, *fresh)))
    assert rows[0] > 2 * rows[3]


def test_state_of_another_strategy_is_laid_round_the_ring() -> None:
    state = still()
    state = replace(state, chunks=tuple(c.owned_by((1, 7)) for c in state.chunks[:300]) + state.chunks[300:])
    layout, state = after(PSP(4), state)
    assert shares(state) == pytest.approx(dict.fromkeys(range(4), 150), abs=2)
    assert layout.handover.kind == "aggressive" and all(len(c.owners) == 1 for c in state.chunks)


# -- relocation


@pytest.mark.parametrize(("old", "new"), [(3, 1), (3, 2), (4, 2), (4, 4), (5, 3), (7, 5), (2, 1)])
def test_nodes_hand_on_what_the_paper_says_to_neighbours_only(old: int, new: int) -> None:
    state = still(old * (old + new) * 20)
    _, state = after(PSP(old), state)
    layout, now = after(PSP(old + new, relocation="aggressive"), state)
    share = 20 * old  # of a node in the end
    ways, ring = rows_between(state, now), layout.notes.ring
    assert shares(now) == pytest.approx(dict.fromkeys(range(old + new), share), abs=2)
    neighbours = {*pairwise(ring), *pairwise(range(old))}  # one node on, or past the new one that is filled on the way
    assert set(ways) <= neighbours
    for i in range(1, old):
        received = sum(rows for (_, to), rows in ways.items() if to == i)
        assert received / share == pytest.approx(new / old * i - floor(new / old * i), abs=0.06)
    assert layout.handover.kind == "aggressive" and sum(rows for *_, rows in layout.handover.between) == ways.total()


@pytest.mark.parametrize(("old", "new"), [(4, 3), (6, 4), (8, 4), (5, 1)])
def test_nodes_that_go_leave_their_state_to_others_and_the_rest_is_balanced(old: int, new: int) -> None:
    _, state = after(PSP(new), still(840))
    _, state = after(PSP(old), state)
    grown = read_notes(state).ring
    layout, now = after(PSP(new), state)
    placement = layout.placement
    assert placement.ring == tuple(range(new)) and placement.nodes == new
    assert shares(now) == pytest.approx(dict.fromkeys(range(new), 840 / new), abs=3)
    place = {node: at for at, node in enumerate(grown)}
    assert all(place[to] < place[source] for source, to in rows_between(state, now))  # towards the head, as they came


@pytest.mark.parametrize(("first", "then"), [(4, 6), (6, 4), (3, 1), (1, 3)])
def test_passive_relocation_moves_nothing_that_was_there(first: int, then: int) -> None:
    plans = [PSP(first)] * 20 + [PSP(then, relocation="passive")] * 25
    for second, (layout, (before, state, fresh)) in enumerate(flowing(plans, [10] * 45)):
        old = [(c, d) for c, d in zip(before.chunks, state.chunks, strict=True) if c.high < 20 * SECOND]
        if second >= 20:
            assert all(c.owners == d.owners for c, d in old)
            assert {c.owners[0] for c in fresh} <= set(range(then))
            nodes_in_use = max((c.owners[0] + 1 for c, _ in old), default=0)
            assert layout.placement.nodes == max(then, nodes_in_use)
            assert (layout.handover.kind == "passive") is bool(old)
    assert layout.placement.nodes == then and not layout.notes.pinned
    assert set(shares(state)) == set(range(then))


def test_a_passive_change_can_be_cut_short() -> None:
    plans = [PSP(2)] * 20 + [PSP(4, relocation="passive"), PSP(4), PSP(4, relocation="aggressive")]
    batches = [layout for layout, _ in flowing(plans, [10] * 23)][-3:]
    assert [bool(layout.notes.pinned) for layout in batches] == [True, True, False]


def test_a_merged_chunk_stays_where_its_parts_were() -> None:
    notes = PspNotes((0, 1, 2, 3), (4,), ((1, 2, 3),))
    state = StateView((stream(100, 10, 10),), (chunk(0, 40, 60, 5, 3),), notes.kept())
    strategy = PSP(2, relocation="passive")
    _, state = after(strategy, state)
    merged = replace(state.chunks[0], id="merged", batch=7)
    assert after(strategy, replace(state, chunks=(merged,)))[1].chunks[0].owners == (3,)


# -- ring lengths


def test_a_stream_uses_the_first_nodes_of_the_ring() -> None:
    _, state = after(PSP(3, lengths=(3, 2)), still(600, 2))
    assert (set(shares(state, 0)), set(+shares(state, 1))) == ({0, 1, 2}, {0, 1})
    layout, now = after(PSP(4, lengths=(3, 4)), state)
    assert set(+shares(now, 1)) == set(layout.notes.ring) and layout.handover.kind == "aggressive"
    assert set(+shares(now, 0)) == set(layout.notes.ring[:3])


def test_ring_lengths_by_the_cost_model_wait_for_measurements_and_for_a_gain() -> None:
    state = still(600, 2)
    state = replace(state, streams=tuple(replace(view, rate=10.0) for view in state.streams))
    strategy = PSP(4, lengths="auto")
    assert strategy.plan(state).notes.lengths == (4, 4)
    hops = (HopView((0,), 1, 600, 360_000, 10), HopView((1,), 0, 600, 360_000, 10))
    busy = replace(state, hops=hops, usage=(Usage(cpu=3600.0),))
    cheap = replace(state, hops=hops, usage=(Usage(cpu=1e-9),))
    assert strategy.plan(busy).notes.lengths == (4, 4)
    layout, short = after(strategy, cheap)
    assert max(layout.notes.lengths) < 4
    near = replace(short, usage=(Usage(cpu=0.01),))
    assert strategy.plan(near).notes.lengths == layout.notes.lengths
    changed = replace(short, notes=replace(read_notes(short), since=7).kept(), usage=busy.usage)
    lengths = [strategy.plan(replace(changed, batch=batch)).notes.lengths for batch in (7 + INTERVAL - 1, 7 + INTERVAL)]
    assert lengths == [layout.notes.lengths, (4, 4)]
    _, full = after(PSP(2), busy)
    assert strategy.plan(replace(full, usage=busy.usage)).notes.lengths == (4, 4)  # new nodes are used at once


# -- facts


def test_facts_contain_the_ring_the_shares_and_what_moved() -> None:
    strategy = PSP(4)
    _, state = after(PSP(2), still())
    layout, now = after(strategy, state)
    facts = json.loads(json.dumps(layout.facts(now)))
    assert (facts["ring"], facts["lengths"]) == ([0, 2, 1, 3], {"a": 4})
    assert facts["shares"] == pytest.approx([0.25] * 4, abs=0.01)
    assert facts["moved"]["kind"] == "aggressive" and facts["moved"]["why"] == "the ring went from 2 to 4 nodes."
    assert facts["moved"]["rows"] == sum(facts["moved"]["between"].values()) == pytest.approx(300, abs=4)
    assert set(facts["moved"]["between"]) == {"0->2", "1->3"}
    layout, now = after(strategy, now)
    assert "moved" not in layout.facts(now)
    assert layout.facts(replace(now, chunks=())) == {}


def test_options_show_in_words() -> None:
    assert PSP(4, smooth=False).describe() == "PSP(nodes=4, smooth=False)"
    assert PSP(4, lengths=(4, 2)).describe() == "PSP(nodes=4, lengths=(4, 2))"


@pytest.mark.parametrize(
    "options",
    [{"step": 0}, {"step": 1.5}, {"relocation": "lazy"}, {"lengths": (5, 1)}, {"lengths": (0, 1)}, {"lengths": "all"}],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="="):
        PSP(4, **options)


def test_each_stream_needs_a_length() -> None:
    assert PSP(4, lengths=(4, 2)).refusal(still(600, 2)) is None
    assert PSP(4, lengths=(4, 2)).refusal(still(600, 3)) == ("PSP has 2 ring lengths for 3 streams; give one for each.")


# -- through the engine


@st.composite
def rings(draw: st.DrawFn, streams: int) -> PSP:
    nodes = draw(st.integers(1, 6))
    lengths = st.tuples(*[st.integers(1, nodes)] * streams)
    return PSP(
        nodes,
        draw(st.booleans()),
        draw(st.sampled_from([0.01, 0.25, 1.0])),
        draw(st.sampled_from(get_args(Relocation))),
        draw(st.one_of(st.none(), st.just("auto"), lengths)),
    )


@FEW
@given(case=st.one_of(cases(), scattered()), data=st.data())
def test_psp_gives_the_oracles_results_and_keeps_one_copy(case: dict[str, Any], data: st.DataObject) -> None:
    case["strategies"] = [data.draw(rings(len(case["streams"]))) for _ in case["batches"]]
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results
        assert all(p["stateRows"] == p["distinctRows"] for p in run.progress)


@pytest.mark.long
@FEW
@given(case=st.one_of(cases(), scattered()), data=st.data())
def test_psp_in_turn_with_other_strategies(case: dict[str, Any], data: st.DataObject) -> None:
    others = st.one_of(
        st.just(Central()), st.integers(1, 5).map(DSJ), st.builds(Scatter, st.integers(1, 5), st.integers(0, 1000))
    )
    own = rings(len(case["streams"]))
    case["strategies"] = [data.draw(st.one_of(own, own, others)) for _ in case["batches"]]
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results


def test_progress_reports_a_relocation(tmp_path: Any) -> None:
    rows = [[("ab"[t % 2], 10 * b + t // 2, float(t % 5), "p") for t in range(20)] for b in range(8)]
    run, expected = run_case(band_case(rows, [30, 30], [PSP(2)] * 5 + [PSP(3)] * 3), str(tmp_path))
    facts = [p["placement"].get("moved", {"rows": 0})["rows"] for p in run.progress]
    assert [p["movedRows"] for p in run.progress] == facts and facts[5] > 0
    assert run.results == expected.results
    facts = [p["placement"] for p in run.progress]
    assert facts[5]["moved"]["kind"] == "aggressive" and facts[5]["ring"] == [0, 1, 2]
    assert [p["nodes"][0]["rows"] / p["stateRows"] for p in run.progress] == pytest.approx(
        [of_batch["shares"][0] for of_batch in facts], abs=0.001
    )
