"""Closing rules: a stream is closed for a partial result if all rows that the conjuncts would admit are denied.

Ignoring conjuncts only enlarges the set of rows that could match, so each rule is sound by itself. Conjuncts leave an
interval in which a column must lie. Each of its ends has the type of the column, and is exact or rounded outwards: an
interval that is too wide is closed later, never too early. See docs/metadata.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Mask, to_mask
from watersmeet.metadata.constraints import Clustering, FlaggedPunctuations, InheritedPunctuations, Key, fields_of
from watersmeet.metadata.denial import DeniedRows, StreamConstraint
from watersmeet.predicate.model import Bound, Column
from watersmeet.predicate.numbers import numbers
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.ranges import columns_of, ranges
from watersmeet.query.query import Query
from watersmeet.query.windows import FOREVER, NEVER

MemberValues = Mapping[Column, pa.Array]


@dataclass(frozen=True, slots=True)
class End(ABC):
    """An end of an interval."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of members from which the end is computed."""
        return ()

    @abstractmethod
    def evaluate(self, values: MemberValues, rows: int, duck: Duck) -> pa.Array:
        """Return the end for each partial result; NULL where there is none.

        Args:
            values: The members' values of `columns`.
            rows: How many partial results there are.
            duck: Evaluates expressions.
        """


@dataclass(frozen=True, slots=True)
class ColumnEnd(End):
    """The value of a member's column.

    Attributes:
        column: The column.
        step: For whole numbers and times the distance of the end from it: 1 or -1 if the value itself is excluded.
    """

    column: Column
    step: int = 0

    @property
    def columns(self) -> tuple[Column, ...]:
        """The one column that the end depends on."""
        return (self.column,)

    def evaluate(self, values: MemberValues, rows: int, duck: Duck) -> pa.Array:
        """Return the values of the column, moved by the step if their type has steps.

        [!] A step beyond the last number wraps around, which only makes the interval wider.
        """
        column, kind = values[self.column], values[self.column].type
        if not self.step or not has_steps(kind):
            return column
        whole = column.cast(_integer_type(kind))
        return pc.add(whole, pa.scalar(self.step, whole.type)).cast(kind)


@dataclass(frozen=True, slots=True)
class ConstantEnd(End):
    """A value that is the same for all partial results."""

    value: pa.Scalar

    def evaluate(self, values: MemberValues, rows: int, duck: Duck) -> pa.Array:
        """Return the value once for each row."""
        return pa.repeat(self.value, rows)


@dataclass(frozen=True, slots=True)
class ComputedEnd(End):
    """An end of a bound, computed in doubles.

    Attributes:
        bound: The bound.
        upper: Whether this is its upper end.
        type: The type of the column that it bounds.
    """

    bound: Bound
    upper: bool
    type: pa.DataType

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that the bound is computed from."""
        return tuple(sorted(columns_of([self.bound])))

    def evaluate(self, values: MemberValues, rows: int, duck: Duck) -> pa.Array:
        """Return the end rounded outwards; NULL where it can't be computed."""
        bounds = ranges(duck, {column.name: values[column] for column in self.columns}, [self.bound], rows)
        if not bounds:
            return pa.nulls(rows, self.type)
        ends = bounds[0].high if self.upper else bounds[0].low
        return round_outwards(ends, self.upper, self.type)


def round_outwards(ends: NDArray[np.float64], upper: bool, kind: pa.DataType) -> pa.Array:
    """Return doubles as ends of another type, rounded outwards; NaN becomes NULL.

    The values that they bound were converted to doubles as well, and may have been rounded past the ends.
    """
    missing, number = np.isnan(ends), kind.to_pandas_dtype() if pa.types.is_floating(kind) else np.float64
    with np.errstate(over="ignore"):  # the largest number is followed by infinity
        near = np.nextafter(np.where(missing, 0, ends).astype(number), number(np.inf if upper else -np.inf))
    if pa.types.is_floating(kind):
        return pa.array(near, kind, mask=missing)
    info = np.iinfo(_integer_type(kind).to_pandas_dtype())
    near = np.floor(near) if upper else np.ceil(near)
    inside = np.abs(near) < 2.0**63
    whole = np.where(inside, near, 0.0).astype(np.int64)
    far = np.where(near > 0, np.iinfo(np.int64).max, np.iinfo(np.int64).min)
    clipped = np.clip(np.where(inside, whole, far), info.min, info.max).astype(info.dtype)
    return pa.array(clipped, mask=missing).cast(kind)


