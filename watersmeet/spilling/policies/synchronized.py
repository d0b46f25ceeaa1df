"""The synchronized policy: one ranking for the whole plan, in which each part is followed by the parts it feeds."""

from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.global_productivity import GlobalPolicy


class SynchronizedPolicy(GlobalPolicy):
    """Ranks as `GlobalPolicy`, all joins at once, each part followed by those that it feeds (Jbantova, 3.3, 3.4, 2.7).

    A parent's part follows a child's if it gets at least `correlation` of its results and overlaps it in time, and so
    on up to the root. If it stayed hot while the child's part is spilled, it would wait idly; if it stayed spilled
    when the child's part is paid, the results of that would be owed again. Parts that follow count toward the share
    that is spilled: in the thesis all policies spill the same amount (figures 5.15 and 5.19).
    """

    __slots__ = ()
    name: ClassVar[str] = "synchronized"
    together: ClassVar[bool] = True

    def lowest(self, parts: Sequence[Part]) -> list[Part]:
        """See Policy."""
        return self._with_followers(GlobalPolicy.lowest(self, parts))

    def highest(self, parts: Sequence[Part]) -> list[Part]:
        """See Policy."""
        return self._with_followers(GlobalPolicy.lowest(self, parts)[::-1])

    def _with_followers(self, ranked: Sequence[Part]) -> list[Part]:
        """Return parts in their order, but each one followed by those that it feeds."""
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
