"""The punctuated policy: what a punctuation has closed is paid first, since it can leave then."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from watersmeet.spilling.part import Part
from watersmeet.spilling.policies.globally import Global


@dataclass(frozen=True, slots=True)
class Punctuated(Global):
    """Pays first what a punctuation has closed, then by stream, in turns (MJoin, sections 4.1, 4.2 and 5.3).

    There a tuple that matches a punctuation is taken out of its queue first, and streams take turns: one is read until
    its quota is used up, then the next. Here whole units are paid: those with closed tuples first; of the others in
    turn the one with the most tuples of a stream, until that stream's quota is planned. What is put off is chosen as
    by `Global`.

    Attributes:
        quotas: For each join's streams, by (path, stream), the tuples planned before it is another's turn.
    """

    seed: str = ""
    quotas: dict[tuple[str, int], int] = field(default_factory=dict)
    name: ClassVar[str] = "punctuated"

    def highest(self, found: Sequence[Part]) -> list[Part]:
        """See Policy."""
        closed = [part for part in found if part.closed]
        rest = [part for part in found if not part.closed]
        return [*Global.highest(self, closed), *self._in_turns(Global.highest(self, rest))]

    def _in_turns(self, found: list[Part]) -> list[Part]:
        """Return parts by the streams whose turn it is."""
        streams = sorted(self.quotas)
        if not streams:
            return found
        planned: list[Part] = []
        turn, left = 0, self.quotas[streams[0]]
        while found:
            join, stream = streams[turn]
            best = max(found, key=lambda part: part.given.get(stream, 0) if part.join == join else -1)
            count = best.given.get(stream, 0) if best.join == join else 0
            if count:
                planned.append(best)
                found.remove(best)
                left -= count
            if left <= 0 or not count:
                turn = (turn + 1) % len(streams)
                left = self.quotas[streams[turn]]
                if not count and not any(p.given.get(s, 0) for p in found for j, s in streams if p.join == j):
                    return [*planned, *found]
        return planned
