"""Units, which are spilled as a whole, the ledger of the results that batches owe, and how these are paid.

A unit is a label on chunks: any labelling gives exact results, only speed depends on it. While a unit is spilled, new
tuples don't probe it, and every batch adds itself to those that owe it their probes. They pay in order, the oldest
first; once none is left the unit ceases to exist, and its chunks are hot.

The settle rule says which tuples probe which chunks, so that each owed result is emitted exactly once: when the last of
its members' chunks is settled for the batch of its probing tuple. That this happens once follows from the courses: new
tuples probe the chunks that they owe nothing. Earlier tuples run one course for each other stream: it probes the chunks
of that stream that are being paid, of the streams before it only the chunks already settled, and of the streams after
it both.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.state.chunks.chunk import Chunk

Among = Literal["arrived", "earlier", "expiring", "all", "preceding", "newest"]
"""Which rows of a chunk a probe looks for.

- `arrived`: those that arrived before the probing tuple.
- `earlier`: those that arrived before it in its own stream.
- `expiring`: those that expire after it.
- `all`: all rows.
- `preceding`: those that are no later than it; in streams that come after its own, only those that are earlier.
- `newest`: those that are no later than any member, the newest first.
"""


class Group(NamedTuple):
    """A partition of the values and a slice of time, across all streams of a join; units are cut along groups.

    Attributes:
        of: The number of partitions.
        partition: The partition's number.
        start: The start of the slice of time.
    """

    of: int
    partition: int
    start: int


def group_of(chunk: Chunk, slice: int) -> Group:
    """Return the group of a chunk: the same for all copies of its rows.

    [!] Rows stored by several columns are in one group: all copies must be in the same unit, and merging may join
    neighbouring slices in one copy but not in another.

    Args:
        chunk: The chunk.
        slice: The length of the slices of time, in microseconds.
    """
    if len(chunk.bucket.fields) > 1:
        return Group(1, 0, 0)
    hashed = chunk.bucket.fields
    start = chunk.start // slice * slice
    return Group(chunk.bucket.of, chunk.bucket.number, start) if hashed else Group(1, 0, start)


ClosedPartition = tuple[int, int]
"""A partition in which a punctuation has closed something: the number of partitions, and its own number."""


class Tally(NamedTuple):
    """The cost and the yield of a group.

    Attributes:
        pairs: The pairs examined in its chunks.
        results: The results of its join that contain its rows.
        final: The results of the outermost join that contain those.
        tuples: The tuples added to it.
    """

    pairs: float = 0
    results: float = 0
    final: float = 0
    tuples: float = 0

    def plus(self, other: "Tally") -> "Tally":
        """Return the sum."""
        return Tally(*(one + two for one, two in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class Unit:
    """A spilled unit.

    Attributes:
        number: Its number, never used again.
        group: Its group.
        since: The first batch whose tuples have not probed it; all batches from there to the next one owe it.
        pay: The next batch pays what the batches before this one owe; None if it pays nothing.
        back: Whether the unit becomes hot again if that is all that is owed.
    """

    number: int
    group: Group
    since: int
    pay: int | None = None
    back: bool = False

    def returns(self, batch: int) -> bool:
        """Tell whether a batch pays all that is owed and makes the unit hot, so that its own tuples probe it, too."""
        return self.back and self.pay == batch

    def after(self, batch: int) -> "Unit | None":
        """Return the unit after a batch that paid as planned; None if it is hot again."""
        if self.returns(batch):
            return None
        return replace(self, since=self.since if self.pay is None else self.pay, pay=None, back=False)

    def to_json(self) -> list[Any]:
        """Return the unit as stored in the manifest."""
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_json(cls, plain: Sequence[Any]) -> "Unit":
        """Return the unit that `to_json` wrote."""
        number, group, *rest = plain
        return cls(number, Group(*group), *rest)


class Reach(NamedTuple):
    """The times between which tuples may join rows of a unit: its earliest row's, and its latest row's deadline."""

    low: int
    deadline: int


class OwingBatch(NamedTuple):
    """What the ledger keeps of a batch that owes probes; the manifest stores it under these names.

    Attributes:
        earliest: The earliest event time of its tuples; None if it had none.
        arrived: For each stream how many tuples had been accepted before it.
        rows: The number of its tuples.
        at: When it was offered, by the driver's clock, in microseconds.
    """

    earliest: int | None
    arrived: tuple[int, ...]
    rows: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is owed after a batch. Methods named `with_...` and `without` return a new ledger.

    Attributes:
        units: The spilled units.
        batches: The batches that owe something, by number; `taken` in the manifest.
        unit_count: How many units there have ever been; `made` in the manifest.
        worth: The tallies of all live groups; empty unless work may be spilled.
        fed: For a sample of the results of inner joins: how many went from a partition there to a partition here, by
            the inner join's path and both partitions.
        closed: The partitions in which a punctuation has closed something, as long as something is owed to them.
        notes: The controller's record; see `decisions.ControllerRecord`.
    """

    units: tuple[Unit, ...] = ()
    batches: Mapping[int, OwingBatch] = field(default_factory=dict)
    unit_count: int = 0
    worth: Mapping[Group, Tally] = field(default_factory=dict)
    fed: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    closed: frozenset[ClosedPartition] = frozenset()
    notes: Mapping[str, Any] = field(default_factory=dict)

    # -- queries

    @property
    def since(self) -> int | None:
        """The first batch that owes, or will owe, something; None if no unit is spilled."""
        return min((unit.since for unit in self.units), default=None)

    def paying(self) -> list[Unit]:
        """Return the units for which the next batch pays."""
        return [unit for unit in self.units if unit.pay is not None and unit.pay > unit.since]

    def arrived(self) -> tuple[int, ...] | None:
        """Return how many tuples of each stream had arrived before the first owing batch; None if there is none."""
        first = None if self.since is None else self.batches.get(self.since)
        return None if first is None else first.arrived

    def owing_batches(self, unit: Unit, reach: Reach | None) -> list[tuple[int, OwingBatch]]:
        """Return the batches, in order, whose tuples have not probed a unit and may join one of its rows.

        Args:
            unit: The unit.
            reach: Its reach; None if it has no rows.
        """
        if reach is None:
            return []
        since = ((number, batch) for number, batch in self.batches.items() if number >= unit.since)
        return sorted((n, b) for n, b in since if b.earliest is not None and b.earliest <= reach.deadline)

    def owes(self, reaches: Mapping[int, Reach]) -> bool:
        """Tell whether some tuple has not yet made all of its probes."""
        return any(self.owing_batches(unit, reaches.get(unit.number)) for unit in self.units)

    def settled(self, watermark: int | None, reaches: Mapping[int, Reach]) -> int | None:
        """Return the time before which no further result can lie; None for minus infinity.

        An owed result is no earlier than its probing tuple, nor than the earliest tuple of the unit to be probed.

        Args:
            watermark: The time before which no further result can lie that isn't owed.
            reaches: The reaches of spilled units, by number.
        """
        if watermark is None:
            return None
        marks = [watermark]
        for unit in self.units:
            reach = reaches.get(unit.number)
            times = [batch.earliest for _, batch in self.owing_batches(unit, reach) if batch.earliest is not None]
            if reach is not None and times:
                marks.append(max(min(times), reach.low))
        return min(marks)

    # -- after a batch

    def after(self, number: int, batch: OwingBatch) -> "Ledger":
        """Return the ledger after a batch that paid as planned.

        No earlier batch is dated later than this one: the clock of an earlier start may have been ahead.
        """
        units = tuple(remaining for unit in self.units if (remaining := unit.after(number)) is not None)
        before = {earlier: was._replace(at=min(was.at, batch.at)) for earlier, was in self.batches.items()}
        return replace(self, units=units, batches={**before, number: batch})._without_paid_batches()

    def without(self, numbers: Collection[int]) -> "Ledger":
        """Return the ledger without some units, to which nothing must be owed."""
        units = tuple(unit for unit in self.units if unit.number not in numbers)
        return replace(self, units=units)._without_paid_batches()

    def with_live_units(self, chunks: Iterable[Chunk]) -> "Ledger":
        """Return the ledger without units that have no live chunk: nothing can be owed to them.

        [!] Nothing would ever pay them, and all that arrived since they were spilled would be kept for ever.
        """
        live = {chunk.unit for chunk in chunks}
        return self.without([unit.number for unit in self.units if unit.number not in live])

    def _without_paid_batches(self) -> "Ledger":
        """Return the ledger without batches that owe nothing."""
        since = self.since
        owing = {number: batch for number, batch in self.batches.items() if since is not None and number >= since}
        return replace(self, batches=owing)

    def with_worth(self, tallies: Iterable[Mapping[Group, Tally]], live: Collection[Group]) -> "Ledger":
        """Return the ledger with the tallies of a batch added; those of groups that aren't live are dropped."""
        worth = {group: tally for group, tally in self.worth.items() if group in live}
        for tally in tallies:
            for group, more in tally.items():
                if group in live:
                    worth[group] = worth.get(group, Tally()).plus(more)
        return replace(self, worth=worth)

    def with_credits(self, final: Mapping[Group, int]) -> "Ledger":
        """Return the ledger with results of the outermost join credited to the groups that they came from."""
        worth = {group: tally._replace(final=tally.final + final.get(group, 0)) for group, tally in self.worth.items()}
        return replace(self, worth=worth)

    def with_crossings(
        self, path: str, groups: Mapping[int, Group], crossings: Mapping[tuple[int, int], int]
    ) -> "Ledger":
        """Return the ledger with a sample added of where the results of an inner join go.

        Args:
            path: The inner join's path.
            groups: Its groups, by code.
            crossings: How many results went from each group, by its code, to each partition here.
        """
        fed = dict(self.fed)
        for (code, here), count in crossings.items():
            if code in groups:
                key = (path, groups[code].partition, here)
                fed[key] = fed.get(key, 0) + count
        return replace(self, fed=fed)

    def with_closed(self, closed: Collection[ClosedPartition], reaches: Mapping[int, Reach]) -> "Ledger":
        """Return the ledger with partitions in which a punctuation has closed something, if they are owed something."""
        owed = {unit.group[:2] for unit in self.units if self.owing_batches(unit, reaches.get(unit.number))}
        return replace(self, closed=(self.closed | frozenset(closed)) & owed)

    # -- storage

    def to_json(self) -> dict[str, Any]:
        """Return the ledger as stored in the manifest."""
        units = [unit.to_json() for unit in self.units]
        worth = [[group, tally] for group, tally in self.worth.items()]
        batches = list(self.batches.items())
        fed = [[*key, count] for key, count in self.fed.items()]
        more = {"worth": worth, "fed": fed, "closed": sorted(self.closed), "notes": self.notes}
        return {"units": units, "taken": batches, "made": self.unit_count, **more}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Ledger":
        """Return the ledger that `to_json` wrote."""
        batches = {
            number: OwingBatch(earliest, tuple(arrived), *rest) for number, (earliest, arrived, *rest) in plain["taken"]
        }
        worth = {Group(*group): Tally(*tally) for group, tally in plain["worth"]}
        units = tuple(map(Unit.from_json, plain["units"]))
        fed = {(path, there, here): count for path, there, here, count in plain["fed"]}
        closed = frozenset((of, number) for of, number in plain["closed"])
        return cls(units, batches, plain["made"], worth, fed, closed, plain["notes"])


