"""What a Python predicate is given: values of an argument as NumPy or Arrow arrays, or as Python objects."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Ints

MISSING = -1
"""Stands for the length of an array that is NULL."""


@dataclass(frozen=True, slots=True)
class Given:
    """Values that hold an argument's, and where in them that of each combination is.

    Attributes:
        values: The values.
        at: Where that of each combination is.
        text: The argument, as it was written.
        leads: Whether it is of the leading stream, whose rows the form `array` is given one by one.
    """

    values: pa.Array
    at: Ints
    text: str
    leads: bool

    def of(self, combinations: Ints) -> "Given":
        """Return the same argument of some combinations."""
        return replace(self, at=self.at[combinations])

    def size(self) -> int:
        """Return how many rows there are in all combinations."""
        return int(np.count_nonzero(np.bincount(self.at)))

    def lengths(self) -> Ints | None:
        """Return for each combination how long its array of numbers is; None if all are of one length, or no arrays."""
        if not is_vectors(self.values.type):
            return None
        found = pc.list_value_length(self.values).fill_null(MISSING).to_numpy(zero_copy_only=False).astype(np.int64)
        mine: Ints = found[self.at] if (found != found[:1]).any() else found[:0]
        return mine if (mine != mine[:1]).any() else None

    def one(self, combinations: Ints) -> Any:
        """Return the value that combinations have in common."""
        return to_python(self.values[int(self.at[combinations[0]])])

    def some(self, arrow: bool) -> Callable[[Ints], Any]:
        """Return what returns the values of combinations; arrays of numbers must be of one length."""
        values, at = self.used()
        if arrow:
            return lambda combinations: _rows(values, at[combinations])
        if pa.types.is_nested(values.type) and not is_vectors(values.type):
            # A function may change lists: it has its own.
            return lambda combinations: to_numpy(_rows(values, at[combinations]))
        given = to_numpy(values)
        return lambda combinations: _fixed(_rows(given, at[combinations]))

    def each(self) -> Iterable[Any]:
        """Return the value of each combination."""
        values, at = self.used()
        if is_vectors(values.type):
            return map([to_python(value) for value in values].__getitem__, at.tolist())
        if pa.types.is_nested(values.type):
            return (values[row].as_py() for row in at.tolist())
        return map(values.to_pylist().__getitem__, at.tolist())

    def used(self) -> tuple[pa.Array, Ints]:
        """Return the values that are used, copied once if they are no run, and where each combination's is in them."""
        used = np.zeros(len(self.values), dtype=bool)
        used[self.at] = True
        return _rows(self.values, np.flatnonzero(used)), (np.cumsum(used) - 1)[self.at]


def is_vectors(kind: pa.DataType) -> bool:
    """Tell whether values are arrays of numbers or booleans, which predicates see as arrays of NumPy's."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return False
    inner = kind.value_type
    return bool(pa.types.is_floating(inner) or pa.types.is_integer(inner) or pa.types.is_boolean(inner))


def to_numpy(values: pa.Array) -> NDArray[Any]:
    """Return Arrow values as the NumPy array that a predicate sees.

    Numbers are such; arrays of numbers, which must be of one length, are the rows of a matrix. Everything else is
    Python objects, and so are whole numbers and booleans with NULLs among them.
    """
    if is_vectors(values.type) and values.null_count < len(values):
        inside = values.flatten()
        return _fixed(to_numpy(inside).reshape(len(values), len(inside) // len(values)))
    kind = values.type
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    if pa.types.is_floating(kind) or (whole and not values.null_count):
        return _fixed(values.to_numpy(zero_copy_only=False))
    return _fixed(np.fromiter(values.to_pylist(), dtype=object, count=len(values)))


def to_python(value: pa.Scalar) -> Any:
    """Return one value as a predicate sees it: arrays of numbers as such, everything else as Python has it."""
    return to_numpy(value.values) if is_vectors(value.type) and value.is_valid else value.as_py()


def _rows(values: Any, at: Ints) -> Any:
    """Return rows of an Arrow or NumPy array; a run of neighbours is a view."""
    if len(at) and at[-1] - at[0] == len(at) - 1 and (at[1:] - at[:-1] == 1).all():
        return values[int(at[0]) : int(at[-1]) + 1]
    return values.take(at, axis=0) if isinstance(values, np.ndarray) else values.take(at)


def _fixed(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array that can't be changed any more: the next call may be given the same."""
    values.flags.writeable = False
    return values
