"""Python predicates: each distinct combination of argument rows is asked once.

[!] Partial results that share members share their answers; chained engines ask an image predicate four times too often
for lack of this. Answers for pairs of stored rows are also remembered from one block to the next.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import PredicateError
from watersmeet.predicate.model import Argument, PythonPredicate

Ints = NDArray[np.int64]
Answers = NDArray[np.int8]
Fetch = Callable[[Argument, Ints], tuple[pa.Array, Ints]]
"""Returns values that hold those of an argument for references of rows of its stream, and where in them each is."""

FALSE, TRUE, NULL, UNKNOWN = 0, 1, 2, 3
MATRIX_CELLS = 1 << 20
CONSTANT = -1
"""Stands for the stream of an argument that reads no stream."""


@dataclass(slots=True)
class Cost:
    """What a predicate has cost so far, and how often it held."""

    asked: int = 0
    held: int = 0
    seconds: float = 0.0

    def add(self, answers: Answers, seconds: float) -> None:
        """Note what asking about some combinations took."""
        self.asked += len(answers)
        self.held += int(np.count_nonzero(answers == TRUE))
        self.seconds += seconds

    def plus(self, other: "Cost | None") -> "Cost":
        """Return the sum of two costs."""
        if other is None:
            return self
        return Cost(self.asked + other.asked, self.held + other.held, self.seconds + other.seconds)

    @property
    def rank(self) -> float:
        """Cost per pair divided by the share it rejects: the predicate with the lowest rank goes first."""
        if not self.asked:
            return 0.0
        return self.seconds / self.asked / max(1.0 - self.held / self.asked, 1e-9)


class Memory:
    """Answers of two-stream calls for pairs of chunks, kept between blocks; the oldest are dropped first."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit, self._size = limit, 0
        self._answers: OrderedDict[Any, Answers] = OrderedDict()

    def table(self, key: Any, shape: tuple[int, int]) -> Answers | None:
        """Return the answers known for a pair of chunks, to be filled in place; None if it is too large to keep."""
        if shape[0] * shape[1] > self._limit // 4:
            return None
        if key in self._answers:
            self._answers.move_to_end(key)
            return self._answers[key]
        table = self._answers[key] = np.full(shape, UNKNOWN, dtype=np.int8)
        self._size += table.size
        while self._size > self._limit:
            self._size -= self._answers.popitem(last=False)[1].size
        return table


def distinct(keys: Sequence[Ints]) -> tuple[list[Ints], NDArray[np.intp]]:
    """Return the distinct combinations of several key columns, and for each row which combination it is."""
    order = np.lexsort(keys[::-1])
    changes = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    first = np.append(True, changes)[: len(order)]
    inverse = np.empty(len(order), np.intp)
    inverse[order] = np.cumsum(first) - 1
    return [key[order[first]] for key in keys], inverse


def groups(keys: Sequence[Ints]) -> list[NDArray[np.intp]]:
    """Return the positions of equal combinations of several key columns, one array a combination."""
    inverse = distinct(keys)[1]
    order = np.argsort(inverse, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)


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
    columns = [
        _Column.of(argument, refs.get(side, nothing), fetch) for argument, side in zip(arguments, sides, strict=True)
    ]
    answers: Answers = np.full(size, NULL, dtype=np.int8)
    valid = np.ones(size, dtype=bool) if predicate.nulls else ~np.any([c.nulls for c in columns], axis=0)
    rows = np.flatnonzero(valid)
    if len(rows):
        leading = [side == lead for side in sides]
        answers[rows] = _FORMS[predicate.form](predicate, columns, leading, rows)
    return answers


@dataclass(frozen=True, slots=True)
class _Column:
    """Values that hold an argument's, and where in them that of each combination is."""

    values: pa.Array
    at: Ints
    text: str

    @staticmethod
    def of(argument: Argument, refs: Ints, fetch: Fetch) -> "_Column":
        return _Column(*fetch(argument, refs), argument.text)

    @property
    def nulls(self) -> NDArray[np.bool_]:
        if not self.values.null_count:
            return np.zeros(len(self.at), dtype=bool)
        return self.values.is_null().to_numpy(zero_copy_only=False)[self.at]  # type: ignore[no-any-return]

    def one(self, row: int) -> Any:
        return self.values[int(self.at[row])].as_py()

    def some(self, rows: Ints, arrow: bool) -> Any:
        """Return the values of several combinations; a run of neighbours is a view."""
        at = self.at[rows]
        if at[-1] - at[0] == len(at) - 1 and (at[1:] - at[:-1] == 1).all():
            taken = self.values.slice(int(at[0]), len(at))
        else:
            taken = self.values.take(pa.array(at))
        return taken if arrow else to_numpy(taken)


