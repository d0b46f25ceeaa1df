"""The cost model: the papers' equations against numbers worked out by hand, and the parameters that a join measures."""

from dataclasses import replace
from math import inf

import pytest

from watersmeet.cost import cost_model as cost
from watersmeet.cost import equations, parameters
from watersmeet.cost.load import ROW_SECONDS
from watersmeet.errors import DefinitionError
from watersmeet.state.chunks.chunk import WHOLE, Bucket, Chunk, Place
from watersmeet.state.manifest.view import HopView, Machine, StateView, StreamView, Usage

SECOND = 1_000_000

# Three streams of 100 tuples a second, windows of 10 s, 1 of 500 pairs matches: a tuple looks at 1000 tuples, has 2
# partial results, looks at 2000 more, has 4 results.
EQUAL = replace(
    parameters.uniform(3, 100, 10, 0.002),
    pair_seconds=1e-4,
    insert_seconds=1e-2,
    purge_seconds=3e-2,
    row_seconds=1e-3,
    hop_seconds=5e-3,
    row_bytes=200.0,
)
# a -> b -> c with windows of 20, 5 and 3 tuples; b's and c's tuples have orders and selectivities of their own.
UNEQUAL = parameters.Parameters(
    rates=(2, 1, 3),
    windows=(10, 5, 1),
    orders=((1, 2), (2, 0), (0, 1)),
    selectivities=((0.4, 0.5), (1 / 3, 0.1), (0.25, 1.0)),
    pair_seconds=1.0,
    insert_seconds=0.0,
    purge_seconds=0.0,
    row_seconds=0.5,
)


def test_a_tuple_becomes_partial_results_and_looks_at_pairs() -> None:
    assert list(EQUAL.partials[0]) == [1, 2, 4]
    assert EQUAL.pairs[0] == (1000, 2000)
    assert UNEQUAL.partials[0] == pytest.approx([1, 2, 3])
    assert UNEQUAL.pairs[0] == pytest.approx([5, 6])
    assert UNEQUAL.pairs[1] == pytest.approx([3, 20])
    assert UNEQUAL.pairs[2] == pytest.approx([20, 25])


def test_at_twice_the_rate_a_tuple_looks_at_twice_the_pairs_and_becomes_twice_as_much_a_step() -> None:
    twice = parameters.scale(EQUAL, 2)
    assert twice.pairs[0] == (2000, 8000)
    assert twice.partials[0] == (1, 4, 16)
    assert twice.selectivities == EQUAL.selectivities
    assert equations.result_rate(twice) == 2 * 4 * equations.result_rate(EQUAL)


def test_stored_rows_follow_the_rate_except_for_count_windows() -> None:
    p = replace(UNEQUAL, windows=(inf, inf, 1), stored=(40.0, 50.0, 3.0))
    other = parameters.with_rates(p, (1, 3, 3), constant=(1,))
    assert (other.rates, other.stored) == ((1, 3, 3), (20, 50, 3))
    assert parameters.with_rates(replace(p, rates=(0, 1, 3)), (1, 1, 3)).stored == p.stored  # nothing to compare with


def test_what_windows_found_before_they_were_full_counts_for_the_part_that_they_held() -> None:
    assert parameters.fill_windows(UNEQUAL, 5).selectivities == ((0.4, 0.5), (1 / 3, 0.2), (0.5, 1.0))
    assert parameters.fill_windows(replace(UNEQUAL, windows=(inf, inf, inf)), 5) == replace(
        UNEQUAL, windows=(inf, inf, inf)
    )


def test_equation_1() -> None:
    assert equations.central_work(EQUAL, 0) == pytest.approx(0.04 + 1e-4 * 3000)
    assert equations.ring_work(EQUAL, 0, 4) == pytest.approx(0.34 + 1e-3 * 4 * (1 + 2))
    assert equations.ring_work(UNEQUAL, 2, 3) == pytest.approx(45 + 0.5 * 3 * (1 + 5))


