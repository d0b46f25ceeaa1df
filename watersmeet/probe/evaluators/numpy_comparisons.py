"""Comparisons of numbers, evaluated in NumPy for pairs before these become partial results."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Floats, Ints, Mask
from watersmeet.predicate.model import Column
from watersmeet.predicate.numeric import Number, NumericComparison, NumericLeaf

Array = NDArray[Any]


class Numbers(NamedTuple):
    """Numbers, one for each pair or one for all.

    Attributes:
        values: The numbers; anything where there is none.
        valid: Where there is one, which is where it isn't NULL; None for everywhere.
    """

    values: Array
    valid: Mask | None = None


Gather = Callable[[Column], Numbers]
"""Returns a column for each pair."""


def take_numbers(values: pa.Array, at: Ints) -> Numbers:
    """Return the numbers at some positions of a column: dates in days, timestamps in microseconds."""
    valid = None
    if values.null_count:
        values, at = values.take(pa.array(at)), np.arange(len(at))
        valid = values.is_valid().to_numpy(zero_copy_only=False)
    kind = values.type
    if pa.types.is_timestamp(kind):
        values = values.view(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.view(pa.int32())
    if valid is not None:
        values = values.fill_null(0)
    return Numbers(values.to_numpy()[at], valid)


def true_pairs(comparisons: Sequence[NumericComparison], gather: Gather) -> Mask:
    """Return for which pairs all of some comparisons are TRUE."""
    return reduce(np.logical_and, (_is_true(comparison, gather) for comparison in comparisons))


def double_values(number: Number, gather: Gather, rows: int) -> Floats:
    """Return a number for each of some rows, NaN where it is NULL."""
    values, valid = _evaluate(number, gather, exact=False)
    values = np.broadcast_to(values, rows)
    return values if valid is None else np.where(valid, values, np.nan)


def _is_true(comparison: NumericComparison, gather: Gather) -> Mask:
    """Return for which pairs a comparison is TRUE, in Spark's order of numbers."""
    left, right = (_evaluate(side, gather, exact=comparison.exact) for side in (comparison.left, comparison.right))
    mask: Mask = _RELATIONS[comparison.relation](left.values, right.values)
    for side in (left, right):
        if side.valid is not None:
            mask = mask & side.valid
    return mask


def _evaluate(number: Number, gather: Gather, *, exact: bool) -> Numbers:
    """Return a number for each pair, or one for all: a long if `exact`, else a double; NULL where a part is NULL."""
    kind = np.int64 if exact else np.float64
    if isinstance(number, NumericLeaf):
        if number.column is None:
            return Numbers(np.asarray(number.constant, kind))
        numbers = gather(number.column)
        return numbers._replace(values=numbers.values.astype(kind, copy=False))
    parts = [_evaluate(part, gather, exact=False) for part in number.parts]
    valid = [part.valid for part in parts if part.valid is not None]
    with np.errstate(all="ignore"):  # infinity and NaN, as in Spark
        values = _OPERATIONS[number.sign](*(part.values for part in parts))
    return Numbers(values, reduce(np.logical_and, valid) if valid else None)


_OPERATIONS: dict[str, Callable[..., Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "abs": np.abs,
    "negate": np.negative,
    "this if NaN, else": lambda one, other: _choose(np.isnan(one), one, other),
    "-inf if NaN": lambda value: _choose(np.isnan(value), np.asarray(-np.inf), value),
}


def _choose(mask: Mask, one: Array, other: Array) -> Array:
    return np.where(mask, one, other)


def _less(left: Array, right: Array) -> Mask:
    mask: Mask = left < right
    return mask if not _has_nan(right) else mask | (np.isnan(right) & ~np.isnan(left))


def _at_most(left: Array, right: Array) -> Mask:
    mask: Mask = left <= right
    return mask if not _has_nan(right) else mask | np.isnan(right)


def _equal(left: Array, right: Array) -> Mask:
    mask: Mask = left == right
    return mask if not _has_nan(right) else mask | (np.isnan(left) & np.isnan(right))


def _has_nan(values: Array) -> bool:
    return values.dtype.kind == "f" and bool(np.isnan(values).any())


_RELATIONS: dict[str, Callable[[Array, Array], Mask]] = {"<": _less, "<=": _at_most, "=": _equal}