def to_numpy(values: pa.Array) -> NDArray[Any]:
    """Return Arrow values as the NumPy array a predicate sees: numbers as such, everything else as Python objects."""
    kind = values.type
    if pa.types.is_floating(kind) or (
        (pa.types.is_integer(kind) or pa.types.is_boolean(kind)) and not values.null_count
    ):
        return values.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    objects = np.empty(len(values), dtype=object)
    objects[:] = values.to_pylist()
    return objects


def _groups(columns: Sequence[_Column], leading: Sequence[bool], rows: Ints) -> list[Ints]:
    """Return the combinations grouped by the leading stream's row."""
    lead = next(column for column, first in zip(columns, leading, strict=True) if first)
    order = rows[np.argsort(lead.at[rows], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(lead.at[order])) + 1)


def _array(predicate: PythonPredicate, columns: Sequence[_Column], leading: Sequence[bool], rows: Ints) -> Answers:
    out: Answers = np.empty(int(rows.max()) + 1, dtype=np.int8)
    if all(leading):  # only one stream (and constants): every row is a candidate of its own
        leading = [False] * len(columns)
        groups = [rows]
    else:
        groups = _groups(columns, leading, rows)
    for group in groups:
        given = [
            column.one(group[0]) if first else column.some(group, predicate.arrow)
            for column, first in zip(columns, leading, strict=True)
        ]
        out[group] = _mask(_call(predicate, given, columns), (len(group),), predicate)
    return out[rows]


def _pair(predicate: PythonPredicate, columns: Sequence[_Column], leading: Sequence[bool], rows: Ints) -> Answers:
    given = zip(*(column.values.take(pa.array(column.at[rows])).to_pylist() for column in columns), strict=True)
    return np.array([_truth(_call(predicate, values, columns), predicate) for values in given], dtype=np.int8)


def _matrix(predicate: PythonPredicate, columns: Sequence[_Column], leading: Sequence[bool], rows: Ints) -> Answers:
    lefts, left_at = distinct([c.at[rows] for c, first in zip(columns, leading, strict=True) if first])
    others = [c.at[rows] for c, first in zip(columns, leading, strict=True) if not first]
    rights, right_at = distinct(others or [np.zeros(len(rows), dtype=np.int64)])
    out: Answers = np.full(len(rows), NULL, dtype=np.int8)
    step = max(1, MATRIX_CELLS // max(1, len(rights[0])))
    for start in range(0, len(lefts[0]), step):
        left, right = iter([key[start : start + step] for key in lefts]), iter(rights)
        given = [
            _plain(column.values.take(pa.array(next(left) if first else next(right))), predicate.arrow)
            for column, first in zip(columns, leading, strict=True)
        ]
        size = min(step, len(lefts[0]) - start)
        mask = _mask(_call(predicate, given, columns), (size, len(rights[0])), predicate)
        here = (left_at >= start) & (left_at < start + size)
        out[here] = mask[left_at[here] - start, right_at[here]]
    return out


_FORMS = {"array": _array, "pair": _pair, "matrix": _matrix}


def _plain(values: pa.Array, arrow: bool) -> Any:
    return values if arrow else to_numpy(values)


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
    if answer is None:
        return NULL
    if not isinstance(answer, bool | np.bool_):
        raise PredicateError(
            f"Predicate '{predicate.name}' answered {type(answer).__name__}; form 'pair' answers True, False or None."
        )
    return TRUE if answer else FALSE


def _mask(answer: Any, shape: tuple[int, ...], predicate: PythonPredicate) -> Answers:
    """Return a predicate's answer as TRUE, FALSE and NULL, checked."""
    if isinstance(answer, pa.Array | pa.ChunkedArray):
        answer = answer.to_numpy(zero_copy_only=False) if isinstance(answer, pa.Array) else answer.to_numpy()
    mask = np.asarray(answer)
    if mask.dtype == object:
        null = np.array([value is None for value in mask.ravel()]).reshape(mask.shape)
        filled: Answers = np.where(null, False, mask).astype(bool).astype(np.int8)
        filled[null] = NULL
    elif mask.dtype == bool:
        filled = mask.astype(np.int8)
    else:
        raise PredicateError(f"Predicate '{predicate.name}' answered {mask.dtype} values; a mask holds booleans.")
    if filled.shape != shape:
        raise PredicateError(
            f"Predicate '{predicate.name}' answered a mask of shape {filled.shape}; {shape} was expected."
        )
    return filled