def test_equation_2_is_exact_for_streams_alike_but_for_keeping_tuples() -> None:
    free = replace(EQUAL, insert_seconds=0, purge_seconds=0)
    for nodes in (1, 4, 19):
        assert equations.ring_factor(free, nodes) == pytest.approx(1 + 1e-3 * nodes / (100 * 10 * 1e-4))
        assert equations.ring_work(free, 0, nodes) == pytest.approx(
            equations.central_work(free, 0) * equations.ring_factor(free, nodes)
        )


def test_equations_3_and_4() -> None:
    assert equations.service_rate(EQUAL, 4) == pytest.approx(1 / 0.352)
    assert equations.output_rate(EQUAL, 4) == pytest.approx(4 * 4 / 0.352)
    free = replace(EQUAL, insert_seconds=0, purge_seconds=0)
    single = 4 / 0.3  # O_S: results by L_C
    assert equations.output_rate(free, 6) == pytest.approx(single / (1 / 6 + 1e-3 / (100 * 10 * 1e-4)))


def test_averages_weigh_streams_by_their_rates() -> None:
    work = (2 * 11 + 1 * 23 + 3 * 45) / 6 + 0.5 * 1 * (2 * 3 + 1 * 2 + 3 * 6) / 6
    assert equations.service_rate(UNEQUAL, 1) == pytest.approx(1 / work)
    assert equations.average(replace(UNEQUAL, rates=(0, 0, 0)), lambda _: 1.0) == 0


def test_equation_5() -> None:
    assert equations.latency(EQUAL, 1) == pytest.approx(0.303)
    assert equations.latency(EQUAL, 4) == pytest.approx(1.5 * 5e-3 + 0.3 / 4 + 0.003)
    assert equations.latency(EQUAL, 10) == pytest.approx(4.5 * 5e-3 + 3 * 10 * 5e-3)  # the rows' way outlasts the join


def test_equation_6_and_rows_stored_and_sent() -> None:
    assert equations.bandwidth(EQUAL, 4) == pytest.approx(200 / (1e-4 * 100 * 10 / 4))
    assert equations.bandwidth(replace(UNEQUAL, row_bytes=6.0), 1) == pytest.approx(6 / 3)
    assert equations.bandwidth(replace(UNEQUAL, windows=(inf, 5, 1)), 1) == inf  # nothing is stored: a node only waits
    assert equations.state_rows(UNEQUAL) == 20 + 5 + 3
    assert equations.state_rows(replace(UNEQUAL, spans=(12.0, 5.0, inf), stored=(0.0, 0.0, 9.0))) == 24 + 5 + 3
    assert equations.network_bytes(EQUAL, 4) == pytest.approx(4 * 300 * 3 * 200)


def test_the_best_number_of_nodes() -> None:
    assert equations.best_nodes(EQUAL, 20) == 20  # the output rate only rises
    # 4 nodes: 7.5 ms + max(78, 60) ms; 5: 10 + max(63, 75); 6: 12.5 + max(53, 90).
    assert equations.best_nodes(EQUAL, 20, "latency") == 5
    assert equations.best_nodes(EQUAL, 3, "latency") == 3
    assert equations.best_nodes(EQUAL, 20, available=equations.bandwidth(EQUAL, 7)) == 7
    assert equations.best_nodes(EQUAL, 20, available=1.0) == 1


def test_the_best_number_of_nodes_for_latency_is_the_papers() -> None:
    lean = replace(EQUAL, row_seconds=0.0, insert_seconds=0.0, purge_seconds=0.0)
    first = (0.3 / (3 * 5e-3)) ** 0.5  # L_C / N_1 = M N_1 T_n
    assert abs(equations.best_nodes(lean, 50, "latency") - first) < 1


def test_rings_of_different_lengths() -> None:
    # a -> b -> c on rings of 2 and 3 nodes: 5 / 2 + 6 / 3 pairs at the head, and 1 + 2 rows sent to it.
    assert equations.head_work(UNEQUAL, 0, (4, 2, 3)) == pytest.approx(5 / 2 + 6 / 3 + 0.5 * 3)
    storing = replace(UNEQUAL, insert_seconds=3.0, purge_seconds=1.0)
    assert equations.head_work(storing, 0, (4, 2, 3)) == pytest.approx(4.5 + 1.5 + 4 / 4)
    for nodes in (1, 5):
        assert equations.head_work(EQUAL, 0, (nodes,) * 3) * nodes == pytest.approx(
            equations.ring_work(EQUAL, 0, nodes)
        )
    slow = replace(EQUAL, hop_seconds=1.0)  # the longest ring's half, and a round of each
    assert equations.ring_latency(slow, (1, 4, 2)) == pytest.approx(1.5 + 7)


