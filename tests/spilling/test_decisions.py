"""The description of the options, and the controller's record from step to step."""

from dataclasses import replace

import pytest

from watersmeet.spilling.decisions import (
    MOST_GROWTH,
    PATIENCE,
    ROUND_OVERHEAD,
    ControllerRecord,
    Decision,
    describe_options,
)
from watersmeet.spilling.options import Spill
from watersmeet.spilling.units import Ledger
from watersmeet.state.manifest.manifest import Manifest

EMPTY = Manifest(batch=0, streams=())


def test_options_are_described() -> None:
    assert describe_options(Spill(memory="2 GB", within="500 milliseconds", pay="local", disk=5000, share=0.5), 8) == [
        "  once hot state takes 2 GB or batches take longer than 500 milliseconds, about 50% of the state is spilled, "
        "by policy 'synchronized', paid by 'local': 8 partitions of the values, cut by slices of time",
        "  below 85% of that it comes back, at most every 2 minutes; what has been owed for 10 minutes is paid at "
        "once, and the oldest of it once spilled state takes 5 kB",
    ]
    one, two = describe_options(Spill(within="1 second", policy="local", pay="local"), 1)
    assert one.endswith("longer than 1 second, about 30% of the state is spilled, by policy 'local': slices of time")
    assert two.endswith("paid at once")


def test_time_that_a_batch_had_to_spare_and_paid_with_does_not_make_it_late() -> None:
    before = ControllerRecord(pair=1e-6, least=0.2)
    busy = before.after_batch(now=0, took=1.2, pairs=1_000_000, paid=0, seconds=1.0)
    assert busy.took == 1.2 and busy.late == PATIENCE and busy.work == pytest.approx(1.0, rel=0.01)
    paying = busy.after_batch(now=0, took=1.2, pairs=100_000, paid=900_000, seconds=1.0)
    assert paying.took == pytest.approx(0.3, rel=0.05) and paying.late == 0
    first = ControllerRecord().after_batch(now=0, took=2.0, pairs=0, paid=0, seconds=1.0)
    assert (first.pair, first.took, first.late) == (None, 2.0, 1)


def test_a_batch_that_is_late_for_its_pairs_is_late_at_once() -> None:
    before = ControllerRecord(pair=1e-6, least=0.2)
    assert before.after_batch(now=0, took=1.2, pairs=1_000_000, paid=0, seconds=1.0).late == PATIENCE
    paused = before.after_batch(now=0, took=1.2, pairs=100_000, paid=0, seconds=1.0)  # pairs were not that dear before
    assert paused.late == 1 and paused.after_batch(now=0, took=0.4, pairs=100_000, paid=0, seconds=1.0).late == 0
    assert paused.after_batch(now=0, took=9.0, pairs=100_000, paid=0, seconds=1.0).late == 2
    assert (
        ControllerRecord().after_batch(now=0, took=1.2, pairs=1_000_000, paid=0, seconds=1.0).late == 1
    )  # what is dear is unknown


def test_what_a_pair_takes_is_kept_apart_from_what_a_batch_takes_in_any_case() -> None:
    """A join that idles along would else think pairs dear, and pay next to nothing with the time it has."""
    record = ControllerRecord().after_batch(now=0, took=0.5, pairs=1000, paid=0, seconds=1.0)
    assert record.pair == pytest.approx(0.5 / 1000)  # no more than that is known
    record = record.after_batch(now=0, took=1.5, pairs=1_000_000, paid=0, seconds=1.0)
    assert record.pair == pytest.approx(1e-6, rel=0.01)
    for _ in range(20):
        record = record.after_batch(now=0, took=0.5, pairs=1000, paid=0, seconds=1.0)
    assert record.pair == pytest.approx(1e-6, rel=0.01)
    for _ in range(20):  # a predicate became twice as dear
        record = record.after_batch(now=0, took=2.5, pairs=1_000_000, paid=0, seconds=1.0)
    assert record.pair == pytest.approx(2e-6, rel=0.1)
    assert ControllerRecord.of(replace(EMPTY, ledger=Ledger(notes=record.to_json()))) == record


def test_how_much_more_the_next_batch_brings() -> None:
    second = 1_000_000
    record = ControllerRecord().after_batch(now=0, took=9.0, pairs=10, paid=0, seconds=1.0)
    assert record.growth == 1.0  # when its rows began to come is not known
    record = record.after_batch(now=4 * second, took=2.0, pairs=10, paid=0, seconds=1.0)
    assert record.growth == 1.0  # the next batch comes when it is due
    record = record.after_batch(now=8 * second, took=6.0, pairs=10, paid=0, seconds=1.0)
    assert record.growth == 1.5
    assert record.after_batch(now=9 * second, took=60.0, pairs=10, paid=0, seconds=1.0).growth == MOST_GROWTH
    assert record.after_batch(now=8 * second, took=60.0, pairs=10, paid=0, seconds=1.0).growth == 1.0
    assert record.as_of(5 * second).after_batch(now=9 * second, took=6.0, pairs=10, paid=0, seconds=1.0).growth == 1.5


def test_what_a_unit_takes_is_learned_from_rounds() -> None:
    after = ControllerRecord(pair=1e-6, part=0.01).after_round(took=1.0 + ROUND_OVERHEAD, pairs=800_000, units=10)
    assert after.part == pytest.approx((0.01 + 0.2 / 10) / 2, rel=0.5) and after.took == 0.0
    assert ControllerRecord(pair=1e-6, part=0.01).after_round(took=1.0, pairs=0, units=0).part == 0.01


def test_what_batches_pay_meanwhile_is_not_logged_as_a_decision() -> None:
    spilled = ControllerRecord().after_decision(Decision("spill", "too much"), batch=1, now=5, owed=3)
    meanwhile = Decision("pay", "time to spare", routine=True)
    after = spilled.after_decision(meanwhile, batch=2, now=6, owed=2)
    assert after.log == spilled.log == ((1, "spill", "too much"),) and after.changed == 5
    forced = meanwhile.with_payments(Decision("pay", "too old"))
    assert (forced.why, forced.routine) == ("time to spare; too old", False) and meanwhile.with_payments(
        meanwhile
    ).routine
