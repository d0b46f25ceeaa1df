"""Times, numbers and sizes as a screen shows them."""

from collections.abc import Sequence
from math import log10

from watersmeet.formatting import format_time
from watersmeet.observe.dashboard.dashboard_view import Level, Series, TableCell

NOTHING = "–"
DAY = 86_400_000_000


def short_time(time: int | None, near: int | None = None) -> str:
    """Return a time to the tenth of a second, without its day if another time has the same.

    >>> time = 1_700_000_000_250_000
    >>> short_time(time), short_time(time, near=time + 750_000), short_time(None)
    ('2023-11-14 22:13:20.2', '22:13:20.2', '–')
    """
    if time is None:
        return NOTHING
    day, _, hour = format_time(time, zoned=False).partition("T")
    hour = hour[:10]
    return hour if near is not None and time // DAY == near // DAY else f"{day} {hour}"


def short_duration(length: float) -> str:
    """Return a duration, in microseconds, in a unit that suits it.

    >>> [short_duration(length) for length in (350_000, 12_300_000, 150_000_000, 9_000_000_000, 4e12)]
    ['0.35 s', '12.3 s', '2.5 min', '2.5 h', '46.3 d']
    """
    for unit, size in (("d", DAY), ("h", 3_600_000_000), ("min", 60_000_000)):
        if abs(length) >= (2 * size if unit != "min" else 100_000_000):
            return f"{length / size:,.1f} {unit}"
    seconds = length / 1e6
    return f"{seconds:.1f} s" if abs(seconds) >= 10 else f"{seconds:.2f} s"


def format_milliseconds(length: float) -> str:
    """Return a duration in milliseconds, from a second on in seconds.

    >>> format_milliseconds(0.04), format_milliseconds(312.4), format_milliseconds(2345.6)
    ('0.04 ms', '312 ms', '2.35 s')
    """
    if length >= 1000:
        return short_duration(1000 * length)
    return f"{length:.0f} ms" if length >= 10 else f"{length:.3g} ms"


def short_seconds(length: float) -> str:
    """Return a configured duration, in milliseconds, as seconds without needless digits.

    >>> short_seconds(2000), short_seconds(250)
    ('2 s', '0.25 s')
    """
    return f"{length / 1000:g} s"


def format_count(number: float) -> str:
    """Return a whole number, abbreviated from a million on.

    >>> format_count(0), format_count(9_876), format_count(12_345_678)
    ('0', '9,876', '12.3 M')
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,.0f}"


def format_rate(number: float | None) -> str:
    """Return a number per second.

    >>> format_rate(None), format_rate(0.25), format_rate(1234.5)
    ('–', '0.25/s', '1,234/s')
    """
    if number is None:
        return NOTHING
    return f"{number:.2g}/s" if 0 < number < 10 else f"{format_count(number)}/s"


def format_percent(part: float, whole: float) -> str:
    """Return a part of a whole as a percentage.

    >>> format_percent(1, 8), format_percent(1, 30_000), format_percent(1, 0)
    ('12.5 %', '0.0033 %', '–')
    """
    if not whole:
        return NOTHING
    return f"{100 * part / whole:.{2 if part < whole / 100 else 3}g} %"


def shares(numbers: Sequence[float]) -> list[float]:
    """Return numbers as shares of the largest."""
    most = max(numbers, default=0)
    return [number / most if most > 0 else 0.0 for number in numbers]


def log_shares(numbers: Sequence[float]) -> list[float]:
    """Return numbers as shares of the largest on a logarithmic scale: pairs differ by orders of magnitude.

    >>> log_shares([9_999, 99, 0])
    [1.0, 0.5, 0.0]
    """
    return shares([log10(1 + max(0.0, number)) for number in numbers])


def text_cell(text: str, level: Level = "") -> TableCell:
    """Return a cell with a text."""
    return TableCell(text, level)


def count_cell(number: float, level: Level = "") -> TableCell:
    """Return a cell with a number; a level applies only if it is not 0."""
    return TableCell(format_count(number), level if number else "")


def trend_cell(series: Series) -> TableCell:
    """Return a cell with a trend."""
    return TableCell("", series=series)
