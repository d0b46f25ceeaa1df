"""Orders that are learned and orders by histograms: what they choose, that it pays, and that results stay the same."""

import json
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from tests.batch.scatter import Scatter, ScatterOrdering
from tests.batch.test_engine import SCHEMA, cases, near, run_case, scattered
from tests.budget import FEW
from watersmeet.ordering import Given, Ordering
from watersmeet.ordering.histogram import EquiWidth, Histogram, HistogramOrder, as_values, evaluate_bounds, merge_zones
from watersmeet.ordering.selectivity import DECAY, EXPLORE, Selectivity
from watersmeet.placement import PSP
from watersmeet.predicate.model import Bound, Column, Dialect
from watersmeet.predicate.numbers import numbers
from watersmeet.predicate.parse import parse_where
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.work import HopWork
from watersmeet.query import windows
from watersmeet.query.query import Query, StreamSpec
from watersmeet.state.chunks.chunk import WHOLE, Bucket, Chunk, Place
from watersmeet.state.chunks.sorted_index import BINS, Zone, zone_of
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run


def query_of(text: str, names: str = "abc") -> Query:
    streams = tuple(StreamSpec(name, SCHEMA, 1, windows.Sliding(10_000), 0) for name in names)
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (near,), Dialect())
    return Query(streams, conjuncts, text, (), (near,))


def chunk(stream: int, rows: int, zones: dict[str, Zone] | None = None, bucket: Bucket = WHOLE) -> Chunk:
    place = Place("p", 0, 0, "")
    return Chunk(f"c{stream}", stream, 0, 0, 10, bucket, rows, 8, 0, 9, (0,), place, zones=zones or {})


def work(rows: int, matches: int, pairs: int = 1000) -> HopWork:
    return HopWork(rows, 0, pairs, matches)


# -- Selectivity

STAR = "a.x < b.x AND a.x < c.x AND a.x < d.x"


def test_before_anything_is_learned_the_order_of_the_definition_holds() -> None:
    query = query_of("a.x < b.x AND b.x < c.x")
    plan = Selectivity().plan(query)
    assert [plan.orders(origin) for origin in range(3)] == [Given().plan(query).orders(at) for at in range(3)]


def test_the_hop_that_makes_the_fewest_partial_results_comes_first() -> None:
    learned = Selectivity().learn({}, {((0,), 1): work(10, 50), ((0,), 2): work(10, 5), ((0,), 3): work(10, 20)})
    chunks = tuple(chunk(stream, 100) for stream in range(4))
    assert Selectivity().plan(query_of(STAR, "abcd"), chunks, learned).orders(0) == ((2, 3, 1),)


def test_later_steps_go_by_what_hops_from_the_same_streams_did() -> None:
    hops: dict[Hop, HopWork] = {((0,), 1): work(10, 5), ((0,), 2): work(10, 6), ((0,), 3): work(10, 7)}
    hops |= {((0, 1), 2): work(10, 90), ((0, 1), 3): work(10, 1)}
    assert Selectivity().plan(query_of(STAR, "abcd"), (), Selectivity().learn({}, hops)).orders(0) == ((1, 3, 2),)


def test_a_hop_never_taken_is_estimated_from_its_streams_pairs() -> None:
    query = query_of("a.x < b.x AND b.x < c.x")
    learned = Selectivity().learn({}, {((0,), 1): work(10, 300, 1000), ((2,), 1): work(10, 20, 1000)})
    # From b: to a 0.3 of its 50 tuples, to c 0.02 of its 100 (a copy by another attribute does not count).
    chunks = (chunk(0, 50), chunk(2, 100), chunk(2, 100, bucket=Bucket(3, 4, 0, (2, 3))))
    assert Selectivity().plan(query, chunks, learned).orders(1) == ((2, 0),)
    estimates = Selectivity().estimates(query, chunks, learned)
    assert estimates[(1,), 2] == pytest.approx(2.0)
    assert estimates[(0,), 1] == pytest.approx(30.0)


def test_what_is_learned_decays_and_survives_json() -> None:
    once = Selectivity().learn({}, {((0, 1), 2): work(10, 5, 100), ((1,), 0): work(1, 1, 1)})
    twice = Selectivity().learn(json.loads(json.dumps(once)), {((0, 1), 2): work(10, 5, 100)})
    assert twice["batches"] == 2
    assert twice["hops"] == [
        [(0, 1), 2, *(pytest.approx(n * (1 + DECAY)) for n in (10, 100, 5))],
        [(1,), 0, *[DECAY] * 3],
    ]
    for _ in range(3):
        twice = json.loads(json.dumps(Selectivity().learn(twice, {})))
    assert [hop[:2] for hop in twice["hops"]] == [[[0, 1], 2]]  # what is too old is forgotten


