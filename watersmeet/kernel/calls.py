"""Python predicates: each distinct combination of argument rows is asked once.

[!] Partial results that share members share their answers; chained engines ask an image predicate four times too often
for lack of this. Answers for pairs of stored rows are also remembered from one block to the next.
"""

import hashlib
import mmap
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import PredicateError
from watersmeet.predicate.model import Argument, PythonPredicate

Ints = NDArray[np.int64]
Answers = NDArray[np.int8]
Fetch = Callable[[Argument, Ints], tuple[pa.Array, Ints]]
"""Returns values that hold those of an argument for references of rows of its stream, and where in them each is."""

UNKNOWN, FALSE, TRUE, NULL = 0, 1, 2, 3
MATRIX_CELLS = 1 << 20
SHARED = 1024
"""How many tables of answers a process shares at most: each takes a file descriptor."""
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


class Asked(NamedTuple):
    """What answers are remembered for: a call, in one start of a query, about the rows of two chunks."""

    run: str
    left: str
    right: str
    call: str

    @property
    def name(self) -> str:
        """A name for a file: short, and never that of another."""
        return "-".join(_digest(part) for part in self)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Memory:
    """Answers of two-stream calls for pairs of chunks, kept between blocks; the oldest are dropped first.

    Args:
        folder: Where processes share what they know, made when need be; None to keep it in this one.
        limit: How many answers this process keeps.
    """

    def __init__(self, folder: Path | None = None, limit: int = 64 << 20) -> None:
        self._folder, self._limit, self._size = folder, limit, 0
        self._answers: OrderedDict[Asked, Answers] = OrderedDict()

    def table(self, asked: Asked, shape: tuple[int, int]) -> Answers | None:
        """Return the answers known for a pair of chunks, to be filled in place; None if it is too large to keep."""
        if shape[0] * shape[1] > self._limit // 4:
            return None
        if asked in self._answers:
            self._answers.move_to_end(asked)
            return self._answers[asked]
        table = self._answers[asked] = self._opened(asked, shape)
        self._size += table.size
        while self._size > self._limit:
            self._forget(next(iter(self._answers)))
        return table

    def keep(self, run: str, chunks: Collection[str]) -> None:
        """Forget what is known about all but some chunks, also what processes that are gone have left."""
        for asked in list(self._answers):
            if asked.run == run and not (asked.left in chunks and asked.right in chunks):
                self._forget(asked)
        if self._folder is None:
            return
        kept = {_digest(chunk) for chunk in chunks}
        for path in self._folder.glob(f"{_digest(run)}-*"):
            if not kept.issuperset(path.name.split("-")[1:3]):
                path.unlink(missing_ok=True)

    def _opened(self, asked: Asked, shape: tuple[int, int]) -> Answers:
        """Return a table of answers, that of a file if it can be shared: all UNKNOWN if it is new.

        [!] Tasks fill it in at the same time, without a lock: an answer is one byte, and everybody's is the same.
        """
        if self._folder is None:
            return np.zeros(shape, dtype=np.int8)
        while len(self._answers) >= SHARED and (oldest := next(iter(self._answers))).run != asked.run:
            self._forget(oldest)  # most likely of a query that has ended
        if len(self._answers) < SHARED:
            with suppress(OSError):  # no place or no permission: then it is not shared
                self._folder.mkdir(parents=True, exist_ok=True)
                return _mapped(self._folder / asked.name, shape)
        return np.zeros(shape, dtype=np.int8)

    def _forget(self, asked: Asked) -> None:
        self._size -= self._answers.pop(asked).size
        if self._folder is not None:
            (self._folder / asked.name).unlink(missing_ok=True)


def _mapped(path: Path, shape: tuple[int, int]) -> Answers:
    size = shape[0] * shape[1]
    with path.open("a+b") as file:
        if file.tell() < size:  # written out: that a disk is full is an error now, and would be a crash later
            file.write(bytes(size))
            file.flush()
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype=np.int8).reshape(shape)


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
    out: Answers = np.empty(len(columns[0].at), dtype=np.int8)
    alone = all(column.leads for column in columns)  # then every row of the stream is a candidate of its own
    lead = next(column for column in columns if column.leads)  # as good as any other of its stream
    asked = [np.arange(len(out))] if alone else groups([lead.at])
    values = [column.one if column.leads and not alone else column.some(predicate.arrow) for column in columns]
    for group in asked:
        given = [of(group) for of in values]
        out[group] = _mask(_call(predicate, given, columns), (len(group),), predicate)
    return out


def _pair(predicate: PythonPredicate, columns: Sequence[_Column]) -> Answers:
    given = zip(*(column.each() for column in columns), strict=True)
    return np.array([_truth(_call(predicate, values, columns), predicate) for values in given], dtype=np.int8)


def _matrix(predicate: PythonPredicate, columns: Sequence[_Column]) -> Answers:
    (lefts, left_at), (rights, right_at) = _side(columns, True), _side(columns, False)
    values = [column.some(predicate.arrow) for column in columns]
    out: Answers = np.empty(len(left_at), dtype=np.int8)
    step = max(1, MATRIX_CELLS // len(rights))
    for start in range(0, len(lefts), step):
        some = lefts[start : start + step]
        given = [of(some if column.leads else rights) for column, of in zip(columns, values, strict=True)]
        mask = _mask(_call(predicate, given, columns), (len(some), len(rights)), predicate)
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
        filled: Answers = np.where(null, False, mask).astype(bool) + np.int8(FALSE)
        filled[null] = NULL
    elif mask.dtype == bool:
        filled = mask + np.int8(FALSE)
    else:
        raise PredicateError(f"Predicate '{predicate.name}' answered {mask.dtype} values; a mask holds booleans.")
    if filled.shape != shape:
        raise PredicateError(
            f"Predicate '{predicate.name}' answered a mask of shape {filled.shape}; {shape} was expected."
        )
    return filled
