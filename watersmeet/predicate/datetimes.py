"""Dates, timestamps and intervals: their literals, and adding and subtracting them."""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from watersmeet.arguments import DAY, MICROSECONDS
from watersmeet.predicate.expr import Expr, Refusal, strict_expr
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.types import DATE, DAY_TIME, INTEGRAL, TIMESTAMP, TIMESTAMP_NTZ, YEAR_MONTH

EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)

_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?")
_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6})\d*)?)?)?(Z|UTC|[+-]\d{2}:\d{2})?"
)
FIXED_OFFSET = re.compile(r"GMT([+-])(\d{2}):(\d{2})(?::(\d{2}))?")
"""A session's time zone that is nothing but an offset."""
MONTHS = {"YEAR": 12, "MONTH": 1, "QUARTER": 3}


def read_date(text: str) -> Expr:
    """A literal date from its text, as Spark reads it; raises Refusal if it isn't one."""
    match = _DATE.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        value = date(*(int(part or 1) for part in match.groups()))
    except ValueError:
        raise Refusal(f"{text!r} is not a date; write it as 2026-01-31.") from None
    return Expr(f"DATE '{value.isoformat()}'", DATE, literal=value)


def read_local(text: str) -> Expr:
    """A timestamp without a zone, written as text; raises Refusal if it isn't one, or names a zone."""
    value, offset = _read_time(text)
    if offset:
        raise Refusal(f"{text!r} has a time zone, which a timestamp_ntz does not have.")
    return Expr(f"make_timestamp(CAST({_micros(value)} AS BIGINT))", TIMESTAMP_NTZ, literal=value)


def read_instant(text: str, dialect: Dialect) -> Expr:
    """A timestamp written as text, in the session's time zone unless it names an offset; refuses other texts."""
    value, offset = _read_time(text)
    micros = _micros(value) - _utc_offset(value, offset, dialect) // MICROSECOND
    return Expr(f"make_timestamptz(CAST({micros} AS BIGINT))", TIMESTAMP, literal=value)


def _read_time(text: str) -> tuple[datetime, str | None]:
    """Return the clock time that a text says, and the offset, None if it names none; raises Refusal for other texts."""
    match = _TIME.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second, fraction, offset = match.groups()
        clock = (int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "0").ljust(6, "0")))
        return datetime(int(year), int(month or 1), int(day or 1), *clock), offset
    except ValueError:
        raise Refusal(f"{text!r} is not a timestamp; write it as 2026-01-31 23:59:59.") from None


def _micros(value: datetime) -> int:
    return (value - EPOCH) // MICROSECOND


def _utc_offset(value: datetime, text: str | None, dialect: Dialect) -> timedelta:
    """How far a time is ahead of UTC: by the offset of its text or, without one, in the session's time zone.

    Raises:
        Refusal: If that time zone isn't known here.
    """
    if text in {"Z", "UTC"}:
        return timedelta(0)
    if text:
        sign, hours, minutes = text[0], int(text[1:3]), int(text[4:])
        return timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1)
    zone = _zone(dialect)
    if zone is None:
        raise Refusal(f"The time zone {dialect.time_zone} is not known here; write the offset, as in +00:00.")
    return value.replace(tzinfo=zone).utcoffset() or timedelta(0)


