"""The brute-force statement of what a join of streams means; every engine is compared with it.

It follows the definition word by word and shares no code with the engine. It knows nothing of nodes, slices, hops or
purging: it keeps every tuple that is not late and tries every combination of one tuple per stream.

Times, sizes, steps and delays are whole microseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, get_args

Row = Mapping[str, Any]
Predicate = Callable[[dict[str, Row]], bool | None]
Verdict = Literal["rejected", "late", "accepted"]


@dataclass(frozen=True)
class Sliding:
    """Admits a tuple at T when `T - ts < size`."""

    size: int


@dataclass(frozen=True)
class Count:
    """Admits a tuple while it is among the last `rows` of its stream that arrived no later than the last member."""

    rows: int


@dataclass(frozen=True)
class Hopping:
    """Admits a tuple at T when some whole number k has `k*step < ts <= T <= k*step + size`."""

    size: int
    step: int


@dataclass(frozen=True)
class Unbounded:
    """Always admits a tuple."""


Window = Sliding | Count | Hopping | Unbounded


@dataclass(frozen=True)
class Stream:
    """One input of the join."""

    name: str
    window: Window
    delay: int = 0
    ahead: int | None = None
    """How far its event times may lie ahead of the clock and of all that was believed before; None for any."""


@dataclass(frozen=True)
class Arrival:
    """One row as a source delivers it.

    Attributes:
        batch: The micro-batch that brings it.
        stream: The name of its stream.
        ts: Its event time; None is bad input and rejected.
        key: Anything orderable that stands for the row's content in the order of arrival.
        row: What the predicate sees; `row["id"]` names the row in results (identical rows may share an id).
    """

    batch: int
    stream: str
    ts: int | None
    key: Any
    row: Row


@dataclass
class Outcome:
    """What a join must produce.

    Attributes:
        results: How often each (one `row["id"]` per stream in stream order, T) is emitted.
        late: Tuples behind the join watermark of the batch before theirs, in order of arrival.
        rejected: Rows without an event time, or with one too far ahead.
        watermarks: The join watermark after each batch; None is minus infinity.
    """

    results: Counter[tuple[tuple[Any, ...], int]] = field(default_factory=Counter)
    late: list[Arrival] = field(default_factory=list)
    rejected: list[Arrival] = field(default_factory=list)
    watermarks: dict[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A tuple that may take part in results: `rank` is its place among all arrivals, `ordinal` within its stream."""

    ts: int
    rank: int
    ordinal: int
    row: Row


def join(
    streams: Sequence[Stream],
    arrivals: Iterable[Arrival],
    where: Predicate,
    *,
    idle: Mapping[int, set[str]] | None = None,
    clock: Mapping[int, int] | None = None,
) -> Outcome:
    """The results, late and rejected tuples and watermarks of a join, by brute force.

    Args:
        streams: The inputs; their order is the order of the ids in a result and breaks ties of arrival.
        arrivals: All rows of all batches, in any order.
        where: The predicate over one row per stream, by stream name; neither False nor None (NULL) is a match.
        idle: The streams that are idle when the join watermark of a batch is computed, by batch.
        clock: What the clock shows when a batch begins, by batch; without it no event time is too far ahead.
    """
    idle = idle or {}
    batches: dict[int, list[Arrival]] = {batch: [] for batch in idle}
    for arrival in arrivals:
        batches.setdefault(arrival.batch, []).append(arrival)
    intake = _Intake(streams, clock)
    for batch in sorted(batches):
        intake.take(batch, batches[batch], idle.get(batch, set()))
    outcome = intake.outcome
    for combination in _Join(streams, [intake.members[stream.name] for stream in streams]).matches(where):
        ids = tuple(member.row["id"] for member in combination)
        outcome.results[ids, max(member.ts for member in combination)] += 1
    return outcome


