"""The view: all that a screen shows, worded and laid out; whoever draws it computes nothing.

Times, numbers and sizes are text, as people read them; what is drawn is given as shares from 0 to 1.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["", "good", "watch", "bad", "off"]
"""How something stands: nothing to say, fine, worth a look, wrong, or not running."""
Series = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first thing to know: is it healthy?

    Attributes:
        level: How it stands.
        title: In a word or two.
        says: Why, a sentence each, the most important first.
    """

    level: Level
    title: str
    says: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A number to watch, with its course over the last batches.

    Attributes:
        label: What it is.
        value: What it is now.
        note: What to compare it with.
        series: Its course, oldest first; None where there was none.
        limit: A line that it should stay below.
        level: How it stands.
    """

    label: str
    value: str
    note: str = ""
    series: Series = ()
    limit: float | None = None
    level: Level = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A field of a table.

    Attributes:
        text: What it says.
        level: How that stands.
        share: How long a bar beside it is, from 0 to 1; None for no bar.
        series: A course to draw in place of the text.
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
        rows: The fields, as many in each row as there are headings.
        texts: How many of the first columns are words; the others are numbers, flush right.
        note: A sentence below it.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    texts: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A slice of a stream at a node.

    Attributes:
        start: Where it begins.
        end: Where it ends.
        weight: How many rows it has, of the most that one has.
        says: What and where it is, and when it goes.
        cold: Whether it is put off.
    """

    start: float
    end: float
    weight: float
    says: str
    cold: bool = False


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
        leaving: The slices that go next, and when.
    """

    lanes: tuple[Lane, ...] = ()
    first: str = ""
    last: str = ""
    watermark: float | None = None
    leaving: Table = field(default_factory=Table)


@dataclass(frozen=True, slots=True)
class Step:
    """A step that pairs take, or don't.

    Attributes:
        label: What it is.
        count: How many pairs are left after it.
        share: How long its bar is.
        note: How many of those before it are left, and what it cost.
        nearly: A few pairs that it alone refuses, if they are asked for.
    """

    label: str
    count: str
    share: float
    note: str = ""
    nearly: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hop:
    """A hop: what is proposed there, and what is left of it step by step."""

    title: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """How long a batch took: its steps, as shares of the chart's height."""

    says: str
    plan: float
    job: float
    commit: float
    late: bool = False


@dataclass(frozen=True, slots=True)
class Batches:
    """How long the last batches took.

    Attributes:
        bars: The batches, oldest first.
        trigger: At what height the trigger is; None if there is none.
        top: What the full height is.
        first: The first batch.
        last: The last one.
        due: The trigger in words.
    """

    bars: tuple[Bar, ...] = ()
    trigger: float | None = None
    top: str = ""
    first: str = ""
    last: str = ""
    due: str = ""


@dataclass(frozen=True, slots=True)
class JoinView:
    """One join of a query; a query has several if joins are nested.

    Attributes:
        name: The stream that it is of another join; empty for the outermost.
        where: Its condition.
        watermark: How far it is, and who holds it, as a sentence.
        streams: Rows in, late, kept; how far each stream has come.
        funnel: Where pairs go.
        predicates: What Python predicates cost.
        state: Where state is, and when it goes.
        nodes: What each node does.
    """

    name: str
    where: str
    watermark: str
    streams: Table
    funnel: tuple[Hop, ...]
    predicates: Table
    state: StateMap
    nodes: Table


@dataclass(frozen=True, slots=True)
class Said:
    """A decision or a warning in words, and after which batch it came."""

    batch: str
    says: str


@dataclass(frozen=True, slots=True)
class View:
    """All that a screen shows.

    Attributes:
        title: What the query is called.
        place: Where its checkpoint is.
        facts: How it runs, in a line.
        now: When this was made.
        verdict: Is it healthy?
        figures: The numbers to watch.
        joins: Its joins, the outermost first.
        batches: How long batches took.
        debts: What is put off and owed; empty if nothing may be.
        decisions: What was decided, the last first.
        refused: Samples of rows that were not joined.
    """

    title: str
    place: str
    facts: str
    now: str
    verdict: Verdict
    figures: tuple[Figure, ...] = ()
    joins: tuple[JoinView, ...] = ()
    batches: Batches = field(default_factory=Batches)
    debts: Table = field(default_factory=Table)
    decisions: tuple[Said, ...] = ()
    refused: Table = field(default_factory=Table)

    def plain(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return asdict(self)
