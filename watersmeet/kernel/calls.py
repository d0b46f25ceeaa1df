"""Python predicates: each distinct combination of argument rows is asked once.

[!] Partial results that share members share their answers; chained engines ask an image predicate four times too often
for lack of this. What was answered before is kept in `answers`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import PredicateError
from watersmeet.limits import limits
from watersmeet.predicate.model import Argument, PythonPredicate

Ints = NDArray[np.int64]
Answers = NDArray[np.int8]
Fetch = Callable[[Argument, Ints], tuple[pa.Array, Ints]]
"""Returns values that hold those of an argument for references of rows of its stream, and where in them each is."""

UNKNOWN, FALSE, TRUE, NULL = 0, 1, 2, 3
CONSTANT = -1
"""Stands for the stream of an argument that reads no stream."""


@dataclass(slots=True)
class CallCost:
    """What a predicate has cost so far, and how often it held."""

    asked: int = 0
    held: int = 0
    seconds: float = 0.0

    def add(self, answers: Answers, seconds: float) -> None:
        """Note what asking about some combinations took."""
        self.asked += len(answers)
        self.held += int(np.count_nonzero(answers == TRUE))
        self.seconds += seconds

    def plus(self, other: "CallCost | None") -> "CallCost":
        """Return the sum of two costs."""
        if other is None:
            return self
        return CallCost(self.asked + other.asked, self.held + other.held, self.seconds + other.seconds)

    @property
    def rank(self) -> float:
        """CallCost per pair divided by the share it rejects: the predicate with the lowest rank goes first."""
        if not self.asked:
            return 0.0
        return self.seconds / self.asked / max(1.0 - self.held / self.asked, 1e-9)


def distinct(keys: Sequence[Ints]) -> tuple[list[Ints], NDArray[np.intp]]:
    """Return the distinct combinations of several key columns, and for each row which combination it is."""
    order, changes = _sorted(keys)
    first = np.append(True, changes)[: len(order)]
    inverse = np.empty(len(order), np.intp)
    inverse[order] = np.cumsum(first) - 1
    return [key[order[first]] for key in keys], inverse


def groups(keys: Sequence[Ints]) -> list[NDArray[np.intp]]:
    """Return the positions of equal combinations of several key columns, in order, one array a combination."""
    order, changes = _sorted(keys)
    return np.split(order, np.flatnonzero(changes) + 1)


def _sorted(keys: Sequence[Ints]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the order that sorts rows by several key columns; for each but the last, whether the next differs."""
    order = np.lexsort(keys[::-1])
    changes: NDArray[np.bool_] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    return order, changes


def ask(predicate: PythonPredicate, arguments: Sequence[Argument], refs: dict[int, Ints], fetch: Fetch) -> Answers:
    """Ask a predicate about combinations of rows.

    Args:
        predicate: The predicate.
        arguments: Its arguments, as `where` gives them.
        refs: For each stream that the arguments name, the references of the rows, one per combination.
        fetch: Looks an argument's values up.

    Returns:
        TRUE, FALSE or NULL per combination.

    Raises:
        PredicateError: If the predicate raises or does not answer with a mask of the right length.
    """
    sides = [argument.columns[0].stream if argument.columns else CONSTANT for argument in arguments]
    lead = next((side for side in sides if side != CONSTANT), CONSTANT)
    size = len(next(iter(refs.values())))
    nothing = np.zeros(size, dtype=np.int64)
    found = [fetch(argument, refs.get(side, nothing)) for argument, side in zip(arguments, sides, strict=True)]
    valid = np.ones(size, dtype=bool) if predicate.nulls else ~np.any([_nulls(*column) for column in found], axis=0)
    answers: Answers = np.full(size, NULL, dtype=np.int8)
    if valid.any():
        columns = [
            _Column(values, at[valid], argument.text, side == lead)
            for (values, at), argument, side in zip(found, arguments, sides, strict=True)
        ]
        answers[valid] = _FORMS[predicate.form](predicate, columns)
    return answers


