"""Auto: what it chooses and why, when it changes, and that no change of choice changes results."""

import json
import re
from dataclasses import dataclass, replace
from math import inf
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.batch.scatter import Restless
from tests.batch.test_engine import SCHEMA, cases, run_case, scattered
from tests.budget import FEW
from watersmeet import placement
from watersmeet.adapt.adaptation import PATIENCE, Option
from watersmeet.adapt.auto import Auto, AutoNotes, StrategyChoice
from watersmeet.adapt.pricing import NAMES, Pricing
from watersmeet.batch.plan import GIVEN_ORDER, Host, start, view
from watersmeet.cost import cost_model as cost
from watersmeet.cost import parameters
from watersmeet.errors import DefinitionError
from watersmeet.observe.explain import explain
from watersmeet.placement import ATR, DSJ, PSP, Central, Hash
from watersmeet.placement.dsj import DsjNotes
from watersmeet.placement.slices_by_age import PspNotes
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.predicate.model import Column
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding, Window
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.manifest.view import (
    HopView,
    Machine,
    RunningStatistics,
    Shipping,
    StateView,
    StoredNotes,
    StreamView,
    Usage,
)

SECOND = 1_000_000


def measured_state(
    rate: float = 100.0,
    window: float = 10.0,
    pair: float = 1e-6,
    streams: int = 2,
    matching: float = 0.001,
    advance: float = 1.0,
    delay: float = 0.0,
    **more: Any,
) -> StateView:
    """Equal streams, where a pair took `pair` seconds and a tuple of each matched `matching` of the next window."""
    rows = round(rate * advance)
    view = StreamView(
        round((window + delay) * SECOND), 90 * SECOND, rows, round(advance * SECOND), round(window * SECOND), rate
    )
    window_rows, partials, hops = rate * window, [float(rows)], []
    for step in range(streams - 1):
        pairs = partials[-1] * window_rows
        partials.append(pairs * matching)
        for origin in range(streams):
            joined = [at for at in range(streams) if at != origin][:step]
            target = next(at for at in range(streams) if at not in (origin, *joined))
            hops.append(HopView(tuple(sorted((origin, *joined))), target, partials[-2], pairs, partials[-1]))
    cpu = sum(hop.pairs for hop in hops) * pair + 2 * parameters.KEEP_SECONDS * rows * streams
    names = tuple("abcd"[:streams])
    return StateView((view,) * streams, usage=(Usage(cpu=cpu),), hops=tuple(hops), names=names, **more)


def best_of(state: StateView, most: int = 8) -> tuple[str, int]:
    first = Pricing(state).best(most)[0]
    return first.name, first.nodes


EQUALITIES = ((Column(0, 2), Column(1, 2)),)


# -- choices


def test_a_tiny_load_stays_on_one_node() -> None:
    assert best_of(measured_state(rate=5)) == ("Central", 1)
    assert best_of(measured_state(rate=100, pair=1e-8)) == ("Central", 1)


def test_heavy_state_and_dear_predicates_go_round_a_ring() -> None:
    assert best_of(measured_state(pair=1e-4)) == ("PSP", 8)
    assert best_of(measured_state(pair=1e-6))[0] == "PSP"  # DSJ costs the same but for rounding
    assert best_of(measured_state(pair=1e-4, streams=3)) == ("PSP", 8)
    assert best_of(measured_state(pair=1e-4, delay=10)) == ("PSP", 8)


def test_dearer_joins_get_more_nodes() -> None:
    nodes = [best_of(measured_state(pair=pair), 64)[1] for pair in (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)]
    assert nodes == sorted(nodes)
    assert nodes[0] == 1
    assert 1 < nodes[2] < 64


