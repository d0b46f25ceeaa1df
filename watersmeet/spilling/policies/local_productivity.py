"""The local policy: parts rank by what they yield at their own join."""

from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.policy import Policy, productivity


class LocalPolicy(Policy):
    """Ranks by the results of a part's own join, relative to its size (Jbantova, section 3.1; P_output / P_size).

    The part that yields most at its own join may yield nothing at the root: see `GlobalPolicy`.
    """

    __slots__ = ()
    name: ClassVar[str] = "local"

    def score(self, part: Part) -> tuple[float, ...]:
        """Return the results for each tuple."""
        return (productivity(part.worth.results, part.worth.tuples),)
