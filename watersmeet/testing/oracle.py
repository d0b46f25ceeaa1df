"""The brute-force statement of what a join of streams means; every engine is compared with it.

It follows the definition word by word and shares no code with the engine. It knows nothing of nodes, slices, hops or
purging: it keeps every tuple that is neither late nor denied and tries every combination of one tuple per stream.

Times, sizes, steps and delays are whole microseconds. What constraints of streams deny is in `oracle_constraints.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, Literal, get_args

from watersmeet.testing.oracle_constraints import Clusters as Clusters
from watersmeet.testing.oracle_constraints import Denial, Row, denial_test, has, lacks_a_value
from watersmeet.testing.oracle_constraints import OracleConstraint as OracleConstraint
from watersmeet.testing.oracle_constraints import Order as Order
from watersmeet.testing.oracle_constraints import ParentKey as ParentKey
from watersmeet.testing.oracle_constraints import PunctuationFlag as PunctuationFlag
from watersmeet.testing.oracle_constraints import UniqueKey as UniqueKey

Predicate = Callable[[dict[str, Row]], bool | None]
BEFORE_ALL = -(10**30)
"""A time before any other."""
Verdict = Literal["rejected", "punctuation", "late", "denied", "accepted"]


@dataclass(frozen=True)
class AsOf:
    """Asks a stream for the newest partner no later than the combination: the one with the greatest (ts, key).

    Attributes:
        tolerance: How much older than the combination it may be; None for any age.
        left: Whether a combination without one is a result, too.
    """

    tolerance: int | None = None
    left: bool = False


How = Literal["left", "semi", "anti", "full"] | AsOf


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
    """Admits a tuple at T when some whole number k has `k*step < ts <= T <= k*step + size`.

    Closed on the left, windows are `[start, end)` instead: `k*step <= ts <= T < k*step + size`.
    """

    size: int
    step: int
    closed: Literal["left", "right"] = "right"


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
    constraints: Sequence[OracleConstraint] = ()
    table: bool = False
    """Whether it is a table: its rows, whatever their times, are there before all others; they have no say in T, in
    watermarks or in who is late. Its window is unbounded, and all of them come in the first batch."""
    refreshed: bool = False
    """Whether it is a table that is read for each batch: its rows of a batch are joined with what that completes."""


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
        results: How often each (one `row["id"]` per stream in stream order, T) is emitted; None stands for the id of
            a member that is missing, or that results don't show.
        late: Tuples behind the join watermark of the batch before theirs, in order of arrival.
        rejected: Rows without an event time, or with one too far ahead; punctuations with NULL in a column they need.
        denied: Tuples that are in time but denied after the batch before theirs, in order of arrival, each with the
            first of its stream's constraints that denies it.
        punctuations: Those not rejected, in order of arrival.
        orphans: Accepted tuples found to have no parent, each once, with the first batch after which that is known.
        watermarks: The join watermark after each batch; None is minus infinity.
        denials: What is denied after each batch, by stream: `row in outcome.denials[3]["bids"]`.
    """

    results: Counter[tuple[tuple[Any, ...], int]] = field(default_factory=Counter)
    late: list[Arrival] = field(default_factory=list)
    rejected: list[Arrival] = field(default_factory=list)
    denied: list[tuple[Arrival, OracleConstraint]] = field(default_factory=list)
    punctuations: list[Arrival] = field(default_factory=list)
    orphans: list[tuple[int, Arrival]] = field(default_factory=list)
    watermarks: dict[int, int | None] = field(default_factory=dict)
    denials: dict[int, dict[str, Denial]] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A tuple that may take part in results: `rank` is its place among all arrivals, `ordinal` within its stream."""

    ts: int
    rank: int
    ordinal: int
    row: Row
    batch: int
    key: Any


def join(
    streams: Sequence[Stream],
    arrivals: Iterable[Arrival],
    where: Predicate,
    *,
    idle: Mapping[int, set[str]] | None = None,
    clock: Mapping[int, int] | None = None,
    how: Mapping[str, How] | None = None,
    on: Mapping[str, Predicate] | None = None,
    ended: bool = False,
) -> Outcome:
    """The results of a join, the rows that take no part in it, watermarks and denials, by brute force.

    Args:
        streams: The inputs; their order is the order of the ids in a result and breaks ties of arrival.
        arrivals: All rows of all batches, in any order.
        where: The predicate over one row per stream, by stream name; neither False nor None (NULL) is a match.
        idle: The streams that are idle when the join watermark of a batch is computed, by batch.
        clock: What the clock shows when a batch begins, by batch; without it no event time is too far ahead.
        how: What is asked of streams that are optional, by name; `where` then sees the rows of the others alone. In a
            full join there are two streams, and each has results of its own where it has no partner.
        on: For each optional stream the predicate over the rows of the others and its own.
        ended: Whether nothing more will come, so that every combination is closed.
    """
    idle = idle or {}
    batches: dict[int, list[Arrival]] = {batch: [] for batch in idle}
    for arrival in arrivals:
        batches.setdefault(arrival.batch, []).append(arrival)
    intake = _Intake(streams, clock)
    for batch in sorted(batches):
        intake.take(batch, batches[batch], idle.get(batch, set()))
    outcome = intake.outcome
    if how:
        for ids, time in _Outer(streams, intake, how, on or {}, ended).results(where):
            outcome.results[ids, time] += 1
        return outcome
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
        self.data: dict[str, list[list[Row]]] = {name: [] for name in self.streams}
        self.denials = {name: Denial() for name in self.streams}
        self.waiting: list[Arrival] = []  # accepted, and not known to be orphans

    def take(self, batch: int, arrivals: Sequence[Arrival], idle: set[str]) -> None:
        """Judge the rows of a batch, then move the watermark and mark what is denied from now on; fills `outcome`."""
        by_verdict: dict[Verdict, list[Arrival]] = {verdict: [] for verdict in get_args(Verdict)}
        for arrival in arrivals:
            by_verdict[self.verdict(arrival)].append(arrival)
        self.outcome.rejected += by_verdict["rejected"]
        self.outcome.punctuations += self.in_order(by_verdict["punctuation"])
        self.outcome.late += self.in_order(by_verdict["late"])
        self.outcome.denied += [
            (a, self.denials[a.stream].reasons(a.row)[0]) for a in self.in_order(by_verdict["denied"])
        ]
        for arrival in self.in_order(by_verdict["accepted"]):
            self.accept(arrival)
        for arrival in by_verdict["late"] + by_verdict["denied"] + by_verdict["accepted"]:
            if self.streams[arrival.stream].table:
                continue
            self.latest[arrival.stream] = max(_ts(arrival), self.latest.get(arrival.stream, _ts(arrival)))
        self.watermark = self.next_watermark(idle)
        self.outcome.watermarks[batch] = self.watermark
        self.denials = self.mark(arrivals)
        self.outcome.denials[batch] = self.denials
        self.outcome.orphans += [(batch, arrival) for arrival in self.new_orphans()]

    def verdict(self, arrival: Arrival) -> Verdict:
        """What becomes of a row; the others of its batch have no say in it."""
        if self.streams[arrival.stream].table:
            return "accepted"
        announcing = _punctuated_by(self.streams[arrival.stream], arrival.row)
        if arrival.ts is None or self.too_far(arrival.ts, arrival) or lacks_a_value(announcing, arrival.row):
            return "rejected"
        if announcing:
            return "punctuation"
        if self.watermark is not None and arrival.ts < self.watermark:
            return "late"
        if arrival.row in self.denials[arrival.stream]:
            return "denied"
        return "accepted"

    def too_far(self, ts: int, arrival: Arrival) -> bool:
        """Whether an event time lies further ahead of the clock, and of all that was believed before, than it may."""
        ahead = self.streams[arrival.stream].ahead
        if ahead is None or self.clock is None:
            return False
        return ts > max([self.clock[arrival.batch], *self.latest.values()]) + ahead

    def in_order(self, arrivals: Iterable[Arrival]) -> list[Arrival]:
        """Rows of one batch in the order of arrival: by time, stream and content."""
        position = {name: i for i, name in enumerate(self.streams)}
        return sorted(arrivals, key=lambda a: (self.time(a), position[a.stream], a.key))

    def time(self, arrival: Arrival) -> int:
        """When a row happened; those of tables did before all others."""
        return BEFORE_ALL if self.streams[arrival.stream].table else _ts(arrival)

    def accept(self, arrival: Arrival) -> None:
        """Let a row take part in results, as the next of its stream."""
        mine = self.members[arrival.stream]
        rank = sum(map(len, self.members.values()))
        mine.append(Member(self.time(arrival), rank, len(mine), arrival.row, arrival.batch, arrival.key))
        self.waiting.append(arrival)

    def next_watermark(self, idle: set[str]) -> int | None:
        """The join watermark after a batch: the least stream watermark of the streams neither idle nor tables.

        It never falls, and stays as it was, None at first, if there is no such stream or one has had no tuple yet.

        A stream's watermark is its largest event time so far, late and denied tuples included, minus its delay.
        """
        awake = [stream for stream in self.streams.values() if stream.name not in idle and not stream.table]
        if not awake or any(stream.name not in self.latest for stream in awake):
            return self.watermark
        least = min(self.latest[stream.name] - stream.delay for stream in awake)
        return least if self.watermark is None else max(self.watermark, least)

    def mark(self, arrivals: Sequence[Arrival]) -> dict[str, Denial]:
        """What is denied after a batch, whose data rows are remembered; even rows that are denied themselves mark."""
        denials = {}
        for name, stream in self.streams.items():
            own = [a.row for a in arrivals if a.stream == name]
            self.data[name].append([row for row in own if not _punctuated_by(stream, row)])
            punctuations = [(_ts(a), a.row) for a in self.outcome.punctuations if a.stream == name]
            tests = [
                (constraint, denial_test(constraint, self.data[name], punctuations, self.watermark))
                for constraint in stream.constraints
            ]
            denials[name] = Denial(tests)
        return denials

    def new_orphans(self) -> list[Arrival]:
        """Accepted rows of which this batch has shown that they have no parent."""
        orphans = [arrival for arrival in self.waiting if self.is_orphan(arrival)]
        self.waiting = [arrival for arrival in self.waiting if not self.is_orphan(arrival)]
        return orphans

    def is_orphan(self, arrival: Arrival) -> bool:
        """Whether the parent that some foreign key asks for was never accepted, and no longer can be."""
        keys = [p for p in self.streams[arrival.stream].constraints if isinstance(p, ParentKey)]
        return any(self.has_no_parent(key, arrival.row[key.column]) for key in keys)

    def has_no_parent(self, key: ParentKey, value: Any) -> bool:
        """Whether `value` is denied in the parent stream, as NULL never is, and none of its accepted rows has it."""
        if not self.denials[key.parent].denies_value(key.parent_column, value):
            return False
        own = has(key.parent_column, value)
        return not any(own(member.row) for member in self.members[key.parent])


def _ts(arrival: Arrival) -> int:
    """The event time of a row that was not rejected."""
    assert arrival.ts is not None
    return arrival.ts


def _punctuated_by(stream: Stream, row: Row) -> list[PunctuationFlag]:
    """The constraints of which a row is a punctuation."""
    return [
        constraint
        for constraint in stream.constraints
        if isinstance(constraint, PunctuationFlag) and row.get(constraint.flag)
    ]


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
        admitted = all(self.admits(i, member, time, last) for i, member in enumerate(combination))
        return admitted and self.up_to_date(combination)

    def up_to_date(self, combination: Sequence[Member]) -> bool:
        """Whether rows of tables that are read for each batch are those of the batch that completes it."""
        pairs = list(zip(self.streams, combination, strict=True))
        completes = max(member.batch for stream, member in pairs if not stream.table)
        return all(member.batch == completes for stream, member in pairs if stream.refreshed)

    def admits(self, i: int, member: Member, time: int, last: int) -> bool:
        """Whether stream i's window holds `member` at T = `time`, when the last member to arrive has rank `last`."""
        match self.streams[i].window:
            case Sliding(size):
                return time - member.ts < size
            case Count(rows):
                arrived = bisect_right(self.ranks[i], last)
                return arrived - member.ordinal <= rows
            case Hopping(size, step, "left"):
                k = member.ts // step  # the last window that starts at ts or before: all others end earlier
                return k * step <= member.ts <= time < k * step + size
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

        def extend(prefix: tuple[Member, ...]) -> Iterator[tuple[tuple[Member, ...], list[Member]]]:
            """Yield combinations of all streams but the last that begin with these members, with the last one's."""
            j = len(prefix)
            fitting = set(range(len(self.members[j])))
            for i, member in enumerate(prefix):
                fitting &= partners[i, j][member.ordinal]
            members = [self.members[j][ordinal] for ordinal in fitting]
            if j == len(self.streams) - 1:
                yield prefix, members
            else:
                for member in members:
                    yield from extend((*prefix, member))

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