def test_hash_where_equalities_tie_all_streams() -> None:
    assert best_of(measured_state(pair=1e-4, equalities=EQUALITIES)) == ("Hash", 8)
    assert best_of(measured_state(rate=5, equalities=EQUALITIES)) == ("Hash", 1)
    assert best_of(measured_state(pair=1e-4, equalities=EQUALITIES), 1) == ("Hash", 1)
    assert best_of(measured_state(pair=1e-4, streams=3, equalities=EQUALITIES)) == ("PSP", 8)


def test_histories_go_where_time_alone_divides_them() -> None:
    """Batches that are much longer than windows: what a tuple meets lies on a node or two."""
    candidates = Pricing(measured_state(pair=1e-5, advance=1000)).best(8)
    assert candidates[0].name in ("ATR", "DSJ", "PSP")
    assert candidates[0].nodes == 8
    many = Pricing(measured_state(pair=1e-7, streams=3, matching=0.05, advance=1000)).best(8)
    assert many[0].name == "ATR"  # 50 partial results a tuple, which DSJ would send to all nodes


def test_before_anything_is_measured_work_is_spread() -> None:
    blank = StateView((StreamView(20 * SECOND, window=10 * SECOND),) * 3)
    assert best_of(blank)[1] == 8
    assert best_of(StateView((StreamView(None),) * 2))[1] == 8
    assert best_of(StateView((StreamView(None),) * 2), 1) == ("Central", 1)


def test_streams_without_limit_in_time_count_by_their_stored_rows() -> None:
    def unlimited(rows: int) -> StateView:
        chunks = tuple(
            Chunk(f"c{at}", at, 0, 0, SECOND, WHOLE, rows, rows * 40, 0, 9, (0,), Place("p", 0, 0, "")) for at in (0, 1)
        )
        streams = tuple(replace(stream, span=None, window=None) for stream in measured_state().streams)
        return replace(measured_state(pair=1e-6), streams=streams, chunks=chunks)

    assert best_of(unlimited(10)) == ("Central", 1)
    assert best_of(unlimited(1_000_000)) == ("PSP", 8)
    assert all(candidate.cost < 1e9 for candidate in Pricing(unlimited(1_000_000)).best(8))


def test_each_strategy_is_listed_once_with_what_its_cost_is_made_of() -> None:
    candidates = Pricing(measured_state(pair=1e-4)).best(8)
    assert sorted(candidate.name for candidate in candidates) == ["ATR", "CTR", "Central", "DSJ", "PSP"]
    assert [candidate.cost for candidate in candidates] == sorted(candidate.cost for candidate in candidates)
    central = next(candidate for candidate in candidates if candidate.name == "Central")
    assert str(central.breakdown) == (
        "19.9 s of joining, 200 tuples stored and 200 rows sent a second, "
        "100% of it on the busiest node, 1 task a batch"
    )
    listed = [candidate.name for candidate in Pricing(measured_state(rate=5, equalities=EQUALITIES)).best(8)]
    assert listed[0] == "Hash"
    assert len(listed) == 6


def test_sending_rows_is_free_where_tasks_share_their_state() -> None:
    state = measured_state(pair=1e-7, rate=1000, matching=0.01)
    dear = Pricing(replace(state, machine=Machine(row_seconds=1e-3))).best(8)
    free = Pricing(replace(state, machine=Machine(slots=2, shared=True))).best(8)
    assert free[0].cost < dear[0].cost
    assert {c.cost for c in free if c.name in ("Central", "PSP", "DSJ")} == {free[0].cost}


def test_more_nodes_than_slots_take_turns() -> None:
    state = measured_state(pair=1e-4)
    wide, narrow = (Pricing(replace(state, machine=Machine(slots=slots))).best(8)[0] for slots in (8, 2))
    assert (wide.nodes, narrow.nodes) == (8, 2)


def test_weights_say_what_counts() -> None:
    state = measured_state(pair=1e-4, advance=1000)
    only_cpu, only_memory = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
    cpu, memory = (Pricing(state, weights).price("PSP", 4, {}).cost for weights in (only_cpu, only_memory))
    start, share = (2 * parameters.HOP_SECONDS + cost.start_seconds(4, 1, inf)) / 1000, 1 / 4
    assert cpu == pytest.approx(share * 20 + start, rel=1e-3)
    assert memory == pytest.approx(share * 200 * 2 * parameters.KEEP_SECONDS + start)


