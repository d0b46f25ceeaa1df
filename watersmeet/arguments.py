"""What people write as arguments: numbers, durations and sizes, read into Python's own types and checked."""

import re
from dataclasses import fields
from datetime import timedelta
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from watersmeet.errors import DefinitionError

# -- Python's own types


def to_python(value: Any) -> Any:
    """Return a scalar of NumPy's as Python's own, and a list or an array as a tuple; anything else as it is.

    >>> to_python(np.int64(3)), to_python(np.array([1.5, 2.0])), to_python(np.timedelta64(5, "s")), to_python("x")
    (3, (1.5, 2.0), datetime.timedelta(seconds=5), 'x')
    """
    if isinstance(value, np.timedelta64):
        return value.astype("timedelta64[us]").item()
    if isinstance(value, np.generic):
        return value.item()
    return tuple(map(to_python, value)) if isinstance(value, list | tuple | np.ndarray) else value


def fields_to_python(instance: Any) -> None:
    """Replace the fields of a frozen dataclass by Python's own values; called before they are checked."""
    for field in fields(instance):
        if field.init:
            object.__setattr__(instance, field.name, to_python(getattr(instance, field.name)))


def is_whole(value: object, least: int = 1) -> bool:
    """Tell whether a value is a whole number of at least `least`; a boolean is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: object) -> bool:
    """Tell whether a value is a number, NaN among them; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_choice(what: str, value: object, choices: tuple[str, ...]) -> None:
    """Reject a value that is none of the choices; `what` is how the error calls it.

    Raises:
        DefinitionError: If it is unknown.
    """
    if not isinstance(value, str) or value not in choices:
        raise DefinitionError(f"{what}={value!r} is unknown; use one of {', '.join(choices)}.")


def suggest(name: object, choices: "list[str] | tuple[str, ...]") -> str:
    """Return, as a question after a space, the choice that a name probably stands for; empty if none is near.

    >>> suggest("selectivty", ["given", "selectivity"])
    " Did you mean 'selectivity'?"
    """
    near = nearest_name(name, choices)
    return "" if near is None else f" Did you mean {near!r}?"


def nearest_name(name: object, choices: "list[str] | tuple[str, ...]") -> str | None:
    """Return the choice that a name probably stands for; None if none is near."""
    by_lower = {choice.lower(): choice for choice in choices}
    near = get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else None


# -- durations


DAY = 86_400_000_000
MICROSECONDS = {
    "DAY": DAY, "HOUR": DAY // 24, "MINUTE": DAY // 1440, "SECOND": 1_000_000, "MILLISECOND": 1_000, "MICROSECOND": 1,
    "WEEK": 7 * DAY,
}  # fmt: skip
"""How long the units of durations are."""
_UNIT_NAMES = {
    "MICROSECOND": ("microsecond", "microseconds", "us"),
    "MILLISECOND": ("millisecond", "milliseconds", "ms"),
    "SECOND": ("second", "seconds", "sec", "secs", "s"),
    "MINUTE": ("minute", "minutes", "min", "mins", "m"),
    "HOUR": ("hour", "hours", "h"),
    "DAY": ("day", "days", "d"),
    "WEEK": ("week", "weeks", "w"),
}
_UNITS = {name: MICROSECONDS[unit] for unit, names in _UNIT_NAMES.items() for name in names}
_FORMAT_UNITS = ("day", "hour", "minute", "second", "millisecond", "microsecond")
LONGEST = 10_000_000 * DAY
"""The longest duration: added to any time, it stays a time."""
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def microseconds(duration: str | timedelta, what: str = "duration", least: int = 0) -> int:
    """Return a duration such as `10 seconds`, `1 minute 30 seconds` or `500 ms` in whole microseconds.

    Args:
        duration: A text or a timedelta; never negative.
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
    length = _length(duration)
    if length is None:
        raise DefinitionError(
            f"{what}: {duration!r} is not a duration; write it like '10 seconds', '500 ms' or '1 hour 30 minutes'."
        )
    if length < 0:
        raise DefinitionError(f"{what}: {duration!r} is negative; a duration is zero or longer.")
    if length < least:
        raise DefinitionError(f"{what}: {duration!r} is too short; it must be at least {format_duration(least)}.")
    if length > LONGEST:
        raise DefinitionError(f"{what}: {duration!r} is too long; a duration is at most {format_duration(LONGEST)}.")
    return length


def _length(duration: object) -> int | None:
    duration = to_python(duration)
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    return _parse(duration) if isinstance(duration, str) else None


@lru_cache
def _parse(text: str) -> int | None:
    """Return the microseconds of an interval such as `1 hour 30 minutes` or `-5 s`; None if it can't be read as one."""
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


