"""What streams promise, and which rows that denies, by brute force; a part of the oracle.

In columns that promises name, values are None (NULL), bool, int, float, Decimal, str, bytes, date or datetime (without
a zone, or in UTC), and those of one column are of one type.
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
class UniqueKey:
    """Denies the values of `columns`, taken together, that an earlier batch has brought."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clusters:
    """Denies a value once `slack + 1` batches in a row have lacked it; batches without any value do not count."""

    column: str
    slack: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """Denies values below the largest of the earlier batches (above the smallest, if `falling`) by more than `slack`.

    NaN is above all other values, so only a falling order denies it; it moves no frontier.
    """

    column: str
    falling: bool = False
    slack: int | float | Decimal | timedelta = 0
    """What can be taken from a value of the column; for times also microseconds."""


@dataclass(frozen=True, slots=True)
class ParentKey:
    """Denies nothing; rows are orphans whose value is denied as `parent_column` of `parent` and was never accepted."""

    column: str
    parent: str
    parent_column: str


@dataclass(frozen=True, slots=True)
class PunctuationFlag:
    """Denies what punctuations announce: they are the rows of the stream whose `flag` is TRUE.

    Attributes:
        flag: A column that says which rows are punctuations; NULL, or no such column in a row, means data.
        on: For a column of the denied rows, the column of the punctuation with its value, or the two with the smallest
            and the largest. Any value will do in columns not named.
        effect: From when on: "batch" is the end of the punctuation's own batch, "watermark" the end of the first batch
            with a join watermark greater than its event time.
    """

    flag: str
    on: Mapping[str, str | tuple[str, str]]
    effect: Literal["batch", "watermark"] = "batch"


OracleConstraint = UniqueKey | Clusters | Order | ParentKey | PunctuationFlag


@dataclass(frozen=True, slots=True)
class Denial:
    """The rows of a stream that its promises deny after some batch; those that will be late are not meant."""

    tests: Sequence[tuple[OracleConstraint, Test]] = ()

    def __contains__(self, row: Row) -> bool:
        return bool(self.reasons(row))

    def reasons(self, row: Row) -> list[OracleConstraint]:
        """The promises that deny a row."""
        return [constraint for constraint, denies in self.tests if denies(row)]

    def denies_value(self, column: str, value: Any) -> bool:
        """Whether a promise about this column alone denies all rows with that value."""
        return any(_columns(constraint) == {column} and denies({column: value}) for constraint, denies in self.tests)


def lacks_a_value(told: Iterable[PunctuationFlag], punctuation: Row) -> bool:
    """Whether a punctuation has NULL where its pattern needs a value."""
    return any(punctuation[name] is None for constraint in told for ends in _ends(constraint).values() for name in ends)


def _ends(constraint: PunctuationFlag) -> dict[str, tuple[str, str]]:
    """For each column of the pattern, those of the punctuation with the smallest and the largest value it denies."""
    return {column: (at, at) if isinstance(at, str) else at for column, at in constraint.on.items()}


def _columns(constraint: OracleConstraint) -> set[str]:
    """The columns on whose values alone it depends whether a promise denies a row."""
    match constraint:
        case UniqueKey(columns):
            return set(columns)
        case Clusters(column) | Order(column):
            return {column}
        case PunctuationFlag():
            return set(constraint.on)
        case ParentKey():
            return set()


def denying(
    constraint: OracleConstraint, batches: Batches, punctuations: Iterable[Announced], watermark: int | None
) -> Test:
    """What a promise denies, after these batches of data rows, these punctuations and at this join watermark."""
    match constraint:
        case UniqueKey():
            return _seen(constraint, batches)
        case Clusters():
            return _over(constraint, batches)
        case Order():
            return _beyond(constraint, batches)
        case PunctuationFlag():
            return _announced(constraint, punctuations, watermark)
        case ParentKey():
            return _nothing


def _nothing(row: Row) -> bool:
    return False


def _seen(key: UniqueKey, batches: Batches) -> Test:
    """Denies values that any row has had, if none of them is NULL."""
    seen = {tuple(_place(row[column]) for column in key.columns) for rows in batches for row in rows}

    def denies(row: Row) -> bool:
        values = [row[column] for column in key.columns]
        return None not in values and tuple(map(_place, values)) in seen

    return denies


def _over(run: Clusters, batches: Batches) -> Test:
    """Denies values that too many batches in a row have lacked; for ever, even if they come again."""
    lacked: dict[Place, int] = {}  # by how many of the last batches
    over: set[Place] = set()
    for rows in batches:
        present = {_place(row[run.column]) for row in rows if row[run.column] is not None}
        if present:
            lacked = {place: times + 1 for place, times in lacked.items()} | dict.fromkeys(present, 0)
            over |= {place for place, times in lacked.items() if times > run.slack}
    return _at(run.column, lambda place: place in over)


def _beyond(order: Order, batches: Batches) -> Test:
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


def _loosened(frontier: Any, order: Order) -> Any:
    """The frontier moved back by the slack; only floats are rounded."""
    slack: Any = order.slack
    if not slack:
        return frontier
    if isinstance(frontier, date) and not isinstance(slack, timedelta):
        slack = timedelta(microseconds=slack)
    with localcontext(prec=100):  # Spark's decimals have up to 38 digits on either side of the point
        return frontier + slack if order.falling else frontier - slack


def _announced(constraint: PunctuationFlag, punctuations: Iterable[Announced], watermark: int | None) -> Test:
    """Denies what fits a punctuation that is in effect; NULL fits only where any value will do."""
    by_batch = constraint.effect == "batch"
    said = [
        row
        for ts, row in punctuations
        if row.get(constraint.flag) and (by_batch or (watermark is not None and ts < watermark))
    ]
    ends = _ends(constraint)

    def fits(row: Row, pattern: Row) -> bool:
        return all(
            row[column] is not None and _place(pattern[low]) <= _place(row[column]) <= _place(pattern[high])
            for column, (low, high) in ends.items()
        )

    return lambda row: any(fits(row, pattern) for pattern in said)


def _at(column: str, test: Callable[[Place], bool]) -> Test:
    """A test of one column, in which NULL fails."""
    return lambda row: row[column] is not None and test(_place(row[column]))


def has(column: str, value: Any) -> Test:
    """The test of rows with a value, by Spark's equality; NULL is nobody's."""
    return _at(column, lambda place: place == _place(value))


def _place(value: Any) -> Place:
    """Where a value stands in Spark's order: NaN equals itself and is highest; 0.0 and -0.0 are one."""
    return (1, 0) if _is_nan(value) else (0, value)


def _is_nan(value: Any) -> bool:
    return bool(value != value)
