"""How far apart conditions let event times be: read from Spark's analysed tree, in which every cast is explicit.

A value is followed as a sum of event times and something between two ends. If `date_trunc('minute', a.ts)` equals
`date_trunc('minute', b.ts)`, both are their event time less something below a minute, so that the two are less than a
minute apart. Expressions that are not known here limit nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
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
from watersmeet.spark.sql.dialect import ZoneClocks, clocks_of

Reaches = Mapping[tuple[int, int], int]
"""The most by which one stream's time may be later than another's in microseconds, by (later, earlier)."""
LARGEST = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
EXACT_DOUBLE = 2**53
UNIX = {"UnixTimestamp": 10**6, "ToUnixTimestamp": 10**6, "UnixSeconds": 10**6, "UnixMillis": 1000, "UnixMicros": 1}
TOWARDS_ZERO = ("UnixTimestamp", "ToUnixTimestamp")
"""Those that round up to a second before the epoch."""
FROM_UNIX = {"SecondsToTimestamp": 10**6, "MillisToTimestamp": 1000, "MicrosToTimestamp": 1}
UNITS = {"MON": "MONTH", "MM": "MONTH", "YYYY": "YEAR", "YY": "YEAR", "DD": "DAY"}
"""Other names of `date_trunc` for units."""
LONGEST_MONTH, SHORTEST_MONTH = 31 * DAY, 28 * DAY


@dataclass(frozen=True, slots=True)
class TimeSum:
    """A value in units of `scale` microseconds: multiples of event times, plus something from `low` to `high`.

    Attributes:
        times: The factor of each stream's event time.
        low: The least that is added to them, in microseconds.
        high: The most.
        scale: How many microseconds a unit of the value is; 0 for a constant, which takes the unit of other operands.
        grain: All values are whole multiples of this many microseconds; 0 if nothing is known.
        most: An upper bound on the value's magnitude, in its own unit.
        local: Whether event times are in local time.
    """

    times: Mapping[int, int]
    low: Fraction
    high: Fraction
    scale: Fraction
    grain: Fraction
    most: Fraction
    local: bool = False

    def plus(self, low: int | Fraction, high: int | Fraction, **changes: Any) -> "TimeSum":
        """Return the value plus something between two ends."""
        return replace(self, low=self.low + low, high=self.high + high, **changes)

    def in_unit(self, scale: Fraction) -> "TimeSum":
        """Return a constant in a unit."""
        return replace(self, low=self.low * scale, high=self.high * scale, scale=scale, grain=abs(self.low * scale))

    def negate(self) -> "TimeSum":
        """Return the value with its sign changed."""
        times = {stream: -factor for stream, factor in self.times.items()}
        return replace(self, times=times, low=-self.high, high=-self.low)

    def multiply(self, factor: Fraction) -> "TimeSum | None":
        """Return the value multiplied by a constant; None for 0."""
        if not factor:
            return None
        value = self if factor > 0 else self.negate()
        return replace(value, scale=value.scale / abs(factor), most=value.most * abs(factor))


def constant(value: Fraction) -> TimeSum:
    """Return a number."""
    return TimeSum({}, value, value, Fraction(0), Fraction(0), abs(value))


def add(one: TimeSum, two: TimeSum) -> TimeSum | None:
    """Return the sum of two values; None if their units differ, or only one is in local time."""
    scale = one.scale or two.scale
    one, two = (part if part.scale else part.in_unit(scale) for part in (one, two)) if scale else (one, two)
    if one.scale != two.scale or (one.times and two.times and one.local != two.local):
        return None
    times = {at: one.times.get(at, 0) + two.times.get(at, 0) for at in {*one.times, *two.times}}
    return TimeSum(
        {at: factor for at, factor in times.items() if factor},
        one.low + two.low,
        one.high + two.high,
        one.scale,
        _common_grain(one.grain, two.grain),
        one.most + two.most,
        one.local or two.local,
    )


def _common_grain(one: Fraction, two: Fraction) -> Fraction:
    """Return the largest number of which both are multiples; every number divides 0."""
    denominator = lcm(one.denominator, two.denominator)
    return Fraction(gcd(int(one * denominator), int(two * denominator)), denominator)


class GapReader:
    """Reads gaps between event times from the conditions of one join.

    Args:
        spark: The session.
        streams: The join's streams.
        dialect: The session's settings.
    """

    def __init__(self, spark: SparkSession, streams: Sequence[StreamSpec], dialect: Dialect) -> None:
        self._spark, self._streams, self._dialect = spark, streams, dialect

    def read(self, condition: Any) -> tuple[Gap, ...]:
        """Return how far apart event times are where a condition holds; nothing for pairs that it doesn't bound.

        Args:
            condition: A node of Spark's analysed tree, over the streams as struct columns.
        """
        try:
            reaches = self._reaches(condition, holds=True)
        except Py4JError:  # a version of Spark in which a node has other parts
            return ()
        return tuple(Gap(later, earlier, micros) for (later, earlier), micros in sorted(reaches.items()))

    @property
    def _clocks(self) -> ZoneClocks:
        return clocks_of(self._spark, self._dialect.time_zone)

    # -- conditions

    def _reaches(self, node: Any, holds: bool) -> Reaches:
        """Return how far apart event times are where a condition is TRUE or, unless `holds`, FALSE; may be empty."""
        kind, parts = kind_of(node), items(node.children())
        if kind == "Not":
            return self._reaches(parts[0], not holds)
        if kind == "Between" and holds:
            value, low, high = items(node.parameters())
            return _if_both(self._at_most(low, value, strict=False), self._at_most(value, high, strict=False))
        if kind in ("And", "Or"):
            one, two = (self._reaches(part, holds) for part in parts)
            return _if_both(one, two) if (kind == "And") == holds else _if_either(one, two)
        if holds and (kind == "EqualTo" or (kind == "EqualNullSafe" and {*map(kind_of, parts)} == {"GetStructField"})):
            return self._equal_reaches(*parts)
        if kind in _LESS:
            less, more = parts if _LESS[kind][0] == holds else parts[::-1]
            return self._at_most(less, more, strict=_LESS[kind][1] == holds)
        return {}

    def _equal_reaches(self, one: Any, two: Any) -> Reaches:
        """Return how far apart event times are where two values are equal; structs are equal field by field."""
        if kind_of(one) == kind_of(two) == "CreateNamedStruct":
            pairs = zip(*(items(struct.valExprs()) for struct in (one, two)), strict=False)
            return reduce(_if_both, (self._equal_reaches(*pair) for pair in pairs), {})
        values = [self._sum(side) for side in (one, two)]
        if kind_of(one) == kind_of(two) == "TruncTimestamp" and _unit_name(one) == _unit_name(two):
            values = [self._unit_start(side) for side in (one, two)]
        return _if_both(self._order_reaches(*values, strict=False), self._order_reaches(*values[::-1], strict=False))

    def _unit_start(self, node: Any) -> TimeSum | None:
        """Return a start of a unit that is compared with another: clocks set forward move both or neither."""
        value, inner = self._sum(node), self._sum(items(node.children())[1])
        return None if value is None or inner is None else replace(value, high=inner.high)

    def _at_most(self, less: Any, more: Any, *, strict: bool) -> Reaches:
        """Return what follows if one value, or its magnitude, is at most another or, if `strict`, less than it."""
        limit = self._sum(more)
        if kind_of(less) != "Abs":
            return self._order_reaches(self._sum(less), limit, strict=strict)
        inner = self._sum(items(less.children())[0])
        other = None if inner is None else inner.negate()
        return _if_both(
            self._order_reaches(inner, limit, strict=strict), self._order_reaches(other, limit, strict=strict)
        )

    def _order_reaches(self, less: TimeSum | None, more: TimeSum | None, *, strict: bool) -> Reaches:
        """Return how far apart two event times are where one value is at most another or, if `strict`, less than it.

        Empty unless both values can be followed and their difference is that of two event times.
        """
        difference = None if less is None or more is None else add(less, more.negate())
        if difference is None or sorted(difference.times.values()) not in ([-1, 1], [-2, 2]):
            return {}
        factor = max(difference.times.values())
        later, earlier = sorted(difference.times, key=lambda at: -difference.times[at])
        most = floor((-difference.low - (difference.grain if strict else 0)) / factor)
        if difference.local and not self._clocks.fixed:
            most += self._clocks.drift(abs(most))
        return {(later, earlier): most}

    # -- values

    def _sum(self, node: Any) -> TimeSum | None:
        """Return a value as a sum of event times; None if it can't be followed."""
        kind = kind_of(node)
        if node.foldable():
            return self._constant(node)
        if kind == "GetStructField":
            return self._column(node)
        if kind == "ParseToDate":
            return self._sum(node.replacement())
        read = _READERS.get(kind)
        return None if read is None else read(self, node, items(node.children()))

    def _column(self, node: Any) -> TimeSum | None:
        """Return the event time of a stream; None for any other column, and for the times of tables."""
        struct = items(node.children())[0]
        if kind_of(struct) != "AttributeReference":
            return None
        for at, stream in enumerate(self._streams):
            if stream.name == str(struct.name()) and stream.time == int(node.ordinal()) and not stream.table:
                one = Fraction(1)
                return TimeSum({at: 1}, Fraction(0), Fraction(0), one, one, Fraction(2**63))
        return None

    def _constant(self, node: Any) -> TimeSum | None:
        """Return a constant as Spark evaluates it; None if it raises, or is no finite number or span without months."""
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

    def _add(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        one, two = (self._sum(part) for part in parts)
        if one is None or two is None:
            return None
        return self._unless_overflow(node, add(one, two.negate() if kind_of(node) == "Subtract" else two))

    def _multiply(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return a time or span times a constant; None for any other product."""
        one, two = (self._sum(part) for part in parts)
        if one is None or two is None or bool(one.scale) == bool(two.scale):
            return None
        value, factor = (one, two) if one.scale else (two, one)
        return self._unless_overflow(node, value.multiply(factor.low))

    def _unless_overflow(self, node: Any, value: TimeSum | None) -> TimeSum | None:
        """Return an integer or span unless it may have overflowed, as large values do without ANSI mode; else None."""
        largest = LARGEST.get(str(node.dataType().simpleString()))
        if value is None or (largest is None and not _is_span(node)):
            return None
        return value if self._dialect.ansi or largest is None or value.most < largest else None

    def _floor(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return a value rounded down; that of a quotient of doubles has a margin for rounding errors.

        None unless the value can be followed and what it is divided by, if anything, is a positive constant.
        """
        inner = parts[0]
        if kind_of(inner) != "Divide":
            value = self._sum(inner)
            return None if value is None or not value.scale else _round_down(value, value.scale)
        value, factor = (self._sum(_without_cast(part)) for part in items(inner.children()))
        if value is None or not value.scale or factor is None or factor.scale or factor.low <= 0:
            return None
        whole = factor.low.denominator == 1 and not value.grain % value.scale
        exact = whole and max(value.most, factor.low) <= EXACT_DOUBLE
        margin = 0 if exact else -(-value.most * value.scale * 4 // EXACT_DOUBLE // 1000) * 1000
        return _round_down(value, value.scale * factor.low).plus(-margin, margin)

    def _divide(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return an integral quotient, rounded towards zero; None unless the divisor is a positive constant."""
        value, factor = (self._sum(part) for part in parts)
        if value is None or not value.scale or factor is None or factor.scale or factor.low <= 0:
            return None
        return _cut_off(value, value.scale * factor.low)

    def _remainder(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return a remainder, which is less than the divisor; None unless that is a positive constant."""
        value, factor = (self._sum(part) for part in parts[:2])
        if value is None or not value.scale or factor is None or factor.scale or factor.low <= 0:
            return None
        unit = value.scale * factor.low
        high = _rounding_error(value, unit)
        low = Fraction(0) if kind_of(node) == "Pmod" else -high
        return TimeSum({}, low, high, value.scale, _common_grain(value.grain, unit), factor.low)

    def _unix(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        value, unit = self._time(parts[0]), Fraction(UNIX[kind_of(node)])
        if value is None:
            return None
        return _cut_off(value, unit) if kind_of(node) in TOWARDS_ZERO else _round_down(value, unit)

    def _from_unix(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        value, unit = self._sum(parts[0]), FROM_UNIX[kind_of(node)]
        return None if value is None or not value.scale else value.multiply(Fraction(unit))

    def _time(self, node: Any) -> TimeSum | None:
        """Return a timestamp in microseconds, in UTC."""
        value = self._sum(node) if str(node.dataType().simpleString()) == "timestamp" else None
        return value if value is not None and value.scale == 1 and not value.local else None

    def _cast(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return a sum after a cast, in the new type's unit, rounded where the cast rounds; None for other casts."""
        before, after = (str(part.dataType().simpleString()) for part in (parts[0], node))
        value = self._sum(parts[0])
        if value is None or before == after or (before in LARGEST and LARGEST.get(after, 0) >= LARGEST[before]):
            return value
        if before.startswith("interval") and after.startswith("interval") and _is_span(node):
            return value if after.endswith("second") else None
        if before == "timestamp" and after == "bigint" and value.scale == 1:
            return _round_down(value, Fraction(10**6))
        if before in ("timestamp", "timestamp_ntz") and after == "date" and value.scale == 1 and not value.local:
            return _round_down(self._in_local_time(value, before), Fraction(DAY))
        zoned = {before, after} <= {"timestamp", "timestamp_ntz"} or (before == "date" and after == "timestamp")
        if (before, after) == ("date", "timestamp_ntz") or (zoned and self._clocks.fixed):
            return value.multiply(value.scale)
        return None

    def _shift(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return a timestamp plus a constant interval, whose days are days of the calendar; None for any other sum."""
        if not parts[1].foldable():
            return None
        try:
            amount = parts[1].eval(None)
            if str(parts[1].dataType().simpleString()) != "interval":
                return self._shift_time(parts[0], 0, int(amount))
            dates, clock = amount.extractAsPeriod(), amount.extractAsDuration()
            days, micros = int(dates.getDays()), int(clock.toNanos()) // 1000
        except (PySparkException, Py4JError, TypeError):
            return None
        return self._shift_time(parts[0], int(dates.toTotalMonths()), days * DAY + micros, bool(days))

    def _shift_months(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        months = self._number(parts[1])
        return None if months is None else self._shift_time(parts[0], months, 0)

    def _shift_units(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return `timestampadd(unit, number, timestamp)`; None unless the number is constant and the unit known."""
        unit, number = str(node.unit()).upper(), self._number(parts[0])
        if number is None:
            return None
        if unit in MONTHS:
            return self._shift_time(parts[1], number * MONTHS[unit], 0)
        unit = "DAY" if unit == "DAYOFYEAR" else unit
        return self._shift_time(parts[1], 0, number * MICROSECONDS[unit]) if unit in MICROSECONDS else None

    def _number(self, node: Any) -> int | None:
        """Return a constant whole number, or number of months; None for anything else."""
        try:
            value = node.eval(None) if node.foldable() else None
        except (PySparkException, Py4JError):
            return None
        return value if isinstance(value, int) else None

    def _shift_time(self, node: Any, months: int, micros: int, days: bool = False) -> TimeSum | None:
        """Return a timestamp moved by months and microseconds, either of which may be negative.

        None if it can't be followed, or has become a local time.

        Args:
            node: The timestamp.
            months: How many months, of any length that months have.
            micros: How many microseconds.
            days: Whether days of the calendar are among them, in which clocks may change.
        """
        value = self._sum(node)
        if value is None or value.scale != 1 or value.local:
            return None
        low, high = sorted((months * SHORTEST_MONTH, months * LONGEST_MONTH))
        span = max(abs(low), abs(high)) + abs(micros)
        by_calendar = (days or span >= DAY) and str(node.dataType().simpleString()) == "timestamp"
        drift = self._clocks.drift(span) if by_calendar else 0
        grain = _common_grain(value.grain, Fraction(1 if months or drift else abs(micros)))
        return value.plus(low + micros - drift, high + micros + drift, grain=grain)

    def _difference(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return the difference of two timestamps, in local time, or of two dates; None if it is in months."""
        span = self._subtract(*parts)
        if span is None or not span.scale or not (_is_span(node) or kind_of(node) == "DateDiff"):
            return None
        return span.multiply(span.scale) if kind_of(node) == "SubtractDates" else span

    def _subtract(self, later: Any, earlier: Any) -> TimeSum | None:
        """Return the difference of two times of one type."""
        ends = [(self._sum(part), str(part.dataType().simpleString())) for part in (later, earlier)]
        one, two = (None if value is None else self._in_local_time(value, type_) for value, type_ in ends)
        return None if one is None or two is None else add(one, two.negate())

    def _in_local_time(self, value: TimeSum, type_: str) -> TimeSum:
        """Return a time in local time; what was added to it before may have moved it past a change of the clocks.

        Only timestamps with a time zone change, and only where clocks do.

        Args:
            value: The time.
            type_: Its type in Spark.
        """
        if type_ != "timestamp" or self._clocks.fixed or not value.times:
            return value
        shift = floor(max(abs(value.low), abs(value.high)))
        drift = self._clocks.drift(shift) if shift else 0
        return value.plus(-drift, drift, local=True, grain=Fraction(1))  # offsets are of any seconds

    def _difference_in_units(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return `timestampdiff(unit, start, end)`, rounded towards zero; None if it can't be followed."""
        unit, span = MICROSECONDS.get(str(node.unit()).upper()), self._subtract(parts[1], parts[0])
        if span is None or span.scale != 1 or unit is None:
            return None
        return _cut_off(span, Fraction(unit))

    def _truncate(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return the start of the minute, the day or the month of a timestamp, in local time; None if unknown."""
        value, name = self._time(parts[1]), _unit_name(node)
        unit = MONTHS[name] * LONGEST_MONTH if name in MONTHS else MICROSECONDS.get(name)
        if value is None or unit is None:
            return None
        return self._start_of(value, unit, zoned=unit > MICROSECONDS["SECOND"])

    def _bucket(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        """Return the start of a timestamp's bucket; None unless the size is a positive constant without months."""
        size, value = self._constant(parts[0]) if parts[0].foldable() else None, self._sum(parts[1])
        if size is None or value is None or size.scale != 1 or value.scale != 1 or value.local or size.low <= 0:
            return None
        unit = int(size.low)
        zoned = unit >= DAY and str(node.dataType().simpleString()) == "timestamp"
        return self._start_of(value, unit, zoned=zoned)

    def _start_of(self, value: TimeSum, unit: int, *, zoned: bool) -> TimeSum:
        """Return the start of the unit, of so many microseconds, that a time is in.

        If units begin by local clocks (`zoned`), there is a margin for clocks that change within one.
        """
        drift = (0, 0) if not zoned else self._clocks.stretch(unit) if unit <= DAY else (self._clocks.drift(unit),) * 2
        return value.plus(1 - unit - drift[0], drift[1], grain=Fraction(1))

    def _sum_of_first(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        return self._sum(parts[0])

    def _negate(self, node: Any, parts: Sequence[Any]) -> TimeSum | None:
        value = self._sum(parts[0])
        return None if value is None else self._unless_overflow(node, value.negate())


_LESS = {
    "LessThan": (True, True),
    "LessThanOrEqual": (True, False),
    "GreaterThan": (False, True),
    "GreaterThanOrEqual": (False, False),
}
"""For each comparison whether its left side is the lesser one, and whether it is strict."""
_READERS: dict[str, Callable[[GapReader, Any, Sequence[Any]], TimeSum | None]] = {
    **dict.fromkeys(("Add", "Subtract"), GapReader._add),
    "Multiply": GapReader._multiply,
    "UnaryMinus": GapReader._negate,
    "Floor": GapReader._floor,
    "IntegralDivide": GapReader._divide,
    **dict.fromkeys(("Remainder", "Pmod"), GapReader._remainder),
    **dict.fromkeys(UNIX, GapReader._unix),
    **dict.fromkeys(FROM_UNIX, GapReader._from_unix),
    "Cast": GapReader._cast,
    **dict.fromkeys(("TimestampAddInterval", "TimeAdd"), GapReader._shift),
    "TimestampAddYMInterval": GapReader._shift_months,
    "TimestampAdd": GapReader._shift_units,
    "DatetimeSub": GapReader._sum_of_first,
    **dict.fromkeys(("SubtractTimestamps", "SubtractDates", "DateDiff"), GapReader._difference),
    "TimestampDiff": GapReader._difference_in_units,
    "TruncTimestamp": GapReader._truncate,
    "TimeBucket": GapReader._bucket,
}
"""The functions that can be followed, by the classes of Spark's nodes."""


def _round_down(value: TimeSum, unit: Fraction) -> TimeSum:
    """Return a value rounded down to whole units, in that unit."""
    return value.plus(
        -_rounding_error(value, unit), 0, scale=unit, grain=unit, most=value.most * value.scale / unit + 1
    )


def _cut_off(value: TimeSum, unit: Fraction) -> TimeSum:
    """Return a value rounded towards zero to whole units: upwards, where it is negative."""
    return _round_down(value, unit).plus(0, unit)


def _rounding_error(value: TimeSum, unit: Fraction) -> Fraction:
    """Return the most by which rounding to whole units changes a value."""
    return unit - value.grain if value.grain and not unit % value.grain else unit


def _unit_name(node: Any) -> str:
    """Return the unit of `date_trunc`; empty if it is not a constant."""
    unit = items(node.children())[0]
    name = str(unit.eval(None)).upper() if unit.foldable() else ""
    return UNITS.get(name, name)


def _without_cast(node: Any) -> Any:
    """Return a number without a cast to double."""
    is_double = kind_of(node) == "Cast" and str(node.dataType().simpleString()) == "double"
    return items(node.children())[0] if is_double else node


def _is_span(node: Any) -> bool:
    """Tell whether a value is an interval of days and less."""
    type_ = str(node.dataType().simpleString())
    return type_.startswith("interval ") and not {"year", "month"} & {*type_.split()}


def _if_both(one: Reaches, two: Reaches) -> Reaches:
    return {pair: min(reaches[pair] for reaches in (one, two) if pair in reaches) for pair in {*one, *two}}


def _if_either(one: Reaches, two: Reaches) -> Reaches:
    return {pair: max(one[pair], two[pair]) for pair in {*one} & {*two}}
