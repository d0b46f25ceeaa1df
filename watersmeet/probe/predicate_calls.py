"""Python predicates: each distinct combination of argument rows is asked once.

[!] Partial results that share members share their answers; chained engines ask an image predicate four times too often
for lack of this. What was answered before is kept in `answers`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.errors import PredicateError
from watersmeet.formatting import shorten
from watersmeet.limits import limits
from watersmeet.predicate.model import Argument, PythonPredicate
from watersmeet.predicate.type_names import spark_name
from watersmeet.probe.predicate_arguments import Given

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
            Given(values, at[valid], argument.text, side == lead)
            for (values, at), argument, side in zip(found, arguments, sides, strict=True)
        ]
        answers[valid] = _asked(predicate, columns)
    return answers


def _asked(predicate: PythonPredicate, columns: Sequence[Given]) -> Answers:
    """Ask about all combinations, those whose arrays of numbers are of different lengths in calls of their own.

    [!] What a function is given must have as many dimensions whichever rows happen to come together.
    """
    answer = _FORMS[predicate.form]
    columns = _led_by_fewer(*columns) if predicate.symmetric and predicate.form == "array" else columns
    shaped = [] if predicate.form == "pair" or predicate.arrow else [*_several(predicate, columns)]
    lengths = [found for column in shaped if (found := column.lengths()) is not None]
    if not lengths:
        return answer(predicate, columns)
    out: Answers = np.empty(len(columns[0].at), dtype=np.int8)
    for group in groups(lengths):
        out[group] = answer(predicate, [column.of(group) for column in columns])
    return out


def _several(predicate: PythonPredicate, columns: Sequence[Given]) -> Sequence[Given]:
    """Return the arguments of which a function is given several values at once."""
    if predicate.form == "matrix" or all(column.leads for column in columns):
        return columns
    return [column for column in columns if not column.leads]


def _nulls(values: pa.Array, at: Ints) -> NDArray[np.bool_]:
    if not values.null_count:
        return np.zeros(len(at), dtype=bool)
    return values.is_null().to_numpy(zero_copy_only=False)[at]  # type: ignore[no-any-return]


def _array(predicate: PythonPredicate, columns: Sequence[Given]) -> Answers:
    out: Answers = np.empty(len(columns[0].at), dtype=np.int8)
    alone = all(column.leads for column in columns)  # then every row of the stream is a candidate of its own
    lead = next(column for column in columns if column.leads)  # as good as any other of its stream
    asked = [np.arange(len(out))] if alone else groups([lead.at])
    values = [column.one if column.leads and not alone else column.some(predicate.arrow) for column in columns]
    for group in asked:
        given = [of(group) for of in values]
        out[group] = _mask(_call(predicate, given, columns), (len(group),), predicate)
    return out


def _led_by_fewer(one: Given, other: Given) -> list[Given]:
    """Return the two arguments of a symmetric predicate such that it is called as rarely as can be."""
    if one.leads == other.leads:
        return [one, other]
    few, many = sorted([one, other], key=Given.size)
    return [replace(few, leads=True), replace(many, leads=False)]


def _pair(predicate: PythonPredicate, columns: Sequence[Given]) -> Answers:
    given = zip(*(column.each() for column in columns), strict=True)
    return np.array([_truth(_call(predicate, values, columns), predicate) for values in given], dtype=np.int8)


def _matrix(predicate: PythonPredicate, columns: Sequence[Given]) -> Answers:
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


def _side(columns: Sequence[Given], leading: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return a combination for each distinct row of one side of a matrix, and which row each combination has."""
    size = len(columns[0].at)
    keys = [column.at for column in columns if column.leads == leading] or [np.zeros(size, dtype=np.int64)]
    at = distinct(keys)[1] if len(keys) > 1 else _ranks(keys[0])
    rows = np.empty(at.max() + 1, dtype=np.intp)
    rows[at] = np.arange(size)
    return rows, at


def _ranks(at: Ints) -> NDArray[np.intp]:
    """Return for each place how many distinct ones are below it, without sorting: places are small numbers."""
    used = np.zeros(int(at.max()) + 1, dtype=bool)
    used[at] = True
    return (np.cumsum(used) - 1)[at]


_FORMS = {"array": _array, "pair": _pair, "matrix": _matrix}


def _call(predicate: PythonPredicate, given: Sequence[Any], columns: Sequence[Given]) -> Any:
    try:
        return predicate.function(*given)
    except Exception as error:
        shown = ", ".join(
            f"{column.text}{_told(value)} ({spark_name(column.values.type)})"
            for column, value in zip(columns, given, strict=True)
        )
        raise PredicateError(
            f"Predicate '{predicate.name}' raised {type(error).__name__}: {error} for arguments {shown}; "
            "the batch was not written."
        ) from error


def _told(value: Any) -> str:
    """Return what an error says of an argument: of one value that, of many what holds them."""
    if isinstance(value, np.ndarray):
        return f": ndarray of {' x '.join(map(str, value.shape))}"
    if isinstance(value, pa.Array):
        return f": {type(value).__name__} of {len(value)}"
    return f" = {shorten(value)}"


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
