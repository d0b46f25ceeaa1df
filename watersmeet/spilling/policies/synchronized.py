"""The synchronized policy: one ranking over the whole plan, and what is fed by a part goes where it goes."""

from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.global_productivity import Global


class Synchronized(Global):
    """Ranks as `Global`, over all joins at once, each part with those it feeds behind it (Jbantova, 3.3, 3.4, 2.7).

    A parent's part follows where it gets at least `correlation` of what the child's part yields, in the times that the
    child's results may have, and so on up to the root. If it stayed when the child's is put off, it would wait in vain;
    if it stayed away when the child's is paid, what comes of that would be owed again.
    What follows counts toward what is put off: in the thesis all policies spill alike (figures 5.15 and 5.19).
    """

    __slots__ = ()
    name: ClassVar[str] = "synchronized"
    together: ClassVar[bool] = True

    def lowest(self, found: Sequence[Part]) -> list[Part]:
        """See Policy."""
        return self._followed(Global.lowest(self, found))

    def highest(self, found: Sequence[Part]) -> list[Part]:
        """See Policy."""
        return self._followed(Global.lowest(self, found)[::-1])

    def _followed(self, ranked: Sequence[Part]) -> list[Part]:
        """Return parts in their order, but each with those that it feeds behind it."""
        ordered = dict[object, Part]()
        joins: dict[str | None, list[Part]] = defaultdict(list)
        for part in ranked:
            joins[part.join].append(part)
        for part in ranked:
            waiting = [part]
            for child in waiting:
                if child.name not in ordered:
                    ordered[child.name] = child
                    parents = joins.get(self.links.parents.get(child.join), [])
                    waiting += [parent for parent in parents if self._is_fed(parent, child)]
        return list(ordered.values())

    def _is_fed(self, part: Part, child: Part) -> bool:
        share = self.links.shares.get((child.join, child.group.partition, part.group.partition), 0.0)
        return share >= self.correlation and part.high >= child.low and part.low <= child.high