def extreme_value(kind: pa.DataType, upper: bool) -> pa.Scalar | None:
    """Return the largest or the smallest value of a type; None if it is not used as an end of intervals."""
    if pa.types.is_floating(kind):
        return pa.scalar(np.nan if upper else -np.inf, kind)  # NaN lies above all numbers
    if not has_steps(kind):
        return None
    info = np.iinfo(_integer_type(kind).to_pandas_dtype())
    return pa.scalar(info.max if upper else info.min, _integer_type(kind)).cast(kind)


def has_steps(kind: pa.DataType) -> bool:
    """Tell whether values of a type are whole numbers, or times represented by whole numbers."""
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def is_computable(kind: pa.DataType) -> bool:
    """Tell whether ends computed in doubles can be converted to a type."""
    return has_steps(kind) or kind in (pa.float32(), pa.float64())


def _integer_type(kind: pa.DataType) -> pa.DataType:
    """Return the integer type that represents values of a type that `has_steps`."""
    if pa.types.is_signed_integer(kind):
        return kind
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


@dataclass(frozen=True, slots=True)
class ClosingRule(ABC):
    """A rule by which a stream is closed for partial results.

    Attributes:
        stream: The stream.
        conjuncts: The text of the conjuncts that it depends on.
    """

    stream: int
    conjuncts: tuple[str, ...]

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns of members that the rule reads."""

    @abstractmethod
    def find_closed(self, values: MemberValues, rows: int, denied: DeniedRows, duck: Duck) -> Mask:
        """Tell for which partial results the stream is closed.

        Args:
            values: The members' values of `columns`.
            rows: How many partial results there are.
            denied: The rows that are denied so far.
            duck: Evaluates expressions.
        """

    @abstractmethod
    def describe(self, query: Query) -> str:
        """Return in words what closes the stream."""

    @property
    @abstractmethod
    def depends_on(self) -> StreamConstraint | None:
        """The constraint that it depends on; None for the watermark."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """A column of a stream whose values on one side of a frontier are denied.

    Attributes:
        column: The column.
        falling: Whether the values above the frontier are denied, instead of those below.
        source: The constraint that denies them; None for the watermark.
        moved: How many microseconds later the column is than the one to which the frontier belongs.
    """

    column: Column
    falling: bool = False
    source: StreamConstraint | None = None
    moved: int = 0

    @property
    def by_time(self) -> bool:
        """Whether it is the frontier of the event time itself, which the watermark moves."""
        return self.source is None and not self.moved

    def value(self, denied: DeniedRows) -> pa.Scalar | None:
        """Return the frontier; None before there is one."""
        value = denied.times.get(self.column.stream) if self.source is None else denied.frontiers.get(self.source)
        return value if value is None or not self.moved else _move_time(value, self.moved)

    def describe(self, query: Query) -> str:
        """Return in words what moves the frontier."""
        return "the watermark" if self.source is None else f"the order of {query.name_of(self.column)}"


@dataclass(frozen=True, slots=True)
class FrontierRule(ClosingRule):
    """What the conjuncts would admit lies on the side of a frontier where all values are denied.

    Attributes:
        frontier: The frontier.
    """

    frontier: Frontier

    def describe(self, query: Query) -> str:
        """Return in words what closes the stream."""
        return f"{_quote(self.conjuncts)} and {self.frontier.describe(query)}"

    @property
    def depends_on(self) -> StreamConstraint | None:
        """The sort order; None for the watermark."""
        return self.frontier.source


@dataclass(frozen=True, slots=True)
class ColumnLimitRule(FrontierRule):
    """A member's column limits a column of the stream, and the limit lies where all values are denied.

    Attributes:
        limit: The member's column: rows beyond it do not match.
        strict: Whether rows at the limit do not match either.
    """

    limit: Column
    strict: bool

    @property
    def columns(self) -> tuple[Column, ...]:
        """The one column that the rule reads."""
        return (self.limit,)

    def find_closed(self, values: MemberValues, rows: int, denied: DeniedRows, duck: Duck) -> Mask:
        """Tell which limits lie beyond the frontier.

        [!] A frontier denies what is below it, never what is at it: y <= limit needs limit < frontier.
        """
        limits, frontier = values[self.limit], self.frontier.value(denied)
        if frontier is None:
            return np.zeros(rows, bool)
        closed = to_mask(_COMPARISONS[self.frontier.falling, self.strict](limits, frontier))
        if self.frontier.falling and pa.types.is_floating(limits.type):
            return closed | to_mask(pc.is_nan(limits))  # above every frontier
        return closed


_COMPARISONS = {
    (False, False): pc.less,
    (False, True): pc.less_equal,
    (True, False): pc.greater,
    (True, True): pc.greater_equal,
}
"""How a limit compares with a frontier, by whether values above it are denied and whether the limit is strict."""


@dataclass(frozen=True, slots=True)
class ComputedBoundRule(FrontierRule):
    """A bound computed from members' columns lies where all values are denied; in doubles, with room for rounding.

    Attributes:
        bound: The bound.
    """

    bound: Bound

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that the bound is computed from."""
        return tuple(sorted(columns_of([self.bound])))

    def find_closed(self, values: MemberValues, rows: int, denied: DeniedRows, duck: Duck) -> Mask:
        """Tell which bounds lie beyond the frontier.

        [!] Both ends are rounded outwards and the frontier inwards: if they are too close, nothing is closed.
        """
        frontier = self.frontier.value(denied)
        table = {column.name: values[column] for column in self.columns}
        bounds = ranges(duck, table, [self.bound], rows)
        if frontier is None or not bounds:
            return np.zeros(rows, bool)
        at = float(numbers(pa.repeat(frontier, 1))[0])
        if self.frontier.falling:
            return np.asarray(bounds[0].low > np.nextafter(at, np.inf))
        return np.asarray(bounds[0].high < np.nextafter(at, -np.inf))


