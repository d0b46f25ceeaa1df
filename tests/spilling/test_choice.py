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


def test_what_was_decided_before_is_forgotten() -> None:
    """A round pays what it says itself, not what the batch would have paid that comes after it."""
    (unit,) = applied(Choice(), Unit(1, GROUP, 5, pay=8, back=True))
    assert unit.pay is None and not unit.back


def test_a_unit_is_owed_from_the_next_batch_on_and_its_number_is_new() -> None:
    found = applied(Choice([Cooling(GROUP, []), Cooling(GROUP, [], open=True)]), Unit(1, GROUP, 5))
    assert [(unit.number, unit.since, unit.open) for unit in found] == [(1, 5, False), (3, 10, False), (4, 10, True)]


def test_a_decision_survives_being_written_down() -> None:
    choice = Choice(pay={1: 7, 3: 9}, back=frozenset({3}))
    assert Choice.from_json(choice.to_json()) == choice
