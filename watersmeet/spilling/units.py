"""Units: parts of the state that may be put off together, and what is owed to those that were.

A unit is a label on chunks: any labelling is exact, only speed depends on it. While it is cold, new tuples don't probe
it; each batch adds itself to those that the unit is owed. They are paid from the front, and once nothing is owed the
unit is no more: its chunks are hot.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from watersmeet.state.chunks.chunk import Chunk


class Group(NamedTuple):
    """What a unit is cut by: chunks of all streams that have these in common.

    Attributes:
        of: Into how many partitions tuples are cut.
        partition: Which of them it is.
        start: The start of its slice of time.
    """

    of: int
    partition: int
    start: int


def group_of(chunk: Chunk, slice: int) -> Group:
    """Return the group of a chunk: the same for all copies of its rows.

    [!] Rows stored by several columns are in one group: each copy must be in the same unit, and neighbouring slices
    may share a chunk in one of them alone.

    Args:
        chunk: The chunk.
        slice: The length of groups' slices.
    """
    if len(chunk.bucket.fields) > 1:
        return Group(1, 0, 0)
    hashed = chunk.bucket.fields
    start = chunk.start // slice * slice
    return Group(chunk.bucket.of, chunk.bucket.number, start) if hashed else Group(1, 0, start)


Closed = tuple[int, int]
"""A partition, of so many, in which a punctuation has closed something: of how many, and which."""


class Tally(NamedTuple):
    """What a group is worth, and costs.

    Attributes:
        pairs: Pairs that were looked at in its chunks.
        results: Results of its join that its rows are part of.
        final: Results of the outermost join that these are part of.
        tuples: Rows that it was given.
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
    """A cold unit.

    Attributes:
        number: Its number, used once.
        group: Its group.
        since: The first batch whose tuples have not asked it; they are owed up to the batch that comes next.
        pay: The next batch pays what batches before this one owe; None if it pays nothing.
        back: Whether it is hot again if that is all there is.
    """

    number: int
    group: Group
    since: int
    pay: int | None = None
    back: bool = False

    def returns(self, batch: int) -> bool:
        """Tell whether a batch pays all that is owed and brings it back, so that its own tuples probe the unit."""
        return self.back and self.pay == batch

    def after(self, batch: int) -> "Unit | None":
        """Return the unit after a batch; None if nothing is owed any more."""
        if self.returns(batch):
            return None
        return replace(self, since=self.since if self.pay is None else self.pay, pay=None, back=False)

    def to_json(self) -> list[Any]:
        """Return it as the manifest writes it."""
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_json(cls, plain: Sequence[Any]) -> "Unit":
        """Return what `to_json` was given."""
        number, group, *rest = plain
        return cls(number, Group(*group), *rest)


class Reach(NamedTuple):
    """How far the rows of a unit reach: the earliest time of one, and the latest at which a tuple may join one."""

    low: int
    deadline: int


