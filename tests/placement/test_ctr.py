"""CTR: covers, routes, the routing table; and random streams against the oracle."""

import json
import time
from dataclasses import replace
from itertools import pairwise
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.batch.test_engine import cases, run_case
from tests.budget import FEW
from watersmeet.cost.equations import ctr_overhead
from watersmeet.cost.load import NodeLoads
from watersmeet.errors import DefinitionError
from watersmeet.placement.atr import ATR
from watersmeet.placement.ctr import CTR, CtrLayout, CtrNotes, CtrPlacement, Route, plan_routes
from watersmeet.placement.psp import PSP
from watersmeet.placement.set_cover import Holdings
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.manifest.view import ANYWHERE, HopView, StateView, StoredNotes, StreamView, Usage
from watersmeet.testing import oracle


def stream(window: int | None = 80, latest: int | None = None, rate: float = 1e6, advance: int = 10) -> StreamView:
    return StreamView(None if window is None else window + 5, latest, 10, advance, window, rate)


def chunk(at: int, low: int, owners: tuple[int, ...]) -> Chunk:
    return Chunk(f"{at}-{low}", at, 0, low, low + 10, WHOLE, 10, 100, low, low + 9, owners, Place("f", 0, 0, ""))


def holdings(*sets: list[tuple[int, ...]], nodes: int = 6) -> Holdings:
    chunks = tuple(chunk(at, 10 * k, owners) for at, of_one in enumerate(sets) for k, owners in enumerate(of_one))
    return Holdings(StateView(tuple(stream() for _ in sets), chunks), nodes)


def loads(*by_node: float) -> NodeLoads:
    return NodeLoads(by_node, 1.0)


def after(layout: CtrLayout, state: StateView) -> StateView:
    """Return the state after a batch, with its notes, through JSON."""
    return replace(state, notes=StoredNotes(*json.loads(json.dumps(layout.keep(state)))))


# -- covers

FIGURE_5 = [(1, 2), (2, 4), (4,)]
EVEN = (1.0,) * 6


def test_a_cover_takes_the_node_of_the_least_load_per_segment() -> None:
    # 2 and 4 hold two of the three segments each; then the rest decides.
    assert holdings(FIGURE_5).cover(0, (), loads(*EVEN)) == ((2, 4), 2)
    assert holdings(FIGURE_5).cover(0, (), loads(1, 1, 9, 1, 1, 1)) == ((4, 1), 2)


def test_what_the_hop_before_holds_needs_no_other_node() -> None:
    both = holdings(FIGURE_5, [(2, 3), (5,), (2,)])
    assert both.cover(1, (2, 4), loads(*EVEN)) == ((2, 5), 1)
    assert both.cover(0, (1, 0, 4), loads(*EVEN)) == ((1, 4), 0)


def test_a_new_segment_has_to_be_covered_as_well() -> None:
    some = holdings(FIGURE_5)
    some.add(0, (5,))
    assert some.cover(0, (), loads(*EVEN)) == ((2, 4, 5), 3)
    assert some.copies == [0, 1, 2, 0, 2, 1]


def test_nothing_is_covered_by_no_node() -> None:
    assert holdings([]).cover(0, (), loads(*EVEN)) == ((), 0)


@given(
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True).map(tuple), max_size=20),
    st.lists(st.integers(0, 7), max_size=4, unique=True).map(tuple),
    st.lists(st.floats(0, 5), min_size=8, max_size=8),
)
def test_a_cover_covers(sets: list[tuple[int, ...]], before: tuple[int, ...], by_node: list[float]) -> None:
    nodes, new = holdings(sets, nodes=8).cover(0, before, loads(*by_node))
    assert all(set(nodes) & set(owners) for owners in sets)
    assert len(set(nodes)) == len(nodes) and new == len(set(nodes) - set(before))


# -- routes


def test_the_overhead_is_equation_3() -> None:
    # r T = 100; |V_1| = 3; |V'_2| = 2 after 0.5 * 4 matches each, |V'_3| = 1 after 0.1 * 20 more.
    assert ctr_overhead(100, 3, [2, 1], [2.0, 2.0]) == 100 * (2 + 2 * 2 + 4 * 1)
    assert ctr_overhead(100, 1, [], []) == 0


