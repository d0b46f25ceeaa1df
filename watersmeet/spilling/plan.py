"""What the plan of a batch says of spilling, and what its tasks report of it."""

from dataclasses import dataclass, field

from watersmeet.probe.work import HopWork
from watersmeet.spilling.units import Group, Ledger, Tally


@dataclass(frozen=True)
class SpillingPlan:
    """What is owed before a batch, and what the batch pays and counts.

    Attributes:
        ledger: What is owed, and what the batch pays of it.
        owes: Whether some tuple of an earlier batch has not probed all that it should.
        slice: The length of the slices of time that units are cut by.
        counts_groups: Whether tasks count the pairs and results of each group.
        path: Where the join stands in the tree.
        traced: The streams whose rows say which groups of inner joins they came from.
    """

    ledger: Ledger = field(default_factory=Ledger)
    owes: bool = False
    slice: int = 1
    counts_groups: bool = False
    path: str = "j"
    traced: frozenset[int] = frozenset()


@dataclass(slots=True)
class SpillingReport:
    """What a task paid, and what it counted by group.

    Attributes:
        paid: The work of earlier tuples that paid what they owed.
        paid_rows: Results written that earlier tuples had owed.
        groups: Pairs probed in chunks of each group, and the results that their rows are part of.
        credits: Final results, by the codes of the groups of inner joins that they came from; only at the root.
        crossings: For a sample of the results of inner joins that came in: how many came from a group, by its code,
            and went to a partition of this join; reported by one task for all.
    """

    paid: HopWork = field(default_factory=HopWork)
    paid_rows: int = 0
    groups: dict[Group, Tally] = field(default_factory=dict)
    credits: dict[int, int] = field(default_factory=dict)
    crossings: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, earlier: "SpillingReport") -> None:
        """Add what another task did."""
        self.paid.add(earlier.paid)
        self.paid_rows += earlier.paid_rows
        for group, tally in earlier.groups.items():
            self.groups[group] = self.groups.get(group, Tally()).plus(tally)
        for code, count in earlier.credits.items():
            self.credits[code] = self.credits.get(code, 0) + count
        for crossing, count in earlier.crossings.items():
            self.crossings[crossing] = self.crossings.get(crossing, 0) + count
