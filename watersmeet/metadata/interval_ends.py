"""The ends of an interval in which a column must lie for a row to match a partial result.

Each end has the type of the column, and is exact or rounded outwards: an interval that is too wide is closed later,
never too early.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.predicate.model import Bound, Column
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.ranges import columns_of, ranges

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
