"""The global policy: parts rank by what they yield at the root of the plan."""

from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.policy import Policy, productivity


class GlobalPolicy(Policy):
    """Ranks by the plan's final results traced back to a part, relative to its size (Jbantova, sections 3.2 and 3.3).

    Intermediate results count against a part, since they fill the state of the joins above. The thesis takes this
    penalty from Liu's dissertation and does not print it; as we read it, they are added to the size.
    """

    __slots__ = ()
    name: ClassVar[str] = "global"

    def score(self, part: Part) -> tuple[float, ...]:
        """Return the final results for each tuple, stored or intermediate."""
        worth = part.worth
        intermediate = max(0.0, worth.results - worth.final)
        return (productivity(worth.final, worth.tuples + intermediate),)
