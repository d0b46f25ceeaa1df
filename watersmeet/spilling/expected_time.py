"""The time that the next batch is expected to take, part by part, judging by the last one.

By rows alone, a tuple would examine all rows of the other streams in its partition. Windows and access paths spare it
most of them; the last batch tells what share is left.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from watersmeet.spilling.decisions import ControllerRecord
from watersmeet.spilling.parts import JoinPartition, Part, hot_parts


@dataclass(frozen=True, slots=True)
class ExpectedTime:
    """The seconds that the next batch is expected to take, payments aside.

    Attributes:
        own: The seconds that it takes whatever is spilled: its fixed cost, and its tuples' probes of each other.
        by_part: The seconds that its probes of each part take, by the part's name; of spilled ones, would take.
    """

    own: float
    by_part: Mapping[Any, float] = field(default_factory=dict)

    def of(self, parts: Iterable[Part]) -> float:
        """Return the seconds that the probes of some parts take."""
        return sum(self.by_part.get(part.name, 0.0) for part in parts)


def pairs_by_rows(parts: Sequence[Part]) -> float:
    """Return how many pairs the last batch had by rows alone: of its tuples with hot rows, and with each other."""
    new = _new_tuples(parts)
    with_hot = sum(new[part.partition] * (part.rows - part.fresh) / 2 for part in hot_parts(parts))
    return with_hot + sum(map(_pairs_among, new.values()))


def expect_time(parts: Sequence[Part], record: ControllerRecord) -> ExpectedTime:
    """Return the time that the next batch is expected to take."""
    new, pair = _new_tuples(parts), record.looked * (record.pair or 0.0)
    coming = {partition: record.growth * rows for partition, rows in new.items()}
    by_part = {part.name: pair * part.pairs(coming.get(part.partition, 0.0)) for part in parts}
    return ExpectedTime(record.took - record.work + pair * sum(map(_pairs_among, coming.values())), by_part)


def _new_tuples(parts: Sequence[Part]) -> Counter[JoinPartition]:
    """Return how many tuples the last batch brought to each partition of each join."""
    new = Counter[JoinPartition]()
    for part in parts:
        new[part.partition] += part.fresh
    return new


def _pairs_among(rows: float) -> float:
    """Return how many pairs these numbers of tuples of two streams form."""
    return rows * rows / 4
