"""The punctuated policy: what a punctuation has closed is paid first, since it can then be purged."""

from collections.abc import Sequence
from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.global_productivity import GlobalPolicy


class PunctuatedPolicy(GlobalPolicy):
    """Pays what a punctuation has closed first, and the rest by streams in turn (MJoin, sections 4.1, 4.2 and 5.3).

    In the paper, tuples that match a punctuation leave their queue first, and streams take turns: one is read until its
    quota is used up, then the next. Here whole units are paid: those with closed tuples first, then for each stream in
    turn those with most of its tuples, until its quota is used up. What is spilled is chosen as by `GlobalPolicy`.
    """

    __slots__ = ()
    name: ClassVar[str] = "punctuated"

    def highest(self, parts: Sequence[Part]) -> list[Part]:
        """See Policy."""
        closed = [part for part in parts if part.closed]
        rest = [part for part in parts if not part.closed]
        return [*GlobalPolicy.highest(self, closed), *self._in_turns(GlobalPolicy.highest(self, rest))]

    def _in_turns(self, parts: Sequence[Part]) -> list[Part]:
        """Return parts in the order in which the streams' turns choose them, followed by those that none chooses."""
        chosen, remaining = list[Part](), list(parts)
        while any(_rows(part, stream) for part in remaining for stream in self.quotas):
            for stream, quota in self.quotas.items():
                budget = quota
                while budget > 0 and (best := max(remaining, key=lambda part: _rows(part, stream), default=None)):
                    if not _rows(best, stream):
                        break
                    chosen.append(best)
                    remaining.remove(best)
                    budget -= _rows(best, stream)
        return [*chosen, *remaining]


def _rows(part: Part, stream: tuple[str, int]) -> int:
    """Return how many rows of a stream a part has."""
    return part.stream_rows.get(stream[1], 0) if part.join == stream[0] else 0
