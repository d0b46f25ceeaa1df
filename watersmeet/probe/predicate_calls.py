"""Calls of Python predicates for distinct combinations of argument rows.

[!] Partial results that share members share answers; without this, chained engines call an image predicate four times
too often. Answers are cached by `answer_cache`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Ints, Mask
from watersmeet.errors import PredicateError
from watersmeet.formatting import shorten
from watersmeet.limits import limits
from watersmeet.predicate.model import Argument, PythonPredicate
from watersmeet.predicate.types import spark_name

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


Answers = NDArray[np.int8]
Fetch = Callable[[Argument, Ints], tuple[pa.Array, Ints]]
"""Returns values that contain those of an argument for row references of its stream, and the position of each."""

UNKNOWN, FALSE, TRUE, NULL = 0, 1, 2, 3
CONSTANT = -1
"""The stream of an argument that reads no stream."""


@dataclass(slots=True)
class CallCost:
    """What a predicate has cost so far: combinations answered, those that matched, and seconds."""

    calls: int = 0
    matches: int = 0
    seconds: float = 0.0

    def add(self, answers: Answers, seconds: float) -> None:
        """Add some answers and the seconds they took."""
        self.calls += len(answers)
        self.matches += int(np.count_nonzero(answers == TRUE))
        self.seconds += seconds

    def plus(self, other: "CallCost | None") -> "CallCost":
        """Return the sum of two costs."""
        if other is None:
            return self
        return CallCost(self.calls + other.calls, self.matches + other.matches, self.seconds + other.seconds)

    @property
    def rank(self) -> float:
        """Seconds per pair divided by the share it rejects: the predicate with the lowest rank goes first."""
        if not self.calls:
            return 0.0
        return self.seconds / self.calls / max(1.0 - self.matches / self.calls, 1e-9)


def distinct(keys: Sequence[Ints]) -> tuple[list[Ints], NDArray[np.intp]]:
    """Return the distinct combinations of several key columns, and for each row the position of its combination."""
    order, changes = _sort_rows(keys)
    first = np.append(True, changes)[: len(order)]
    inverse = np.empty(len(order), np.intp)
    inverse[order] = np.cumsum(first) - 1
    return [key[order[first]] for key in keys], inverse


def groups(keys: Sequence[Ints]) -> list[NDArray[np.intp]]:
    """Return the positions of equal combinations of several key columns, in order, one array a combination."""
    order, changes = _sort_rows(keys)
    return np.split(order, np.flatnonzero(changes) + 1)


def _sort_rows(keys: Sequence[Ints]) -> tuple[NDArray[np.intp], Mask]:
    """Return the order that sorts rows by several key columns; for each but the last, whether the next differs."""
    order = np.lexsort(keys[::-1])
    changes: Mask = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    return order, changes


def ask(predicate: PythonPredicate, arguments: Sequence[Argument], refs: dict[int, Ints], fetch: Fetch) -> Answers:
    """Call a predicate for combinations of rows.

    Args:
        predicate: The predicate.
        arguments: Its arguments, as in `where`.
        refs: For each stream that the arguments name, the references of the rows, one per combination.
        fetch: Looks up an argument's values.

    Returns:
        TRUE, FALSE or NULL per combination.

    Raises:
        PredicateError: If the predicate raises or does not answer with a mask of the right length.
    """
    sides = [argument.columns[0].stream if argument.columns else CONSTANT for argument in arguments]
    lead = next((side for side in sides if side != CONSTANT), CONSTANT)
    size = len(next(iter(refs.values())))
    nothing = np.zeros(size, dtype=np.int64)
    sources = [fetch(argument, refs.get(side, nothing)) for argument, side in zip(arguments, sides, strict=True)]
    valid = np.ones(size, dtype=bool) if predicate.nulls else ~np.any([_nulls(*column) for column in sources], axis=0)
    answers: Answers = np.full(size, NULL, dtype=np.int8)
    if valid.any():
        columns = [
            ArgumentValues(values, at[valid], argument.text, side == lead)
            for (values, at), argument, side in zip(sources, arguments, sides, strict=True)
        ]
        answers[valid] = _ask_by_shape(predicate, columns)
    return answers


def _ask_by_shape(predicate: PythonPredicate, columns: Sequence[ArgumentValues]) -> Answers:
    """Call a predicate for all combinations, in separate calls for arrays of numbers of different lengths.

    [!] An argument must have the same dimensions whichever rows happen to come together.
    """
    answer = _FORMS[predicate.form]
    columns = _lead_with_fewer(*columns) if predicate.symmetric and predicate.form == "array" else columns
    batched = [] if predicate.form == "pair" or predicate.arrow else [*_batched_arguments(predicate, columns)]
    lengths = [sizes for column in batched if (sizes := column.lengths()) is not None]
    if not lengths:
        return answer(predicate, columns)
    answers: Answers = np.empty(len(columns[0].at), dtype=np.int8)
    for group in groups(lengths):
        answers[group] = answer(predicate, [column.of(group) for column in columns])
    return answers


def _batched_arguments(predicate: PythonPredicate, columns: Sequence[ArgumentValues]) -> Sequence[ArgumentValues]:
    """Return the arguments of which a call gets several values at once."""
    if predicate.form == "matrix" or all(column.leads for column in columns):
        return columns
    return [column for column in columns if not column.leads]


def _nulls(values: pa.Array, at: Ints) -> Mask:
    if not values.null_count:
        return np.zeros(len(at), dtype=bool)
    return values.is_null().to_numpy(zero_copy_only=False)[at]  # type: ignore[no-any-return]


def _call_arrays(predicate: PythonPredicate, columns: Sequence[ArgumentValues]) -> Answers:
    """Call a predicate of form 'array', once for each tuple of the stream that leads, with all its candidates.

    It is called just once if no argument reads another stream. Return the combinations' answers.
    """
    answers: Answers = np.empty(len(columns[0].at), dtype=np.int8)
    is_single = all(column.leads for column in columns)  # then every row of the stream is a candidate of its own
    lead = next(column for column in columns if column.leads)  # as good as any other of its stream
    lead_groups = [np.arange(len(answers))] if is_single else groups([lead.at])
    values = [column.one if column.leads and not is_single else column.getter(predicate.arrow) for column in columns]
    for group in lead_groups:
        arguments = [of(group) for of in values]
        answers[group] = _mask(_call(predicate, arguments, columns), (len(group),), predicate)
    return answers


def _lead_with_fewer(one: ArgumentValues, other: ArgumentValues) -> list[ArgumentValues]:
    """Return the two arguments of a symmetric predicate such that it is called as rarely as possible."""
    if one.leads == other.leads:
        return [one, other]
    fewer, more = sorted([one, other], key=ArgumentValues.size)
    return [replace(fewer, leads=True), replace(more, leads=False)]


def _call_pairs(predicate: PythonPredicate, columns: Sequence[ArgumentValues]) -> Answers:
    rows = zip(*(column.each() for column in columns), strict=True)
    return np.array([_truth(_call(predicate, values, columns), predicate) for values in rows], dtype=np.int8)


def _call_matrices(predicate: PythonPredicate, columns: Sequence[ArgumentValues]) -> Answers:
    """Call a predicate of form 'matrix' for blocks of distinct tuples of both sides; return the combinations' answers.

    Its answers for all other pairs of a block are dropped.
    """
    (lefts, left_at), (rights, right_at) = _side(columns, True), _side(columns, False)
    values = [column.getter(predicate.arrow) for column in columns]
    answers: Answers = np.empty(len(left_at), dtype=np.int8)
    step = max(1, limits().matrix_cells // len(rights))
    for start in range(0, len(lefts), step):
        block = lefts[start : start + step]
        arguments = [of(block if column.leads else rights) for column, of in zip(columns, values, strict=True)]
        is_turned = not columns[0].leads  # a constant comes first: its side forms the rows of the answer
        shape = (len(rights), len(block)) if is_turned else (len(block), len(rights))
        mask = _mask(_call(predicate, arguments, columns), shape, predicate)
        mask = mask.T if is_turned else mask
        here = (left_at >= start) & (left_at < start + step)
        answers[here] = mask[left_at[here] - start, right_at[here]]
    return answers


def _side(columns: Sequence[ArgumentValues], leading: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return a combination for each distinct row of one side of a matrix, and which row each combination has."""
    size = len(columns[0].at)
    keys = [column.at for column in columns if column.leads == leading] or [np.zeros(size, dtype=np.int64)]
    at = distinct(keys)[1] if len(keys) > 1 else _ranks(keys[0])
    rows = np.empty(at.max() + 1, dtype=np.intp)
    rows[at] = np.arange(size)
    return rows, at


