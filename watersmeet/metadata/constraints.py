"""What a stream promises: keys, orders, clusters, foreign keys and punctuations, as the core knows them.

Each says which rows of a stream can't come any more, and so is a source of *denial*: such a row is turned away when it
comes all the same, and state that only such rows could complete may go. See docs/metadata.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import pyarrow as pa

from watersmeet.arguments import format_seconds
from watersmeet.predicate.model import Column

Effect = Literal["batch", "watermark"]
"""When a punctuation counts: at the end of its batch, or once the watermark has passed its event time."""
Slack = int | float | Decimal


@dataclass(frozen=True, slots=True)
class Key:
    """No two rows have the same values of some columns, by position: a value that was seen can't come again."""

    fields: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Clustering:
    """Rows of one value come together: one whose run is over can't come again.

    Attributes:
        field: The column.
        slack: In how many batches of the stream a value may be missing before its run is over.
    """

    field: int
    slack: int = 0


@dataclass(frozen=True, slots=True)
class SortOrder:
    """Values of a column don't fall, or don't rise: what lies beyond the frontier can't come any more.

    Attributes:
        field: The column.
        falling: Whether values fall.
        slack: How far behind the frontier a value may lie; microseconds for times, days for dates.
    """

    field: int
    falling: bool = False
    slack: Slack = 0


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Each value of a column is that of another stream's column; reports rows whose partner can no longer come."""

    field: int
    parent: Column


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a punctuation says of a column: the rows it speaks of lie between two values, ends included.

    Attributes:
        field: The column.
        low: The column of the punctuation that holds the lower end.
        high: The one that holds the upper end; the same one for a constant.
    """

    field: int
    low: int
    high: int

    @property
    def constant(self) -> bool:
        """Whether it is one value."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class FlaggedPunctuations:
    """Some rows of the stream are punctuations: no row that matches their patterns comes after them.

    Attributes:
        flag: The column that is TRUE for them; NULL means data.
        patterns: One for each column that isn't a wildcard.
        effect: When they count.
    """

    flag: int
    patterns: tuple[Pattern, ...]
    effect: Effect = "batch"


@dataclass(frozen=True, slots=True)
class InheritedPunctuations:
    """The stream is a join, which puts punctuations out: no result of it that matches them comes after them.

    Attributes:
        source: The punctuations of that join: the position of their stream, and theirs among its promises.
        fields: The columns that they speak of.
        ranges: For each of these whether they give a range, both ends included, or else one value.
    """

    source: tuple[int, int]
    fields: tuple[int, ...]
    ranges: tuple[bool, ...]


PunctuationScheme = FlaggedPunctuations | InheritedPunctuations
"""A promise by punctuations."""
Constraint = Key | Clustering | SortOrder | ForeignKey | PunctuationScheme


def read_by(promise: Constraint) -> frozenset[int]:
    """Return the columns of its stream, by position, that a promise needs to see in new rows."""
    match promise:
        case Key(fields) | InheritedPunctuations(_, fields):
            return frozenset(fields)
        case FlaggedPunctuations(flag, patterns):
            return frozenset({flag, *(at for pattern in patterns for at in (pattern.field, pattern.low, pattern.high))})
        case Clustering(field) | SortOrder(field) | ForeignKey(field):
            return frozenset({field})


Name = Callable[[Column], str]


def described(stream: int, promise: Constraint, name: Name, type_of: Callable[[Column], pa.DataType]) -> str:
    """Return what a stream promises, in words that are the same for the same promise only.

    Args:
        stream: The stream's position.
        promise: The promise.
        name: Returns a column as the user writes it.
        type_of: Returns a column's type.
    """
    match promise:
        case Key(fields):
            return f"key ({', '.join(name(Column(stream, field)) for field in fields)})"
        case Clustering(field, slack):
            return f"{name(Column(stream, field))} clustered, slack {slack}"
        case SortOrder(field, falling):
            column = Column(stream, field)
            return f"{name(column)} {'falling' if falling else 'rising'}, slack {_slack(promise, type_of(column))}"
        case ForeignKey(field, parent):
            return f"foreign key ({name(Column(stream, field))}) references {name(parent)}"
        case FlaggedPunctuations(flag, patterns, effect):
            on = " and ".join(_pattern(stream, pattern, name) for pattern in patterns)
            return f"{name(Column(stream, flag))} on {on}, effect by {effect}"
        case InheritedPunctuations(_, fields, ranges):
            named = zip((name(Column(stream, field)) for field in fields), ranges, strict=True)
            return f"those of the join itself on {' and '.join(f'ranges of {n}' if r else n for n, r in named)}"


def _slack(promise: SortOrder, kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return format_seconds(int(promise.slack))
    return f"{promise.slack} days" if pa.types.is_date(kind) else str(promise.slack)


def _pattern(stream: int, pattern: Pattern, name: Name) -> str:
    own, low, high = (name(Column(stream, at)) for at in (pattern.field, pattern.low, pattern.high))
    if not pattern.constant:
        return f"{own} between {low} and {high}"
    return own if pattern.field == pattern.low else f"{own} = {low}"
