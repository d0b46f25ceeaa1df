"""The times of a tuple and of a pair, fitted to batches of different sizes."""

import pytest

from watersmeet.cost.parameters import BATCH_SECONDS, TUPLE_SECONDS, BatchWork, fit_pace

SIZES = ((18, 29), (36, 364), (72, 2_375), (144, 11_873), (288, 48_000), (288, 60_000), (288, 61_000))


def batches(batch: float, each: float, pair: float) -> list[BatchWork]:
    return [BatchWork(batch + each * tuples + pair * pairs, tuples, pairs) for tuples, pairs in SIZES]


@pytest.mark.parametrize("pair", [1e-9, 1e-7, 1e-4])
def test_the_fixed_cost_of_a_batch_is_not_attributed_to_its_pairs(pair: float) -> None:
    assert fit_pace(batches(0.02, 0.0, pair)).pair_seconds == pytest.approx(pair, rel=0.5, abs=5e-8)


def test_the_first_batch_warms_up() -> None:
    slow = [BatchWork(3.0, 18, 29), *batches(0.015, 5e-6, 1e-6)[1:]]
    assert fit_pace(slow) == pytest.approx((0.015, 5e-6, 1e-6), rel=0.01)


def test_tuples_are_separated_from_pairs_where_windows_fill() -> None:
    sizes = ((10, 1), (1_000, 1), (2_000, 50), (4_000, 100), (8_000, 999), (8_000, 2_000))
    pace = fit_pace([BatchWork(0.015 + 2e-5 * tuples, tuples, tuples * partners) for tuples, partners in sizes])
    assert pace.tuple_seconds == pytest.approx(2e-5, rel=0.4)
    assert pace.pair_seconds < 1e-8


@pytest.mark.parametrize("count", [1, 2, 5])
def test_batches_that_are_all_alike_leave_the_rest_to_pairs(count: int) -> None:
    pace = fit_pace([BatchWork(4.0, 200, 40_000)] * count)
    assert pace == pytest.approx((BATCH_SECONDS, TUPLE_SECONDS, 1e-4), rel=0.01)


def test_nothing_is_negative_and_no_pairs_take_no_time() -> None:
    assert min(fit_pace([BatchWork(0.0, 10, 100), BatchWork(0.0, 20, 400), BatchWork(0.0, 40, 1600)])) >= 0
    assert fit_pace([BatchWork(0.01, 10, 0)] * 3).pair_seconds == 0