class OwedBatches(NamedTuple):
    """The batches whose tuples had not probed a unit before this batch.

    Attributes:
        since: The first of them.
        paid: Those before this one pay now; `since` if none does.
        until: The batch after the last of them.
    """

    since: int
    paid: int
    until: int


class Role(NamedTuple):
    """Which chunks of a stream a course probes.

    Attributes:
        settled: Whether it probes those to which its tuples owe nothing.
        paid: Whether it probes those that its tuples pay now.
        old: Whether its tuples came in an earlier batch.
        among: Which of their rows it looks for.
        here: Whether the task itself probes one copy of each chunk, wherever its owner is, and sends nothing.
    """

    settled: bool
    paid: bool
    old: bool
    among: Among = "arrived"
    here: bool = False


NEW = Role(settled=True, paid=False, old=False)
BEFORE, PAYING, AFTER = Role(True, False, True), Role(False, True, True), Role(True, True, True)
"""The streams before the one whose chunks are paid, that one, and the streams after it."""
ARRIVED, EARLIER, EXPIRING, ALL, PRECEDING, NEWEST = (NEW._replace(among=among, here=True) for among in get_args(Among))
"""Where streams are optional, see `watersmeet.batch.outer_joins`."""


def roles(paying: int, streams: int) -> dict[int, Role]:
    """Return the role of each stream in the course that pays the chunks of one of them."""
    return {at: PAYING if at == paying else BEFORE if at < paying else AFTER for at in range(streams)}


def may_probe(role: Role, owed: OwedBatches | None, batch: Ints) -> NDArray[np.bool_] | bool:
    """Return which tuples of a course probe a chunk: a mask, or one answer for all.

    Args:
        role: The role of the chunk's stream in the course.
        owed: The batches that owed it their probes; None if there were none.
        batch: The batch in which each tuple came.
    """
    if owed is None:
        return role.settled
    owing = (batch >= owed.since) & (batch < owed.until)
    settled = ~owing if role.settled else np.zeros(len(batch), bool)
    return settled | (owing & (batch < owed.paid)) if role.paid else settled
