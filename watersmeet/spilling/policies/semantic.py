"""The semantic policy: the user says what matters."""

from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.global_productivity import Global


class Semantic(Global):
    """Ranks by the user's weight, then as `Global` (Jbantova, sections 3.3 and 3.4, where it was not tried).

    A part weighs as much as its weightiest row.
    """

    __slots__ = ()
    name: ClassVar[str] = "semantic"

    def score(self, part: Part) -> tuple[float, ...]:
        """Return the weight, then final results a tuple."""
        return (part.weight, *Global.score(self, part))