def test_for_throughput_only_the_busiest_node_counts() -> None:
    """At 1e-6 s a pair, a batch of a second has 0.2 s of work: starting more tasks makes it longer, not dearer."""
    state = measured_state(pair=1e-6, machine=Machine(row_seconds=1e-6, cores=2))
    assert Pricing(state).best(16)[0].nodes < 4
    widest = Pricing(state, goal="throughput").best(16)[0]
    assert widest.nodes == 16
    assert widest.breakdown is not None
    assert widest.cost == widest.breakdown.load(parameters.measure(state))


def test_within_a_time_the_fewest_nodes_do() -> None:
    """A batch takes 20 s on one node, and the half of it on two."""

    def nodes(within: float, now: int = 0) -> int:
        state = measured_state(pair=1e-4)
        return Pricing(state, within=within, now=Option("PSP", now, 0.0, None, {})).best(64)[0].nodes

    fastest = Pricing(measured_state(pair=1e-4)).best(64)[0].nodes
    assert [nodes(within) for within in (25, 12, 5.5)] == [1, 2, 4]
    assert abs(nodes(0.001) - fastest) <= 2  # every number is tried, not only each half larger than the last
    assert nodes(2.2) == 11
    # Fewer nodes than there are must be in time by a margin, or they would soon be more again.
    assert [nodes(within, now=4) for within in (11, 13)] == [3, 2]
    assert Pricing(StateView((StreamView(None),) * 2), within=5.0).best(8)[0].nodes == 8


def test_a_ring_grows_and_shrinks_to_be_in_time() -> None:
    auto, heavy, light = Auto(8, within="5500 ms"), measured_state(pair=1e-4), measured_state(pair=1e-5)
    notes, choices = after(auto, light), []
    for at, state in enumerate([heavy] * 6 + [light] * 12):
        notes = after(auto, replace(state, batch=at), notes)
        choices.append(notes.nodes)
    assert choices == [1] * 4 + [4] * 5 + [1] * 9
    assert notes.record.log[-1].why.endswith("4 batches in a row; the goal is the fewest nodes that finish in time.")


def test_a_ring_is_no_longer_than_the_network_can_feed() -> None:
    """A tuple of 100 bytes keeps a node of N busy for 1 s / N, so that 100 N bytes a second must come (equation 6)."""
    state = measured_state(pair=1e-3)
    rings = {limit: Pricing(state, available=limit).longest_ring for limit in (50.0, 100.5, 350.0, inf)}
    assert rings == {50.0: 1, 100.5: 1, 350.0: 3, inf: None}
    auto = Auto(8, among=("PSP",), bandwidth=350.0)
    assert auto.choose(state).option.nodes == 3
    assert auto.plan(state).facts(state)["bandwidth"] == (
        "a ring of more than 3 nodes would wait for rows, of which 0.00035 MB/s come (equation 6)."
    )
    assert "bandwidth" not in Auto(8).plan(state).facts(state)
    longer = after(Auto(8, among=("PSP",)), state)
    assert (longer.nodes, after(auto, state, longer).nodes) == (8, 3)  # as soon as the limit is known


def test_many_nodes_are_tried_without_trying_all() -> None:
    assert best_of(measured_state(pair=1.0), 4096)[1] > 64


# -- the chosen strategy