def test_ring_lengths_of_streams_alike_are_the_best_number_of_nodes() -> None:
    assert equations.ring_lengths(EQUAL, 6) == (6, 6, 6)
    first = equations.ring_lengths(EQUAL, 20, "latency")
    assert first[0] == equations.best_nodes(EQUAL, 20, "latency")
    assert equations.ring_latency(EQUAL, first) <= equations.latency(EQUAL, first[0])


def test_a_stream_of_little_weight_has_a_short_ring() -> None:
    p = replace(EQUAL, rates=(1.0, 100.0, 100.0), hop_seconds=1e-3)
    assert equations.ring_lengths(p, 20, "latency") == (1, 2, 1)
    assert equations.ring_latency(p, equations.ring_lengths(p, 20, "latency")) <= equations.latency(
        p, equations.best_nodes(p, 20, "latency")
    )


def test_dearer_and_less_selective_joins_want_longer_rings() -> None:
    best = [
        equations.best_nodes(replace(EQUAL, pair_seconds=seconds), 50, "latency")
        for seconds in (1e-6, 1e-4, 1e-3, 1e-2)
    ]
    assert best == sorted(best)
    assert best[0] < best[-1]
    more, less = (
        replace(parameters.uniform(3, 100, 10, matching), pair_seconds=1e-4, hop_seconds=1e-3)
        for matching in (0.001, 0.01)
    )
    assert equations.output_rate(less, 4) > equations.output_rate(more, 4)
    assert equations.latency(less, 4) > equations.latency(more, 4)


def test_parameters_must_fit_each_other() -> None:
    for wrong in ({"windows": (1.0,)}, {"orders": ((1,), (0,), (0,))}, {"stored": (1.0,)}, {"spans": (1.0, 2.0)}):
        with pytest.raises(DefinitionError, match="A cost model of 3 streams needs 3 of each value, and 2 steps"):
            replace(EQUAL, **wrong)


# -- a second of event time under each strategy


def test_central() -> None:
    price = cost.central_cost(EQUAL)
    assert (price.compute, price.stored_tuples, price.sent_rows) == pytest.approx((300 * 0.3, 300, 300))
    between = 2 * 5e-3 + cost.start_seconds(1, 1, inf)
    assert price.seconds(EQUAL) == pytest.approx(90 + 300 * 0.04 + 300 * 1e-3 + between)
    assert price.seconds(EQUAL, (2, 0, 1)) == pytest.approx(180 + 0.3 + between)
    assert price.seconds(replace(EQUAL, slots=0.5)) == pytest.approx(2 * (90 + 300 * 0.04 + 300 * 1e-3) + between)


def test_psp_divides_work_and_sends_rows_round() -> None:
    price = cost.psp_cost(EQUAL, 4)
    assert (price.compute, price.stored_tuples, price.share, price.tasks) == pytest.approx((90, 300, 1 / 4, 8))
    assert price.sent_rows == pytest.approx(equations.network_bytes(EQUAL, 4) / 200)


def test_borders_divide_the_work_of_long_batches_too() -> None:
    late = replace(EQUAL, spans=(22.0,) * 3)  # what is stored only for late tuples is hardly ever probed
    assert [cost.psp_cost(p, 4).share for p in (late, replace(EQUAL, advance=40.0))] == [1 / 4, 1 / 4]
    assert cost.psp_cost(replace(EQUAL, advance=40.0), 4).sent_rows == pytest.approx(300 * 3 * (1 + 4 / 5))
    assert cost.psp_cost(replace(EQUAL, advance=inf), 4).share == 1  # before the first batch there are none
    assert cost.dsj_cost(replace(EQUAL, advance=inf), 4).share == 1 / 4