def _ranks(at: Ints) -> NDArray[np.intp]:
    """Return the dense rank of each position, without sorting: positions are small numbers."""
    mask = np.zeros(int(at.max()) + 1, dtype=bool)
    mask[at] = True
    return (np.cumsum(mask) - 1)[at]


_FORMS = {"array": _call_arrays, "pair": _call_pairs, "matrix": _call_matrices}


def _call(predicate: PythonPredicate, arguments: Sequence[Any], columns: Sequence[ArgumentValues]) -> Any:
    """Call the user's function; what it raises becomes a PredicateError that shows the arguments."""
    try:
        return predicate.function(*arguments)
    except (Exception, SystemExit) as error:  # sys.exit() would end the process of a task without a word
        parts = ", ".join(
            f"{column.text}{_describe_value(value)} ({spark_name(column.values.type)})"
            for column, value in zip(columns, arguments, strict=True)
        )
        raise PredicateError(
            f"Predicate '{predicate.name}' raised {type(error).__name__}: {error} for arguments {parts}; "
            "the batch was not written."
        ) from error


def _describe_value(value: Any) -> str:
    """Return an argument as an error shows it: a single value itself, many by their type and size."""
    if isinstance(value, np.ndarray):
        return f": ndarray of {' x '.join(map(str, value.shape))}"
    if isinstance(value, pa.Array):
        return f": {type(value).__name__} of {len(value)}"
    return f" = {shorten(value)}"