def test_options_reach_the_chosen_strategy() -> None:
    auto = Auto(4, capacities=(1, 2, 3, 4), weights=(1, 0, 2))
    strategies = {
        name: auto.strategy_of(Option(name, 2, 0.0, None, {})) for name in ("Hash", "Central", "PSP", "DSJ", "CTR")
    }
    assert (strategies["Hash"], strategies["Central"], strategies["PSP"]) == (Hash(2), Central(), PSP(2))
    assert strategies["DSJ"] == DSJ(2, capacities=(1, 2), weights=(1, 0, 2))
    segment = {"segment": "5 microseconds"}
    assert auto.strategy_of(Option("ATR", 2, 0.0, None, segment)) == ATR(
        2, "5 microseconds", capacities=(1, 2), weights=(1, 0, 2)
    )


def test_facts_contain_the_choice_and_its_reason() -> None:
    def facts_of(state: StateView) -> dict[str, Any]:
        return Auto().plan(state).facts(state)

    assert Auto().nodes == 8
    assert Auto(max_nodes=3).describe() == "Auto(max_nodes=3)"
    facts = facts_of(measured_state(pair=1e-4))
    assert facts["chosen"] == "PSP(nodes=8)" and facts["why"].startswith("PSP(nodes=8) is predicted to take ")
    assert len(facts["candidates"]) == 5
    why = facts_of(measured_state(rate=5, equalities=EQUALITIES))["why"]
    assert why.endswith("look into one bucket; nodes are chosen by what the last batches measured.")


@pytest.mark.parametrize("within", [None, "2 seconds", "200 ms"])
def test_why_has_the_same_prices_as_the_candidates(within: str | None) -> None:
    """However often the load changes while the join goes on as before."""
    auto, notes = Auto(within=within), None
    for batch, pair in enumerate((1e-6, 2e-6, 1e-6, 5e-6, 5e-6, 1e-7)):
        state = replace(measured_state(pair=pair), batch=batch, notes=notes.kept() if notes else StoredNotes())
        facts = auto.plan(state).facts(state)
        prices = {label: text.split()[0] for label, text in facts["candidates"].items()}
        in_why = dict(
            re.findall(r"((?:Central|PSP|ATR|DSJ|CTR)\(.*?\))(?: is predicted to take)? ([\d.e-]+) s", facts["why"])
        )
        assert in_why and in_why.items() & prices.items()
        assert all(prices.get(label, price) == price for label, price in in_why.items())
        notes = after(auto, state, notes)


def test_why_is_the_choices_reason_and_not_that_of_the_rings_moves() -> None:
    chunks = tuple(
        Chunk(
            f"c{at}",
            at % 2,
            0,
            low,
            low + SECOND,
            WHOLE,
            100,
            2400,
            low,
            low + SECOND - 1,
            (0,),
            Place("p", 0, 0, ""),
        )
        for at, low in enumerate(range(80 * SECOND, 90 * SECOND, SECOND))
    )
    state = measured_state(pair=1e-4, chunks=chunks)
    facts = Auto().plan(state).facts(state)
    assert facts["moved"]["rows"] and facts["moved"]["why"] == "the state was laid round the ring."
    assert facts["why"].startswith("PSP(nodes=8) is predicted to take ")


def test_tables_are_not_counted_as_streams() -> None:
    streams = [StreamSpec(name, SCHEMA, 1, Sliding(10), 0) for name in "ab"]
    table = StreamSpec("z", SCHEMA, 1, Window(), 0, table=True)
    query = Query((*streams, table))
    assert explain(query, PSP(2), GIVEN_ORDER).startswith("Watersmeet join of 2 streams and 1 table, PSP(nodes=2)\n")
    refusal = PSP(2, lengths=(1, 1)).refusal(view(query, start(query)))
    assert refusal == "PSP has 2 ring lengths for 2 streams and 1 table; give one for each."


