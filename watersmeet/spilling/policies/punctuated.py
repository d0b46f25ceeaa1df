"""The punctuated policy: what a punctuation has closed is paid first, since it can leave then."""

from collections.abc import Sequence
from typing import ClassVar

from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies.global_productivity import Global


class Punctuated(Global):
    """Pays first what a punctuation has closed, then by stream, in turns (MJoin, sections 4.1, 4.2 and 5.3).

    There a tuple that matches a punctuation is taken out of its queue first, and streams take turns: one is read until
    its quota is used up, then the next. Here whole units are paid: those with closed tuples first; of the others in
    turn the one with the most tuples of a stream, until that stream's quota is planned. What is put off is chosen as
    by `Global`.
    """

    __slots__ = ()
    name: ClassVar[str] = "punctuated"

    def highest(self, found: Sequence[Part]) -> list[Part]:
        """See Policy."""
        closed = [part for part in found if part.closed]
        rest = [part for part in found if not part.closed]
        return [*Global.highest(self, closed), *self._in_turns(Global.highest(self, rest))]

    def _in_turns(self, found: list[Part]) -> list[Part]:
        """Return parts by the streams whose turn it is."""
        planned = list[Part]()
        turns = list(self.quotas.items())
        while any(_rows(part, stream) for part in found for stream in self.quotas):
            for stream, quota in turns:
                left = quota
                while left > 0 and (best := max(found, key=lambda part: _rows(part, stream), default=None)):
                    if not _rows(best, stream):
                        break
                    planned.append(best)
                    found.remove(best)
                    left -= _rows(best, stream)
        return [*planned, *found]


def _rows(part: Part, stream: tuple[str, int]) -> int:
    """Return how many rows of a stream a part has."""
    return part.given.get(stream[1], 0) if part.join == stream[0] else 0
