"""Durations as people write them: `10 seconds`, `1 minute 30 seconds`, `500 ms`."""

import re
from datetime import timedelta
from fractions import Fraction
from functools import lru_cache

from watersmeet.arguments.literals import plain
from watersmeet.errors import DefinitionError
from watersmeet.predicate.datetimes import MICROSECONDS

_NAMES = {
    "MICROSECOND": ("microsecond", "microseconds", "us"),
    "MILLISECOND": ("millisecond", "milliseconds", "ms"),
    "SECOND": ("second", "seconds", "sec", "secs", "s"),
    "MINUTE": ("minute", "minutes", "min", "mins", "m"),
    "HOUR": ("hour", "hours", "h"),
    "DAY": ("day", "days", "d"),
    "WEEK": ("week", "weeks", "w"),
}
_UNITS = {name: MICROSECONDS[unit] for unit, names in _NAMES.items() for name in names}
LONGEST = 10_000_000 * _UNITS["days"]
"""The longest duration: added to any time, it stays a time."""
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def microseconds(duration: str | timedelta, what: str = "duration", least: int = 0) -> int:
    """Return a duration in whole microseconds.

    Args:
        duration: A text such as `"10 seconds"` or a timedelta; never negative.
        what: How an error calls it.
        least: How many microseconds it must have.

    Raises:
        DefinitionError: If it isn't a duration, is negative or too short, or longer than any stream lives.

    >>> microseconds("1 minute 30 seconds")
    90000000
    >>> microseconds("1 fortnight", "window of stream 'a'")
    Traceback (most recent call last):
    watersmeet.errors.DefinitionError: window of stream 'a': '1 fortnight' is not a duration; write it like '10 seconds', '500 ms' or '1 hour 30 minutes'.
    """  # noqa: E501
    total = _length(duration)
    if total is None:
        raise DefinitionError(
            f"{what}: {duration!r} is not a duration; write it like '10 seconds', '500 ms' or '1 hour 30 minutes'."
        )
    if total < 0:
        raise DefinitionError(f"{what}: {duration!r} is negative; a duration is zero or longer.")
    if total < least:
        raise DefinitionError(f"{what}: {duration!r} is too short; it must be at least {spelled(least)}.")
    if total > LONGEST:
        raise DefinitionError(f"{what}: {duration!r} is too long; a duration is at most {spelled(LONGEST)}.")
    return total


def _length(duration: object) -> int | None:
    duration = plain(duration)
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    return _parse(duration) if isinstance(duration, str) else None


def seconds(length: int) -> str:
    """Return microseconds in seconds, with all their digits: the description of a query is compared by them.

    >>> seconds(10_000_000), seconds(2_500_000), seconds(1_234_567_000_001)
    ('10 s', '2.5 s', '1234567.000001 s')
    """
    whole, rest = divmod(length, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + " s"


def spelled(length: int) -> str:
    """Return microseconds as people write a duration: in the largest unit of which they are a whole number.

    >>> spelled(90_000_000), spelled(2_500_000), spelled(3_600_000_000), spelled(0)
    ('90 seconds', '2500 milliseconds', '1 hour', '0 seconds')
    """
    if not length:
        return "0 seconds"
    unit = next(u for u in ("day", "hour", "minute", "second", "millisecond", "microsecond") if not length % _UNITS[u])
    count = length // _UNITS[unit]
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def rounded_up(length: int) -> int:
    """Return a duration that is as long at least, of whole minutes, seconds or milliseconds as people write them.

    >>> rounded_up(34_200_000), rounded_up(3_700_000_000), rounded_up(1_500)
    (35000000, 3720000000, 2000)
    """
    unit = next((_UNITS[name] for name in ("minute", "second") if length > _UNITS[name]), _UNITS["millisecond"])
    return -(-length // unit) * unit


def roughly(length: int) -> str:
    """Return microseconds as people speak of them: in the largest unit of which there is one, with a digit or two.

    >>> roughly(7_203_400_000), roughly(129_600_000_000), roughly(900_000)
    ('2 hours', '1.5 days', '900 milliseconds')
    """
    units = ("day", "hour", "minute", "second", "millisecond", "microsecond")
    unit = next((u for u in units if length >= _UNITS[u]), units[-1])
    count = f"{length / _UNITS[unit]:,.1f}".removesuffix(".0")
    return f"{count} {unit}" if count == "1" else f"{count} {unit}s"


@lru_cache
def _parse(text: str) -> int | None:
    text = re.sub(r"^\s*interval\s", "", text, flags=re.IGNORECASE)
    sign, text = (-1, text.lstrip()[1:]) if text.lstrip().startswith("-") else (1, text)
    position, total = 0, Fraction(0)
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[2].lower() not in _UNITS:
            return None
        total += Fraction(part[1]) * _UNITS[part[2].lower()]
        position = part.end()
    return sign * round(total) if position else None