def test_now_and_then_an_untried_hop_is_taken() -> None:
    chunks = tuple(chunk(stream, 100) for stream in range(4))
    learned: dict[str, Any] = {}
    firsts = []
    for _ in range(EXPLORE + 1):
        (order,) = Selectivity().plan(query_of(STAR, "abcd"), chunks, learned).orders(0)
        firsts.append(order[0])
        learned = Selectivity().learn(learned, {((0,), order[0]): work(10, 5 if order[0] == 1 else 1)})
    assert firsts == [1] * EXPLORE + [2]
    assert Selectivity().plan(query_of(STAR, "abcd"), chunks, learned).orders(0)[0][0] == 2  # it was better


def test_an_unmeasured_hop_is_taken_where_the_measured_ones_are_bad() -> None:
    query = query_of("a.x < b.x AND a.k = c.k")
    chunks = tuple(chunk(stream, 100) for stream in range(3))
    plan = Selectivity().plan
    assert plan(query, chunks, {}).orders(0) == ((2, 1),)  # an equality usually lets less through
    assert plan(query, chunks, Selectivity().learn({}, {((0,), 2): work(10, 500)})).orders(0) == ((1, 2),)
    assert plan(query, chunks, Selectivity().learn({}, {((0,), 1): work(10, 20)})).orders(0) == ((1, 2),)


# -- histograms


def test_zones_count_values_in_equal_parts() -> None:
    zone = zone_of(pa.array([0.0] * 10 + [2.0 * BINS] * 5 + [BINS + 1.0] * BINS + [None, float("nan")]))
    assert (zone.low, zone.high, zone.nan) == (0.0, 2 * BINS, True)
    assert {at: count for at, count in enumerate(zone.counts) if count} == {0: 10, BINS // 2: BINS, BINS - 1: 5}
    assert zone_of(pa.array([1.0] * (BINS - 1))).counts == ()
    assert zone_of(pa.array([7] * BINS)).counts == (BINS,)
    assert zone_of(pa.array([-1e308, 1e308] * BINS)).counts == ()
    assert zone_of(pa.array([float("inf"), 1.0] * BINS)).counts == ()


def test_zones_survive_json() -> None:
    original = chunk(0, 40, {"s0_2": Zone(0.0, 1.0, False, (30, 10)), "s0_3": Zone(1.0, 2.0, True)})
    plain = json.loads(json.dumps(original.to_json()))
    assert Chunk.from_json(plain) == original
    plain["zones"] = {"s0_2": [0.0, 1.0, False]}  # as written before there were counts
    assert Chunk.from_json(plain).zones == {"s0_2": Zone(0.0, 1.0, False)}


def within(histogram: EquiWidth, *ranges: tuple[float, float]) -> list[float]:
    low, high = np.array(ranges, dtype=np.float64).T
    return [round(float(count), 6) for count in histogram.within(low, high)]


def test_values_in_a_range() -> None:
    histogram = EquiWidth(0.0, 40.0, np.array([10.0, 0.0, 20.0, 40.0]))
    inf, nan = np.inf, np.nan
    assert within(histogram, (-inf, inf), (0, 10), (25, 35), (-5, 5), (50, inf)) == [70, 10, 30, 5, 0]
    assert within(histogram, (8, 2), (nan, 5), (0, nan), (nan, nan), (inf, -inf)) == [0, 0, 0, 0, 0]
    assert within(histogram, (25, 25), (15, 15), (40, 40), (41, 41)) == [20, 0, 40, 0]  # one value: its whole part


def test_values_of_whole_numbers() -> None:
    histogram = EquiWidth(0.0, 100.0, np.array([50.0, 100.0]), whole=True)
    assert within(histogram, (10, 10), (60, 60), (10, 19)) == [1, 2, 10]
    single = EquiWidth(5.0, 5.0, np.array([8.0]))
    assert within(single, (5, 5), (0, 9), (6, 9), (-np.inf, 4)) == [8, 8, 0, 0]


def test_histograms_of_chunks_are_merged_over_their_common_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watersmeet.ordering.histogram.BINS", 4)
    zones = [
        (Zone(0.0, 4.0, False, (4, 8)), 12),
        (Zone(2.0, 8.0, False), 6),  # too few for counts: taken to be even
        (Zone(8.0, 8.0, False), 5),
        (Zone(np.inf, -np.inf, True), 3),
        (Zone(0.0, np.inf, False), 3),
    ]
    combined = merge_zones(zones, pa.float64())
    assert combined is not None
    assert (combined.low, combined.high, combined.counts.tolist()) == (0.0, 8.0, [4.0, 10.0, 2.0, 7.0])
    assert merge_zones([(Zone(np.inf, -np.inf, False), 3)], pa.float64()) is None
    assert merge_zones([(Zone(-1e308, 0.0, False), 3), (Zone(0.0, 1e308, False), 3)], pa.float64()) is None
    alike = [(Zone(3.0, 3.0, False), 2), (Zone(3.0, 3.0, False), 5)]
    assert merge_zones(alike, pa.string()) is None  # one text, or many that begin alike
    same = merge_zones(alike, pa.float64())
    assert same is not None and (same.low, same.high, same.counts.tolist()) == (3.0, 3.0, [7.0])


def test_parts_of_values_beyond_the_range_and_of_none() -> None:
    histogram = EquiWidth(0.0, 40.0, np.ones(4))
    assert histogram.part(np.array([-9.0, 0.0, 10.0, 39.0, 40.0, 99.0, np.inf, np.nan])).tolist() == [
        0, 0, 1, 3, 3, 3, 3, 3,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.int64(), pa.float32(), pa.bool_(), pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(9, 2),
        pa.string(), pa.large_string(),
    ],
)  # fmt: skip
def test_numbers_as_values_of_a_type(kind: pa.DataType) -> None:
    assert numbers(as_values(np.array([0.0, 1.0]), kind)).tolist() == [0.0, 1.0]


