"""Times, numbers and sizes as a screen shows them."""

from collections.abc import Sequence
from math import log10

from watersmeet.formatting import format_time
from watersmeet.observe.dashboard.view import Cell, Level, Series

NOTHING = "–"
DAY = 86_400_000_000


def clock(time: int | None, near: int | None = None) -> str:
    """Return a time, to the tenth of a second; without its day if that is the day of another time.

    >>> clock(1_700_000_000_250_000), clock(1_700_000_000_250_000, near=1_700_000_001_000_000), clock(None)
    ('2023-11-14 22:13:20.2', '22:13:20.2', '–')
    """
    if time is None:
        return NOTHING
    day, _, hour = format_time(time, zoned=False).partition("T")
    hour = hour[:10]
    return hour if near is not None and time // DAY == near // DAY else f"{day} {hour}"


def lasting(length: float) -> str:
    """Return microseconds as a column of durations has them.

    >>> lasting(350_000), lasting(12_300_000), lasting(150_000_000), lasting(9_000_000_000), lasting(4e12)
    ('0.35 s', '12.3 s', '2.5 min', '2.5 h', '46.3 d')
    """
    for unit, size in (("d", DAY), ("h", 3_600_000_000), ("min", 60_000_000)):
        if abs(length) >= (2 * size if unit != "min" else 100_000_000):
            return f"{length / size:,.1f} {unit}"
    seconds = length / 1e6
    return f"{seconds:.1f} s" if abs(seconds) >= 10 else f"{seconds:.2f} s"


def milliseconds(length: float) -> str:
    """Return milliseconds, from a second on in seconds.

    >>> milliseconds(0.04), milliseconds(312.4), milliseconds(2345.6)
    ('0.04 ms', '312 ms', '2.35 s')
    """
    if length >= 1000:
        return lasting(1000 * length)
    return f"{length:.0f} ms" if length >= 10 else f"{length:.3g} ms"


def brief(length: float) -> str:
    """Return milliseconds that somebody chose, in seconds and without needless digits.

    >>> brief(2000), brief(250)
    ('2 s', '0.25 s')
    """
    return f"{length / 1000:g} s"


def count(number: float) -> str:
    """Return a whole number, from a million on shortened.

    >>> count(0), count(9_876), count(12_345_678)
    ('0', '9,876', '12.3 M')
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,.0f}"


def rate(number: float | None) -> str:
    """Return a number a second.

    >>> rate(None), rate(0.25), rate(1234.5)
    ('–', '0.25/s', '1,234/s')
    """
    if number is None:
        return NOTHING
    return f"{number:.2g}/s" if 0 < number < 10 else f"{count(number)}/s"


def percent(part: float, whole: float) -> str:
    """Return a part of a whole.

    >>> percent(1, 8), percent(1, 30_000), percent(1, 0)
    ('12.5 %', '0.0033 %', '–')
    """
    if not whole:
        return NOTHING
    return f"{100 * part / whole:.{2 if part < whole / 100 else 3}g} %"


def bars(numbers: Sequence[float]) -> list[float]:
    """Return numbers as shares of the largest."""
    most = max(numbers, default=0)
    return [number / most if most > 0 else 0.0 for number in numbers]


def magnitudes(numbers: Sequence[float]) -> list[float]:
    """Return numbers as shares of the largest, by their digits: pairs differ by thousands.

    >>> magnitudes([9_999, 99, 0])
    [1.0, 0.5, 0.0]
    """
    return bars([log10(1 + max(0.0, number)) for number in numbers])


def plain(text: str, level: Level = "") -> Cell:
    """Return a field of words or of a number."""
    return Cell(text, level)


def counted(number: float, level: Level = "") -> Cell:
    """Return a field with a number; nothing is worth a look if it is 0."""
    return Cell(count(number), level if number else "")


def course(series: Series) -> Cell:
    """Return a field with a course."""
    return Cell("", series=series)
