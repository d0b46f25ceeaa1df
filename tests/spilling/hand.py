"""Spilling by hand: a test says what is put off and what is paid."""

from collections.abc import Callable
from dataclasses import dataclass

from watersmeet.spilling.spilling import Plan, Spilling
from watersmeet.spilling.units import Group
from watersmeet.state.chunks.chunk import HOT, Chunk
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import NewUnit, SpillPlan

NEXT = 1 << 30
"""As far as can be paid."""


@dataclass(frozen=True)
class Hand(Spilling):
    """Makes the chunks cold that it is told, and pays all in a round."""

    cold: Callable[[str, Chunk], bool] = lambda path, chunk: False

    def decided(self, tree: Plan, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        told = dict[str, SpillPlan]()
        for join, state in tree.states(after):
            keys = [key for key, chunk in state.chunks.items() if chunk.unit == HOT and self.cold(join.path, chunk)]
            if keys:
                told[join.path] = SpillPlan([NewUnit(Group(1, 0, 0), keys)])
        return tree.decided(after, told)

    def round(self, tree: Plan, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        return {join.path: everything(own) for join, own in tree.states(state) if own.ledger.units}


def everything(state: Manifest) -> SpillPlan:
    """Return the choice that pays all that a join owes, and brings it back."""
    numbers = [unit.number for unit in state.ledger.units]
    return SpillPlan(pay=dict.fromkeys(numbers, NEXT), back=frozenset(numbers))


def in_stream(stream: int, path: str = "j") -> Callable[[str, Chunk], bool]:
    """Return what makes all chunks of a stream cold."""
    return lambda of, chunk: (of, chunk.stream) == (path, stream)


def at_times(*times: int, path: str = "j") -> Callable[[str, Chunk], bool]:
    """Return what makes the chunks cold that hold nothing but rows of these times."""
    return lambda of, chunk: of == path and {chunk.low, chunk.high} <= {*times}
