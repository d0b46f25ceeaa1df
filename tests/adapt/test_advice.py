"""Advice: recommendations and predictions at multiples of the rate, and caveats."""

import sys
from dataclasses import replace
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from tests.adapt.test_auto import EQUALITIES, measured_state
from tests.budget import search
from watersmeet.adapt.advice import BOTTOM, FACTORS, TITLES, TOP, Advice, build_advice, label
from watersmeet.adapt.auto import Auto
from watersmeet.adapt.forecast import SampleMeasurements, Settings
from watersmeet.adapt.pricing import NAMES
from watersmeet.cost import parameters
from watersmeet.cost.cost_model import Weights
from watersmeet.cost.equations import Goal
from watersmeet.cost.load import ROW_SECONDS
from watersmeet.errors import DefinitionError
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.manifest.view import Machine, StateView, StreamView

SVG = "{http://www.w3.org/2000/svg}"
HEAVY = SampleMeasurements(measured_state(pair=1e-5, streams=3), 9_000, 30.0)
"""Three streams of 100 tuples a second in windows of 10 s, where a pair takes 10 µs and 1 of 1000 matches."""

CHUNK = Chunk("b", 1, 0, 0, 1_000_000, WHOLE, 300, 30_000, 0, 9, (0,), Place("p", 0, 0, ""))
ENDLESS = replace(
    measured_state(),
    streams=(measured_state().streams[0], replace(measured_state().streams[1], window=None, span=None)),
    chunks=(CHUNK,),
)
"""Two streams, of which the second never expires: 300 tuples so far."""


def advise(sample: SampleMeasurements = HEAVY, **settings: Any) -> Advice:
    return build_advice(sample, Settings(**settings))


def column(advice: Advice, name: str) -> list[Any]:
    return [row[name] for row in advice.rows]


# -- scaling


def test_results_grow_with_the_rate_to_the_number_of_streams() -> None:
    advice = advise()
    assert column(advice, "factor") == list(FACTORS)
    assert column(advice, "tuplesPerSecond") == pytest.approx([300, 600, 1500, 3000])
    assert column(advice, "resultsPerSecond") == pytest.approx([300 * factor**3 for factor in FACTORS])
    assert column(advice, "stateRows") == pytest.approx([3000 * factor for factor in FACTORS])


def test_more_tuples_want_more_nodes() -> None:
    light = SampleMeasurements(measured_state(pair=1e-8, streams=3), 9_000, 30.0)
    nodes, needed = column(advise(light), "nodes"), column(advise(light), "nodesNeeded")
    assert nodes == sorted(nodes) and nodes[0] == 1 and nodes[-1] > 1
    assert needed[:3] == [1, 1, 1] and needed[3] > 1


def states() -> st.SearchStrategy[StateView]:
    """Joins of two to four streams, light and heavy, as measured in a run with a core and a link for each node."""
    joins = st.builds(
        measured_state,
        rate=st.sampled_from([5.0, 100.0, 1000.0]),
        window=st.sampled_from([1.0, 10.0, 60.0]),
        pair=st.sampled_from([1e-8, 1e-7, 1e-6, 1e-5, 1e-4]),
        streams=st.integers(2, 4),
        matching=st.sampled_from([0.0, 1e-4, 1e-3, 0.05]),
        advance=st.sampled_from([1.0, 5.0, 100.0]),
        delay=st.sampled_from([0.0, 10.0]),
        equalities=st.sampled_from([(), EQUALITIES]),
        machine=st.sampled_from([Machine(slots, ROW_SECONDS, cores=slots) for slots in (inf, 2.0, 8.0)]),
    )
    return joins