def test_dsj_visits_fewer_nodes_for_shorter_windows() -> None:
    p = replace(parameters.uniform(2, 10, 20, 0.1), windows=(20.0, 4.0), advance=1.0)
    price = cost.dsj_cost(p, 4)  # slices of 5 s: probes of the first stream go to all nodes, of the second to 1 + 1
    assert price.sent_rows == pytest.approx(10 * 2 + 10 * 4)
    assert price.compute == pytest.approx(p.pair_seconds * (10 * 40 + 10 * 200))
    assert price.share == pytest.approx((10 * 40 / 1 + 10 * 200 / 4) / 2400)


def test_atr_stores_and_sends_equation_2s_tuples() -> None:
    p = replace(UNEQUAL, advance=1.0)
    price = cost.atr_cost(p, 8, 0, 5.0)
    extra = 1 * (5 + 10) / 5 + 3 * (1 + 10) / 5
    assert cost.atr_extra(p, 8, 0, 5.0) == pytest.approx(extra)
    assert (price.stored_tuples, price.sent_rows, price.tasks) == pytest.approx((6 + extra, 6 + extra, 8))
    # The master's tuples lie in 1 + 1 / 5 segments, what others probe of it in 1 + 11 / 5.
    assert price.share == pytest.approx((2 * 11 / 1.2 + 1 * 23 / 3.2 + 3 * 45 / 3.2) / (22 + 23 + 135))
    assert cost.best_master(p, 8, 5.0) == 2  # 2 * 11 / 5 + 1 * 6 / 5 is the least
    assert cost.atr_extra(replace(p, windows=(inf, 5.0, 1.0)), 8, 0, 5.0) == 7 * 4


def test_ctr_sends_equation_4s_rows() -> None:
    assert cost.ctr_extra(EQUAL, 3, 2) == pytest.approx(300 * (2 + 2 * 2))
    price = cost.ctr_cost(EQUAL, 9)
    assert (price.stored_tuples, price.sent_rows, price.share) == pytest.approx((900, 300 + 1800, 1 / 3))
    assert cost.ctr_cost(EQUAL, 1) == cost.central_cost(EQUAL)


def test_hash_looks_into_one_bucket_and_sends_rows_once_a_hop() -> None:
    one = cost.hash_cost(EQUAL, 4, [1, 1, 1], shared=True)
    assert (one.compute, one.stored_tuples, one.sent_rows, one.share, one.tasks) == pytest.approx(
        (22.5, 300, 300, 0.25, 4)
    )
    many = cost.hash_cost(EQUAL, 4, [1, 2, 1], shared=False)
    assert (many.stored_tuples, many.sent_rows, many.tasks) == pytest.approx((400, 400 + 300 * 2, 8))


def test_nothing_to_do_costs_nothing_but_stages_and_tasks() -> None:
    idle = replace(EQUAL, rates=(0.0, 0.0, 0.0), cores=2)
    costs = [
        cost.central_cost(idle),
        cost.psp_cost(idle, 3),
        cost.dsj_cost(idle, 3),
        cost.atr_cost(idle, 3, 0, 5.0),
        cost.ctr_cost(idle, 3),
    ]
    counts = [(1, 1), (3, 2), (3, 2), (3, 1), (3, 2)]
    between = [5e-3 * (1 + stages) + cost.start_seconds(nodes, stages, 2) for nodes, stages in counts]
    assert [each.seconds(idle) for each in costs] == pytest.approx(between)


# -- what a running join measured


def test_priors_before_anything_is_measured() -> None:
    p = parameters.measure(StateView((StreamView(20 * SECOND, window=10 * SECOND), StreamView(None))))
    assert p.rates == (parameters.RATE, parameters.RATE)
    assert p.windows == (10, inf)
    assert [p.window_rows[0], p.window_rows[1]] == [10 * parameters.RATE, parameters.RATE * parameters.UNLIMITED]
    assert (p.pair_seconds, p.row_bytes, p.advance) == (parameters.PAIR_SECONDS, parameters.ROW_BYTES, inf)