class Taken(NamedTuple):
    """What must be known of a batch that owes something.

    Attributes:
        earliest: The earliest event time of its tuples; None if it brought none.
        arrived: For each stream how many tuples were accepted before it.
        rows: How many tuples it brought.
        at: When it was offered, by the driver's clock, in microseconds.
    """

    earliest: int | None
    arrived: tuple[int, ...]
    rows: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is owed after a batch.

    Attributes:
        units: The cold units.
        taken: The batches that owe something.
        made: How many units there have been.
        worth: What each group that is live has been worth so far; only where work may be put off.
        fed: Of a sample of inner joins' results, how many came from a partition there and went to one here, by the
            inner join's path and both partitions.
        closed: The partitions in which a punctuation has closed something, as long as units of them are owed something.
        notes: What else the decisions on it go by.
    """

    units: tuple[Unit, ...] = ()
    taken: Mapping[int, Taken] = field(default_factory=dict)
    made: int = 0
    worth: Mapping[Group, Tally] = field(default_factory=dict)
    fed: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    closed: frozenset[Closed] = frozenset()
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def since(self) -> int | None:
        """The first batch that owes something, or that will; None if there are no cold units."""
        return min((unit.since for unit in self.units), default=None)

    def paying(self) -> list[Unit]:
        """Return the units that the next batch pays."""
        return [unit for unit in self.units if unit.pay is not None and unit.pay > unit.since]

    def after(self, batch: int, taken: Taken) -> "Ledger":
        """Return the ledger after a batch that did as it says; the clock of those before it may have been ahead."""
        left = tuple(unit for found in self.units if (unit := found.after(batch)) is not None)
        known = {number: was._replace(at=min(was.at, taken.at)) for number, was in self.taken.items()}
        return replace(self, units=left, taken={**known, batch: taken})._trimmed()

    def without(self, numbers: Collection[int]) -> "Ledger":
        """Return the ledger without some units, to which nothing is owed."""
        left = tuple(unit for unit in self.units if unit.number not in numbers)
        return replace(self, units=left)._trimmed()

    def held(self, chunks: Iterable[Chunk]) -> "Ledger":
        """Return the ledger without units of which no chunk is live: nothing can be owed to them.

        [!] Nobody would ever pay them, and what arrived since they became cold would be kept for ever.
        """
        live = {chunk.unit for chunk in chunks}
        return self.without([unit.number for unit in self.units if unit.number not in live])

    def _trimmed(self) -> "Ledger":
        """Return the ledger without what is known of batches that owe nothing."""
        since = self.since
        known = {number: was for number, was in self.taken.items() if since is not None and number >= since}
        return replace(self, taken=known)

    def arrived(self) -> tuple[int, ...] | None:
        """Return how many tuples of each stream had arrived before the first that owes something; None if none does."""
        first = None if self.since is None else self.taken.get(self.since)
        return None if first is None else first.arrived

    def valued(self, tallies: Iterable[Mapping[Group, Tally]], live: Collection[Group]) -> "Ledger":
        """Return the ledger with what a batch has shown groups to be worth; of groups that are gone nothing is kept."""
        worth = {group: tally for group, tally in self.worth.items() if group in live}
        for tally in tallies:
            for group, more in tally.items():
                if group in live:
                    worth[group] = worth.get(group, Tally()).plus(more)
        return replace(self, worth=worth)

    def credited(self, final: Mapping[Group, int]) -> "Ledger":
        """Return the ledger with results of the outermost join that came from its groups."""
        worth = {group: tally._replace(final=tally.final + final.get(group, 0)) for group, tally in self.worth.items()}
        return replace(self, worth=worth)

    def fed_by(self, path: str, groups: Mapping[int, Group], crossings: Mapping[tuple[int, int], int]) -> "Ledger":
        """Return the ledger with a sample of where the results of an inner join go.

        Args:
            path: The inner join's path.
            groups: Its groups, by code.
            crossings: How many results came from each group, by its code, and went to each partition here.
        """
        fed = dict(self.fed)
        for (code, here), count in crossings.items():
            if code in groups:
                key = (path, groups[code].partition, here)
                fed[key] = fed.get(key, 0) + count
        return replace(self, fed=fed)

    def owing(self, unit: Unit, reach: Reach | None) -> list[tuple[int, Taken]]:
        """Return the batches whose tuples have not asked a unit and may join one of its rows, the first one first.

        Args:
            unit: The unit.
            reach: How far its rows reach; None if it has none.
        """
        if reach is None:
            return []
        found = ((number, was) for number, was in self.taken.items() if number >= unit.since)
        return sorted((n, was) for n, was in found if was.earliest is not None and was.earliest <= reach.deadline)

    def closing(self, said: Collection[Closed], reaches: Mapping[int, Reach]) -> "Ledger":
        """Return the ledger with partitions in which a punctuation has closed something, if they are owed something."""
        owed = {unit.group[:2] for unit in self.units if self.owing(unit, reaches.get(unit.number))}
        return replace(self, closed=(self.closed | frozenset(said)) & owed)

    def owes(self, reaches: Mapping[int, Reach]) -> bool:
        """Tell whether some tuple that has come has not asked all it should."""
        return any(self.owing(unit, reaches.get(unit.number)) for unit in self.units)

    def settled(self, watermark: int | None, reaches: Mapping[int, Reach]) -> int | None:
        """Return the time before which no result can lie that is still to come; None for minus infinity.

        An owed result is no earlier than its probing tuple, nor than the earliest tuple of the unit that it waits for.

        Args:
            watermark: The time before which no result can lie that owes nothing.
            reaches: How far the rows of cold units reach, by number.
        """
        if watermark is None:
            return None
        marks = [watermark]
        for unit in self.units:
            reach = reaches.get(unit.number)
            times = [was.earliest for _, was in self.owing(unit, reach) if was.earliest is not None]
            if reach is not None and times:
                marks.append(max(min(times), reach.low))
        return min(marks)

    def to_json(self) -> dict[str, Any]:
        """Return it as the manifest writes it."""
        units = [unit.to_json() for unit in self.units]
        worth = [[group, tally] for group, tally in self.worth.items()]
        taken = list(self.taken.items())
        fed = [[*key, count] for key, count in self.fed.items()]
        more = {"worth": worth, "fed": fed, "closed": sorted(self.closed), "notes": self.notes}
        return {"units": units, "taken": taken, "made": self.made, **more}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Ledger":
        """Return what `to_json` was given."""
        taken = {
            number: Taken(earliest, tuple(arrived), *rest) for number, (earliest, arrived, *rest) in plain["taken"]
        }
        worth = {Group(*group): Tally(*tally) for group, tally in plain["worth"]}
        units = tuple(map(Unit.from_json, plain["units"]))
        fed = {(path, there, here): count for path, there, here, count in plain["fed"]}
        closed = frozenset((of, number) for of, number in plain["closed"])
        return cls(units, taken, plain["made"], worth, fed, closed, plain["notes"])