def test_a_hop_that_decides_more_conjuncts_finds_less() -> None:
    ties = (frozenset({0, 1}), frozenset({1, 2}), frozenset({0, 2}))
    state = StateView((stream(),) * 3, ties=ties, hops=(HopView((0,), 2, rows=4, pairs=40, matches=2),))
    assert state.expected_matches(frozenset({0}), 1, 20) == pytest.approx(2)
    assert state.expected_matches(frozenset({0, 1}), 2, 20) == pytest.approx(0.2)
    assert state.expected_matches(frozenset({0}), 2, 20) == 0.5  # as measured
    assert replace(state, ties=ties[:1], hops=()).expected_matches(frozenset({0}), 2, 20) == 20


def test_of_orders_that_travel_alike_the_one_of_least_work_wins() -> None:
    # One node has everything, so nothing travels; only stream 2 is tied to 0, and 1 to 2.
    chunks = tuple(chunk(at, 0, (0,)) for at in range(3))
    chain = StateView((stream(80, None, 1e5),) * 3, chunks, ties=(frozenset({0, 2}), frozenset({1, 2})))
    routes = list(plan_routes(chain, Holdings(chain, 4), loads(1, 1, 1, 1), (10, 10, 10)))
    assert [route.order for route in routes] == [(2, 1), (2, 0), routes[2].order]
    assert {route.overhead for route in routes} == {0.0}


def test_the_order_with_the_least_overhead_wins() -> None:
    # Stream 0 finds 1 on one node and 2 on three: first 1, or partial results would have to travel.
    chunks = tuple(chunk(1, 10 * k, (0,)) for k in range(3)) + tuple(chunk(2, 10 * k, (k,)) for k in range(3))
    ties = (frozenset({0, 1}), frozenset({0, 2}))
    few = StateView((stream(), stream(80, None, 1e5), stream(80, None, 1e5)), chunks, ties=ties)
    routes = list(plan_routes(few, Holdings(few, 4), loads(1, 1, 1, 1), (10, 10, 10)))
    assert routes[0].order == (1, 2) and routes[0].covers == ((0,), (0, 1, 2))
    # r T = 10 and each tuple finds 0.1 * 8 of stream 1; two nodes are new in hop 2.
    assert routes[0].overhead == pytest.approx(10 * (0 + 0.8 * 2))
    # With a hundred times the matches it is better to begin with three nodes than to travel.
    many = replace(few, streams=(stream(), stream(80, None, 1e7), stream(80, None, 1e5)))
    assert next(iter(plan_routes(many, Holdings(many, 4), loads(1, 1, 1, 1), (10, 10, 10)))).order == (2, 1)


@pytest.mark.parametrize("streams", [2, 3, 5, 8])
def test_a_route_probes_every_other_stream(streams: int) -> None:
    state = StateView(
        tuple(stream(80, 100) for _ in range(streams)), tuple(chunk(k, 0, (k % 4,)) for k in range(streams))
    )
    plan = CTR(4).plan(state).placement
    for origin in range(streams):
        assert sorted((origin, *plan.lead(origin))) == list(range(streams))
        assert all(plan.routes[origin].covers)


def test_facts_contain_the_routes() -> None:
    plan = CtrPlacement(4, (10, 20), (), (Route((1,), ((2, 3),), 4.0), Route((0,), ((1,),), 2.0)))
    facts = CtrLayout(plan, (None, None)).facts(StateView((stream(),) * 2, names=("a", "b")))
    assert facts == {"routes": {"a": {"b": [2, 3]}, "b": {"a": [1]}}, "expectedExtraRows": 500_000.0}


