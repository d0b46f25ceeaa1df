"""The parts of a batch's plan and of its tasks' reports that concern spilling."""

from dataclasses import dataclass, field

from watersmeet.probe.work import HopWork
from watersmeet.spilling.units import Group, Ledger, Tally


@dataclass(frozen=True)
class SpillingPlan:
    """What is owed before a batch, and what the batch pays and counts.

    Attributes:
        ledger: What is owed, and what the batch pays of it.
        owes: Whether some tuple of an earlier batch has not yet made all of its probes.
        slice: The length of the slices of time along which units are cut.
        counts_groups: Whether tasks count the pairs and results of each group.
        path: The join's path in the tree.
        traced: The streams whose rows carry the codes of the groups of inner joins that they came from.
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
        paid: The work done for tuples of earlier batches.
        paid_rows: The results emitted that tuples of earlier batches had owed.
        groups: The tallies of groups: pairs examined in their chunks, and results that contain their rows.
        credits: Final results, by the codes of the groups of inner joins that they came from; only at the root.
        crossings: For a sample of the results of inner joins that came in: how many came from each group, by its code,
            and went to each partition of this join. One task reports it for all.
    """

    paid: HopWork = field(default_factory=HopWork)
    paid_rows: int = 0
    groups: dict[Group, Tally] = field(default_factory=dict)
    credits: dict[int, int] = field(default_factory=dict)
    crossings: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, other: "SpillingReport") -> None:
        """Add the report of another task to this one."""
        self.paid.add(other.paid)
        self.paid_rows += other.paid_rows
        for group, tally in other.groups.items():
            self.groups[group] = self.groups.get(group, Tally()).plus(tally)
        for code, count in other.credits.items():
            self.credits[code] = self.credits.get(code, 0) + count
        for crossing, count in other.crossings.items():
            self.crossings[crossing] = self.crossings.get(crossing, 0) + count
