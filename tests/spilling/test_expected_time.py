"""What the next batch is expected to take, and that a burst settles down by it: no batch too long, none idle."""

from dataclasses import replace

import pytest

from tests.spilling.test_thesis import MINUTE, decided, part
from watersmeet.spilling.controller import Controller, Situation
from watersmeet.spilling.decisions import PATIENCE, ControllerRecord, Decision, ExpectedTime, expect_time, pairs_by_rows
from watersmeet.spilling.options import Spill
from watersmeet.spilling.parts import OwedProbes, Part
from watersmeet.spilling.policies import Links
from watersmeet.spilling.units import Group, Tally, Unit


def of(partition: int, rows: int, *, fresh: int = 0, start: int = 0, spilled: bool = False, worth: float = 1.0) -> Part:
    """Return a part of one of eight partitions."""
    group = Group(8, partition, start)
    unit = Unit(100 * partition + start + 1, group, 0) if spilled else None
    tally = Tally(results=worth, final=worth, tuples=1)
    return Part("j", group, (f"{partition}/{start}",), rows, rows, 0, 0, tally, stored=rows, fresh=fresh, unit=unit)


def test_by_rows_tuples_look_at_what_was_hot_and_at_each_other() -> None:
    parts = [of(0, 100), of(0, 10, fresh=10, start=1), of(1, 50, spilled=True), of(1, 4, fresh=4, start=1)]
    assert pairs_by_rows(parts) == 10 * 100 / 2 + 10 * 10 / 4 + 4 * 4 / 4


def test_what_came_last_is_asked_by_all_of_the_next() -> None:
    parts = [of(0, 100), of(0, 10, fresh=10, start=1), of(1, 50, spilled=True)]
    record = ControllerRecord(pair=0.01, looked=0.5, took=3.0, work=2.0, growth=2.0)
    next_ = expect_time(parts, record)
    assert next_.own == pytest.approx(1.0 + 0.005 * 20 * 20 / 4)
    assert next_.of(parts[:1]) == pytest.approx(0.005 * 20 * 100 / 2)
    assert next_.of(parts[1:2]) == pytest.approx(0.005 * 20 * 10 / 2)
    assert next_.of(parts[2:]) == 0  # nothing came for it


def test_the_last_batch_tells_how_much_is_examined() -> None:
    record = ControllerRecord(pair=1e-6)
    assert record.after_batch(0, 1.0, 500.0, 0.0, None, by_rows=2000.0).looked == 0.25
    assert replace(record, looked=0.5).after_batch(0, 1.0, 0.0, 0.0, None).looked == 0.5  # nothing came


def test_what_is_new_in_spilled_partitions_is_spilled_but_for_what_there_is_time_for() -> None:
    spill = Spill(within="1 second", policy="local")
    parts = [of(0, 100, spilled=True), of(1, 100, spilled=True)]
    parts += [of(0, 9, fresh=9, start=1, worth=1), of(1, 9, fresh=9, start=1, worth=5)]
    resting = ControllerRecord(took=0.5, returned=MINUTE, changed=MINUTE)

    def spilled_partitions(cost: float) -> set[int]:
        next_ = ExpectedTime(0.5, {p.name: cost for p in parts[2:]})
        decision = decided(spill, parts, MINUTE, resting, next_)
        assert decision.kind == ("keep" if decision.spill else "") and decision.routine == bool(decision.spill)
        return {p.group.partition for p in decision.spill}

    assert spilled_partitions(0.2) == set()
    assert spilled_partitions(0.3) == {0}  # the better one fits into what is left of 0.96 s
    assert spilled_partitions(0.5) == {0, 1}


def test_a_round_spills_nothing_for_a_batch_that_was_long_ago() -> None:
    spill = Spill(within="2100 milliseconds", policy="local", share=0.1)
    parts = [replace(part(at, 100, at, False), rows=100) for at in range(10)]
    parts.append(replace(part(10, 1, 99, False), rows=0, fresh=8))
    late = ControllerRecord(pair=1e-3, took=4.0, work=4.0, late=PATIENCE)
    next_ = expect_time(parts, late)
    gone = decided(spill, parts, MINUTE, late, next_)
    left = [p for p in parts if p.name not in {q.name for q in gone.spill}]
    coming = next_.own + next_.of(gone.hot_after(parts))
    again = Situation(MINUTE, 100, Links(), ExpectedTime(coming), round=True)
    assert gone.spill and not Controller(spill).choose(left, late.after_round(1.0, 10, 1), again).spill
    still = decided(spill, left, MINUTE, late, expect_time(left, late))
    assert not still.spill  # nor would a batch: what is expected keeps the limit


def test_between_the_marks_units_come_back_after_an_interval() -> None:
    spill, record = Spill(memory=1000, policy="local", oldest="1 day"), ControllerRecord(changed=0)
    kinds = []
    for minute in range(1, 8):
        parts = [of(1, 890), of(0, 10, spilled=True), of(0, 5, fresh=5, start=minute)]
        decision = decided(spill, parts, minute * MINUTE, record)
        record = record.after_decision(decision, minute, minute * MINUTE, 1)
        kinds.append(decision.kind)
    assert kinds[:2] == ["keep", "return"] and not any(kind == "spill" for _, kind, _ in record.log)


def test_no_more_comes_back_than_a_batch_has_time_for() -> None:
    spill = Spill(within="1 second", policy="local")
    parts = [part(at, 100, at, at > 0) for at in range(10)]
    next_ = ExpectedTime(0.5, {p.name: 0.15 for p in parts[1:]})
    assert len(decided(spill, parts, MINUTE, ControllerRecord(pair=1e-6, took=0.5), next_).back) == 3  # up to 0.96 s