@pytest.mark.long
@search(40)
@given(
    states(),
    st.integers(1, 24),
    st.sampled_from([None, "latency", "throughput"]),
    st.sampled_from([inf, 1e4, 1e5, 1e6, 1e8]),
    st.sampled_from([NAMES, ("PSP",), ("DSJ", "ATR"), ("Hash", "Central", "CTR"), ("Hash", "PSP")]),
    st.sampled_from([(1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (1.0, 0.2, 5.0)]),
)
def test_what_is_recommended_is_what_auto_would_take(
    state: StateView, most: int, goal: Goal | None, bandwidth: float, among: tuple[str, ...], weights: Weights
) -> None:
    every = state.advance / 1e6
    auto = Auto(most, among=among, goal=goal or "latency", bandwidth=bandwidth, weights=weights)
    auto = replace(auto, within=None if goal else timedelta(seconds=every))
    assume(auto.refusal(state) is None)
    option = auto.choose(state).option
    settings = Settings(most, goal, every, state.machine.slots, bandwidth, among=among, weights=weights)
    advice = build_advice(SampleMeasurements(state, 9_000, 30.0), settings)
    row = advice.rows[0]
    assert (row["strategy"], row["nodes"], row["options"]) == (option.name, option.nodes, dict(option.options))
    assert advice.strategy.choose(state).option == option
    if goal != "throughput":
        assert row["batchSeconds"] == pytest.approx(option.cost * settings.every)


def test_curves_hold_the_fastest_nodes_at_their_least() -> None:
    for goal in (None, "latency"):
        advice = advise(goal=goal)
        for row in advice.rows:
            curve = advice.curves[row["factor"]]
            assert list(curve) == list(range(1, 17))
            assert curve[row["nodes"]] == row["batchSeconds"]
            assert curve[row["fastestNodes"]] == row["fastestSeconds"] == pytest.approx(min(curve.values()), rel=0.01)


def test_the_fewest_nodes_that_keep_up_are_recommended() -> None:
    """Every number is tried, and the batches of one node less are late."""
    light = SampleMeasurements(measured_state(pair=1e-7, streams=3), 9_000, 30.0)
    assert [(row["nodes"], row["fastestNodes"] > 1) for row in advise(light).rows[:2]] == [(1, True), (1, True)]
    for every, nodes in ((0.9, 11), (1.0, 10), (2.0, 8)):
        advice = advise(every=every)
        row, curve = advice.rows[0], advice.curves[1]
        assert row["nodes"] == row["nodesNeeded"] == nodes
        assert curve[nodes] <= every < curve[nodes - 1]


def test_more_nodes_than_there_may_be_are_noted_where_they_would_do() -> None:
    advice = advise(max_nodes=4, every=2)
    assert (advice.rows[0]["nodes"], advice.rows[0]["nodesNeeded"]) == (4, 8)
    assert advice.notes[0].endswith("s on 4 nodes and the next is due after 2 s: 8 nodes would keep up.")
    assert advice.rows[0]["nodesNeeded"] == advise(every=2).rows[0]["nodes"]
    many = advise(SampleMeasurements(measured_state(pair=1e-4, streams=2), 9_000, 30.0), every=0.9).rows[0]
    assert many["nodes"] == 16 < 20 < many["nodesNeeded"] <= 64


def test_a_strategy_of_the_join_that_takes_something_else_is_noted() -> None:
    light = SampleMeasurements(measured_state(pair=1e-7, streams=3), 9_000, 30.0)
    advice = build_advice(light, Settings(), own=Auto(max_nodes=8))
    assert advice.notes[-1] == (
        "The join as it is defined, with wm.Auto(max_nodes=8), would take ATR(nodes=3, segment='5 seconds') at this "
        "rate: to follow the advice, give it the strategy above."
    )
    assert advice.strategy == Auto(max_nodes=16, within="1 second")
    assert "strategy=wm.Auto(max_nodes=16, within='1 second')" in str(advice)
    assert not any("as it is defined" in note for note in build_advice(light, Settings(), own=advice.strategy).notes)


def test_the_most_that_it_holds_is_where_batches_take_the_whole_time_between_them() -> None:
    row = advise(max_nodes=8).rows[0]
    top = row["mostTuplesPerSecond"] / 3
    there = advise(max_nodes=8, rates=dict.fromkeys("abc", top)).rows[0]
    assert there["batchSeconds"] == pytest.approx(1, rel=0.01)
    assert there["resultsPerSecond"] == pytest.approx(row["mostResultsPerSecond"], rel=0.01)


def test_throughput_takes_what_holds_the_most() -> None:
    small = SampleMeasurements(measured_state(pair=1e-8, streams=3), 9_000, 30.0)
    fast, wide = advise(small, goal="latency").rows[0], advise(small, goal="throughput").rows[0]
    assert fast["nodes"] < wide["nodes"]
    assert fast["batchSeconds"] < wide["batchSeconds"]
    assert fast["mostTuplesPerSecond"] < wide["mostTuplesPerSecond"]


def test_a_batch_that_is_late_before_it_does_anything_holds_nothing() -> None:
    advice = advise(every=0.01)
    assert column(advice, "mostTuplesPerSecond") == [0] * 4
    assert column(advice, "nodesNeeded") == [None] * 4


def test_longer_batches_hold_more() -> None:
    often, seldom = (advise(every=seconds).rows[0] for seconds in (1.0, 10.0))
    assert seldom["mostTuplesPerSecond"] > often["mostTuplesPerSecond"]


def test_slots_are_as_good_as_that_many_nodes() -> None:
    assert advise(slots=2).rows[0]["batchSeconds"] > advise().rows[0]["batchSeconds"]


def test_rates_in_settings_replace_those_measured() -> None:
    twice, own = advise().rows[1], advise(rates={"a": 200, "b": 200.0, "c": 200}).rows[0]
    assert own["batchSeconds"] == pytest.approx(twice["batchSeconds"])
    assert own["resultsPerSecond"] == pytest.approx(twice["resultsPerSecond"])


def test_count_windows_hold_as_much_at_any_rate() -> None:
    rows = {
        streams: column(advise(SampleMeasurements(ENDLESS, 9_000, 30.0, count_windows=streams)), "stateRows")
        for streams in ((), (1,))
    }
    assert rows[()] == pytest.approx([1300 * factor for factor in FACTORS])
    assert rows[1,] == pytest.approx([1000 * factor + 300 for factor in FACTORS])


def test_an_equality_is_hashed() -> None:
    assert set(column(advise(SampleMeasurements(measured_state(equalities=EQUALITIES), 9_000, 30.0)), "strategy")) == {
        "Hash"
    }


def test_copies_count_as_state() -> None:
    state = measured_state(rate=100, pair=1e-7, streams=3, matching=0.05)
    for row in advise(SampleMeasurements(state, 9_000, 30.0)).rows:
        assert row["stateRows"] >= 3000 * row["factor"] * 0.999
        assert row["stateBytes"] == pytest.approx(row["stateRows"] * parameters.ROW_BYTES)


# -- caveats


def test_a_network_too_slow_is_noted() -> None:
    needed = advise(goal="latency").rows[0]["bandwidthNeeded"]
    assert needed == pytest.approx(parameters.ROW_BYTES / (1e-5 * 1000 / 16), rel=0.1)  # equation 6
    assert not any("equation 6" in note for note in advise(bandwidth=needed, goal="latency").notes)
    slow = advise(bandwidth=needed / 2, goal="latency")
    assert slow.notes[0] == (
        "At 1x the rate a ring of more than 8 nodes would wait for rows, of which 0.0801 MB/s come (equation 6)."
    )
    assert slow.rows[0]["bandwidthNeeded"] <= needed / 2


def test_a_load_that_no_number_of_nodes_holds_is_noted() -> None:
    assert advise(max_nodes=2).notes[-1].endswith("no strategy on up to 256 nodes keeps up.")


def test_windows_that_were_not_full_are_noted_and_extrapolated() -> None:
    half = advise(replace(HEAVY, fill_seconds=5.0))
    assert half.notes[0].startswith("The sample fills windows for 5 s, the longest is 10 s")
    assert half.rows[0]["resultsPerSecond"] == pytest.approx(4 * advise().rows[0]["resultsPerSecond"])


def test_few_pairs_are_noted() -> None:
    few = SampleMeasurements(measured_state(rate=2), 9, 3.0)
    assert advise(few).notes[0].startswith("There were few pairs (80 per batch)")


def test_endless_state_is_noted() -> None:
    message = "b: no time window, so the state shown is that of the sample, and will grow."
    assert message in advise(SampleMeasurements(ENDLESS, 9, 3.0)).notes
    assert message not in advise(SampleMeasurements(ENDLESS, 9, 3.0, count_windows=(1,))).notes


def test_wrong_settings_are_rejected() -> None:
    for wrong, message in (
        ({"max_nodes": 0}, "^max_nodes=0: .* a whole number of nodes"),
        ({"goal": "fun"}, "goal='fun' is unknown; use one of throughput, latency"),
        ({"every": 0}, "every is 0: give a number above 0"),
        ({"bandwidth": "much"}, "bandwidth is 'much'"),
        ({"slots": -1}, "slots is -1"),
        ({"rates": {"a": 0}}, "rate of stream 'a' is 0"),
        ({"rates": {"a": inf}}, "rate of stream 'a' is inf: give a number above 0, at most 1e"),
        ({"rates": {"z": 5}}, "rates: the join has no stream 'z'; it has a, b, c"),
    ):
        with pytest.raises(DefinitionError, match=message):
            advise(**wrong)


def test_a_stream_without_a_rate_is_rejected_unless_it_is_set() -> None:
    state = replace(HEAVY.state, streams=(*HEAVY.state.streams[:2], StreamView(None, 1, 0, 0, None, 0.0)))
    with pytest.raises(DefinitionError, match=r"no rate of stream 'c'; give it: rates={...}"):
        advise(replace(HEAVY, state=state))
    assert advise(replace(HEAVY, state=state), rates={"c": 10}).rows[0]["tuplesPerSecond"] == 210


# -- output


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    sample = replace(HEAVY, predicates={"similar": {"pairs": 1000, "matches": 10, "ms": 12.0}})
    advise(sample, rates={"b": 100}).show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Measured on 9,000 tuples over 30 s of event time: 9.99 µs a pair, 100 bytes a tuple"
    assert lines[1] == "  a: 100 tuples/s, probe b (0.10% match), then c (0.10% match)"
    assert lines[2].startswith("  b: 100 tuples/s as given, probe")
    assert lines[4:6] == ["  similar(): 12 µs a call, 1.00% match", ""]
    assert lines[7].split()[:2] == ["rate", "tuples/s"]
    assert [line.split()[0] for line in lines[8:12]] == ["1x", "2x", "5x", "10x"]
    assert len({len(line) for line in lines[7:12]}) == 1
    assert all(line.startswith("! ") for line in lines[12:])


def test_a_plot_in_the_format_that_its_name_says(tmp_path: Path) -> None:
    advise().plot(tmp_path / "advice.png")
    assert (tmp_path / "advice.png").read_bytes().startswith(b"\x89PNG")
    for wrong in ("advice.docx", "advice"):
        with pytest.raises(DefinitionError, match=rf"{wrong}'\): the file's name must end in .*\.png, .*\.svg"):
            advise().plot(tmp_path / wrong)


def test_a_plot_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        DefinitionError, match=r"advice.png'\): only .svg can .* 'advice.svg', or pip install matplotlib"
    ):
        advise().plot(tmp_path / "advice.png")
    for advice in (
        advise(),
        advise(max_nodes=1),
        advise(SampleMeasurements(measured_state(rate=1, matching=0.0), 9, 3.0)),
    ):
        advice.plot(tmp_path / "advice.SVG")
        svg = ElementTree.parse(tmp_path / "advice.SVG").getroot()
        spots = [circle.attrib for circle in svg.iter(f"{SVG}circle")]
        assert len(spots) == sum(len(curve) + 1 for curve in advice.curves.values())
        assert all(70 <= float(spot["cx"]) <= 620 and TOP <= float(spot["cy"]) <= BOTTOM for spot in spots)
        texts = [text.text for text in svg.iter(f"{SVG}text")]
        assert {label(row) for row in advice.rows} < set(texts) and TITLES[1] in texts
