"""Constraints of a stream: keys, orders, clusterings, foreign keys and punctuations, by positions of columns.

Each rules out rows that might otherwise still come: it *denies* them. A denied row that comes nevertheless is turned
away at intake, and state that only denied rows could complete may be purged. See docs/metadata.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import pyarrow as pa

from watersmeet.arguments import format_seconds
from watersmeet.predicate.model import Column

Effect = Literal["batch", "watermark"]
"""When a punctuation takes effect: at the end of its batch, or once the watermark has passed its event time."""
Slack = int | float | Decimal
ConstraintId = tuple[int, int]
"""A constraint of a join: the position of its stream, and its own among the constraints of that stream."""


@dataclass(frozen=True, slots=True)
class Key:
    """No row of a later batch repeats the values that a row has had in these columns."""

    fields: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Clustering:
    """Rows with the same value arrive together: a value whose run is over does not come back.

    Attributes:
        field: The column.
        slack: For how many batches with rows of the stream a value may be missing before its run is over.
    """

    field: int
    slack: int = 0


@dataclass(frozen=True, slots=True)
class SortOrder:
    """Values of a column never decrease, or never increase: what lies beyond the frontier does not come any more.

    Attributes:
        field: The column.
        falling: Whether values never increase, instead of never decreasing.
        slack: How far beyond the frontier a value may lie; in microseconds for times, in days for dates.
    """

    field: int
    falling: bool = False
    slack: Slack = 0


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Every value of a column occurs in a column of another stream; rows whose parent can no longer come are orphans.

    It denies nothing.
    """

    field: int
    parent: Column


@dataclass(frozen=True, slots=True)
class Pattern:
    """The range, both ends included, of values that a punctuation matches in one column.

    Attributes:
        field: The column.
        low: The column of the punctuation with the lower end.
        high: The one with the upper end; the same one for a constant.
    """

    field: int
    low: int
    high: int

    @property
    def constant(self) -> bool:
        """Whether it matches a single value."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class FlaggedPunctuations:
    """Flagged rows of the stream are punctuations: no row that matches their patterns comes after them.

    Attributes:
        flag: The column that is TRUE for punctuations; NULL means data.
        patterns: One for each column that isn't a wildcard.
        effect: When they take effect.
    """

    flag: int
    patterns: tuple[Pattern, ...]
    effect: Effect = "batch"


@dataclass(frozen=True, slots=True)
class InheritedPunctuations:
    """The stream is a join that emits punctuations: no result that matches one comes after it.

    Attributes:
        source: The constraint of that join which they come from.
        fields: The columns that they match.
        ranges: For each of these columns, whether they match an inclusive range instead of a single value.
    """

    source: ConstraintId
    fields: tuple[int, ...]
    ranges: tuple[bool, ...]


PunctuationScheme = FlaggedPunctuations | InheritedPunctuations
"""Constraints whose content arrives as punctuations."""
Constraint = Key | Clustering | SortOrder | ForeignKey | PunctuationScheme


def fields_of(constraint: Constraint) -> tuple[int, ...]:
    """Return the columns whose values a constraint restricts."""
    match constraint:
        case Key(fields) | InheritedPunctuations(_, fields):
            return fields
        case FlaggedPunctuations(_, patterns):
            return tuple(pattern.field for pattern in patterns)
        case Clustering(field) | SortOrder(field) | ForeignKey(field):
            return (field,)


def ranges_of(constraint: Constraint) -> tuple[bool, ...]:
    """Return for each of a constraint's columns whether it denies ranges instead of single values."""
    match constraint:
        case FlaggedPunctuations(_, patterns):
            return tuple(not pattern.constant for pattern in patterns)
        case InheritedPunctuations(_, _, ranges):
            return ranges
    return (False,) * len(fields_of(constraint))


def fields_read_by(constraint: Constraint) -> frozenset[int]:
    """Return the columns of its stream that a constraint reads from new rows."""
    match constraint:
        case Key(fields) | InheritedPunctuations(_, fields):
            return frozenset(fields)
        case FlaggedPunctuations(flag, patterns):
            return frozenset({flag, *(at for pattern in patterns for at in (pattern.field, pattern.low, pattern.high))})
        case Clustering(field) | SortOrder(field) | ForeignKey(field):
            return frozenset({field})


NameOf = Callable[[Column], str]


def describe_constraint(
    stream: int, constraint: Constraint, name: NameOf, type_of: Callable[[Column], pa.DataType]
) -> str:
    """Return a constraint in words; different constraints never have the same description.

    Args:
        stream: The stream's position.
        constraint: The constraint.
        name: Returns a column as the user writes it.
        type_of: Returns a column's type.
    """
    match constraint:
        case Key(fields):
            return f"key ({', '.join(name(Column(stream, field)) for field in fields)})"
        case Clustering(field, slack):
            return f"{name(Column(stream, field))} clustered, slack {slack}"
        case SortOrder(field, falling):
            column = Column(stream, field)
            return f"{name(column)} {'falling' if falling else 'rising'}, slack {_slack(constraint, type_of(column))}"
        case ForeignKey(field, parent):
            return f"foreign key ({name(Column(stream, field))}) references {name(parent)}"
        case FlaggedPunctuations(flag, patterns, effect):
            on = " and ".join(_pattern(stream, pattern, name) for pattern in patterns)
            return f"{name(Column(stream, flag))} on {on}, effect by {effect}"
        case InheritedPunctuations(_, fields, ranges):
            columns = zip((name(Column(stream, field)) for field in fields), ranges, strict=True)
            return f"those of the join itself on {' and '.join(f'ranges of {n}' if r else n for n, r in columns)}"


def _slack(constraint: SortOrder, kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return format_seconds(int(constraint.slack))
    return f"{constraint.slack} days" if pa.types.is_date(kind) else str(constraint.slack)


def _pattern(stream: int, pattern: Pattern, name: NameOf) -> str:
    own, low, high = (name(Column(stream, at)) for at in (pattern.field, pattern.low, pattern.high))
    if not pattern.constant:
        return f"{own} between {low} and {high}"
    return own if pattern.field == pattern.low else f"{own} = {low}"