def test_after_a_round_nothing_comes_back_for_a_batch_that_is_not_known() -> None:
    parts = [part(at, 100, at, at > 0) for at in range(4)]
    now = Situation(MINUTE, 100, Links(), ExpectedTime(0.1), round=True)
    limited, sized = (Spill(policy="local", **limits) for limits in ({"within": "1 second"}, {"memory": 1000}))
    assert not Controller(limited).choose(parts, ControllerRecord(pair=1e-6, took=0.1), now).back
    assert len(Controller(sized).choose(parts, ControllerRecord(pair=1e-6, took=0.1), now).back) == 3


def test_what_does_not_fit_is_paid_all_the_same() -> None:
    spill = Spill(memory=1000, within="1 second", policy="local")
    parts = [part(0, 800, 9, False), part(1, 200, 1, True, (OwedProbes(1, 5, 0),))]
    decision = decided(spill, parts, MINUTE, ControllerRecord(pair=1e-6, took=0.1))
    assert decision.pay and not decision.back


def test_joins_that_are_ranked_one_by_one_spill_no_more_than_need_be() -> None:
    spill = Spill(memory=500, policy="local", share=0.1)
    parts = [replace(part(at, 100, at, False), join=join) for join in ("j", "j_0") for at in range(6)]
    assert sum(p.bytes for p in decided(spill, parts, 0).spill) == 800  # 400 of 500 bytes are left, not 0


def test_spilled_state_counts_as_stored_on_disk() -> None:
    spill = Spill(memory=1000, policy="local", disk=700, oldest="1 day")
    packed = replace(part(7, 900, 1, True, (OwedProbes(1, 5, 0),)), stored=300)
    resting = ControllerRecord(returned=MINUTE, changed=MINUTE)
    parts = [packed, part(0, 900, 9, False)]
    assert not decided(spill, parts, MINUTE, resting).pay
    assert decided(spill, [replace(packed, stored=800), parts[1]], MINUTE, resting).pay


SECONDS, LENGTH, PAIR = 3.0, 5, 1.8e-7
"""How long a batch may take, for how many batches rows are asked, and what a pair takes."""
QUIET, BUSY = 560.0, 3360.0
"""Rows a second."""


def simulated(rates: list[float], pair: float = PAIR) -> tuple[list[float], list[set[int]]]:
    """Return how long batches take, and which of eight partitions were probed, the first two of them productive.

    A batch takes half a second in any case. A batch brings rows for four seconds, or for as
    long as the one before took.
    """
    spill = Spill(within=f"{SECONDS:g} seconds", policy="local", interval="20 seconds")
    controller, record, parts = Controller(spill), ControllerRecord(pair=pair, least=0.5), list[Part]()
    took, now, times, probed = 0.0, 0.0, list[float](), list[set[int]]()
    for batch, rate in enumerate(rates):
        rows = [int(rate * max(4.0, took) * (0.15 / 2 if p < 2 else 0.85 / 6)) for p in range(8)]
        fresh = [of(p, rows[p], fresh=rows[p], start=batch, worth=9.0 if p < 2 else 1.0) for p in range(8)]
        hot = [p for p in parts if p.unit is None]
        pairs = pairs_by_rows([*hot, *fresh])
        took, now = 0.5 + pair * pairs, now + max(4.0, took)
        probed.append({p.group.partition for p in hot if p.group.start == batch - 1})
        times.append(took)
        parts = [replace(p, fresh=0) for p in parts if p.group.start > batch - LENGTH] + fresh
        record = record.after_batch(int(now * 1e6), took, pairs, 0, spill.seconds, pairs_by_rows(parts))
        next_ = expect_time(parts, record)
        decision: Decision = controller.choose(parts, record, Situation(int(now * 1e6), batch + 1, Links(), next_))
        record = record.after_decision(
            decision, batch, int(now * 1e6), 1, next_.own + next_.of(decision.hot_after(parts))
        )
        gone = {p.name for p in decision.spill}
        parts = [of(*p.group[1:2], p.rows, fresh=p.fresh, start=p.group.start, spilled=True, worth=p.worth.results)
                 if p.name in gone else p for p in parts]  # fmt: skip
        parts = [replace(p, unit=None) if p.name in decision.back else p for p in parts]
    return times, probed


def test_a_burst_settles_down() -> None:
    """[!] A batch that was short since all was spilled once made the next one hot: every other one took too long."""
    times, probed = simulated([QUIET] * 8 + [BUSY] * 30 + [QUIET] * 20)
    assert all(hot == set(range(8)) for hot in probed[1:9])  # nothing is spilled without need
    assert max(times[11:38]) < 1.15 * SECONDS and min(times[12:38]) > 0.8 * SECONDS
    assert max(times[23:38]) < SECONDS and all(hot == {0, 1} for hot in probed[23:38])  # the productive ones
    assert probed[-1] == set(range(8)) and max(times[-8:]) < SECONDS


@pytest.mark.parametrize("pair", [1.5e-7, 1.8e-7, 2.2e-7, 2.6e-7, 3.0e-7])
def test_a_burst_is_met_by_any_machine(pair: float) -> None:
    """[!] Where work was spilled one batch later, batches grew faster than it could be, on machines that are slower."""
    times, _ = simulated([QUIET] * 8 + [BUSY] * 30 + [QUIET] * 20, pair)
    assert max(times[9:38]) < 1.5 * SECONDS and times[-1] < SECONDS