def test_a_chunk_is_probed_where_the_partial_result_is_or_first_in_the_cover() -> None:
    plan = CtrPlacement(4, (10, 10), (), (Route((1,), ((2, 3),), 0.0), Route((0,), ((1,),), 0.0)))
    assert plan.groups(0, np.array([1, 2]), {}).tolist() == [0, 0]
    assert plan.visit(0, 1, (3, 2), ANYWHERE) == 2
    assert plan.visit(0, 1, (3, 2), 3) == 3
    assert plan.visit(0, 1, (0, 1), 3) == 0  # a chunk that the cover doesn't know
    assert plan.stays_after() is None


# -- the routing table


def test_a_segment_keeps_its_owners_once_it_has_begun() -> None:
    strategy = CTR(4, "10 us")
    live = tuple(chunk(at, 10 * k, (k % 4,)) for at in (0, 1) for k in range(8))
    state = StateView((stream(80, 79), stream(80, 79)), live)
    first = strategy.plan(state)
    grown = replace(state, streams=(stream(80, 95), stream(80, 95)))
    usage = tuple(Usage(float(node), 1, 1) for node in (9, 5, 1, 0))
    second = strategy.plan(replace(after(first, grown), usage=usage)).placement
    for at in (0, 1):
        by_plan = [[plan.owners(at, start, WHOLE) for start in range(0, 100, 10)] for plan in (first.placement, second)]
        assert by_plan[0] == by_plan[1]
    assert [entries[-1].start for entries in second.table] == [100, 100]


def test_owners_are_known_for_any_time() -> None:
    strategy = CTR(3, "7 us")
    state = StateView((stream(5), stream(None), stream(2)))
    plans = [strategy.plan(state)]
    later = replace(state, streams=(stream(5, 50), stream(None, 40), stream(2)), chunks=(chunk(0, 40, (0, 1)),))
    plans.append(strategy.plan(after(plans[0], later)))
    for plan in plans:
        for start in (-(10**17), -13, 0, 1, 49, 10**6, 10**17):
            for at in range(3):
                owners = plan.placement.owners(at, start, WHOLE)
                assert owners and len(set(owners)) == len(owners) and set(owners) <= {0, 1, 2}


def test_a_table_follows_a_change_of_nodes() -> None:
    strategy, state = CTR(5, "10 us", copies=3), StateView((stream(80, 79), stream(80, 79)))
    state_after = after(strategy.plan(state), state)
    plan = CTR(2, "10 us").plan(state_after).placement
    owner_sets = {plan.owners(at, start, WHOLE) for at in (0, 1) for start in range(0, 300, 10)}
    assert all(set(owners) <= {0, 1} and len(set(owners)) == len(owners) for owners in owner_sets)


def run(strategy: CTR, batches: int, streams: int = 3) -> list[tuple[CtrPlacement, StateView]]:
    """Feed steady streams of a segment a batch; return each batch's placement and the state after it."""
    state, steps = StateView(tuple(stream() for _ in range(streams))), []
    for batch in range(batches):
        layout, now = strategy.plan(state), 10 * batch
        new = tuple(chunk(at, now, layout.placement.owners(at, now, WHOLE)) for at in range(streams))
        live = tuple(c for c in (*state.chunks, *new) if c.high + 80 > now)
        usage = tuple(Usage(0.0, sum(node in c.owners for c in live)) for node in range(strategy.nodes))
        views = tuple(stream(80, now + 9) for _ in range(streams))
        state = after(layout, StateView(views, live, usage=usage))
        steps.append((layout.placement, state))
    return steps


def test_entries_that_no_stream_needs_are_dropped() -> None:
    for plan, state in run(CTR(4, "10 us"), 60):
        notes = CtrNotes.read(state.notes)
        assert notes and all(sum(len(owners) for _, _, owners in entries) <= 12 for entries in notes.table)
        assert all(a.start < b.start for entries in plan.table for a, b in pairwise(entries))


@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_all_nodes_come_into_use_and_stay_so(nodes: int) -> None:
    for _, state in run(CTR(nodes, "10 us"), 60)[30:]:
        assert len({owner for c in state.chunks for owner in c.owners}) >= nodes - 1


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_the_number_of_copies_can_be_set(copies: int) -> None:
    for _, state in run(CTR(4, "10 us", copies=copies), 20):
        assert {len(c.owners) for c in state.chunks} == {copies}