def _nulls(values: pa.Array, at: Ints) -> NDArray[np.bool_]:
    if not values.null_count:
        return np.zeros(len(at), dtype=bool)
    return values.is_null().to_numpy(zero_copy_only=False)[at]  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Column:
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

    def size(self) -> int:
        """Return how many rows there are in all combinations."""
        return int(np.count_nonzero(np.bincount(self.at)))

    def one(self, combinations: Ints) -> Any:
        """Return the value that combinations have in common."""
        return self.values[int(self.at[combinations[0]])].as_py()

    def some(self, arrow: bool) -> Callable[[Ints], Any]:
        """Return what returns the values of combinations."""
        values, at = self.used()
        if arrow:
            return lambda combinations: _rows(values, at[combinations])
        if pa.types.is_nested(values.type):  # a function may change lists: it has its own
            return lambda combinations: to_numpy(_rows(values, at[combinations]))
        given = to_numpy(values)
        return lambda combinations: _fixed(_rows(given, at[combinations]))

    def each(self) -> Iterable[Any]:
        """Return the value of each combination."""
        values, at = self.used()
        if pa.types.is_nested(values.type):
            return (values[row].as_py() for row in at.tolist())
        return map(values.to_pylist().__getitem__, at.tolist())

    def used(self) -> tuple[pa.Array, Ints]:
        """Return the values that are used, copied once if they are no run, and where each combination's is in them."""
        used = np.zeros(len(self.values), dtype=bool)
        used[self.at] = True
        return _rows(self.values, np.flatnonzero(used)), (np.cumsum(used) - 1)[self.at]


def _rows(values: Any, at: Ints) -> Any:
    """Return rows of an Arrow or NumPy array; a run of neighbours is a view."""
    if len(at) and at[-1] - at[0] == len(at) - 1 and (at[1:] - at[:-1] == 1).all():
        return values[int(at[0]) : int(at[-1]) + 1]
    return values.take(at)


def to_numpy(values: pa.Array) -> NDArray[Any]:
    """Return Arrow values as the NumPy array a predicate sees: numbers as such, everything else as Python objects."""
    kind = values.type
    if pa.types.is_floating(kind) or (
        (pa.types.is_integer(kind) or pa.types.is_boolean(kind)) and not values.null_count
    ):
        return _fixed(values.to_numpy(zero_copy_only=False))
    return _fixed(np.fromiter(values.to_pylist(), dtype=object, count=len(values)))


