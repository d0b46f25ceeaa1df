"""How clocks change in a time zone: by how much two moments may be further apart than clocks show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.predicate.bounds import FIXED_ZONES

SECOND = 1_000_000
MINUTE = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the clocks: when it was, and the offsets from UTC before it and after it; all in microseconds."""

    at: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a time zone.

    Attributes:
        changes: All changes there were and, where they are regular, those of some years to come.
        fixed: Whether they always show UTC.
    """

    changes: tuple[Change, ...] = ()
    fixed: bool = True

    def drift(self, span: int) -> int:
        """Return the most by which clocks change within a span, as they show it, both in microseconds."""
        reach = span + _range(self.changes)  # as far apart two moments may be if clocks show them so far apart
        return _in_minutes(max((_range(near) for near in _near(self.changes, reach)), default=0))

    def stretch(self, unit: int) -> tuple[int, int]:
        """Return by how much clocks that are set back make a unit longer, and forward shorter, in microseconds.

        They do where a unit begins before they change and goes on after it.

        Args:
            unit: A day, or a part of one.
        """
        inside = [change for change in self.changes if (change.at + change.after) % unit]
        near = [*_near(inside, unit + _range(inside))]
        back = max((sum(max(0, c.before - c.after) for c in changes) for changes in near), default=0)
        forward = max((sum(max(0, c.after - c.before) for c in changes) for changes in near), default=0)
        return _in_minutes(back), _in_minutes(forward)


def _near(changes: Sequence[Change], span: int) -> Iterator[list[Change]]:
    """Yield each change with those that follow it within a span."""
    for first in changes:
        yield [change for change in changes if 0 <= change.at - first.at <= span]


def _range(changes: Sequence[Change]) -> int:
    """Return how far apart the offsets before and after some changes lie."""
    offsets = [offset for change in changes for offset in (change.before, change.after)]
    return max(offsets) - min(offsets) if offsets else 0


def _in_minutes(micros: int) -> int:
    """Return a time rounded up to whole minutes: clocks were once changed by odd seconds."""
    return -(-micros // MINUTE) * MINUTE


@lru_cache
def clocks_of(spark: SparkSession, zone: str) -> Clocks:
    """Return the clocks of a time zone as Spark knows it."""
    if zone in FIXED_ZONES:
        return Clocks()
    rules: Any = spark._jvm.java.time.ZoneId.of(zone).getRules()  # type: ignore[union-attr]
    known, regular = list(rules.getTransitions()), list(rules.getTransitionRules())
    last = int(known[-1].getDateTimeBefore().getYear()) if known else 0
    known += [rule.createTransition(year) for rule in regular for year in range(last + 1, last + 5)]
    changes = [
        Change(
            int(change.toEpochSecond()) * SECOND,
            int(change.getOffsetBefore().getTotalSeconds()) * SECOND,
            int(change.getOffsetAfter().getTotalSeconds()) * SECOND,
        )
        for change in known
    ]
    return Clocks(tuple(sorted(changes, key=lambda change: change.at)), fixed=False)