class _Outer:
    """The results of a join with optional streams.

    A *partner* of a combination of the required streams is a tuple of an optional stream that `on` and all windows
    accept together with it; of an as-of stream it is no later than the combination, nor too old. The combination is
    *closed* once the watermark has passed a member's window, or, if nothing but as-of partners is asked for, its time.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        intake: _Intake,
        how: Mapping[str, How],
        on: Mapping[str, Predicate],
        ended: bool,
    ) -> None:
        self.streams, self.names = streams, [stream.name for stream in streams]
        self.required = [stream for stream in streams if stream.name not in how]
        self.optional = [stream for stream in streams if stream.name in how]
        self.intake, self.members, self.watermark = intake, intake.members, intake.watermark
        self.how, self.on, self.ended = how, on, ended

    def results(self, where: Predicate) -> Iterator[tuple[tuple[Any, ...], int]]:
        """Every result: the ids of its members, and its time."""
        join = _Join(self.required, [self.members[stream.name] for stream in self.required])
        for combination in join.matches(where):
            by_name = {stream.name: member for stream, member in zip(self.required, combination, strict=True)}
            choices = [self.shown(stream, by_name) for stream in self.optional]
            for partners in product(*choices) if self.decided(by_name) else ():
                members = by_name | {s.name: p for s, p in zip(self.optional, partners, strict=True) if p is not None}
                ids = tuple(members[name].row["id"] if name in members else None for name in self.names)
                yield ids, max(member.ts for member in members.values())
        if "full" in self.how.values():
            yield from self.mirrored().unmatched()

    def mirrored(self) -> _Outer:
        """A full join seen from its other stream, for which the required one is optional."""
        (one,), (other,) = self.required, self.optional
        return _Outer(self.streams, self.intake, {one.name: "left"}, {one.name: self.on[other.name]}, self.ended)

    def unmatched(self) -> Iterator[tuple[tuple[Any, ...], int]]:
        """The results that have no tuple of the optional stream."""
        missing = self.names.index(self.optional[0].name)
        return ((ids, time) for ids, time in self.results(lambda rows: True) if ids[missing] is None)

    def decided(self, by_name: Mapping[str, Member]) -> bool:
        """Whether results of a combination can be told: of a single left, semi or full stream any partner does."""
        alone = len(self.optional) == 1 and self.how[self.optional[0].name] in ("left", "semi", "full")
        return self.closed(by_name) or (alone and bool(self.partners(self.optional[0], by_name)))

    def shown(self, stream: Stream, by_name: Mapping[str, Member]) -> Sequence[Member | None]:
        """What results show of an optional stream, each in turn: None stands for no partner; empty for no result."""
        partners = self.partners(stream, by_name)
        match self.how[stream.name]:
            case "left" | "full":
                return partners or [None]
            case "semi":
                return [None] if partners else []
            case "anti":
                return [] if partners else [None]
            case AsOf() as how:
                newest = sorted(partners, key=lambda member: (member.ts, member.key))[-1:]
                return newest or ([None] if how.left else [])

    def partners(self, stream: Stream, by_name: Mapping[str, Member]) -> list[Member]:
        """The partners that a combination has in an optional stream."""
        join = _Join([*self.required, stream], [self.members[s.name] for s in (*self.required, stream)])
        rows = {name: member.row for name, member in by_name.items()}
        holds = self.on.get(stream.name)
        return [
            member
            for member in self.members[stream.name]
            if (holds is None or holds({**rows, stream.name: member.row}))
            and join.admitted((*by_name.values(), member))
            and self.in_time(stream, member, max(required.ts for required in by_name.values()))
        ]

    def in_time(self, stream: Stream, member: Member, time: int) -> bool:
        """Whether a tuple of an optional stream is of a time that a combination at `time` asks for."""
        match self.how[stream.name]:
            case AsOf(tolerance):
                return member.ts <= time and (tolerance is None or time - member.ts <= tolerance)
        return True

    def closed(self, by_name: Mapping[str, Member]) -> bool:
        """Whether no tuple that may still come can be a partner: all later ones are at or after the watermark."""
        if self.ended or self.watermark is None:
            return self.ended
        if all(isinstance(how, AsOf) for how in self.how.values()):
            return self.watermark > max(member.ts for member in by_name.values())
        join = _Join(self.required, [self.members[stream.name] for stream in self.required])
        time = max(self.watermark, *(member.ts for member in by_name.values()))
        members = enumerate(by_name.values())
        return not all(join.admits(at, member, time, member.rank) for at, member in members)