@pytest.mark.parametrize("refreshed", [False, True])
def test_a_table_has_no_rate_and_the_size_that_probes_met(refreshed: bool) -> None:
    """A table that is read for each batch has no chunks after it, and as many new rows as it has."""
    rows = 50 if refreshed else 0
    table = StreamView(None, -(2**62), rows, 0, None, 0.0, table=True)
    chunk = Chunk("z", 1, 0, -(2**62), 0, WHOLE, 50, 1200, -(2**62), -(2**62), (0,), Place("p", 0, 0, ""))
    hops = (HopView((0,), 1, 100.0, 5_000.0, 100.0),)
    stream = measured_state().streams[0]
    state = StateView((stream, table), () if refreshed else (chunk,), usage=(Usage(1.0),), hops=hops, names=("a", "z"))
    p = parameters.measure(state)
    assert (p.rates, p.window_rows[1]) == ((100.0, 0.0), 50)
    assert p.partials[0] == pytest.approx((1.0, 1.0)) and p.pairs[0] == (50,)


def test_explain_lists_earlier_changes() -> None:
    query = Query(tuple(StreamSpec(name, SCHEMA, 1, Sliding(10), 0) for name in "ab"))
    first = after(Auto(), StateView((StreamView(20 * SECOND, window=10 * SECOND),) * 2))
    changed = after(Auto(), replace(measured_state(rate=5), batch=3), first)
    text = explain(
        query, Auto(), GIVEN_ORDER, replace(start(query), learned=RunningStatistics(strategy=changed.kept()))
    )
    assert "  decided before batch 3, strategy: Central(nodes=1): Central(nodes=1) is predicted to take " in text
    assert "decided before" not in explain(query, Auto(), GIVEN_ORDER)


def test_options_that_make_no_sense_are_rejected() -> None:
    for wrong, message in (
        ({"max_nodes": 0}, "^max_nodes=0: a strategy runs on"),
        ({"max_nodes": 2, "capacities": (1.0,)}, "capacities="),
        ({"weights": (0, 0, 0)}, "weights="),
        ({"among": ("PSP", "Ring")}, r"among=\('PSP', 'Ring'\): name some of Hash"),
        ({"relocation": "slow"}, "relocation='slow'"),
        ({"goal": "fast"}, "goal='fast' is unknown; use one of throughput, latency"),
        ({"bandwidth": 0}, "bandwidth is 0: give a number above 0"),
        ({"within": "soon"}, "within: 'soon' is not a duration"),
        ({"within": "0 seconds"}, "within is 0: give a number above 0"),
    ):
        with pytest.raises(DefinitionError, match=message):
            Auto(**wrong)


def test_tasks_have_the_placement_of_the_chosen_strategy() -> None:
    state = measured_state(pair=1e-4)
    assert Auto().plan(state).placement == PSP(8).plan(state).placement


def test_a_strategy_is_entered_in_one_place() -> None:
    assert NAMES == ("Hash", "Central", "PSP", "DSJ", "ATR", "CTR") == Auto().among
    assert all(getattr(placement, name) is kind for name, kind in STRATEGIES.items())


# -- when it changes


def after(auto: Auto, state: StateView, notes: AutoNotes | None = None) -> AutoNotes:
    """Plan a batch and return its notes, through JSON like the manifest."""
    state = replace(state, notes=notes.kept() if notes else StoredNotes())
    read_back = AutoNotes.read(StoredNotes(*json.loads(json.dumps(auto.plan(state).keep(state)))))
    assert read_back is not None
    return read_back


def test_notes_contain_the_choice() -> None:
    notes = after(Auto(), measured_state(pair=1e-4))
    assert (notes.chosen, notes.nodes, notes.options, notes.measured) == ("PSP", 8, {}, True)
    ring = PspNotes.read(notes.inner)
    assert ring and ring.ring == tuple(range(8))
    assert "is predicted to take" in notes.why


def test_notes_of_another_form_are_as_good_as_none() -> None:
    state, notes = measured_state(pair=1e-4), after(Auto(), measured_state(rate=5))
    by, plain, version = notes.kept()
    assert after(Auto(), state, notes).chosen == "Central"
    for unreadable in (
        StoredNotes(by, plain, version + 1),
        StoredNotes("PspNotes", plain, version),
        StoredNotes(by, {"nodes": 3}, version),
    ):
        assert AutoNotes.read(unreadable) is None
        assert Auto().plan(replace(state, notes=unreadable)) == Auto().plan(state)
    broken = replace(notes, chosen="PSP", nodes=8, inner=StoredNotes("PspNotes", {"ring": 7}, 1))
    assert Auto().plan(replace(state, notes=broken.kept())).placement == PSP(8).plan(state).placement


