"""The synchronized policy: one ranking over the whole plan, and what is fed by a part goes where it goes."""

from collections.abc import Sequence
from typing import ClassVar

from watersmeet.spilling.part import Part
from watersmeet.spilling.policies.base import Links
from watersmeet.spilling.policies.globally import Global


class Synchronized(Global):
    """Ranks as `Global`, over all joins at once; then each parent follows, up to the root (Jbantova, 3.3, 3.4, 2.7).

    A parent's part follows where it gets at least `correlation` of what the child's part yields, in the times that the
    child's results may have. Otherwise it would wait for them in vain, and could not go before they come.
    """

    __slots__ = ()
    name: ClassVar[str] = "synchronized"
    together: ClassVar[bool] = True

    def followers(self, chosen: Sequence[Part], others: Sequence[Part], links: Links) -> list[Part]:
        """See Policy."""
        found: dict[tuple[object, ...], Part] = {}
        waiting = list(chosen)
        while waiting:
            child = waiting.pop()
            for part in others:
                if part.name not in found and self._is_fed(part, child, links):
                    found[part.name] = part
                    waiting.append(part)
        return list(found.values())

    def _is_fed(self, part: Part, child: Part, links: Links) -> bool:
        if links.parents.get(child.join) != part.join or part.high < child.low or part.low > child.high:
            return False
        share = links.shares.get((child.join, child.group.partition, part.group.partition), 0.0)
        return share >= self.correlation
