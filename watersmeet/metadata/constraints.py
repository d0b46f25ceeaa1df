"""Constraints of a stream: keys, orders, clusterings, foreign keys and punctuations, by positions of columns.

Each rules out rows that might otherwise still come: it *denies* them. A denied row that comes nevertheless is turned
away at intake, and state that only denied rows could complete may be purged. What a constraint denies after a batch
(mark files, open runs, a frontier) is its state, which the manifest holds. See docs/metadata.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from watersmeet.arguments import format_seconds
from watersmeet.predicate.model import Column

Effect = Literal["batch", "watermark"]
"""When a punctuation takes effect: at the end of its batch, or once the watermark has passed its event time."""
Slack = int | float | Decimal
ConstraintId = tuple[int, int]
"""A constraint of a join: the position of its stream, and its own among the constraints of that stream."""
MARKS = "marks"
"""The folder of a store that holds tables of marks."""


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


class MarkFile(NamedTuple):
    """A file of marks, of values of a run, or of rows that wait.

    Attributes:
        path: Its path in the store.
        rows: How many rows it has.
        bytes: Its size.
        era: The start of the period of the watermark to which its marks belong, if they are to be dropped one day; None
            while they are not dated.
    """

    path: str
    rows: int
    bytes: int
    era: int | None = None


@dataclass(frozen=True, slots=True)
class ConstraintState:
    """The state of one constraint after a batch.

    Attributes:
        files: The tables of marks: the values that it denies.
        runs: Of a clustering, the values of the latest batches that brought any, oldest first.
        frontier: Of a sort order, the furthest value so far, as JSON can hold it; None before the first.
        batch: The batch that brought the frontier.
        waiting: Rows that wait: punctuations until they may be emitted, rows with a foreign key until their parent
            has come.
    """

    files: tuple[MarkFile, ...] = ()
    runs: tuple[tuple[MarkFile, ...], ...] = ()
    frontier: int | str | None = None
    batch: int = -1
    waiting: tuple[MarkFile, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the files that it consists of."""
        runs = (file for run in self.runs for file in run)
        return frozenset(file.path for file in (*self.files, *runs, *self.waiting))

    def to_json(self) -> list[Any]:
        """Return the state as the manifest stores it."""
        return [self.files, self.runs, self.frontier, self.batch, self.waiting]

    @staticmethod
    def from_json(plain: Sequence[Any]) -> "ConstraintState":
        """Return the state that `to_json` stored."""
        files, runs, frontier, batch, waiting = plain
        return ConstraintState(_files(files), tuple(map(_files, runs)), frontier, batch, _files(waiting))


def _files(plain: Sequence[Sequence[Any]]) -> tuple[MarkFile, ...]:
    return tuple(MarkFile(*file) for file in plain)


ConstraintStates = tuple[tuple[ConstraintState, ...], ...]
"""For each stream the states of its constraints, in their order; empty before the first batch."""


def state_of(states: ConstraintStates, stream: int, number: int) -> ConstraintState:
    """Return the state of a constraint; an empty one before the first batch."""
    return states[stream][number] if states else ConstraintState()


def count_marks(states: Mapping[str, Sequence[ConstraintState]]) -> dict[str, dict[str, int]]:
    """Return for `progress` how many marks each stream with constraints has, and their bytes."""
    files = {name: [file for state in own for file in state.files] for name, own in states.items() if own}
    return {
        name: {"marks": sum(file.rows for file in own), "bytes": sum(file.bytes for file in own)}
        for name, own in files.items()
    }
