"""The view: all that a screen shows, worded and laid out, so that terminal, page and notebook only draw it.

Times, numbers and sizes are text; lengths of bars and positions are shares from 0 to 1.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["", "good", "watch", "bad", "off"]
"""Severity: nothing to say, fine, worth a look, wrong, or not running."""
Series = tuple[float | None, ...]


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
