"""The interface to decisions on spilling: called after each batch, and when there is time for a round.

[!] Whatever is decided, the results are the same in the end; only when they come depends on it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Protocol

from watersmeet.batch.operator import Operator
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import SpillPlan


class SpillingJoin(Protocol):
    """A join of a tree."""

    @property
    def operator(self) -> Operator:
        """The join."""

    @property
    def path(self) -> str:
        """Its path in the tree."""


class SpillingTree(Protocol):
    """A tree of joins, as far as spilling needs it; implemented by `watersmeet.runtime.tree.JoinTree`."""

    def states(self, state: Manifest) -> Iterator[tuple[SpillingJoin, Manifest]]:
        """Yield each join with its part of a state, the outermost first."""

    def decided(self, state: Manifest, choices: Mapping[str, SpillPlan]) -> Manifest:
        """Return a state in which it is decided what the next batch spills and pays, by the joins' paths."""


class Spilling(ABC):
    """Decides what the next batch or round spills and pays. Implementations are pure."""

    @abstractmethod
    def decide(self, tree: SpillingTree, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        """Return the state after a batch with the decision for the next one.

        Args:
            tree: The joins.
            after: The state after the batch.
            took: The seconds that the batch took.
            now: When it was offered, by the driver's clock, in seconds since the epoch.
            round: Whether it was a round.
        """

    @abstractmethod
    def round(self, tree: SpillingTree, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        """Return what a round should pay, by the joins' paths; empty if none is worth running.

        Args:
            tree: The joins.
            state: The state.
            all: Whether all that is owed is to be paid.
            seconds: About how long the round may take otherwise; None for as long as a batch.
        """


class PayAll(Spilling):
    """Spills nothing, and pays all that is owed; for queries restarted without `spill=`."""

    def decide(self, tree: SpillingTree, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        """See Spilling."""
        return tree.decided(after, self.round(tree, after, True, None))

    def round(self, tree: SpillingTree, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        """See Spilling; all units are paid and come back, whatever the arguments say."""
        units = {join.path: [unit.number for unit in own.ledger.units] for join, own in tree.states(state)}
        return {
            path: SpillPlan(pay=dict.fromkeys(numbers, state.batch + 1), back=frozenset(numbers))
            for path, numbers in units.items()
            if numbers
        }