def test_numbers_that_do_not_fit_a_type_are_null_or_the_nearest() -> None:
    assert as_values(np.array([1e20, 5.0]), pa.decimal128(9, 2)).null_count == 1
    assert as_values(np.array([2.0**63]), pa.int64()).to_pylist() == [2**63 - 1024]


@FEW
@given(st.lists(st.integers(0, 2**48 - 1), min_size=50, max_size=99), st.lists(st.text(max_size=7), max_size=50))
def test_numbers_as_text_stay_as_near_as_text_can(values: list[int], texts: list[str]) -> None:
    as_numbers = numbers(as_values(np.array(sorted(values), dtype=np.float64), pa.string()))
    assert np.all(as_numbers <= sorted(values)) and np.all(np.diff(as_numbers) >= 0)
    own = numbers(pa.array(texts, pa.string()))
    assert numbers(as_values(own, pa.string())).tolist() == own.tolist()  # a character cut in two is completed


def test_a_range_of_text_is_one_value_only_if_its_ends_are_the_same() -> None:
    values = pa.array([f"user{number:02}" for number in range(99)])
    histogram = merge_zones([(zone_of(values), 99)], values.type)
    assert histogram is not None
    one, ten, prefix = numbers(pa.array(["user50", "user5", "user"])).tolist()
    as_numbers = within(histogram, (one, one), (ten, ten + 0xFF), (prefix, prefix + 0xFFFF))
    assert as_numbers == pytest.approx([10, 10, 99], abs=3)


def test_bounds_are_evaluated() -> None:
    bound = Bound(Column(1, 2), "s0_2 - 1", None, (Column(0, 2),))
    ((low, high),) = evaluate_bounds(Dialect(), [bound], {"s0_2": pa.array([1.0, None])}, 2)
    assert (low[0], np.isnan(low[1]), high.tolist()) == (0.0, True, [np.inf, np.inf])
    assert evaluate_bounds(Dialect(), [], {}, 0) == []
    raising = Bound(Column(1, 3), "ws_text(CAST(CAST(s0_3 AS INTEGER) AS VARCHAR))", None, (Column(0, 3),))
    ((low, high),) = evaluate_bounds(Dialect(), [raising], {"s0_3": pa.array(["a", "Σ"])}, 2)
    assert (low.tolist(), high.tolist()) == ([-np.inf] * 2, [np.inf] * 2)


# -- TJM

LOW_C = (
    chunk(0, 100, {"s0_2": Zone(0.0, 100.0, False, (50, 50))}),
    chunk(1, 100, {"s1_2": Zone(0.0, 100.0, False, (90, 10))}),
    chunk(2, 100, {"s2_2": Zone(0.0, 100.0, False, (10, 90))}),
)