def test_a_change_waits_for_several_batches_on_end() -> None:
    auto, heavy, light = Auto(), measured_state(pair=1e-4), measured_state(rate=5, machine=Machine(cores=2))
    notes = after(auto, heavy)
    choices = []
    for state in (light, light, heavy, *[light] * PATIENCE, light):
        notes = after(auto, state, notes)
        choices.append((notes.chosen, notes.record.waiting))
    assert choices == [("PSP", 1), ("PSP", 2), ("PSP", 0), ("PSP", 1), ("PSP", 2), ("Central", 0), ("Central", 0)]
    assert notes.record.log[-1].why.endswith("with PSP(nodes=8), 3 batches in a row.")


def test_a_small_gain_is_no_reason() -> None:
    auto = Auto()
    notes = replace(after(auto, measured_state(pair=1e-4)), nodes=7)
    for _ in range(2 * PATIENCE):
        notes = after(auto, measured_state(pair=1e-4), notes)
    assert notes.nodes == 7


def test_what_was_chosen_without_measurements_changes_at_once() -> None:
    auto = Auto()
    notes = after(auto, StateView((StreamView(20 * SECOND, window=10 * SECOND),) * 2))
    assert not notes.measured
    assert notes.nodes == 8
    assert after(auto, measured_state(rate=5), notes).chosen == "Central"


@pytest.mark.parametrize("brought", [{"rows": 0}, {"advance": 0}], ids=["nothing", "only old tuples"])
def test_a_batch_without_information_on_the_load_changes_nothing(brought: dict[str, Any]) -> None:
    auto = Auto()
    notes = after(auto, measured_state(pair=1e-4))
    quiet = measured_state(rate=5, machine=Machine(cores=2))
    quiet = replace(quiet, streams=tuple(replace(stream, **brought) for stream in quiet.streams))
    for _ in range(2 * PATIENCE):
        notes = after(auto, quiet, notes)
    assert (notes.chosen, notes.record.waiting) == ("PSP", 0)


def test_a_dry_run_only_reports() -> None:
    auto, heavy, light = (
        Auto(dry_run=True, interval=1),
        measured_state(pair=1e-4),
        measured_state(rate=5, machine=Machine(cores=2)),
    )
    notes = after(auto, heavy)
    for at in range(2 * PATIENCE):
        state = replace(light, notes=notes.kept(), batch=at)
        facts = auto.plan(state).facts(state)
        notes = after(auto, replace(light, batch=at), notes)
        assert facts["chosen"] == "PSP(nodes=8)"
        assert not any(decision["made"] for decision in facts.get("decisions", ()))
        assert facts.get("waiting", 0) == (at + 1) % PATIENCE
    assert [entry.after for entry in notes.record.log] == ["Central(nodes=1)"] * 2
    first, _ = auto.history(replace(light, notes=notes.kept()))
    assert first.startswith("batch 2, strategy: Central(nodes=1) (not made): Central(nodes=1) was predicted to take ")


def test_changes_without_a_wait_are_logged_as_well() -> None:
    """Such as the first choice that rests on measurements, and what a restart with other options leads to."""
    first = after(Auto(), StateView((StreamView(20 * SECOND, window=10 * SECOND),) * 2))
    assert first.record.log == ()
    measured_now = after(Auto(), measured_state(rate=5), first)
    fewer = after(Auto(4, among=("PSP",)), measured_state(pair=1e-4), measured_now)
    assert [(entry.before, entry.after) for entry in fewer.record.log] == [
        ("ATR(nodes=8, segment='40 seconds')", "Central(nodes=1)"),
        ("Central(nodes=1)", "PSP(nodes=4)"),
    ]


