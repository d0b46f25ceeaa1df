"""How far apart conditions let event times be: read off Spark's own tree, in which every cast is spelled out.

A value is followed as a sum of event times and something between two ends. Where `date_trunc('minute', a.ts)` equals
`date_trunc('minute', b.ts)`, both are their event time less something below a minute, so that the two are less than a
minute apart. What is not known here limits nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, gcd, lcm
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.arguments import DAY, MICROSECONDS
from watersmeet.predicate.datetimes import MONTHS
from watersmeet.predicate.model import Dialect, Gap
from watersmeet.query.query import StreamSpec
from watersmeet.spark.sql.catalyst import items, kind_of
from watersmeet.spark.sql.clocks import Clocks, clocks_of

Reaches = Mapping[tuple[int, int], int]
"""By how many microseconds one stream's time may be later than another's, by (later, earlier)."""
LARGEST = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
EXACT_DOUBLE = 2**53
UNIX = {"UnixTimestamp": 10**6, "ToUnixTimestamp": 10**6, "UnixSeconds": 10**6, "UnixMillis": 1000, "UnixMicros": 1}
TOWARDS_ZERO = ("UnixTimestamp", "ToUnixTimestamp")
"""Those that take a moment before the epoch for a later second."""
FROM_UNIX = {"SecondsToTimestamp": 10**6, "MillisToTimestamp": 1000, "MicrosToTimestamp": 1}
UNITS = {"MON": "MONTH", "MM": "MONTH", "YYYY": "YEAR", "YY": "YEAR", "DD": "DAY"}
"""Other names that `date_trunc` has for units."""
LONGEST_MONTH, SHORTEST_MONTH = 31 * DAY, 28 * DAY


@dataclass(frozen=True, slots=True)
class Sum:
    """A value in units of `scale` microseconds: event times, each so many times, and something from `low` to `high`.

    Attributes:
        times: How often each stream's event time is added.
        low: The least that is added beside them, in microseconds.
        high: The most.
        scale: How many microseconds a unit of the value is; 0 for a constant, which has the unit of what it meets.
        grain: All values are whole multiples of so many microseconds; 0 if nothing is known.
        most: No value is larger than this, or less than its negative, in its own unit.
        local: Whether event times are taken as clocks show them.
    """

    times: Mapping[int, int]
    low: Fraction
    high: Fraction
    scale: Fraction
    grain: Fraction
    most: Fraction
    local: bool = False

    def within(self, low: int | Fraction, high: int | Fraction, **changes: Any) -> "Sum":
        """Return the value with something added that lies between two ends."""
        return replace(self, low=self.low + low, high=self.high + high, **changes)

    def in_unit(self, scale: Fraction) -> "Sum":
        """Return a constant in a unit."""
        return replace(self, low=self.low * scale, high=self.high * scale, scale=scale, grain=abs(self.low * scale))

    def negated(self) -> "Sum":
        """Return the value with its sign changed."""
        times = {stream: -factor for stream, factor in self.times.items()}
        return replace(self, times=times, low=-self.high, high=-self.low)

    def scaled(self, factor: Fraction) -> "Sum | None":
        """Return the value multiplied by a constant."""
        if not factor:
            return None
        made = self if factor > 0 else self.negated()
        return replace(made, scale=made.scale / abs(factor), most=made.most * abs(factor))


def constant(value: Fraction) -> Sum:
    """Return a number."""
    return Sum({}, value, value, Fraction(0), Fraction(0), abs(value))


def added(one: Sum, two: Sum) -> Sum | None:
    """Return the sum of two values; None if they don't go together."""
    scale = one.scale or two.scale
    one, two = (part if part.scale else part.in_unit(scale) for part in (one, two)) if scale else (one, two)
    if one.scale != two.scale or (one.times and two.times and one.local != two.local):
        return None
    times = {at: one.times.get(at, 0) + two.times.get(at, 0) for at in {*one.times, *two.times}}
    return Sum(
        {at: factor for at, factor in times.items() if factor},
        one.low + two.low,
        one.high + two.high,
        one.scale,
        _common(one.grain, two.grain),
        one.most + two.most,
        one.local or two.local,
    )


def _common(one: Fraction, two: Fraction) -> Fraction:
    """Return the largest number of which both are multiples; every number divides 0."""
    bottom = lcm(one.denominator, two.denominator)
    return Fraction(gcd(int(one * bottom), int(two * bottom)), bottom)


