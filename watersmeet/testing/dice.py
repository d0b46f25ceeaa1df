"""Spilling by dice: whatever is spilled and paid, and when, results are the same in the end."""

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from watersmeet.spilling.interface import Spilling, SpillingTree
from watersmeet.spilling.units import Group, group_of
from watersmeet.state.chunks.chunk import HOT
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import NewUnit, SpillPlan


@dataclass(frozen=True)
class Dice(Spilling):
    """Cools and pays at random.

    Attributes:
        seed: Another number gives other throws.
        slice: The length of groups' slices.
        cool: How likely a group becomes cold after a batch.
        pay: How likely a cold unit is paid something.
        split: Whether some chunks of a group stay hot: a unit is a label, and any labelling is exact.
    """

    seed: int = 0
    slice: int = 1
    cool: float = 0.4
    pay: float = 0.3
    split: bool = False

    def decide(self, tree: SpillingTree, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        """See Spilling."""
        return tree.decided(after, self._everywhere("j", after, False))

    def round(self, tree: SpillingTree, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        """See Spilling."""
        choices = self._everywhere("j", state, all)
        return {path: SpillPlan(pay=choice.pay, back=choice.back) for path, choice in choices.items() if choice.pay}

    def _everywhere(self, path: str, state: Manifest, all: bool) -> dict[str, SpillPlan]:
        inner = [self._everywhere(f"{path}_{at}", part, all) for at, part in state.inner.items()]
        thrown = random.Random(f"{self.seed} {path} {state.batch}")
        found = {path: self._choice(state, thrown, all)}
        for part in inner:
            found |= part
        return found

    def _choice(self, state: Manifest, thrown: random.Random, all: bool) -> SpillPlan:
        groups: dict[Group, list[str]] = defaultdict(list)
        for key, chunk in sorted(state.chunks.items()):
            alone = len(chunk.bucket.fields) < 2
            if chunk.unit == HOT and not (self.split and alone and thrown.random() < 0.3):
                groups[group_of(chunk, self.slice)].append(key)
        cool = [NewUnit(group, keys) for group, keys in groups.items() if thrown.random() < self.cool]
        pay = {
            unit.number: state.batch + 1
            if all or thrown.random() < 0.5
            else thrown.randint(unit.since, state.batch + 1)
            for unit in state.ledger.units
            if all or thrown.random() < self.pay
        }
        return SpillPlan(cool, pay, frozenset(number for number in pay if all or thrown.random() < 0.5))


def calm(dice: Dice) -> Dice:
    """Return dice that cool nothing more."""
    return replace(dice, cool=0.0)


def owed(state: Manifest) -> Mapping[str, int]:
    """Return how many cold units each join of a state has, by path."""
    found = {"j": len(state.ledger.units)}
    for at, part in state.inner.items():
        found |= {path.replace("j", f"j_{at}", 1): units for path, units in owed(part).items()}
    return found
