"""The local policy: what a part yields at its own join."""

from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.policy import Policy, productivity


class Local(Policy):
    """Ranks by the results of a part's own join, by its size (Jbantova, section 3.1; P_output / P_size).

    The part that yields most here may yield nothing further on: see `Global`.
    """

    __slots__ = ()
    name: ClassVar[str] = "local"

    def score(self, part: Part) -> tuple[float, ...]:
        """Return results a tuple."""
        return (productivity(part.worth.results, part.worth.tuples),)
