"""XJoin, with which the MJoin paper compares its operator: it knows no metadata, and keeps everything.

Urhan and Franklin, "XJoin: A Reactively-Scheduled Pipelined Join Operator" (IEEE Data Engineering Bulletin 23(2),
2000). Timestamps tell which pairs have been joined already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from papers.mjoin.binary_join import Operator
from papers.mjoin.feed import MANY, ONE, OTHER, SIDES, Element, Punctuation, Row, Side
from papers.mjoin.schedule import StreamSchedule
from papers.mjoin.state import Memory, State, largest

STAYS = float("inf")


@dataclass(frozen=True, slots=True)
class Stamped:
    """A row, and when it was in memory.

    Attributes:
        key: Its key.
        row: The row.
        came: When it arrived (ATS).
        left: When it was flushed (DTS), if it was.
    """

    key: int
    row: Row
    came: int
    left: float = STAYS


@dataclass(frozen=True, slots=True)
class Visit:
    """A time at which a part on disk was joined with what was in memory of the other stream.

    Attributes:
        at: When (ProbeTS).
        newest: When the last of the rows on disk was flushed (DTSlast).
    """

    at: int
    newest: float

    def have_met(self, on_disk: Stamped, in_memory: Stamped) -> bool:
        """Return whether two rows met then."""
        return on_disk.left <= self.newest and in_memory.came < self.at < in_memory.left


class XJoin(Operator):
    """A symmetric hash join whose buckets overflow to disk.

    Punctuations are retrieved and ignored. The second stage runs when the queues are empty, the third at the end.
    """

    def __init__(self, streams: StreamSchedule, memory: Memory) -> None:
        super().__init__(streams)
        self.state: tuple[State[Stamped], State[Stamped]] = (State(memory), State(memory))
        self._limit = memory.limit
        self._now = 0
        self._visits: dict[tuple[Side, int], list[Visit]] = {}
        self._to_visit: dict[tuple[Side, int], None] = {}
        self._to_clean_up = list(range(memory.buckets))

    @property
    def in_memory(self) -> int:
        """See Operator."""
        return self.state[ONE].in_memory + self.state[MANY].in_memory

    @property
    def on_disk(self) -> int:
        """See Operator."""
        return self.state[ONE].on_disk + self.state[MANY].on_disk

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _take(self, side: Side, element: Element) -> None:
        if isinstance(element, Punctuation):
            return
        other = OTHER[side]
        for match in self.state[other].matches(element.key):
            self._emit(*((element, match.row) if side == ONE else (match.row, element)))
        at = self.state[side].insert(Stamped(element.key, element, self._tick()))
        if self.state[other].has_disk_part(at):
            self._to_visit[other, at] = None
        while self.in_memory > self._limit:
            self._flush()

    def _flush(self) -> None:
        side, at = largest(self.state)
        now = self._tick()
        self.state[side].flush(at, lambda row: replace(row, left=now))

    def _stages(self) -> Sequence[Callable[[], bool]]:
        return self._memory_with_disk, self._clean_up

    def _memory_with_disk(self) -> bool:
        if not self._to_visit:
            return False
        (side, at), _ = self._to_visit.popitem()
        rows = self.state[side].read_disk(at)
        parts = {side: rows, OTHER[side]: self.state[OTHER[side]].buckets[at]}
        self._join(at, parts[ONE], parts[MANY])
        self._visits.setdefault((side, at), []).append(Visit(self._tick(), max(row.left for row in rows)))
        return True

    def _clean_up(self) -> bool:
        if not self.finished or not self._to_clean_up:
            return False
        at = self._to_clean_up.pop()
        one, many = ([*self.state[side].buckets[at], *self.state[side].read_disk(at)] for side in SIDES)
        self._join(at, one, many)
        return True

    def _join(self, at: int, one: Iterable[Stamped], many: Iterable[Stamped]) -> None:
        by_key: dict[int, list[Stamped]] = {}
        for row in many:
            by_key.setdefault(row.key, []).append(row)
        for row in one:
            for match in by_key.get(row.key, ()):
                if not self._have_met(at, row, match):
                    self._emit(row.row, match.row)

    def _have_met(self, at: int, one: Stamped, many: Stamped) -> bool:
        if one.came < many.left and many.came < one.left:
            return True
        return any(visit.have_met(one, many) for visit in self._visits.get((ONE, at), ())) or any(
            visit.have_met(many, one) for visit in self._visits.get((MANY, at), ())
        )