def _zone(dialect: Dialect) -> tzinfo | None:
    """Return the session's time zone; None if Python doesn't know it."""
    offset = FIXED_OFFSET.fullmatch(dialect.time_zone)
    if offset is not None:
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3]), seconds=int(offset[4] or 0))
        return timezone(ahead if offset[1] == "+" else -ahead)
    try:
        return ZoneInfo(dialect.time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        return None


def to_local_time(now: int, dialect: Dialect) -> int:
    """Return an instant as the local time in the session's time zone, UTC if that isn't known here.

    Both count microseconds since 1970: the instant in UTC, the local time as a timestamp_ntz.

    >>> to_local_time(0, Dialect("Asia/Tokyo")) // 3_600_000_000
    9
    """
    clock = datetime.fromtimestamp(now / 1e6, _zone(dialect) or UTC)
    return now + (clock.utcoffset() or timedelta(0)) // MICROSECOND


def interval(amount: str, unit: str) -> Expr:
    """An interval literal of one unit; days and below count as microseconds, months and years as months.

    Raises:
        Refusal: If the amount isn't a number (whole, except of seconds), or the unit isn't known.
    """
    unit = unit.upper().removesuffix("S")
    if unit in MONTHS and re.fullmatch(r"[+-]?\d+", amount.strip()):
        months = int(amount) * MONTHS[unit]
        return Expr(f"CAST({months} AS INTEGER)", YEAR_MONTH, literal=months)
    pattern = r"[+-]?\d+(\.\d{1,6})?" if unit == "SECOND" else r"[+-]?\d+"
    if unit not in MICROSECONDS or not re.fullmatch(pattern, amount.strip()):
        raise Refusal("An interval is a number and a unit from microsecond to year, such as INTERVAL 5 SECONDS.")
    whole, _, fraction = amount.strip().partition(".")
    micros = int(whole) * MICROSECONDS[unit]
    micros += int(fraction.ljust(6, "0")) * (-1 if whole.startswith("-") else 1) if fraction else 0
    return Expr(f"CAST({micros} AS BIGINT)", DAY_TIME, literal=micros)


def shift(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr | None:
    """`left + right` or `left - right` where a date, a timestamp or an interval takes part; None for all else.

    Raises:
        Refusal: If a date or timestamp is moved by an interval that isn't a literal, or a date by less than days.
    """
    kinds = (left.type.kind, right.type.kind)
    if sign == "+" and kinds[1] in {"date", "timestamp", "timestamp_ntz"} and kinds[0] not in {"date", "timestamp"}:
        return shift(sign, right, left, dialect)
    if sign == "-" and kinds[0] == kinds[1] and kinds[0] in DIFFERENCES:
        return strict_expr(DIFFERENCES[kinds[0]].format(left.sql, right.sql), DAY_TIME, (left, right))
    if kinds[0] == "date" and kinds[1] in INTEGRAL and kinds[1] != "long":
        return shift_days(sign, left, right)
    if kinds[1] in {"day_time", "year_month"} and kinds[0] in {"date", "timestamp", "timestamp_ntz"}:
        return _shift_by_interval(sign, left, right)
    if kinds == ("day_time", "day_time"):
        return _sum(sign, left, right)
    return None


def shift_days(sign: str, day: Expr, count: Expr) -> Expr:
    """A date moved by days; not trusted far from our time, since DuckDB's dates end before Spark's."""
    far = f"(ws_far({day.sql}) OR {count.sql} NOT BETWEEN -1000000 AND 1000000)"
    sql = f"({day.sql} {sign} CAST({count.sql} AS INTEGER))"
    return strict_expr(f"(CASE WHEN NOT {far} THEN {sql} END)", DATE, (day, count), unsure=far, fails=True)


def _sum(sign: str, left: Expr, right: Expr) -> Expr:
    if left.is_literal and right.is_literal and None not in (left.literal, right.literal):
        micros = left.literal + (right.literal if sign == "+" else -right.literal)
        return Expr(f"CAST({micros} AS BIGINT)", DAY_TIME, literal=micros)
    return strict_expr(f"({left.sql} {sign} {right.sql})", DAY_TIME, (left, right), raises=True)


DIFFERENCES: dict[str, str] = {
    "date": f"(CAST({{0}} - {{1}} AS BIGINT) * {DAY})",
    "timestamp": "(epoch_us(CAST({0} AS TIMESTAMP)) - epoch_us(CAST({1} AS TIMESTAMP)))",
    "timestamp_ntz": "(epoch_us({0}) - epoch_us({1}))",
}


def _shift_by_interval(sign: str, left: Expr, right: Expr) -> Expr:
    """Add or subtract an interval as Spark does: months and whole days by the calendar, the rest by the clock.

    Raises:
        Refusal: If the interval isn't a literal, or would move a date by less than days.
    """
    if not right.is_literal or right.literal is None:
        raise Refusal("Only a literal interval, such as INTERVAL 5 SECONDS, can be added to a timestamp.")
    amount = right.literal if sign == "+" else -right.literal
    if right.type == YEAR_MONTH:
        return strict_expr(f"CAST({left.sql} + to_months({amount}) AS {left.type.duckdb})", left.type, (left,))
    days, rest = int(amount / DAY), amount - int(amount / DAY) * DAY
    if left.type == DATE:
        if rest:
            raise Refusal("A date moves by whole days; cast it to a timestamp to add hours or less.")
        return strict_expr(f"({left.sql} + CAST({days} AS INTEGER))", DATE, (left,))
    steps = [f"to_days({days})"] * (days != 0) + [f"to_microseconds({rest})"] * (rest != 0)
    return strict_expr(f"({' + '.join([left.sql, *steps])})", left.type, (left,))
