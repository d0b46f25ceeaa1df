"""Arguments of Python predicates: values as NumPy or Arrow arrays, or as Python objects."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Ints

NO_LENGTH = -1
"""The length of an array that is NULL."""


@dataclass(frozen=True, slots=True)
class ArgumentValues:
    """The values of an argument for some combinations.

    Attributes:
        values: Values that contain them.
        at: The position of each combination's value.
        text: The argument, as written.
        leads: Whether it belongs to the leading stream, whose rows the form `array` gets one by one.
    """

    values: pa.Array
    at: Ints
    text: str
    leads: bool

    def of(self, combinations: Ints) -> "ArgumentValues":
        """Return the same argument of some combinations."""
        return replace(self, at=self.at[combinations])

    def size(self) -> int:
        """Return how many distinct rows the combinations have."""
        return int(np.count_nonzero(np.bincount(self.at)))

    def lengths(self) -> Ints | None:
        """Return the length of each combination's array of numbers; None if all are equal, or no arrays."""
        if not is_vectors(self.values.type):
            return None
        lengths = pc.list_value_length(self.values).fill_null(NO_LENGTH).to_numpy(zero_copy_only=False).astype(np.int64)
        lengths_at: Ints = lengths[self.at] if (lengths != lengths[:1]).any() else lengths[:0]
        return lengths_at if (lengths_at != lengths_at[:1]).any() else None

    def one(self, combinations: Ints) -> Any:
        """Return the value that combinations have in common."""
        return to_python(self.values[int(self.at[combinations[0]])])

    def getter(self, arrow: bool) -> Callable[[Ints], Any]:
        """Return a function that returns the values of combinations; arrays of numbers must have one length."""
        values, at = self.compact()
        if arrow:
            return lambda combinations: _rows(values, at[combinations])
        if pa.types.is_nested(values.type) and not is_vectors(values.type):
            # A predicate may change lists, so it gets its own.
            return lambda combinations: to_numpy(_rows(values, at[combinations]))
        array = to_numpy(values)
        return lambda combinations: _freeze(_rows(array, at[combinations]))

    def each(self) -> Iterable[Any]:
        """Return the value of each combination."""
        values, at = self.compact()
        if is_vectors(values.type):
            return map([to_python(value) for value in values].__getitem__, at.tolist())
        if pa.types.is_nested(values.type):
            return (values[row].as_py() for row in at.tolist())
        return map(values.to_pylist().__getitem__, at.tolist())

    def compact(self) -> tuple[pa.Array, Ints]:
        """Return the values in use, copied once unless they are a run, and the position of each combination's value."""
        mask = np.zeros(len(self.values), dtype=bool)
        mask[self.at] = True
        return _rows(self.values, np.flatnonzero(mask)), (np.cumsum(mask) - 1)[self.at]


def is_vectors(kind: pa.DataType) -> bool:
    """Tell whether values are arrays of numbers or booleans, which predicates see as NumPy arrays."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return False
    inner = kind.value_type
    return bool(pa.types.is_floating(inner) or pa.types.is_integer(inner) or pa.types.is_boolean(inner))


def to_numpy(values: pa.Array) -> NDArray[Any]:
    """Return Arrow values as the NumPy array that a predicate sees.

    Arrays of numbers, which must have one length, become the rows of a matrix. Everything that is not a number becomes
    Python objects, and so do whole numbers and booleans with NULLs among them.
    """
    if is_vectors(values.type) and values.null_count < len(values):
        inside = values.flatten()
        return _freeze(to_numpy(inside).reshape(len(values), len(inside) // len(values)))
    kind = values.type
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    if pa.types.is_floating(kind) or (whole and not values.null_count):
        return _freeze(values.to_numpy(zero_copy_only=False))
    return _freeze(np.fromiter(values.to_pylist(), dtype=object, count=len(values)))


def to_python(value: pa.Scalar) -> Any:
    """Return one value as a predicate sees it: an array of numbers as NumPy's, anything else as a Python object."""
    return to_numpy(value.values) if is_vectors(value.type) and value.is_valid else value.as_py()


def _rows(values: Any, at: Ints) -> Any:
    """Return rows of an Arrow or NumPy array; consecutive rows as a view."""
    if len(at) and at[-1] - at[0] == len(at) - 1 and (at[1:] - at[:-1] == 1).all():
        return values[int(at[0]) : int(at[-1]) + 1]
    return values.take(at, axis=0) if isinstance(values, np.ndarray) else values.take(at)


def _freeze(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array made read-only: the next call may get the same."""
    values.flags.writeable = False
    return values