def test_fewer_nodes_than_were_chosen_count_at_once() -> None:
    notes = after(Auto(8), measured_state(pair=1e-4))
    assert after(Auto(4), measured_state(pair=1e-4), notes).nodes == 4


@dataclass(frozen=True)
class Fixed(Auto):
    """An Auto that takes shared slices on four nodes."""

    def choose(self, state: StateView) -> StrategyChoice:
        return StrategyChoice(Option("DSJ", 4, 0.0, None, {}), "", (), True)


def test_the_chosen_strategy_reads_its_own_notes_and_nothing_else() -> None:
    state = measured_state(advance=1000)
    notes = after(Fixed(), state)
    slices = DsjNotes.read(notes.inner)
    assert slices is not None
    inner_notes = replace(slices, owners=(3,) * len(slices.owners)).kept()
    anew, on = DSJ(4).plan(state), DSJ(4).plan(replace(state, notes=inner_notes))
    assert anew.placement != on.placement
    for inner, expected in ((inner_notes, on), (PspNotes((0,), (1, 1), ((), ())).kept(), anew)):
        layout = Fixed().plan(replace(state, notes=replace(notes, inner=inner).kept()))
        assert layout.inner == expected and layout.placement == expected.placement


# -- results


@FEW
@given(case=cases(), seed=st.integers(0, 10_000), most=st.integers(1, 5))
def test_results_stay_the_same_whatever_is_chosen(case: dict[str, Any], seed: int, most: int) -> None:
    with TemporaryDirectory() as folder:
        run, expected = run_case(case | {"strategies": [Restless(most, seed=seed)] * len(case["batches"])}, folder)
        assert run.results == expected.results


@pytest.mark.long
@FEW
@given(case=scattered(), seed=st.integers(0, 10_000))
def test_results_stay_the_same_where_many_meet(case: dict[str, Any], seed: int) -> None:
    with TemporaryDirectory() as folder:
        run, expected = run_case(case | {"strategies": [Restless(4, seed=seed)] * len(case["batches"])}, folder)
        assert run.results == expected.results


@FEW
@given(case=cases())
def test_auto_itself_gives_the_oracles_results(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, expected = run_case(case | {"strategies": [Auto(3, interval=1)] * len(case["batches"])}, folder)
        assert run.results == expected.results


def test_a_ring_grows_at_once_and_shrinks_as_its_state_expires() -> None:
    state, eight = measured_state(pair=1e-4), Option("PSP", 8, 0.0, None, {})
    for nodes, overdue, expected in ((4, 0, "aggressive"), (16, 0, "passive"), (8, 0, "auto"), (16, 3, "aggressive")):
        now = replace(state, machine=Machine(overdue=overdue))
        assert Auto(16)._relocation(now, eight, nodes) == expected
    assert Auto(8)._relocation(state, eight, 16) == "aggressive"  # there aren't sixteen any more
    endless = replace(state, streams=tuple(replace(stream, span=None) for stream in state.streams))
    assert Auto(16)._relocation(endless, eight, 16) == "aggressive"  # it would never expire
    assert Auto(16, relocation="passive")._relocation(state, eight, 4) == "passive"


def test_where_a_join_runs_counts_and_not_where_it_ran() -> None:
    query = Query(tuple(StreamSpec(name, SCHEMA, 1, Sliding(10), 0) for name in "ab"))
    state = replace(start(query), learned=RunningStatistics(shipping=Shipping(0.5, 1000.0)))
    assert view(query, state, Host(8, 2)).machine == Machine(8, 0.5 / 1000, cores=2)
    shared = view(query, state, Host(2, 2, shared=True)).machine
    assert shared.shared and parameters.measure(StateView(measured_state().streams, machine=shared)).row_seconds == 0
    assert view(query, start(query)).machine == Machine()