def _fixed(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array that can't be changed any more: the next call may be given the same."""
    values.flags.writeable = False
    return values


def _array(predicate: PythonPredicate, columns: Sequence[_Column]) -> Answers:
    columns = _led_by_fewer(*columns) if predicate.symmetric else columns
    out: Answers = np.empty(len(columns[0].at), dtype=np.int8)
    alone = all(column.leads for column in columns)  # then every row of the stream is a candidate of its own
    lead = next(column for column in columns if column.leads)  # as good as any other of its stream
    asked = [np.arange(len(out))] if alone else groups([lead.at])
    values = [column.one if column.leads and not alone else column.some(predicate.arrow) for column in columns]
    for group in asked:
        given = [of(group) for of in values]
        out[group] = _mask(_call(predicate, given, columns), (len(group),), predicate)
    return out


def _led_by_fewer(one: _Column, other: _Column) -> list[_Column]:
    """Return the two arguments of a symmetric predicate such that it is called as rarely as can be."""
    if one.leads == other.leads:
        return [one, other]
    few, many = sorted([one, other], key=_Column.size)
    return [replace(few, leads=True), replace(many, leads=False)]


def _pair(predicate: PythonPredicate, columns: Sequence[_Column]) -> Answers:
    given = zip(*(column.each() for column in columns), strict=True)
    return np.array([_truth(_call(predicate, values, columns), predicate) for values in given], dtype=np.int8)


def _matrix(predicate: PythonPredicate, columns: Sequence[_Column]) -> Answers:
    (lefts, left_at), (rights, right_at) = _side(columns, True), _side(columns, False)
    values = [column.some(predicate.arrow) for column in columns]
    out: Answers = np.empty(len(left_at), dtype=np.int8)
    step = max(1, limits().matrix_cells // len(rights))
    for start in range(0, len(lefts), step):
        some = lefts[start : start + step]
        given = [of(some if column.leads else rights) for column, of in zip(columns, values, strict=True)]
        turned = not columns[0].leads  # a constant stands first: its side are the rows of the answer
        shape = (len(rights), len(some)) if turned else (len(some), len(rights))
        mask = _mask(_call(predicate, given, columns), shape, predicate)
        mask = mask.T if turned else mask
        here = (left_at >= start) & (left_at < start + step)
        out[here] = mask[left_at[here] - start, right_at[here]]
    return out


def _side(columns: Sequence[_Column], leading: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return a combination for each distinct row of one side of a matrix, and which row each combination has."""
    size = len(columns[0].at)
    keys = [column.at for column in columns if column.leads == leading] or [np.zeros(size, dtype=np.int64)]
    at = distinct(keys)[1]
    rows = np.empty(at.max() + 1, dtype=np.intp)
    rows[at] = np.arange(size)
    return rows, at


_FORMS = {"array": _array, "pair": _pair, "matrix": _matrix}


def _call(predicate: PythonPredicate, given: Sequence[Any], columns: Sequence[_Column]) -> Any:
    try:
        return predicate.function(*given)
    except Exception as error:
        shown = ", ".join(
            f"{column.text}: {_kind(value)} ({column.values.type})"
            for column, value in zip(columns, given, strict=True)
        )
        raise PredicateError(
            f"Predicate '{predicate.name}' raised {type(error).__name__}: {error} for arguments {shown}; "
            "the batch was not written."
        ) from error


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray | pa.Array):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


def _truth(answer: Any, predicate: PythonPredicate) -> int:
    if _is_null(answer):
        return NULL
    if not isinstance(answer, bool | np.bool_):
        raise PredicateError(
            f"Predicate '{predicate.name}' answered {type(answer).__name__}; form 'pair' answers True, False or None."
        )
    return TRUE if answer else FALSE


def _is_null(answer: Any) -> bool:
    """Tell whether an answer stands for NULL: None, NumPy's masked, or the NA of pandas, which is not imported."""
    return answer is None or answer is np.ma.masked or type(answer).__name__ == "NAType"


def _mask(answer: Any, shape: tuple[int, ...], predicate: PythonPredicate) -> Answers:
    """Return a predicate's answer as TRUE, FALSE and NULL, checked."""
    values, null = _values(answer, predicate)
    if values.dtype != bool:
        raise PredicateError(f"Predicate '{predicate.name}' answered {values.dtype} values; a mask holds booleans.")
    if values.shape != shape:
        raise PredicateError(
            f"Predicate '{predicate.name}' answered a mask of shape {values.shape}; {shape} was expected."
        )
    filled: Answers = values + np.int8(FALSE)
    filled[null] = NULL
    return filled


def _values(answer: Any, predicate: PythonPredicate) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return a mask's values, those of NULL being FALSE if it is one of booleans, and where it is NULL."""
    if isinstance(answer, pa.Array | pa.ChunkedArray):
        answer = answer.to_numpy(zero_copy_only=False) if isinstance(answer, pa.Array) else answer.to_numpy()
    try:
        values = np.ma.getdata(answer) if isinstance(answer, np.ma.MaskedArray) else np.asarray(answer)
    except ValueError:
        raise PredicateError(
            f"Predicate '{predicate.name}' answered rows of different lengths; a mask has one shape."
        ) from None
    masked = isinstance(answer, np.ma.MaskedArray)
    null = np.array(np.ma.getmaskarray(answer)) if masked else np.zeros(values.shape, bool)
    if values.dtype == object:
        null |= np.array([_is_null(value) for value in values.ravel()], dtype=bool).reshape(values.shape)
        values = _booleans(np.where(null, False, values), predicate)
    return values, null


def _booleans(values: NDArray[Any], predicate: PythonPredicate) -> NDArray[np.bool_]:
    """Return objects as booleans, which they must be."""
    odd = next((value for value in values.ravel() if not isinstance(value, bool | np.bool_)), None)
    if odd is not None:
        raise PredicateError(
            f"Predicate '{predicate.name}' answered {type(odd).__name__} values; a mask holds booleans and None."
        )
    return values.astype(bool)
