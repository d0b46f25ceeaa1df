"""The ends of an interval in which a column must lie, given the members of a partial result.

Each end is a column of the stream's type, exact or rounded outwards: an interval that is too wide is closed later, and
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

Values = Mapping[Column, pa.Array]


@dataclass(frozen=True, slots=True)
class End(ABC):
    """An end of an interval."""

    @property
    def reads(self) -> tuple[Column, ...]:
        """The members' columns that it looks at."""
        return ()

    @abstractmethod
    def values(self, values: Values, rows: int, duck: Duck) -> pa.Array:
        """Return it for each partial result; NULL where there is none.

        Args:
            values: The members' columns that it reads.
            rows: How many partial results there are.
            duck: What evaluates expressions.
        """


@dataclass(frozen=True, slots=True)
class At(End):
    """A member's column.

    Attributes:
        column: The column.
        step: For whole numbers and times how far the end lies from it: 1 or -1 where the column itself is excluded.
    """

    column: Column
    step: int = 0

    @property
    def reads(self) -> tuple[Column, ...]:
        """The column."""
        return (self.column,)

    def values(self, values: Values, rows: int, duck: Duck) -> pa.Array:
        """[!] A step beyond the last number comes out at the other end of them, which only makes the interval wider."""
        found, kind = values[self.column], values[self.column].type
        if not self.step or not has_steps(kind):
            return found
        whole = found.cast(_whole(kind))
        return pc.add(whole, pa.scalar(self.step, whole.type)).cast(kind)


@dataclass(frozen=True, slots=True)
class Constant(End):
    """The same value for all."""

    value: pa.Scalar

    def values(self, values: Values, rows: int, duck: Duck) -> pa.Array:
        """Return it as often as there are rows."""
        return pa.repeat(self.value, rows)


@dataclass(frozen=True, slots=True)
class Computed(End):
    """An end of a bound, which is computed in doubles.

    Attributes:
        bound: The bound.
        upper: Whether it is the upper end.
        type: The type of the column that it bounds.
    """

    bound: Bound
    upper: bool
    type: pa.DataType

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that the bound is computed from."""
        return tuple(sorted(columns_of([self.bound])))

    def values(self, values: Values, rows: int, duck: Duck) -> pa.Array:
        """Return it rounded outwards; NULL where it can't be computed."""
        asked = ranges(duck, {column.name: values[column] for column in self.reads}, [self.bound], rows)
        if not asked:
            return pa.nulls(rows, self.type)
        found = asked[0].high if self.upper else asked[0].low
        return rounded(found, self.upper, self.type)


def rounded(ends: NDArray[np.float64], upper: bool, kind: pa.DataType) -> pa.Array:
    """Return doubles as ends of another type, rounded outwards; NaN becomes NULL.

    The values that they bound were taken as doubles, too, and may have been rounded past them.
    """
    missing, number = np.isnan(ends), kind.to_pandas_dtype() if pa.types.is_floating(kind) else np.float64
    with np.errstate(over="ignore"):  # beyond the largest number comes infinity
        near = np.nextafter(np.where(missing, 0, ends).astype(number), number(np.inf if upper else -np.inf))
    if pa.types.is_floating(kind):
        return pa.array(near, kind, mask=missing)
    info = np.iinfo(_whole(kind).to_pandas_dtype())
    near = np.floor(near) if upper else np.ceil(near)
    inside = np.abs(near) < 2.0**63
    whole = np.where(inside, near, 0.0).astype(np.int64)
    far = np.where(near > 0, np.iinfo(np.int64).max, np.iinfo(np.int64).min)
    clipped = np.clip(np.where(inside, whole, far), info.min, info.max).astype(info.dtype)
    return pa.array(clipped, mask=missing).cast(kind)


def last(kind: pa.DataType, upper: bool) -> pa.Scalar | None:
    """Return the last or the first value of a type; None for types that are not gone to the end of."""
    if pa.types.is_floating(kind):
        return pa.scalar(np.nan if upper else -np.inf, kind)  # NaN lies above all numbers
    if not has_steps(kind):
        return None
    info = np.iinfo(_whole(kind).to_pandas_dtype())
    return pa.scalar(info.max if upper else info.min, _whole(kind)).cast(kind)


def has_steps(kind: pa.DataType) -> bool:
    """Tell whether values of a type are whole numbers, or times that are counted by these."""
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def computable(kind: pa.DataType) -> bool:
    """Tell whether ends that were computed in doubles can be taken as values of a type."""
    return has_steps(kind) or kind in (pa.float32(), pa.float64())


def _whole(kind: pa.DataType) -> pa.DataType:
    """Return the whole numbers that values with steps are counted by."""
    if pa.types.is_signed_integer(kind):
        return kind
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()
