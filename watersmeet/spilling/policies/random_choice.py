"""The random policy: the baseline for the others."""

import random
from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.policy import Policy


class RandomPolicy(Policy):
    """Ranks at random (Jbantova, sections 3.3 and 3.4)."""

    __slots__ = ()
    name: ClassVar[str] = "random"

    def score(self, part: Part) -> tuple[float, ...]:
        """Return a random number between 0 and 1, the same for the same seed and part."""
        return (random.Random(f"{self.seed} {part.name}").random(),)
