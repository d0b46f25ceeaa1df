"""The settings of a session that change the meaning of SQL, and when clocks change in its time zone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.predicate.bounds import FIXED_ZONES
from watersmeet.predicate.model import Dialect
from watersmeet.spark.run.versions import SPARK

SECOND = 1_000_000
MINUTE = 60 * SECOND


def dialect_of(spark: SparkSession) -> Dialect:
    """Return the dialect by the session's settings and its version."""
    ansi = str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
    return Dialect(_zone(spark, str(spark.conf.get("spark.sql.session.timeZone"))), ansi, wide_vectors=SPARK >= (4, 3))


def _zone(spark: SparkSession, name: str) -> str:
    """Return a time zone under a name that is not only Spark's: Spark also takes PST, and +1:00 for GMT+01:00."""
    jvm: Any = spark._jvm
    names = jvm.java.time.ZoneId.getAvailableZoneIds()
    if names.contains(name):
        return name
    zone = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(name)
    if names.contains(zone.getId()):
        return str(zone.getId())
    offset = str(zone.normalized().getId())
    return "UTC" if offset == "Z" else f"GMT{offset}"


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A change of the clocks: its time, and the offsets from UTC before and after it, all in microseconds."""

    at: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ZoneClocks:
    """The clocks of a time zone.

    Attributes:
        changes: All past changes and, where they are regular, those of some years to come.
        fixed: Whether they always show UTC.
    """

    changes: tuple[ClockChange, ...] = ()
    fixed: bool = True

    def drift(self, span: int) -> int:
        """Return the most by which clocks change within a span of local time, both in microseconds."""
        reach = span + _offset_range(self.changes)  # the most that moments so far apart in local time can be apart
        return _in_minutes(max((_offset_range(near) for near in _changes_within(self.changes, reach)), default=0))

    def stretch(self, unit: int) -> tuple[int, int]:
        """Return by how much clock changes can make a unit longer, and shorter, in microseconds.

        They do if a unit begins before a change and ends after it.

        Args:
            unit: A day, or a part of one.
        """
        inside = [change for change in self.changes if (change.at + change.after) % unit]
        near = [*_changes_within(inside, unit + _offset_range(inside))]
        back = max((sum(max(0, c.before - c.after) for c in changes) for changes in near), default=0)
        forward = max((sum(max(0, c.after - c.before) for c in changes) for changes in near), default=0)
        return _in_minutes(back), _in_minutes(forward)


def _changes_within(changes: Sequence[ClockChange], span: int) -> Iterator[list[ClockChange]]:
    """Yield each change with those that follow it within a span."""
    for first in changes:
        yield [change for change in changes if 0 <= change.at - first.at <= span]


def _offset_range(changes: Sequence[ClockChange]) -> int:
    """Return the difference of the largest and the smallest offset before and after some changes."""
    offsets = [offset for change in changes for offset in (change.before, change.after)]
    return max(offsets) - min(offsets) if offsets else 0


def _in_minutes(micros: int) -> int:
    """Return a time rounded up to whole minutes: clocks were once changed by odd seconds."""
    return -(-micros // MINUTE) * MINUTE


@lru_cache
def clocks_of(spark: SparkSession, zone: str) -> ZoneClocks:
    """Return the clocks of a time zone, from the JVM; cached. Regular changes are listed for four years more."""
    if zone in FIXED_ZONES:
        return ZoneClocks()
    rules: Any = spark._jvm.java.time.ZoneId.of(zone).getRules()  # type: ignore[union-attr]
    transitions, regular = list(rules.getTransitions()), list(rules.getTransitionRules())
    last = int(transitions[-1].getDateTimeBefore().getYear()) if transitions else 0
    transitions += [rule.createTransition(year) for rule in regular for year in range(last + 1, last + 5)]
    changes = [
        ClockChange(
            int(transition.toEpochSecond()) * SECOND,
            int(transition.getOffsetBefore().getTotalSeconds()) * SECOND,
            int(transition.getOffsetAfter().getTotalSeconds()) * SECOND,
        )
        for transition in transitions
    ]
    return ZoneClocks(tuple(sorted(changes, key=lambda change: change.at)), fixed=False)
