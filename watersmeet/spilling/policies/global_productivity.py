"""The global policy: what a part yields at the end of the plan."""

from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.policy import Policy, productivity


class Global(Policy):
    """Ranks by the plan's results traced back to a part, by its size (Jbantova, sections 3.2 and 3.3).

    Results on the way count against it: they fill the state of the joins further on. The thesis takes this penalty from
    Liu's dissertation and does not print it; as we read it, they are added to the size.
    """

    __slots__ = ()
    name: ClassVar[str] = "global"

    def score(self, part: Part) -> tuple[float, ...]:
        """Return final results a tuple, stored or made on the way."""
        worth = part.worth
        between = max(0.0, worth.results - worth.final)
        return (productivity(worth.final, worth.tuples + between),)
