"""The constraints of streams, and which rows they deny, by brute force; a part of the oracle.

In columns that constraints name, values are None (NULL), bool, int, float, Decimal, str, bytes, date or datetime
(without a zone, or in UTC), and those of one column are of one type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, localcontext
from typing import Any, Literal

Row = Mapping[str, Any]
Test = Callable[[Row], bool]
Batches = Sequence[Sequence[Row]]
Place = tuple[int, Any]
Announced = tuple[int, Row]
"""A punctuation: its event time, and the row."""


@dataclass(frozen=True, slots=True)
class Key:
    """Denies combinations of values of `columns` that an earlier batch contained."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clustered:
    """Denies a value once `slack + 1` batches in a row have lacked it; batches without any value do not count."""

    column: str
    slack: int = 0


@dataclass(frozen=True, slots=True)
class Ordered:
    """Denies values below the largest of the earlier batches (above the smallest, if `falling`) by more than `slack`.

    NaN is above all other values, so only a falling order denies it; it moves no frontier.
    """

    column: str
    falling: bool = False
    slack: int | float | Decimal | timedelta = 0
    """Something that can be subtracted from a value of the column; for times also microseconds."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Denies nothing; a row is an orphan if `parent` denies its value as `parent_column` and never accepted it."""

    column: str
    parent: str
    parent_column: str


@dataclass(frozen=True, slots=True)
class Punctuated:
    """Denies the rows that punctuations announce the end of; punctuations are the rows whose `flag` is TRUE.

    Attributes:
        flag: A column that says which rows are punctuations; NULL, or no such column in a row, means data.
        on: For a column of the denied rows, the column of the punctuation with its value, or the two with the smallest
            and the largest. Columns not named may have any value.
        effect: When it takes effect: "batch" is the end of the punctuation's own batch, "watermark" the end of the
            first batch with a join watermark greater than its event time.
    """

    flag: str
    on: Mapping[str, str | tuple[str, str]]
    effect: Literal["batch", "watermark"] = "batch"


Promise = Key | Clustered | Ordered | ForeignKey | Punctuated


@dataclass(frozen=True, slots=True)
class Denial:
    """The rows of a stream that its constraints deny after some batch, apart from those that will be late."""

    tests: Sequence[tuple[Promise, Test]] = ()

    def __contains__(self, row: Row) -> bool:
        return bool(self.reasons(row))

    def reasons(self, row: Row) -> list[Promise]:
        """The constraints that deny a row."""
        return [promise for promise, denies in self.tests if denies(row)]

    def denies_value(self, column: str, value: Any) -> bool:
        """Whether a constraint on this column alone denies all rows with that value."""
        return any(_columns(promise) == {column} and denies({column: value}) for promise, denies in self.tests)


def lacks_a_value(promises: Iterable[Punctuated], punctuation: Row) -> bool:
    """Whether a punctuation has NULL in a column that its pattern needs."""
    return any(punctuation[name] is None for promise in promises for ends in _ends(promise).values() for name in ends)


def _ends(promise: Punctuated) -> dict[str, tuple[str, str]]:
    """For each column of the pattern, the punctuation's columns with the smallest and the largest value it denies."""
    return {column: (at, at) if isinstance(at, str) else at for column, at in promise.on.items()}


def _columns(promise: Promise) -> set[str]:
    """The columns whose values alone determine whether a constraint denies a row."""
    match promise:
        case Key(columns):
            return set(columns)
        case Clustered(column) | Ordered(column):
            return {column}
        case Punctuated():
            return set(promise.on)
        case ForeignKey():
            return set()


def denying(promise: Promise, batches: Batches, punctuations: Iterable[Announced], watermark: int | None) -> Test:
    """The rows that a constraint denies after these batches of data rows and punctuations, at this join watermark."""
    match promise:
        case Key():
            return _repeats(promise, batches)
        case Clustered():
            return _after_cluster(promise, batches)
        case Ordered():
            return _beyond(promise, batches)
        case Punctuated():
            return _announced(promise, punctuations, watermark)
        case ForeignKey():
            return _nothing


def _nothing(row: Row) -> bool:
    return False


def _repeats(key: Key, batches: Batches) -> Test:
    """Denies values that an earlier row had, if none of them is NULL."""
    earlier = {tuple(_place(row[column]) for column in key.columns) for rows in batches for row in rows}

    def denies(row: Row) -> bool:
        values = [row[column] for column in key.columns]
        return None not in values and tuple(map(_place, values)) in earlier

    return denies


def _after_cluster(cluster: Clustered, batches: Batches) -> Test:
    """Denies values that too many successive batches lacked; for ever, even if they come again."""
    lacked: dict[Place, int] = {}  # by how many of the last batches
    ended: set[Place] = set()
    for rows in batches:
        present = {_place(row[cluster.column]) for row in rows if row[cluster.column] is not None}
        if present:
            lacked = {place: times + 1 for place, times in lacked.items()} | dict.fromkeys(present, 0)
            ended |= {place for place, times in lacked.items() if times > cluster.slack}
    return _at(cluster.column, lambda place: place in ended)


def _beyond(order: Ordered, batches: Batches) -> Test:
    """Denies values on the far side of the frontier and its slack, never at it."""
    values = [row[order.column] for rows in batches for row in rows]
    values = [value for value in values if value is not None and not _is_nan(value)]
    if not values:
        return _nothing
    frontier = min(values, key=_place) if order.falling else max(values, key=_place)
    try:
        bound = _place(_loosened(frontier, order))
    except OverflowError:  # outside the calendar, and no value lies further out
        return _nothing
    return _at(order.column, (lambda place: place > bound) if order.falling else (lambda place: place < bound))


def _loosened(frontier: Any, order: Ordered) -> Any:
    """The frontier moved back by the slack; only floats are rounded."""
    slack: Any = order.slack
    if not slack:
        return frontier
    if isinstance(frontier, date) and not isinstance(slack, timedelta):
        slack = timedelta(microseconds=slack)
    with localcontext(prec=100):  # Spark's decimals have up to 38 digits on either side of the point
        return frontier + slack if order.falling else frontier - slack


def _announced(promise: Punctuated, punctuations: Iterable[Announced], watermark: int | None) -> Test:
    """Denies rows that fit a punctuation in effect; NULL fits only a column that may have any value."""
    by_batch = promise.effect == "batch"
    in_effect = [
        row
        for ts, row in punctuations
        if row.get(promise.flag) and (by_batch or (watermark is not None and ts < watermark))
    ]
    ends = _ends(promise)

    def fits(row: Row, pattern: Row) -> bool:
        return all(
            row[column] is not None and _place(pattern[low]) <= _place(row[column]) <= _place(pattern[high])
            for column, (low, high) in ends.items()
        )

    return lambda row: any(fits(row, pattern) for pattern in in_effect)


def _at(column: str, test: Callable[[Place], bool]) -> Test:
    """A test of one column, in which NULL fails."""
    return lambda row: row[column] is not None and test(_place(row[column]))


def has(column: str, value: Any) -> Test:
    """The test for rows with a value, by Spark's equality; NULL equals nothing."""
    return _at(column, lambda place: place == _place(value))


def _place(value: Any) -> Place:
    """A value's place in Spark's order: NaN equals itself and is highest; 0.0 equals -0.0."""
    return (1, 0) if _is_nan(value) else (0, value)


def _is_nan(value: Any) -> bool:
    return bool(value != value)