class Gaps:
    """Reads conditions of one join.

    Args:
        spark: The session.
        streams: The join's streams.
        dialect: The session's settings.
    """

    def __init__(self, spark: SparkSession, streams: Sequence[StreamSpec], dialect: Dialect) -> None:
        self._spark, self._streams, self._dialect = spark, streams, dialect

    def of(self, condition: Any) -> tuple[Gap, ...]:
        """Return how far apart event times are where a condition holds.

        Args:
            condition: A node of Spark's tree, resolved, over the streams as struct columns.
        """
        try:
            found = self._reaches(condition, holds=True)
        except Py4JError:  # another version of Spark, in which a node has other parts
            return ()
        return tuple(Gap(later, earlier, micros) for (later, earlier), micros in sorted(found.items()))

    @property
    def _clocks(self) -> Clocks:
        return clocks_of(self._spark, self._dialect.time_zone)

    # -- conditions

    def _reaches(self, node: Any, holds: bool) -> Reaches:
        """Return how far apart event times are where a condition is TRUE, or where it is FALSE."""
        kind, parts = kind_of(node), items(node.children())
        if kind == "Not":
            return self._reaches(parts[0], not holds)
        if kind == "Between" and holds:
            value, low, high = items(node.parameters())
            return _both(self._at_most(low, value, strict=False), self._at_most(value, high, strict=False))
        if kind in ("And", "Or"):
            one, two = (self._reaches(part, holds) for part in parts)
            return _both(one, two) if (kind == "And") == holds else _either(one, two)
        if holds and (kind == "EqualTo" or (kind == "EqualNullSafe" and {*map(kind_of, parts)} == {"GetStructField"})):
            return self._equal(*parts)
        if kind in _LESS:
            less, more = parts if _LESS[kind][0] == holds else parts[::-1]
            return self._at_most(less, more, strict=_LESS[kind][1] == holds)
        return {}

    def _equal(self, one: Any, two: Any) -> Reaches:
        if kind_of(one) == kind_of(two) == "CreateNamedStruct":
            pairs = zip(*(items(struct.valExprs()) for struct in (one, two)), strict=False)
            found: Reaches = {}
            for pair in pairs:
                found = _both(found, self._equal(*pair))
            return found
        values = [self._sum(side) for side in (one, two)]
        if kind_of(one) == kind_of(two) == "TruncTimestamp" and _format(one) == _format(two):
            values = [self._begun(side) for side in (one, two)]
        return _both(self._ordered(*values, strict=False), self._ordered(*values[::-1], strict=False))

    def _begun(self, node: Any) -> Sum | None:
        """Return the start of a unit that is compared with one alike: clocks set forward move both or neither."""
        value, inner = self._sum(node), self._sum(items(node.children())[1])
        return None if value is None or inner is None else replace(value, high=inner.high)

    def _at_most(self, less: Any, more: Any, *, strict: bool) -> Reaches:
        """Return what follows if one value is at most another, or less than it."""
        limit = self._sum(more)
        if kind_of(less) != "Abs":
            return self._ordered(self._sum(less), limit, strict=strict)
        inner = self._sum(items(less.children())[0])
        other = None if inner is None else inner.negated()
        return _both(self._ordered(inner, limit, strict=strict), self._ordered(other, limit, strict=strict))

    def _ordered(self, less: Sum | None, more: Sum | None, *, strict: bool) -> Reaches:
        """Return how far apart two event times are where one value is at most another, or less than it."""
        difference = None if less is None or more is None else added(less, more.negated())
        if difference is None or sorted(difference.times.values()) not in ([-1, 1], [-2, 2]):
            return {}
        factor = max(difference.times.values())
        later, earlier = sorted(difference.times, key=lambda at: -difference.times[at])
        most = floor((-difference.low - (difference.grain if strict else 0)) / factor)
        if difference.local and not self._clocks.fixed:
            most += self._clocks.drift(abs(most))
        return {(later, earlier): most}

    # -- values

    def _sum(self, node: Any) -> Sum | None:
        """Return a value as a sum of event times; None if it is none."""
        kind = kind_of(node)
        if node.foldable():
            return self._constant(node)
        if kind == "GetStructField":
            return self._column(node)
        if kind == "ParseToDate":
            return self._sum(node.replacement())
        made = _VALUES.get(kind)
        return None if made is None else made(self, node, items(node.children()))

    def _column(self, node: Any) -> Sum | None:
        """Return the event time of a stream."""
        struct = items(node.children())[0]
        if kind_of(struct) != "AttributeReference":
            return None
        for at, stream in enumerate(self._streams):
            if stream.name == str(struct.name()) and stream.time == int(node.ordinal()) and not stream.table:
                one = Fraction(1)
                return Sum({at: 1}, Fraction(0), Fraction(0), one, one, Fraction(2**63))
        return None

    def _constant(self, node: Any) -> Sum | None:
        type_ = str(node.dataType().simpleString())
        try:
            value = node.eval(None)
        except (PySparkException, Py4JError):
            return None
        if type_ in LARGEST and value is not None:
            return constant(Fraction(int(value)))
        if type_ in ("double", "float") or type_.startswith("decimal"):
            text = str(value)
            return constant(Fraction(text)) if text.replace(".", "", 1).lstrip("-").isdigit() else None
        if type_.startswith("interval") and value is not None and not {"year", "month"} & {*type_.split()}:
            return constant(Fraction(int(value))).in_unit(Fraction(1)) if type_ != "interval" else None
        return None

    def _added(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        one, two = (self._sum(part) for part in parts)
        if one is None or two is None:
            return None
        return self._fitting(node, added(one, two.negated() if kind_of(node) == "Subtract" else two))

    def _multiplied(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        one, two = (self._sum(part) for part in parts)
        if one is None or two is None or bool(one.scale) == bool(two.scale):
            return None
        value, factor = (one, two) if one.scale else (two, one)
        return self._fitting(node, value.scaled(factor.low))

    def _fitting(self, node: Any, made: Sum | None) -> Sum | None:
        """Return a value that can't have wrapped round; without ANSI mode, what is too large does."""
        largest = LARGEST.get(str(node.dataType().simpleString()))
        if made is None or (largest is None and not _is_span(node)):
            return None
        return made if self._dialect.ansi or largest is None or made.most < largest else None

    def _floored(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        """Return the whole part of a value; of a quotient of doubles with room for how it is rounded."""
        inner = parts[0]
        if kind_of(inner) != "Divide":
            value = self._sum(inner)
            return None if value is None or not value.scale else _whole(value, value.scale)
        value, factor = (self._sum(_uncast(part)) for part in items(inner.children()))
        if value is None or not value.scale or factor is None or factor.scale or factor.low <= 0:
            return None
        whole = factor.low.denominator == 1 and not value.grain % value.scale
        exact = whole and max(value.most, factor.low) <= EXACT_DOUBLE
        near = 0 if exact else -(-value.most * value.scale * 4 // EXACT_DOUBLE // 1000) * 1000
        return _whole(value, value.scale * factor.low).within(-near, near)

    def _divided(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        """Return an integral quotient, which is cut off towards zero: upwards, where it is negative."""
        value, factor = (self._sum(part) for part in parts)
        if value is None or not value.scale or factor is None or factor.scale or factor.low <= 0:
            return None
        return _cut_off(value, value.scale * factor.low)

    def _rest(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        """Return a remainder: whatever it is of, it is less than what it was divided by."""
        value, factor = (self._sum(part) for part in parts[:2])
        if value is None or not value.scale or factor is None or factor.scale or factor.low <= 0:
            return None
        unit = value.scale * factor.low
        lost = _lost(value, unit)
        low = Fraction(0) if kind_of(node) == "Pmod" else -lost
        return Sum({}, low, lost, value.scale, _common(value.grain, unit), factor.low)

    def _unix(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        value, unit = self._time(parts[0]), Fraction(UNIX[kind_of(node)])
        if value is None:
            return None
        return _cut_off(value, unit) if kind_of(node) in TOWARDS_ZERO else _whole(value, unit)

    def _from_unix(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        value, unit = self._sum(parts[0]), FROM_UNIX[kind_of(node)]
        return None if value is None or not value.scale else value.scaled(Fraction(unit))

    def _time(self, node: Any) -> Sum | None:
        """Return a timestamp in microseconds, by UTC."""
        value = self._sum(node) if str(node.dataType().simpleString()) == "timestamp" else None
        return value if value is not None and value.scale == 1 and not value.local else None

    def _cast(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        before, after = (str(part.dataType().simpleString()) for part in (parts[0], node))
        value = self._sum(parts[0])
        if value is None or before == after or (before in LARGEST and LARGEST.get(after, 0) >= LARGEST[before]):
            return value
        if before.startswith("interval") and after.startswith("interval") and _is_span(node):
            return value if after.endswith("second") else None
        if before == "timestamp" and after == "bigint" and value.scale == 1:
            return _whole(value, Fraction(10**6))
        if before in ("timestamp", "timestamp_ntz") and after == "date" and value.scale == 1 and not value.local:
            return _whole(self._shown(value, before), Fraction(DAY))
        zoned = {before, after} <= {"timestamp", "timestamp_ntz"} or (before == "date" and after == "timestamp")
        if (before, after) == ("date", "timestamp_ntz") or (zoned and self._clocks.fixed):
            return value.scaled(value.scale)
        return None

    def _moved(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        """Return a timestamp moved by an interval; whole days in it are days of the calendar."""
        if not parts[1].foldable():
            return None
        try:
            amount = parts[1].eval(None)
            if str(parts[1].dataType().simpleString()) != "interval":
                return self._later(parts[0], 0, int(amount))
            dates, clock = amount.extractAsPeriod(), amount.extractAsDuration()
            days, micros = int(dates.getDays()), int(clock.toNanos()) // 1000
        except (PySparkException, Py4JError, TypeError):
            return None
        return self._later(parts[0], int(dates.toTotalMonths()), days * DAY + micros, bool(days))

    def _moved_by_months(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        months = self._number(parts[1])
        return None if months is None else self._later(parts[0], months, 0)

    def _moved_by_units(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        """Return `timestampadd(unit, number, timestamp)`."""
        unit, number = str(node.unit()).upper(), self._number(parts[0])
        if number is None:
            return None
        if unit in MONTHS:
            return self._later(parts[1], number * MONTHS[unit], 0)
        unit = "DAY" if unit == "DAYOFYEAR" else unit
        return self._later(parts[1], 0, number * MICROSECONDS[unit]) if unit in MICROSECONDS else None

    def _number(self, node: Any) -> int | None:
        """Return a constant that is a whole number, or counts months."""
        try:
            value = node.eval(None) if node.foldable() else None
        except (PySparkException, Py4JError):
            return None
        return value if isinstance(value, int) else None

    def _later(self, node: Any, months: int, micros: int, days: bool = False) -> Sum | None:
        """Return a timestamp so much later, by the calendar where it is days or months."""
        value = self._sum(node)
        if value is None or value.scale != 1 or value.local:
            return None
        low, high = sorted((months * SHORTEST_MONTH, months * LONGEST_MONTH))
        span = max(abs(low), abs(high)) + abs(micros)
        by_calendar = (days or span >= DAY) and str(node.dataType().simpleString()) == "timestamp"
        drift = self._clocks.drift(span) if by_calendar else 0
        made = value.within(low + micros - drift, high + micros + drift)
        return replace(made, grain=_common(value.grain, Fraction(1 if months or drift else abs(micros))))

    def _difference(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        """Return the difference of two timestamps, as clocks show them, or of two dates."""
        made = self._apart(*parts)
        if made is None or not made.scale or not (_is_span(node) or kind_of(node) == "DateDiff"):
            return None
        return made.scaled(made.scale) if kind_of(node) == "SubtractDates" else made

    def _apart(self, later: Any, earlier: Any) -> Sum | None:
        """Return the difference of two times of one type."""
        ends = [(self._sum(part), str(part.dataType().simpleString())) for part in (later, earlier)]
        one, two = (None if value is None else self._shown(value, type_) for value, type_ in ends)
        return None if one is None or two is None else added(one, two.negated())

    def _shown(self, value: Sum, type_: str) -> Sum:
        """Return a time as clocks show it; what was added to it before may have taken it past a change of theirs."""
        if type_ != "timestamp" or self._clocks.fixed or not value.times:
            return value
        moved = floor(max(abs(value.low), abs(value.high)))
        drift = self._clocks.drift(moved) if moved else 0
        return value.within(-drift, drift, local=True, grain=Fraction(1))  # offsets are of any seconds

    def _difference_in_units(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        """Return `timestampdiff(unit, start, end)`, which is cut off towards zero."""
        unit, made = MICROSECONDS.get(str(node.unit()).upper()), self._apart(parts[1], parts[0])
        if made is None or made.scale != 1 or unit is None:
            return None
        return _cut_off(made, Fraction(unit))

    def _truncated(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        """Return the start of the minute, the day or the month of a timestamp, as clocks show it."""
        value, name = self._time(parts[1]), _format(node)
        unit = MONTHS[name] * LONGEST_MONTH if name in MONTHS else MICROSECONDS.get(name)
        if value is None or unit is None:
            return None
        return self._started(value, unit, zoned=unit > MICROSECONDS["SECOND"])

    def _bucket(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        """Return the start of the bucket that a timestamp is in."""
        size, value = self._constant(parts[0]) if parts[0].foldable() else None, self._sum(parts[1])
        if size is None or value is None or size.scale != 1 or value.scale != 1 or value.local or size.low <= 0:
            return None
        unit = int(size.low)
        zoned = unit >= DAY and str(node.dataType().simpleString()) == "timestamp"
        return self._started(value, unit, zoned=zoned)

    def _started(self, value: Sum, unit: int, *, zoned: bool) -> Sum:
        """Return the start of the unit that a time is in, with room for clocks that change within it."""
        drift = (0, 0) if not zoned else self._clocks.stretch(unit) if unit <= DAY else (self._clocks.drift(unit),) * 2
        return value.within(1 - unit - drift[0], drift[1], grain=Fraction(1))

    def _same(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        return self._sum(parts[0])

    def _negated(self, node: Any, parts: Sequence[Any]) -> Sum | None:
        value = self._sum(parts[0])
        return None if value is None else self._fitting(node, value.negated())


_LESS = {
    "LessThan": (True, True),
    "LessThanOrEqual": (True, False),
    "GreaterThan": (False, True),
    "GreaterThanOrEqual": (False, False),
}
"""Of a comparison whether its left side is the lesser one, and whether they differ."""
_VALUES: dict[str, Callable[[Gaps, Any, Sequence[Any]], Sum | None]] = {
    **dict.fromkeys(("Add", "Subtract"), Gaps._added),
    "Multiply": Gaps._multiplied,
    "UnaryMinus": Gaps._negated,
    "Floor": Gaps._floored,
    "IntegralDivide": Gaps._divided,
    **dict.fromkeys(("Remainder", "Pmod"), Gaps._rest),
    **dict.fromkeys(UNIX, Gaps._unix),
    **dict.fromkeys(FROM_UNIX, Gaps._from_unix),
    "Cast": Gaps._cast,
    **dict.fromkeys(("TimestampAddInterval", "TimeAdd"), Gaps._moved),
    "TimestampAddYMInterval": Gaps._moved_by_months,
    "TimestampAdd": Gaps._moved_by_units,
    "DatetimeSub": Gaps._same,
    **dict.fromkeys(("SubtractTimestamps", "SubtractDates", "DateDiff"), Gaps._difference),
    "TimestampDiff": Gaps._difference_in_units,
    "TruncTimestamp": Gaps._truncated,
    "TimeBucket": Gaps._bucket,
}
"""The functions that are known here, as Spark calls them."""


def _whole(value: Sum, unit: Fraction) -> Sum:
    """Return a value rounded down to whole units, and counted in them."""
    return value.within(-_lost(value, unit), 0, scale=unit, grain=unit, most=value.most * value.scale / unit + 1)


def _cut_off(value: Sum, unit: Fraction) -> Sum:
    """Return a value cut off to whole units towards zero: upwards, where it is negative."""
    return _whole(value, unit).within(0, unit)


def _lost(value: Sum, unit: Fraction) -> Fraction:
    """Return how much is lost at the most where a value is cut off to whole units."""
    return unit - value.grain if value.grain and not unit % value.grain else unit


def _format(node: Any) -> str:
    """Return the unit of `date_trunc`; nothing if it is not a constant."""
    unit = items(node.children())[0]
    name = str(unit.eval(None)).upper() if unit.foldable() else ""
    return UNITS.get(name, name)


def _uncast(node: Any) -> Any:
    """Return what a number was before it became a double."""
    is_double = kind_of(node) == "Cast" and str(node.dataType().simpleString()) == "double"
    return items(node.children())[0] if is_double else node


def _is_span(node: Any) -> bool:
    """Tell whether a value is an interval of days and less."""
    type_ = str(node.dataType().simpleString())
    return type_.startswith("interval ") and not {"year", "month"} & {*type_.split()}


def _both(one: Reaches, two: Reaches) -> Reaches:
    return {pair: min(found[pair] for found in (one, two) if pair in found) for pair in {*one, *two}}


def _either(one: Reaches, two: Reaches) -> Reaches:
    return {pair: max(one[pair], two[pair]) for pair in {*one} & {*two}}