@dataclass(frozen=True, slots=True)
class MarkRule(ClosingRule):
    """Marks deny all rows that the conjuncts would admit.

    Attributes:
        source: The constraint to which the marks belong.
    """

    source: StreamConstraint

    def describe(self, query: Query) -> str:
        """Return in words what closes the stream."""
        names = {
            Key: "the key",
            Clustering: "the runs",
            FlaggedPunctuations: "punctuations",
            InheritedPunctuations: "the join's punctuations",
        }
        columns = ", ".join(query.name_of(Column(self.stream, at)) for at in fields_of(self.source[1]))
        return f"{_quote(self.conjuncts)} and {names[type(self.source[1])]} of {columns}"

    @property
    def depends_on(self) -> StreamConstraint:
        """The constraint to which the marks belong."""
        return self.source


@dataclass(frozen=True, slots=True)
class PinRule(MarkRule):
    """Members' columns and constants determine the values that a row must have, and these are denied.

    Attributes:
        pins: For each column of the constraint the column or the constant that it must equal.
    """

    pins: tuple[ColumnEnd | ConstantEnd, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The pins that are columns."""
        return tuple(dict.fromkeys(column for pin in self.pins for column in pin.columns))

    def find_closed(self, values: MemberValues, rows: int, denied: DeniedRows, duck: Duck) -> Mask:
        """Tell for which partial results a mark denies the required values; looks them up in the tables of marks."""
        if not denied.marks.get(self.source):
            return np.zeros(rows, bool)
        required = [pin.evaluate(values, rows, duck) for pin in self.pins]
        return np.asarray(denied.find_marks(self.source, required)[1] >= 0)


@dataclass(frozen=True, slots=True)
class IntervalRule(MarkRule):
    """The intervals in which the values of a row must lie are denied entirely.

    Attributes:
        between: For each column of the constraint the lower ends of its interval and the upper ones; one or more each.
    """

    between: tuple[tuple[tuple[End, ...], tuple[End, ...]], ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns from which the ends are computed."""
        ends = (end for sides in self.between for side in sides for end in side)
        return tuple(dict.fromkeys(column for end in ends for column in end.columns))

    def find_closed(self, values: MemberValues, rows: int, denied: DeniedRows, duck: Duck) -> Mask:
        """Tell for which partial results an interval is denied.

        All combinations of ends are looked up; the narrowest interval is among them.
        """
        closed = np.zeros(rows, bool)
        if denied.marks.get(self.source):
            ends = {end: end.evaluate(values, rows, duck) for sides in self.between for side in sides for end in side}
            for chosen in product(*(product(*sides) for sides in self.between)):
                lows, highs = zip(*chosen, strict=True)
                closed |= denied.covers(self.source, [ends[end] for end in lows], [ends[end] for end in highs])
        return closed


def _move_time(time: pa.Scalar, micros: int) -> pa.Scalar | None:
    """Return a timestamp moved by a number of microseconds; None if it is out of range."""
    moved = time.cast(pa.int64()).as_py() + micros
    return pa.scalar(moved, pa.int64()).cast(time.type) if NEVER <= moved <= FOREVER else None


def _quote(texts: tuple[str, ...]) -> str:
    return " and ".join(f"`{text}`" for text in texts)