def state(**more: object) -> StateView:
    """Three streams of 100, 50 and 10 tuples a second and windows of 10 s, 2 s and none."""
    streams = (
        StreamView(20 * SECOND, 90 * SECOND, 200, 2 * SECOND, 10 * SECOND, 100.0),
        StreamView(12 * SECOND, 90 * SECOND, 100, 2 * SECOND, 2 * SECOND, 50.0),
        StreamView(None, 89 * SECOND, 20, 1 * SECOND, None, 10.0),
    )
    chunks = tuple(Chunk(f"{at}", 2, 0, 0, SECOND, WHOLE, 150, 6000, 0, 9, (0,), Place("p", 0, 0, "")) for at in (1, 2))
    view = StateView(streams, chunks, ties=(frozenset({0, 1}), frozenset({0, 2}), frozenset({0, 1, 2})))
    return replace(view, **more)  # type: ignore[arg-type]


def test_rates_windows_and_state_as_measured() -> None:
    p = parameters.measure(state(machine=Machine(2, 0.0)))
    assert (p.rates, p.windows, p.spans) == ((100, 50, 10), (10, 2, inf), (20, 12, inf))
    assert [p.window_rows[at] for at in p.streams] == [1000, 100, 300]
    assert (p.advance, p.row_bytes, p.row_seconds, p.slots) == (2, 40, 0, 2)
    assert parameters.measure(state()).row_seconds == ROW_SECONDS


def test_rows_that_are_stored_by_several_hashes_count_once() -> None:
    def by_hash(by: int) -> Chunk:
        bucket = Bucket(by, 2, 0, fields=(3, 4))
        return Chunk(f"h{by}", 2, 0, 0, SECOND, bucket, 150, 6000, 0, 9, (0,), Place("p", 0, 0, ""))

    assert parameters.measure(state(chunks=(by_hash(3), by_hash(4)))).window_rows[2] == 150


def test_a_silent_stream_has_a_rate_until_its_window_is_empty() -> None:
    usual = state().streams[1]
    for ago, rows, expected in ((1, 0, 50.0), (3, 0, 0.0), (3, 100, 50.0)):
        silent = replace(usual, rows=rows, latest=(90 - ago) * SECOND)
        streams = (state().streams[0], silent, state().streams[2])
        assert parameters.measure(state(streams=streams)).rates[1] == expected


def test_hops_not_taken_have_the_selectivity_of_their_conjuncts_least_first() -> None:
    p = parameters.measure(state())
    assert p.orders == ((1, 2), (0, 2), (0, 1))  # from stream 1 no conjunct leads to 2
    assert p.selectivities[0] == pytest.approx((0.1, 0.01))
    assert parameters.measure(state(), master=2).orders == ((2, 1), (2, 0), (0, 1))


def test_measured_hops_give_orders_and_partial_results() -> None:
    hops = (HopView((0,), 2, 200, 60_000, 1200), HopView((0,), 1, 20, 2_000, 0), HopView((0, 2), 1, 1200, 120_000, 60))
    p = parameters.measure(state(hops=hops))
    assert p.orders[0] == (2, 1)
    assert p.partials[0] == pytest.approx([1, 6, 0.3])
    assert parameters.has_measurements(state(hops=hops))
    assert not parameters.has_measurements(state())


def test_seconds_a_pair_weigh_what_was_measured_against_the_prior() -> None:
    hops = (HopView((0,), 1, 200, 99_000, 10), HopView((1,), 0, 100, 0, 0))
    usage = (Usage(cpu=4.0), Usage(cpu=5.0))
    storing = 2 * parameters.KEEP_SECONDS * 320
    p = parameters.measure(state(hops=hops, usage=usage))
    assert p.pair_seconds == pytest.approx((0.001 + 9 - storing) / 100_000)
    assert parameters.measure(state(hops=hops, usage=(Usage(cpu=1e-9),))).pair_seconds == pytest.approx(1e-8)
    assert parameters.measure(state(hops=hops)).pair_seconds == parameters.PAIR_SECONDS


def test_a_stream_of_one_moment_and_one_without_tuples_break_nothing() -> None:
    p = parameters.measure(StateView((StreamView(20, 7, 5, 0, 10, 0.0), StreamView(20, window=10))))
    assert p.rates == (5, 0)
    assert p.advance == parameters.INSTANT
    assert cost.psp_cost(p, 4).seconds(p) > cost.central_cost(p).seconds(p)
