"""The random policy: the baseline that all others are compared with."""

import random
from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.policy import Policy


class Random(Policy):
    """Ranks by chance (Jbantova, sections 3.3 and 3.4)."""

    __slots__ = ()
    name: ClassVar[str] = "random"

    def score(self, part: Part) -> tuple[float, ...]:
        """Return a number between 0 and 1."""
        return (random.Random(f"{self.seed} {part.name}").random(),)
