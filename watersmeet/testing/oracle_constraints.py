"""Constraints of streams, and the rows that they deny, by brute force; a part of the oracle.

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
Rank = tuple[int, Any]
Announcement = tuple[int, Row]
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
    """The rows of a stream that its constraints deny after a batch; late rows are not among them."""

    tests: Sequence[tuple[OracleConstraint, Test]] = ()

    def __contains__(self, row: Row) -> bool:
        return bool(self.reasons(row))

    def reasons(self, row: Row) -> list[OracleConstraint]:
        """The constraints that deny a row."""
        return [constraint for constraint, denies in self.tests if denies(row)]

    def denies_value(self, column: str, value: Any) -> bool:
        """Whether a constraint on this column alone denies all rows with that value."""
        return any(_columns(constraint) == {column} and denies({column: value}) for constraint, denies in self.tests)


def lacks_a_value(constraints: Iterable[PunctuationFlag], punctuation: Row) -> bool:
    """Whether a punctuation has NULL where its pattern requires a value."""
    names = (name for constraint in constraints for ends in _ends(constraint).values() for name in ends)
    return any(punctuation[name] is None for name in names)


def _ends(constraint: PunctuationFlag) -> dict[str, tuple[str, str]]:
    """For each column of the pattern, those of the punctuation with the smallest and the largest value it denies."""
    return {column: (at, at) if isinstance(at, str) else at for column, at in constraint.on.items()}


def _columns(constraint: OracleConstraint) -> set[str]:
    """The columns whose values alone decide whether a constraint denies a row."""
    match constraint:
        case UniqueKey(columns):
            return set(columns)
        case Clusters(column) | Order(column):
            return {column}
        case PunctuationFlag():
            return set(constraint.on)
        case ParentKey():
            return set()


def denial_test(
    constraint: OracleConstraint, batches: Batches, punctuations: Iterable[Announcement], watermark: int | None
) -> Test:
    """What a constraint denies after these batches of data rows and these punctuations, at this join watermark."""
    match constraint:
        case UniqueKey():
            return _deny_repeated(constraint, batches)
        case Clusters():
            return _deny_ended_runs(constraint, batches)
        case Order():
            return _deny_beyond_frontier(constraint, batches)
        case PunctuationFlag():
            return _deny_announced(constraint, punctuations, watermark)
        case ParentKey():
            return _deny_nothing


def _deny_nothing(row: Row) -> bool:
    return False


def _deny_repeated(key: UniqueKey, batches: Batches) -> Test:
    """Denies values that any row has had, if none of them is NULL."""
    repeated = {tuple(_rank(row[column]) for column in key.columns) for rows in batches for row in rows}

    def denies(row: Row) -> bool:
        values = [row[column] for column in key.columns]
        return None not in values and tuple(map(_rank, values)) in repeated

    return denies


def _deny_ended_runs(run: Clusters, batches: Batches) -> Test:
    """Denies values that too many batches in a row have lacked; for ever, even if they come again."""
    lacked: dict[Rank, int] = {}  # by how many of the last batches
    over: set[Rank] = set()
    for rows in batches:
        present = {_rank(row[run.column]) for row in rows if row[run.column] is not None}
        if present:
            lacked = {place: times + 1 for place, times in lacked.items()} | dict.fromkeys(present, 0)
            over |= {place for place, times in lacked.items() if times > run.slack}
    return _at(run.column, lambda place: place in over)


def _deny_beyond_frontier(order: Order, batches: Batches) -> Test:
    """Denies values on the far side of the frontier and its slack, never at it."""
    values = [row[order.column] for rows in batches for row in rows]
    values = [value for value in values if value is not None and not _is_nan(value)]
    if not values:
        return _deny_nothing
    frontier = min(values, key=_rank) if order.falling else max(values, key=_rank)
    try:
        bound = _rank(_loosen(frontier, order))
    except OverflowError:  # outside the calendar, and no value lies further out
        return _deny_nothing
    return _at(order.column, (lambda place: place > bound) if order.falling else (lambda place: place < bound))


def _loosen(frontier: Any, order: Order) -> Any:
    """The frontier moved back by the slack; only floats are rounded."""
    slack: Any = order.slack
    if not slack:
        return frontier
    if isinstance(frontier, date) and not isinstance(slack, timedelta):
        slack = timedelta(microseconds=slack)
    with localcontext(prec=100):  # Spark's decimals have up to 38 digits on either side of the point
        return frontier + slack if order.falling else frontier - slack


def _deny_announced(constraint: PunctuationFlag, punctuations: Iterable[Announcement], watermark: int | None) -> Test:
    """Denies what fits a punctuation that is in effect; NULL fits only where any value will do."""
    by_batch = constraint.effect == "batch"
    effective = [
        row
        for ts, row in punctuations
        if row.get(constraint.flag) and (by_batch or (watermark is not None and ts < watermark))
    ]
    ends = _ends(constraint)

    def fits(row: Row, pattern: Row) -> bool:
        return all(
            row[column] is not None and _rank(pattern[low]) <= _rank(row[column]) <= _rank(pattern[high])
            for column, (low, high) in ends.items()
        )

    return lambda row: any(fits(row, pattern) for pattern in effective)


def _at(column: str, test: Callable[[Rank], bool]) -> Test:
    """A test of one column, in which NULL fails."""
    return lambda row: row[column] is not None and test(_rank(row[column]))


def has(column: str, value: Any) -> Test:
    """The test of rows with a value, by Spark's equality; NULL is nobody's."""
    return _at(column, lambda place: place == _rank(value))


def _rank(value: Any) -> Rank:
    """Where a value stands in Spark's order: NaN equals itself and is highest; 0.0 and -0.0 are one."""
    return (1, 0) if _is_nan(value) else (0, value)


def _is_nan(value: Any) -> bool:
    return bool(value != value)