def test_tuples_probe_first_what_they_match_least() -> None:
    """Stream b has small values, stream c large ones: each tuple of a begins where its own value is rare."""
    order = Histogram().plan(query_of("abs(a.x - b.x) < 5 AND abs(a.x - c.x) < 5"), LOW_C, {})
    assert set(order.orders(0)) == {(1, 2), (2, 1)}
    assert order.reads(0) == (Column(0, 2),)
    values = pa.array([10.0, 20.0, 80.0, 95.0, -7.0, 1000.0, None, float("nan")])
    orders = [order.orders(0)[course] for course in order.courses(0, {Column(0, 2): values})]
    assert orders[:6] == [(2, 1), (2, 1), (1, 2), (1, 2), (2, 1), (1, 2)]
    assert len(orders) == 8  # NULL and NaN have an order too


def test_estimates_by_histograms() -> None:
    estimates = Histogram().estimates(query_of("abs(a.x - b.x) < 5 AND abs(a.x - c.x) < 5"), LOW_C, {})
    assert {hop for hop in estimates if hop[0] == (0,)} == {((0,), 1), ((0,), 2)}
    # Half of a's tuples meet 18 of b's, half of them 2; less at the ends.
    assert estimates[(0,), 1] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("text", ["a.k = b.k AND a.k = c.k", "b.k LIKE concat(a.k, '%') AND c.k LIKE concat(a.k, '%')"])
def test_tuples_probe_first_where_their_text_is_rare(text: str) -> None:
    """Texts of b mostly begin early in the alphabet, those of c late."""
    early, late = "abcdefghijklm", "nopqrstuvwxyz"
    words = [3 * (early + late), 5 * early + late, early + 5 * late]
    zones = [zone_of(pa.array([f"{letter}ew" for letter in letters])) for letters in words]
    chunks = tuple(chunk(at, 78, {f"s{at}_3": zone}) for at, zone in enumerate(zones))
    order = Histogram().plan(query_of(text), chunks, {})
    assert order.reads(0) == (Column(0, 3),)
    orders = order.courses(0, {Column(0, 3): pa.array(["dew", "ewe", "sew", "the", None])})
    assert [order.orders(0)[kind] for kind in orders][:4] == [(2, 1), (2, 1), (1, 2), (1, 2)]


def test_texts_that_all_begin_alike_count_as_usual() -> None:
    zone = zone_of(pa.array([f"sensor-{number}" for number in range(BINS)]))
    chunks = (*(chunk(at, 40, {f"s{at}_3": zone}) for at in (0, 1)), chunk(2, 40, {"s2_2": Zone(0.0, 1.0, False)}))
    assert Histogram().plan(query_of("a.k = b.k AND a.x < c.x"), chunks, {}).orders(0) == ((1, 2),)


def test_one_order_needs_no_values() -> None:
    order = Histogram().plan(query_of("a.x < b.x AND b.x < c.x"), (), {})
    assert [order.orders(origin) for origin in range(3)] == [((1, 2),), ((0, 2),), ((1, 0),)]
    assert [order.reads(origin) for origin in range(3)] == [(), (), ()]


def test_later_steps_go_by_averages() -> None:
    """From c the next is always b; of d and a, tied to b alone, the one that b matches less on average."""
    text = "c.x = b.x AND b.x < a.x AND b.x > d.x"
    zones = {"b": (0.0, 10.0), "a": (0.0, 100.0), "c": (0.0, 10.0), "d": (0.0, 100.0)}
    names = "abcd"
    chunks = tuple(chunk(at, 100, {f"s{at}_2": Zone(*zones[name], False, (50, 50))}) for at, name in enumerate(names))
    order = Histogram().plan(query_of(text, names), chunks, {})
    assert {course[:1] for course in order.orders(2)} == {(1,)}
    assert order.orders(2)[0] == (1, 3, 0)  # b > d holds for a twentieth of d, b < a for most of a


def test_two_attributes_determine_courses_and_orders_are_few() -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), *((name, pa.float64()) for name in "xyz")])
    streams = tuple(StreamSpec(name, schema, 1, windows.Sliding(100), 0) for name in "abcd")
    text = "abs(a.x - b.x) < 5 AND abs(a.y - c.x) < 5 AND abs(a.z - d.x) < 5"
    query = Query(streams, parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect()), text)
    even = Zone(0.0, 100.0, False, (50, 50))
    chunks = (
        chunk(0, 100, {f"s0_{field}": even for field in (2, 3, 4)}),
        *(chunk(at, 100, {f"s{at}_2": Zone(0.0, 100.0, False, (90 - 30 * at, 10 + 30 * at))}) for at in (1, 2, 3)),
    )
    order = Histogram().plan(query, chunks, {})
    assert isinstance(order, HistogramOrder)
    assert order.reads(0) == (Column(0, 2), Column(0, 3))
    assert 1 < len(order.orders(0)) <= 4
    values = {column: pa.array([1.0, 99.0, 1.0, 99.0]) for column in order.reads(0)}
    assert set(order.courses(0, values).tolist()) <= set(range(len(order.orders(0))))


