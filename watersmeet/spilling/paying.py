"""Paying alone: where nothing is put off any more, what an earlier start of the query left owed is paid at once."""

from watersmeet.spilling.spilling import Plan, Spilling
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import SpillPlan


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
