"""The interface of what decides on work that is put off: asked after each batch, and when there is time for a round.

[!] Whatever is decided, results are the same in the end; only when they come depends on it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Protocol

from watersmeet.batch.operator import Operator
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import SpillPlan


class Node(Protocol):
    """A join of a tree."""

    @property
    def operator(self) -> Operator:
        """The join."""

    @property
    def path(self) -> str:
        """Where it stands in the tree."""


class Plan(Protocol):
    """A tree of joins, as far as spilling knows it."""

    def states(self, state: Manifest) -> Iterator[tuple[Node, Manifest]]:
        """Yield each join with its part of a state, the outermost first."""

    def decided(self, state: Manifest, choices: Mapping[str, SpillPlan]) -> Manifest:
        """Return a state that says what the next batch puts off and pays, by the joins' paths."""


class Spilling(ABC):
    """Decides what the next batch puts off and pays."""

    @abstractmethod
    def decided(self, tree: Plan, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        """Return the state after a batch with what the next one puts off and pays; the same for the same state.

        Args:
            tree: The joins.
            after: The state.
            took: The seconds that the batch took.
            now: When it was offered, by the driver's clock, in seconds since the epoch.
            round: Whether it was a round.
        """

    @abstractmethod
    def round(self, tree: Plan, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        """Return what a round pays, by the joins' paths; empty if none is worth while.

        Args:
            tree: The joins.
            state: The state.
            all: Whether all that is owed is to be paid.
            seconds: About how long it may take otherwise; None for as long as a batch.
        """


class Paying(Spilling):
    """Puts nothing off, and pays all that is owed."""

    def decided(self, tree: Plan, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        """See Spilling."""
        return tree.decided(after, self.round(tree, after, True, None))

    def round(self, tree: Plan, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        """See Spilling."""
        found = {join.path: [unit.number for unit in own.ledger.units] for join, own in tree.states(state)}
        return {
            path: SpillPlan(pay=dict.fromkeys(units, state.batch + 1), back=frozenset(units))
            for path, units in found.items()
            if units
        }