# -- through the engine


def pairs_of(ordering: Ordering, text: str, batches: Sequence[list[tuple[int, dict[str, Any]]]]) -> tuple[Any, int]:
    """Return the results, and the pairs looked at after the first batch, in which nothing is measured yet."""
    with TemporaryDirectory() as folder:
        run = Run(query_of(text), Store(folder))
        for rows in batches:
            run.step(PSP(2), rows, "local", ordering)
        return run.results, sum(hop["pairs"] for p in run.progress[1:] for hop in p["hops"])


def row(at: int, x: float, k: str = "p") -> dict[str, Any]:
    return {"id": at, "ts": at, "x": x, "k": k}


def test_a_learned_order_looks_at_fewer_pairs_than_the_given_one() -> None:
    """All pairs of a and b match, few of either with c."""
    batches = [
        [
            (0, row(at, 0.0, "abcdefghij"[at % 10])) if at % 3 == 0 else (at % 3, row(at, 1.0, "klmnopqrsj"[at % 10]))
            for at in range(90 * batch, 90 * batch + 90)
        ]
        for batch in range(4)
    ]
    text = "a.x < b.x AND a.k = c.k AND b.k = c.k"
    results, pairs = pairs_of(Selectivity(), text, batches)
    expected, more = pairs_of(Given(), text, batches)
    assert results == expected and sum(results.values()) > 0
    assert pairs < more / 3


@pytest.mark.long
def test_orders_by_value_look_at_fewer_pairs_than_any_one_order() -> None:
    """Small values are common in b and rare in c, large ones the other way round; a has both."""
    rng = np.random.default_rng(7)
    batches: list[list[tuple[int, dict[str, Any]]]] = []
    for times in (range(300), range(300, 360), range(360, 420)):
        rows: list[tuple[int, dict[str, Any]]] = []
        for at in times:
            side = {0: rng.random() < 0.5, 1: rng.random() < 0.05, 2: rng.random() < 0.95}[at % 3]
            rows.append((at % 3, row(at, float(rng.random() * 10 + 90 * side))))
        batches.append(rows)
    text = "abs(a.x - b.x) < 5 AND abs(a.x - c.x) < 5"
    results, pairs = pairs_of(Histogram(), text, batches)
    expected, more = pairs_of(Given(), text, batches)
    learned, fewer = pairs_of(Selectivity(), text, batches)
    assert results == expected == learned and sum(results.values()) > 0
    assert pairs < 0.7 * min(more, fewer)


orderings_of = st.sampled_from([Selectivity(), Selectivity(), Histogram(), Histogram(), ScatterOrdering(), None])


@pytest.mark.long
@FEW
@given(case=st.one_of(cases(), scattered()), data=st.data())
def test_no_order_changes_the_results(case: dict[str, Any], data: st.DataObject) -> None:
    strategies = st.one_of(st.integers(1, 4).map(PSP), st.builds(Scatter, st.integers(1, 5), st.integers(0, 1000)))
    case["strategies"] = [data.draw(strategies) for _ in case["batches"]]
    case["orderings"] = [data.draw(orderings_of) for _ in case["batches"]]
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results


@FEW
@given(case=cases(), ordering=st.sampled_from([Selectivity(), Histogram()]))
def test_one_ordering_from_batch_to_batch_gives_the_oracles_results(case: dict[str, Any], ordering: Ordering) -> None:
    case["orderings"] = [ordering] * len(case["batches"])
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results


@pytest.mark.long
@FEW
@given(case=scattered())
def test_classes_with_orders_of_their_own_give_the_oracles_results(case: dict[str, Any]) -> None:
    """Values are small in a, large in c, and either in b, whose tuples therefore begin with one or the other."""
    for rows in case["batches"]:
        rows[:] = [(n, ts, 8.0 - x if n == "c" or (n == "b" and ts % 2) else x, k) for n, ts, x, k in rows]
    case["streams"] = [oracle.Stream(name, oracle.Sliding(20), 10) for name in "abc"]
    case["where"] = ["abs(a.x - b.x) < 3", "abs(b.x - c.x) < 3"]
    case["strategies"] = [PSP(3)] * len(case["batches"])
    case["orderings"] = [Histogram()] * len(case["batches"])
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results
