"""What the next batch will take, part by part: as many tuples come as with the last one, and look at as much.

By rows alone a tuple looks at all rows of the other streams in its partition. Windows and access paths spare it most of
them, and how many is told by the last batch.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from watersmeet.spilling.decisions import Record
from watersmeet.spilling.parts import Part, Place, hot


@dataclass(frozen=True, slots=True)
class Expected:
    """The seconds that the next batch will take, payments aside.

    Attributes:
        own: Those that it takes whatever is put off: what a batch takes in any case, and its tuples among each other.
        by: Those that go into each part that is probed, by name; of cold ones those that would.
    """

    own: float
    by: Mapping[Any, float] = field(default_factory=dict)

    def of(self, some: Iterable[Part]) -> float:
        """Return the seconds that go into some parts."""
        return sum(self.by.get(part.name, 0.0) for part in some)


def by_rows(found: Sequence[Part]) -> float:
    """Return how many pairs the last batch had, by rows alone: its tuples looked at what was hot, and at each other."""
    came = _came(found)
    before = sum(came[part.place] * (part.rows - part.fresh) / 2 for part in hot(found))
    return before + sum(map(_among, came.values()))


def expected(found: Sequence[Part], record: Record) -> Expected:
    """Return what the next batch will take."""
    came, second = _came(found), record.looked * (record.pair or 0.0)
    more = {place: record.growth * rows for place, rows in came.items()}
    by = {part.name: second * part.pairs(more.get(part.place, 0.0)) for part in found}
    return Expected(record.took - record.work + second * sum(map(_among, more.values())), by)


def _came(found: Sequence[Part]) -> Counter[Place]:
    """Return how many tuples of the last batch each partition of each join was given."""
    came = Counter[Place]()
    for part in found:
        came[part.place] += part.fresh
    return came


def _among(rows: float) -> float:
    """Return how many pairs there are among so many tuples of two streams."""
    return rows * rows / 4