def test_a_segment_is_kept_on_the_first_hop_of_its_route() -> None:
    sets = [(0, 1), (1, 2), (2, 3), (3,), (1,)]
    state = StateView(
        (stream(80, 49), stream(80, 49)), tuple(chunk(1, 10 * k, owners) for k, owners in enumerate(sets))
    )
    plan = CTR(4, "10 us").plan(state).placement
    assert plan.owners(0, 50, WHOLE) == (1, 3)  # 1 holds three of the five, then 3 the others
    # The segment of stream 1 that begins with it is settled after it, and goes where it went.
    assert set(plan.owners(1, 50, WHOLE)) <= {1, 3}


def test_segments_are_as_long_as_asked_but_not_too_many() -> None:
    views = (stream(80), stream(6400), stream(None))
    assert CTR(2, "10 us").plan(StateView(views)).placement.lengths == (10, 100, 10)
    assert CTR(2).plan(StateView(views)).placement.lengths == (10, 800, 3_600_000_000)


def test_options_are_checked() -> None:
    with pytest.raises(DefinitionError, match="longer than zero"):
        CTR(2, "0 us")
    with pytest.raises(DefinitionError, match="1 to 2 nodes"):
        CTR(2, copies=3)
    with pytest.raises(DefinitionError, match="three numbers"):
        CTR(2, weights=(1, -1, 1))


def test_planning_is_fast() -> None:
    dice, nodes, segments = Random(1), 64, 64
    sets = [tuple(dice.sample(range(nodes), 2)) for _ in range(segments)]
    chunks = tuple(chunk(k % 3, k // 3 * 10, sets[k * segments // 10_000]) for k in range(10_000))
    usage = tuple(Usage(dice.random(), dice.random(), dice.random()) for _ in range(nodes))
    views = tuple(stream(33_330, 33_329) for _ in range(3))
    state = StateView(views, chunks, usage=usage, ties=(frozenset({0, 1}), frozenset({1, 2})))
    strategy = CTR(nodes)
    state = after(strategy.plan(state), state)
    seconds = []
    for _ in range(15):
        began = time.process_time()
        strategy.plan(state)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.02  # the bench measures it; this only keeps loops over all pairs out


# -- through the engine

options = st.integers(1, 5).flatmap(
    lambda nodes: st.builds(
        CTR,
        st.just(nodes),
        st.sampled_from(["1 us", "3 us", "7 us", None]),
        st.one_of(st.none(), st.integers(1, nodes)),
    )
)


@FEW
@given(case=cases(), data=st.data())
def test_ctr_gives_the_oracles_results(case: dict[str, Any], data: st.DataObject) -> None:
    others = st.one_of(st.integers(1, 5).map(PSP), st.builds(ATR, st.integers(1, 4), st.just("5 us")))
    some = st.one_of(options, options, options, others)
    case["strategies"] = [data.draw(some) for _ in case["batches"]]
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results


@st.composite
def dense(draw: st.DrawFn) -> dict[str, Any]:
    """Four streams of which all meets that is in time."""
    dice = Random(draw(st.integers(0, 10**6)))
    batches = [
        [(dice.choice("abcd"), 6 * b + dice.randrange(11), 1.0, "p") for _ in range(20)]
        for b in range(draw(st.integers(3, 6)))
    ]
    return {
        "streams": [oracle.Stream(name, oracle.Sliding(draw(st.integers(2, 7))), 4) for name in "abcd"],
        "batches": batches,
        "where": ["abs(a.x - b.x) < 3", "abs(b.x - c.x) < 3"],
        "exchanges": [draw(st.sampled_from(["shuffle", "shuffle", "local"])) for _ in batches],
        "strategies": [draw(options) for _ in batches],
        "orderings": [None] * len(batches),
    }


@pytest.mark.long
@FEW
@given(case=dense())
def test_ctr_gives_the_oracles_results_where_much_meets(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results