def _truth(answer: Any, predicate: PythonPredicate) -> int:
    """Return an answer for one pair as TRUE, FALSE or NULL; raises PredicateError if it is anything else."""
    if _is_null(answer):
        return NULL
    if not isinstance(answer, bool | np.bool_):
        raise PredicateError(
            f"Predicate '{predicate.name}' returned {type(answer).__name__}; form 'pair' returns True, False or None."
        )
    return TRUE if answer else FALSE


def _is_null(answer: Any) -> bool:
    """Tell whether an answer means NULL: None, NumPy's masked, or the NA of pandas, which is not imported."""
    return answer is None or answer is np.ma.masked or type(answer).__name__ == "NAType"


def _mask(answer: Any, shape: tuple[int, ...], predicate: PythonPredicate) -> Answers:
    """Return a predicate's answer as TRUE, FALSE and NULL; raises PredicateError if it isn't a mask of that shape."""
    values, null = _values(answer, predicate)
    if values.dtype != bool:
        raise PredicateError(f"Predicate '{predicate.name}' returned {values.dtype} values; a mask must hold booleans.")
    if values.shape != shape:
        raise PredicateError(
            f"Predicate '{predicate.name}' returned a mask of shape {values.shape}; {shape} was expected."
        )
    mask: Answers = values + np.int8(FALSE)
    mask[null] = NULL
    return mask


def _values(answer: Any, predicate: PythonPredicate) -> tuple[NDArray[Any], Mask]:
    """Return a mask's values, with FALSE for NULL in a mask of booleans, and where it is NULL.

    Raises:
        PredicateError: If it has rows of different lengths, or objects that are no booleans.
    """
    if isinstance(answer, pa.Array | pa.ChunkedArray):
        answer = answer.to_numpy(zero_copy_only=False) if isinstance(answer, pa.Array) else answer.to_numpy()
    try:
        values = np.ma.getdata(answer) if isinstance(answer, np.ma.MaskedArray) else np.asarray(answer)
    except ValueError:
        raise PredicateError(
            f"Predicate '{predicate.name}' returned rows of different lengths; a mask has one shape."
        ) from None
    masked = isinstance(answer, np.ma.MaskedArray)
    null = np.array(np.ma.getmaskarray(answer)) if masked else np.zeros(values.shape, bool)
    if values.dtype == object:
        null |= np.array([_is_null(value) for value in values.ravel()], dtype=bool).reshape(values.shape)
        values = _booleans(np.where(null, False, values), predicate)
    return values, null


def _booleans(values: NDArray[Any], predicate: PythonPredicate) -> Mask:
    """Return objects as booleans; raises PredicateError if one is not."""
    odd = next((value for value in values.ravel() if not isinstance(value, bool | np.bool_)), None)
    if odd is not None:
        raise PredicateError(
            f"Predicate '{predicate.name}' returned {type(odd).__name__} values; a mask must hold booleans and None."
        )
    return values.astype(bool)
