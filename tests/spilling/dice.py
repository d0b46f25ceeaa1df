"""Spilling at random, for tests: whatever is spilled and paid, and when, the results must be the same in the end."""

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
    """Spills groups and makes owed probes at random.

    Attributes:
        seed: The seed of all decisions.
        slice: The length of groups' slices.
        spill: The probability that a group is spilled after a batch.
        pay: The probability that a spilled unit is paid something.
        split: Whether some chunks of a group stay hot: a unit is just a label, and any labelling must be exact.
    """

    seed: int = 0
    slice: int = 1
    spill: float = 0.4
    pay: float = 0.3
    split: bool = False

    def decide(self, tree: SpillingTree, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        """See Spilling."""
        return tree.decided(after, self._choose_for_tree("j", after, False))

    def round(self, tree: SpillingTree, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        """See Spilling."""
        choices = self._choose_for_tree("j", state, all)
        return {path: SpillPlan(pay=choice.pay, back=choice.back) for path, choice in choices.items() if choice.pay}

    def _choose_for_tree(self, path: str, state: Manifest, all: bool) -> dict[str, SpillPlan]:
        """Return the spilling of a join and its inner joins, by path; the same for the same seed and batch."""
        inner = [self._choose_for_tree(f"{path}_{at}", part, all) for at, part in state.inner.items()]
        rng = random.Random(f"{self.seed} {path} {state.batch}")
        choices = {path: self._choose(state, rng, all)}
        for part in inner:
            choices |= part
        return choices

    def _choose(self, state: Manifest, rng: random.Random, all: bool) -> SpillPlan:
        """Return which groups of hot chunks one join spills, and which units it pays and returns; `all` pays all."""
        groups: dict[Group, list[str]] = defaultdict(list)
        for key, chunk in sorted(state.chunks.items()):
            alone = len(chunk.bucket.fields) < 2
            if chunk.unit == HOT and not (self.split and alone and rng.random() < 0.3):
                groups[group_of(chunk, self.slice)].append(key)
        units = [NewUnit(group, keys) for group, keys in groups.items() if rng.random() < self.spill]
        pay = {
            unit.number: state.batch + 1 if all or rng.random() < 0.5 else rng.randint(unit.since, state.batch + 1)
            for unit in state.ledger.units
            if all or rng.random() < self.pay
        }
        return SpillPlan(units, pay, frozenset(number for number in pay if all or rng.random() < 0.5))


def without_spilling(dice: Dice) -> Dice:
    """Return dice that spill nothing more, but still pay."""
    return replace(dice, spill=0.0)


def spilled_units(state: Manifest) -> Mapping[str, int]:
    """Return the number of spilled units of each join, by path."""
    counts = {"j": len(state.ledger.units)}
    for at, part in state.inner.items():
        counts |= {path.replace("j", f"j_{at}", 1): units for path, units in spilled_units(part).items()}
    return counts
