"""The view: all that a screen shows, worded and laid out, so that terminal, page and notebook only draw it.

Times, numbers and sizes are text, formatted here; lengths of bars and positions are shares from 0 to 1.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import log10
from typing import Any, Literal

from watersmeet.formatting import format_time

Level = Literal["", "good", "watch", "bad", "off"]
"""Severity: nothing to say, fine, worth a look, wrong, or not running."""
Series = tuple[float | None, ...]
NOTHING = "–"
DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a query is healthy.

    Attributes:
        level: The severity.
        title: The verdict in a word or two.
        messages: The reasons, a sentence each, the most important first.
    """

    level: Level
    title: str
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A number to watch, with its trend over the last batches.

    Attributes:
        label: What it is.
        value: What it is now.
        note: What to compare it with.
        series: Its trend, oldest first; None where there was none.
        limit: The value that it should stay below.
        level: The severity.
    """

    label: str
    value: str
    note: str = ""
    series: Series = ()
    limit: float | None = None
    level: Level = ""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A field of a table.

    Attributes:
        text: The text.
        level: The severity.
        share: The length of a bar beside it, from 0 to 1; None for no bar.
        series: A trend to draw in place of the text.
    """

    text: str
    level: Level = ""
    share: float | None = None
    series: Series = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        columns: The headings.
        rows: The cells, as many in each row as there are headings.
        text_columns: How many of the first columns are words; the others are numbers, flush right.
        note: A sentence below it.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[TableCell, ...], ...] = ()
    text_columns: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A slice of a stream at a node.

    Attributes:
        start: Where it begins.
        end: Where it ends.
        weight: Its number of rows as a share of the largest slice's.
        message: What and where it is, and when it expires.
        spilled: Whether it is spilled.
    """

    start: float
    end: float
    weight: float
    message: str
    spilled: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the map: what one node keeps of one stream."""

    stream: str
    node: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class StateMap:
    """State by stream, node and slice, along event time.

    Attributes:
        lanes: Its rows.
        first: The time at its left edge.
        last: The time at its right edge.
        watermark: Where the watermark is, if on the map.
        next_to_leave: The slices that expire next, and when.
    """

    lanes: tuple[Lane, ...] = ()
    first: str = ""
    last: str = ""
    watermark: float | None = None
    next_to_leave: Table = field(default_factory=Table)


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """A step that some pairs pass.

    Attributes:
        label: Its name.
        count: How many pairs remain after it.
        share: The length of its bar.
        note: Which share of the pairs before it remains, and its cost.
        near_misses: A few pairs that it alone refuses, if they are recorded.
    """

    label: str
    count: str
    share: float
    note: str = ""
    near_misses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FunnelHop:
    """A hop: the pairs proposed there, and what remains of them step by step."""

    title: str
    steps: tuple[FunnelStep, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """How long a batch took: its steps, as shares of the chart's height."""

    message: str
    plan: float
    job: float
    commit: float
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class BatchChart:
    """How long the last batches took.

    Attributes:
        bars: The batches, oldest first.
        trigger: The height of the trigger interval; None if there is none.
        top: The full height, as text.
        first: The first batch.
        last: The last one.
        trigger_text: The trigger interval in words.
    """

    bars: tuple[Bar, ...] = ()
    trigger: float | None = None
    top: str = ""
    first: str = ""
    last: str = ""
    trigger_text: str = ""


@dataclass(frozen=True, slots=True)
class JoinView:
    """One join of a query; a query has several if joins are nested.

    Attributes:
        name: The stream that it is of another join; empty for the outermost.
        where: Its condition.
        watermark: Its watermark, and which stream holds it back, as a sentence.
        streams: Rows in, late and stored, and the progress of each stream.
        funnel: The pairs at each hop.
        predicates: The cost of Python predicates.
        state: Where state is, and when it expires.
        nodes: The work of each node.
    """

    name: str
    where: str
    watermark: str
    streams: Table
    funnel: tuple[FunnelHop, ...]
    predicates: Table
    state: StateMap
    nodes: Table


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A decision in words, and the batch before which it was made."""

    batch: str
    message: str


@dataclass(frozen=True, slots=True)
class DashboardView:
    """All that a screen shows.

    Attributes:
        title: The name of the query.
        place: Where its checkpoint is.
        facts: How it runs, in a line.
        now: The time of the view.
        verdict: Whether it is healthy.
        figures: The numbers to watch.
        joins: Its joins, the outermost first.
        batches: How long batches took.
        owed_results: What is spilled and owed; empty without spilling.
        decisions: The last decisions, newest first.
        refused_rows: Samples of rows that were not joined.
    """

    title: str
    place: str
    facts: str
    now: str
    verdict: Verdict
    figures: tuple[Figure, ...] = ()
    joins: tuple[JoinView, ...] = ()
    batches: BatchChart = field(default_factory=BatchChart)
    owed_results: Table = field(default_factory=Table)
    decisions: tuple[LogEntry, ...] = ()
    refused_rows: Table = field(default_factory=Table)

    def plain(self) -> dict[str, Any]:
        """Return it as plain dicts and lists, for JSON."""
        return asdict(self)


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
