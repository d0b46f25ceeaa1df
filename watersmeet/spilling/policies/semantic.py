"""The semantic policy: parts rank by a weight that the user chooses."""

from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.global_productivity import GlobalPolicy


class SemanticPolicy(GlobalPolicy):
    """Ranks by weight, then as `GlobalPolicy` (Jbantova, sections 3.3 and 3.4, which do not evaluate it).

    The weight of a part is the greatest weight of its rows.
    """

    __slots__ = ()
    name: ClassVar[str] = "semantic"

    def score(self, part: Part) -> tuple[float, ...]:
        """Return the weight, then the final results for each tuple."""
        return (part.weight, *GlobalPolicy.score(self, part))
