"""Spilling by hand: a test says what is spilled and what is paid."""

from collections.abc import Callable
from dataclasses import dataclass

from watersmeet.spilling.interface import Spilling, SpillingTree
from watersmeet.spilling.units import Group
from watersmeet.state.chunks.chunk import HOT, Chunk
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import NewUnit, SpillPlan

NEXT = 1 << 30
"""As far as can be paid."""


@dataclass(frozen=True)
class Hand(Spilling):
    """Spills the hot chunks for which `spills` is true, and pays all in a round.

    Attributes:
        spills: Whether a chunk is spilled, by its join's path.
    """

    spills: Callable[[str, Chunk], bool] = lambda path, chunk: False

    def decide(self, tree: SpillingTree, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        plans = dict[str, SpillPlan]()
        for join, state in tree.states(after):
            keys = [key for key, chunk in state.chunks.items() if chunk.unit == HOT and self.spills(join.path, chunk)]
            if keys:
                plans[join.path] = SpillPlan([NewUnit(Group(1, 0, 0), keys)])
        return tree.decided(after, plans)

    def round(self, tree: SpillingTree, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        return {join.path: everything(own) for join, own in tree.states(state) if own.ledger.units}


def everything(state: Manifest) -> SpillPlan:
    """Return the plan that pays all that a join owes, and brings all units back."""
    numbers = [unit.number for unit in state.ledger.units]
    return SpillPlan(pay=dict.fromkeys(numbers, NEXT), back=frozenset(numbers))


def in_stream(stream: int, path: str = "j") -> Callable[[str, Chunk], bool]:
    """Return a test that is true for the chunks of a stream."""
    return lambda of, chunk: (of, chunk.stream) == (path, stream)


def at_times(*times: int, path: str = "j") -> Callable[[str, Chunk], bool]:
    """Return a test that is true for chunks that only hold rows of these times."""
    return lambda of, chunk: of == path and {chunk.low, chunk.high} <= {*times}