class _Intake:
    """Judges the rows of one batch after the other, each by what was known after the batch before."""

    def __init__(self, streams: Sequence[Stream], clock: Mapping[int, int] | None) -> None:
        self.streams = {stream.name: stream for stream in streams}
        self.clock = clock
        self.outcome = Outcome()
        self.members: dict[str, list[Member]] = {name: [] for name in self.streams}
        self.latest: dict[str, int] = {}
        self.watermark: int | None = None

    def take(self, batch: int, arrivals: Sequence[Arrival], idle: set[str]) -> None:
        """Judge the rows of a batch, then move the watermark."""
        judged: dict[Verdict, list[Arrival]] = {verdict: [] for verdict in get_args(Verdict)}
        for arrival in arrivals:
            judged[self.verdict(arrival)].append(arrival)
        self.outcome.rejected += judged["rejected"]
        self.outcome.late += self.ordered(judged["late"])
        for arrival in self.ordered(judged["accepted"]):
            self.accept(arrival)
        for arrival in judged["late"] + judged["accepted"]:
            self.latest[arrival.stream] = max(_ts(arrival), self.latest.get(arrival.stream, _ts(arrival)))
        self.watermark = self.next_watermark(idle)
        self.outcome.watermarks[batch] = self.watermark

    def verdict(self, arrival: Arrival) -> Verdict:
        """What becomes of a row; the others of its batch have no say in it."""
        if arrival.ts is None or self.too_far(arrival.ts, arrival):
            return "rejected"
        if self.watermark is not None and arrival.ts < self.watermark:
            return "late"
        return "accepted"

    def too_far(self, ts: int, arrival: Arrival) -> bool:
        """Whether an event time lies further ahead of the clock, and of all that was believed before, than it may."""
        ahead = self.streams[arrival.stream].ahead
        if ahead is None or self.clock is None:
            return False
        return ts > max([self.clock[arrival.batch], *self.latest.values()]) + ahead

    def ordered(self, arrivals: Iterable[Arrival]) -> list[Arrival]:
        """Rows of one batch in the order of arrival: by time, stream and content."""
        position = {name: i for i, name in enumerate(self.streams)}
        return sorted(arrivals, key=lambda a: (_ts(a), position[a.stream], a.key))

    def accept(self, arrival: Arrival) -> None:
        """Let a row take part in results, as the next of its stream."""
        mine = self.members[arrival.stream]
        mine.append(Member(_ts(arrival), sum(map(len, self.members.values())), len(mine), arrival.row))

    def next_watermark(self, idle: set[str]) -> int | None:
        """The join watermark after a batch: the least stream watermark of the streams not idle, never falling.

        A stream's watermark is its largest event time so far, late tuples included, minus its delay.
        """
        awake = [stream for stream in self.streams.values() if stream.name not in idle]
        if not awake or any(stream.name not in self.latest for stream in awake):
            return self.watermark
        least = min(self.latest[stream.name] - stream.delay for stream in awake)
        return least if self.watermark is None else max(self.watermark, least)


def _ts(arrival: Arrival) -> int:
    """The event time of a row that was not rejected."""
    assert arrival.ts is not None
    return arrival.ts


class _Join:
    """The combinations of tuples that are results."""

    def __init__(self, streams: Sequence[Stream], members: Sequence[Sequence[Member]]) -> None:
        self.streams = streams
        self.members = members
        self.ranks = [[member.rank for member in own] for own in members]

    def matches(self, where: Predicate) -> Iterator[tuple[Member, ...]]:
        """Every combination that the predicate and all windows accept."""
        names = [stream.name for stream in self.streams]
        for start, ends in self._candidates():
            rows = {name: member.row for name, member in zip(names, start, strict=False)}
            for end in ends:
                rows[names[-1]] = end.row
                if where(rows) and self.admitted((*start, end)):
                    yield (*start, end)

    def admitted(self, combination: Sequence[Member]) -> bool:
        """Whether the window of every stream admits its member."""
        time = max(member.ts for member in combination)
        last = max(member.rank for member in combination)
        return all(self.admits(i, member, time, last) for i, member in enumerate(combination))

    def admits(self, i: int, member: Member, time: int, last: int) -> bool:
        """Whether stream i's window holds `member` at T = `time`, when the last member to arrive has rank `last`."""
        match self.streams[i].window:
            case Sliding(size):
                return time - member.ts < size
            case Count(rows):
                arrived = bisect_right(self.ranks[i], last)
                return arrived - member.ordinal <= rows
            case Hopping(size, step):
                k = (member.ts - 1) // step  # the last window that starts before ts: all others end earlier
                return k * step < member.ts <= time <= k * step + size
            case Unbounded():
                return True

    def _candidates(self) -> Iterator[tuple[tuple[Member, ...], list[Member]]]:
        """Combinations in which any two members admit each other: the members of all streams but the last, with those
        of the last that go with them.

        This loses no result: T is one member's time and the last to arrive is one member, so a window that refuses a
        member in the whole combination refuses it in the pair with that one.
        """
        partners = self._partners()

        def extend(chosen: tuple[Member, ...]) -> Iterator[tuple[tuple[Member, ...], list[Member]]]:
            j = len(chosen)
            fitting = set(range(len(self.members[j])))
            for i, member in enumerate(chosen):
                fitting &= partners[i, j][member.ordinal]
            members = [self.members[j][ordinal] for ordinal in fitting]
            if j == len(self.streams) - 1:
                yield chosen, members
            else:
                for member in members:
                    yield from extend((*chosen, member))

        return extend(())

    def _partners(self) -> dict[tuple[int, int], list[set[int]]]:
        """For streams i < j and each member of i: the members of j that it may meet."""
        return {
            (i, j): [{y.ordinal for y in self.members[j] if self._meet(i, x, j, y)} for x in self.members[i]]
            for i, j in combinations(range(len(self.streams)), 2)
        }

    def _meet(self, i: int, x: Member, j: int, y: Member) -> bool:
        time, last = max(x.ts, y.ts), max(x.rank, y.rank)
        return self.admits(i, x, time, last) and self.admits(j, y, time, last)
