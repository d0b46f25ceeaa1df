"""What a decision makes of a state."""

from watersmeet.state.choice import Choice, Cooling
from watersmeet.state.manifest import Manifest, StreamState
from watersmeet.state.units import Group, Ledger, Unit

GROUP = Group(1, 0, 0)


def applied(choice: Choice, *units: Unit, made: int = 2) -> tuple[Unit, ...]:
    state = Manifest(batch=9, streams=(StreamState(), StreamState()), ledger=Ledger(units, made=made))
    return choice.applied(state).ledger.units


def test_no_more_is_paid_than_is_owed_and_nothing_twice() -> None:
    units = (Unit(1, GROUP, 5), Unit(2, GROUP, 5))
    assert [unit.pay for unit in applied(Choice(pay={1: 3, 2: 99}), *units)] == [5, 10]
    assert [unit.pay for unit in applied(Choice(pay={1: 7}), *units)] == [7, None]


def test_a_round_pays_what_was_decided_before_too() -> None:
    """Otherwise a unit that was to come back with the next batch would wait for another interval."""
    (unit,) = applied(Choice(pay={1: 6}), Unit(1, GROUP, 5, pay=8, back=True))
    assert unit.pay == 8 and unit.back


def test_a_unit_is_owed_from_the_next_batch_on_and_its_number_is_new() -> None:
    found = applied(Choice([Cooling(GROUP, []), Cooling(GROUP, [])]), Unit(1, GROUP, 5))
    assert [(unit.number, unit.since) for unit in found] == [(1, 5), (3, 10), (4, 10)]


def test_a_decision_survives_being_written_down() -> None:
    choice = Choice(pay={1: 7, 3: 9}, back=frozenset({3}))
    assert Choice.from_json(choice.to_json()) == choice
