"""What a decision makes of a state."""

from pathlib import Path

import pyarrow as pa

from watersmeet.placement import Hash
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.spilling.units import Group, Ledger, Unit
from watersmeet.state.chunks.chunk import HOT
from watersmeet.state.manifest.manifest import Manifest, StreamState
from watersmeet.state.manifest.rounds import NewUnit, SpillPlan
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

GROUP, LATER = Group(1, 0, 0), Group(1, 0, 10)


def two_streams() -> Query:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("k", pa.int64())])
    streams = tuple(StreamSpec(name, schema, 1, Sliding(1000), 1000) for name in "ab")
    return Query(streams, parse_where("a.k = b.k", [(s.name, s.schema) for s in streams], (), Dialect()), "a.k = b.k")


def applied(choice: SpillPlan, *units: Unit, made: int = 2) -> tuple[Unit, ...]:
    state = Manifest(batch=9, streams=(StreamState(), StreamState()), ledger=Ledger(units, unit_count=made))
    return choice.apply(state).ledger.units


def test_no_more_is_paid_than_is_owed_and_nothing_twice() -> None:
    units = (Unit(1, GROUP, 5), Unit(2, LATER, 5))
    assert [unit.pay for unit in applied(SpillPlan(pay={1: 3, 2: 99}), *units)] == [5, 10]
    assert [unit.pay for unit in applied(SpillPlan(pay={1: 7}), *units)] == [7, None]


def test_a_round_pays_what_was_decided_before_too() -> None:
    """Otherwise a unit that was to come back with the next batch would wait for another interval."""
    (unit,) = applied(SpillPlan(pay={1: 6}), Unit(1, GROUP, 5, pay=8, back=True))
    assert unit.pay == 8 and unit.back


def test_a_unit_is_owed_from_the_next_batch_on_and_its_number_is_new() -> None:
    found = applied(SpillPlan([NewUnit(GROUP, []), NewUnit(LATER, [])]), Unit(1, GROUP, 5))
    assert [(unit.number, unit.since) for unit in found] == [(1, 5), (3, 10), (4, 10)]


def test_units_of_a_group_that_are_owed_the_same_become_one(tmp_path: Path) -> None:
    """Else each batch would leave one more for every partition that is spilled, however often all of them are paid."""
    run = Run(two_streams(), Store(str(tmp_path)))
    for at in range(2):
        run.step(Hash(1), [(stream, {"id": 10 * at + stream, "ts": at, "k": 1}) for stream in (0, 1)])
    assert run.state is not None
    state = SpillPlan([NewUnit(GROUP, [key]) for key in [*run.state.chunks][:3]]).apply(run.state)
    (unit,) = state.ledger.units
    assert sorted(chunk.unit for chunk in state.chunks.values()) == [HOT, *[unit.number] * 3]
    assert state.ledger.unit_count == 3


def test_units_that_are_owed_or_paid_otherwise_stay_apart() -> None:
    others = (Unit(2, GROUP, 6), Unit(3, LATER, 5), Unit(4, GROUP, 5, pay=8), Unit(5, GROUP, 5, pay=8, back=True))
    assert applied(SpillPlan(), Unit(1, GROUP, 5), *others, made=5) == (Unit(1, GROUP, 5), *others)


def test_a_decision_survives_being_written_down() -> None:
    choice = SpillPlan(pay={1: 7, 3: 9}, back=frozenset({3}))
    assert SpillPlan.from_json(choice.to_json()) == choice
