"""What a batch or a round spills and pays, decided before it runs.

[!] The decision on a batch is part of the state before it, so that a batch that runs again spills and pays the same.
A round has no input; what it is about to do is written down first, and is finished before any other batch. A sink may
have seen part of an interrupted round, so whatever comes under its number next must be the same. Which intent counts,
if several runs have written one: see `generations`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.spilling.units import Group, Unit
from watersmeet.state.chunks.chunk import HOT
from watersmeet.state.manifest import documents, generations
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.file_format import seal, unseal
from watersmeet.state.store.store import Store

FOLDER = "rounds"


@dataclass(frozen=True, slots=True)
class NewUnit:
    """A unit to be spilled: hot chunks, by id, and their group."""

    group: Group
    chunks: Sequence[str]


@dataclass(frozen=True, slots=True)
class SpillPlan:
    """What one join spills and pays.

    Attributes:
        spill: The units to be spilled.
        pay: For spilled units, by number: the batch up to which what is owed is paid.
        back: The units, by number, that are hot again if all is paid.
    """

    spill: Sequence[NewUnit] = ()
    pay: Mapping[int, int] = field(default_factory=dict)
    back: frozenset[int] = frozenset()

    def apply(self, state: Manifest) -> Manifest:
        """Return the state in which this is decided: hot chunks are in new units, and units know what is to be paid.

        Units of a group that are owed the same become one.
        """
        ledger, batch = state.ledger, state.batch + 1
        before = [
            replace(unit, pay=self._payment(unit, batch), back=unit.back or unit.number in self.back)
            for unit in ledger.units
        ]
        added = [Unit(ledger.unit_count + number, new.group, batch) for number, new in enumerate(self.spill, HOT + 1)]
        labels = {key: unit.number for unit, new in zip(added, self.spill, strict=True) for key in new.chunks}
        chunks = {key: chunk.in_unit(labels[key]) if key in labels else chunk for key, chunk in state.chunks.items()}
        ledger = replace(ledger, units=(*before, *added), unit_count=ledger.unit_count + len(added))
        return _unite(replace(state, ledger=ledger, chunks=chunks))

    def _payment(self, unit: Unit, batch: int) -> int | None:
        """Return up to which batch a unit is paid: no further than is owed, and no less than was decided before."""
        ends = [end for end in (unit.pay, self.pay.get(unit.number)) if end is not None]
        return max(unit.since, min(max(ends), batch)) if ends else None

    def to_json(self) -> dict[str, Any]:
        """Return what it pays, as a round's intent stores it."""
        return {"pay": list(self.pay.items()), "back": sorted(self.back)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "SpillPlan":
        """Return the plan that `to_json` wrote."""
        return cls(pay=dict(map(tuple, plain["pay"])), back=frozenset(plain["back"]))


def _unite(state: Manifest) -> Manifest:
    """Return a state in which units of a group that are owed the same are one, under the first one's number."""
    units = state.ledger.units
    first: dict[Unit, int] = {}
    same = {unit.number: first.setdefault(replace(unit, number=HOT), unit.number) for unit in units}
    if len(first) == len(units):
        return state
    chunks = {key: chunk.in_unit(same.get(chunk.unit, chunk.unit)) for key, chunk in state.chunks.items()}
    units = tuple(unit for unit in units if same[unit.number] == unit.number)
    return replace(state, ledger=replace(state.ledger, units=units), chunks=chunks)


@dataclass(frozen=True, slots=True)
class Round:
    """A round that is to be run.

    Attributes:
        batch: Its number among the batches.
        choices: What each join pays, by path.
        final: Whether it closes everything for good.
    """

    batch: int
    choices: Mapping[str, SpillPlan]
    final: bool = False


def path_of(batch: int, generation: str = "") -> str:
    """Return the path of a round's intent, written under a lease."""
    return generations.path_of(FOLDER, batch, generation)


def write_intent(store: Store, round: Round, generation: str = "") -> None:
    """Write down what a round is about to do."""
    choices = {path: choice.to_json() for path, choice in round.choices.items()}
    body = {"batch": round.batch, "choices": choices, "final": round.final}
    store.publish(path_of(round.batch, generation), seal(body))


def read_intent(store: Store, batch: int) -> Round | None:
    """Return the round of a number that was begun; None if there is none.

    Raises:
        StateError: If its file is damaged.
    """
    path = generations.valid_files(store, FOLDER).get(batch)
    text = store.read(path) if path else None
    if not text:
        return None
    body = unseal(text, f"What round {batch} under {store.root} pays", documents.RoundDocument)
    choices = {path: SpillPlan.from_json(plain) for path, plain in body["choices"].items()}
    return Round(batch, choices, body.get("final", False))
