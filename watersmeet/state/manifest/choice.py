"""What is decided when a batch is committed: which chunks the next one no longer probes, and what it pays.

[!] It is part of the state after the batch, so that a batch which is run again puts off and pays the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.spilling.units import Group, Unit
from watersmeet.state.chunks.chunk import HOT
from watersmeet.state.manifest.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Cooling:
    """A unit to be made of hot chunks.

    Attributes:
        group: Their group.
        chunks: The chunks, by id.
    """

    group: Group
    chunks: Sequence[str]


@dataclass(frozen=True, slots=True)
class Choice:
    """What one join puts off and pays.

    Attributes:
        cool: The units to be made.
        pay: For cold units, by number: what batches before this one owe is paid.
        back: The units, by number, that are hot again if all is paid.
    """

    cool: Sequence[Cooling] = ()
    pay: Mapping[int, int] = field(default_factory=dict)
    back: frozenset[int] = frozenset()

    def applied(self, state: Manifest) -> Manifest:
        """Return a state that says so."""
        ledger, batch = state.ledger, state.batch + 1
        paid = [
            replace(unit, pay=self._paid(unit, batch), back=unit.back or unit.number in self.back)
            for unit in ledger.units
        ]
        cold = [Unit(ledger.made + number, cooling.group, batch) for number, cooling in enumerate(self.cool, HOT + 1)]
        labels = {key: unit.number for unit, cooling in zip(cold, self.cool, strict=True) for key in cooling.chunks}
        chunks = {key: chunk.in_unit(labels[key]) if key in labels else chunk for key, chunk in state.chunks.items()}
        made = replace(ledger, units=(*paid, *cold), made=ledger.made + len(cold))
        return _united(replace(state, ledger=made, chunks=chunks))

    def _paid(self, unit: Unit, batch: int) -> int | None:
        """Return up to which batch a unit is paid: no further than is owed, and no less than was decided before."""
        paid = [end for end in (unit.pay, self.pay.get(unit.number)) if end is not None]
        return max(unit.since, min(max(paid), batch)) if paid else None

    def to_json(self) -> dict[str, Any]:
        """Return what it pays, as a round's intent holds it."""
        return {"pay": list(self.pay.items()), "back": sorted(self.back)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Choice":
        """Return what `to_json` was given."""
        return cls(pay=dict(map(tuple, plain["pay"])), back=frozenset(plain["back"]))


def _united(state: Manifest) -> Manifest:
    """Return a state in which units of a group that are owed the same are one, under the first one's number."""
    units = state.ledger.units
    first: dict[Unit, int] = {}
    same = {unit.number: first.setdefault(replace(unit, number=HOT), unit.number) for unit in units}
    if len(first) == len(units):
        return state
    chunks = {key: chunk.in_unit(same.get(chunk.unit, chunk.unit)) for key, chunk in state.chunks.items()}
    left = tuple(unit for unit in units if same[unit.number] == unit.number)
    return replace(state, ledger=replace(state.ledger, units=left), chunks=chunks)