def format_seconds(length: int) -> str:
    """Return microseconds in seconds, with all their digits: descriptions of queries are compared by them.

    >>> format_seconds(10_000_000), format_seconds(2_500_000), format_seconds(1_234_567_000_001)
    ('10 s', '2.5 s', '1234567.000001 s')
    """
    whole, rest = divmod(length, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + " s"


def format_duration(length: int) -> str:
    """Return microseconds as people write a duration: in the largest unit of which they are a whole number.

    >>> format_duration(90_000_000), format_duration(2_500_000), format_duration(3_600_000_000), format_duration(0)
    ('90 seconds', '2500 milliseconds', '1 hour', '0 seconds')
    """
    if not length:
        return "0 seconds"
    unit = next(unit for unit in _FORMAT_UNITS if not length % _UNITS[unit])
    return _count(str(length // _UNITS[unit]), unit)


def format_roughly(length: int) -> str:
    """Return microseconds in the largest unit of which there is one, with a digit or two.

    >>> format_roughly(7_203_400_000), format_roughly(129_600_000_000), format_roughly(900_000)
    ('2 hours', '1.5 days', '900 milliseconds')
    """
    unit = next((unit for unit in _FORMAT_UNITS if length >= _UNITS[unit]), _FORMAT_UNITS[-1])
    return _count(f"{length / _UNITS[unit]:,.1f}".removesuffix(".0"), unit)


def _count(number: str, unit: str) -> str:
    return f"{number} {unit}" if number == "1" else f"{number} {unit}s"


def round_up(length: int) -> int:
    """Return the next duration, at least as long, of whole minutes, seconds or milliseconds.

    >>> round_up(34_200_000), round_up(3_700_000_000), round_up(1_500)
    (35000000, 3720000000, 2000)
    """
    unit = next((_UNITS[name] for name in ("minute", "second") if length > _UNITS[name]), _UNITS["millisecond"])
    return -(-length // unit) * unit


# -- sizes


_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)


def bytes_of(size: object, what: str = "size") -> int:
    """Return a size in bytes; units are powers of 1024, as in Spark's settings.

    Args:
        size: A text such as `"512 MB"`, `"2g"` or `"1.5 GiB"`; longer than zero.
        what: How an error calls it.

    Raises:
        DefinitionError: If it isn't a size, or is zero.

    >>> bytes_of("512 MB"), bytes_of("2g"), bytes_of("1.5 KiB"), bytes_of("4096")
    (536870912, 2147483648, 1536, 4096)
    >>> bytes_of("plenty", "option 'openBytes'")
    Traceback (most recent call last):
    watersmeet.errors.DefinitionError: option 'openBytes': 'plenty' is not a size of 1 byte or more; write it like '512 MB' or '2 GB'.
    """  # noqa: E501
    parts = _SIZE.fullmatch(size) if isinstance(size, str) else None
    number = int(Fraction(parts[1]) * 1024 ** _POWERS[parts[2].lower()]) if parts else 0
    if not number:
        raise DefinitionError(f"{what}: {size!r} is not a size of 1 byte or more; write it like '512 MB' or '2 GB'.")
    return number
