"""Arrays of numbers reach Python predicates as arrays of NumPy's, and always with as many dimensions."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.probe.test_calls import answers_of
from watersmeet.errors import PredicateError
from watersmeet.predicate.model import Argument, Column, PythonPredicate
from watersmeet.probe.predicate_calls import FALSE, NULL, TRUE, ask, is_vectors, to_numpy

LISTS = {
    "list": pa.list_(pa.float64()),
    "large": pa.large_list(pa.float32()),
    "fixed": pa.list_(pa.float64(), 2),
}


def cosine(x: Any, ys: Any) -> Any:
    return ys @ x > 0.9 * np.linalg.norm(ys, axis=1) * np.linalg.norm(x)


FORMS: dict[str, Any] = {
    "array": cosine,
    "pair": lambda x, y: bool(x @ y > 0.9 * np.linalg.norm(x) * np.linalg.norm(y)),
    "matrix": lambda xs, ys: xs @ ys.T > 0.9 * np.outer(np.linalg.norm(xs, axis=1), np.linalg.norm(ys, axis=1)),
}


@pytest.mark.parametrize("kind", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("form", FORMS)
def test_the_obvious_cosine_works_in_every_form(form: str, kind: pa.DataType) -> None:
    xs = pa.array([[1.0, 0.0], [0.0, 1.0]], kind)
    ys = pa.array([[9.0, 9.0], [2.0, 0.1], None, [0.1, 3.0], [1.0, 1.0]], kind)[1:]
    columns = {0: (xs, [0, 0, 0, 0, 1, 1]), 1: (ys, [0, 1, 2, 3, 0, 2])}
    assert answers_of(form, columns, FORMS[form]) == [TRUE, NULL, FALSE, FALSE, FALSE, TRUE]


def shapes(form: str, columns: Any, nulls: bool = False) -> list[tuple[Any, ...]]:
    """What a function was given: the shape and type of each argument, by call."""
    calls: list[tuple[Any, ...]] = []

    def of(x: Any, y: Any) -> Any:
        calls.append(tuple((np.shape(value), np.asarray(value).dtype.name) for value in (x, y)))
        if form == "pair":
            return True
        return np.ones(len(y) if form == "array" else (len(x), len(y)), bool)

    assert set(answers_of(form, columns, of, nulls)) <= {TRUE, NULL}
    return calls


def test_arrays_of_different_lengths_come_in_calls_of_their_own() -> None:
    lefts, rights = [[1.0], [1.0, 2.0]], [[1.0], [2.0], [1.0, 2.0], []]
    columns = {0: (lefts, [0, 0, 0, 0, 1, 1]), 1: (rights, [0, 1, 2, 3, 1, 2])}
    floats = [((1,), "float64"), ((2,), "float64")]
    assert shapes("array", columns) == [
        (floats[0], ((1, 0), "float64")),
        (floats[0], ((2, 1), "float64")),
        (floats[1], ((1, 1), "float64")),
        (floats[0], ((1, 2), "float64")),
        (floats[1], ((1, 2), "float64")),
    ]
    matrices = {(left[0], right[0]) for left, right in shapes("matrix", columns)}
    assert matrices == {((1, 1), (1, 0)), ((1, 1), (2, 1)), ((1, 1), (1, 2)), ((1, 2), (1, 1)), ((1, 2), (1, 2))}


def test_a_condition_on_lengths_keeps_others_from_the_function() -> None:
    """Only combinations that are asked about are: with `size(a.v) = size(b.v)` in `where`, none of two lengths."""
    columns: Any = {0: ([[1.0], [1.0, 2.0]], [0, 1]), 1: ([[3.0], [3.0, 4.0]], [0, 1])}
    for left, right in shapes("matrix", columns):
        assert left[0][1] == right[0][1]


@pytest.mark.parametrize("form", ["array", "matrix"])
def test_elements_that_are_null(form: str) -> None:
    for values, dtype in (([1.0, None], "float64"), ([1, None], "object"), ([True, None], "object"), ([1, 2], "int64")):
        columns: Any = {0: ([[1.0]], [0]), 1: ([values], [0])}
        ((_, (shape, name)),) = shapes(form, columns)
        assert (shape, name) == ((1, 2), dtype)
    assert np.isnan(to_numpy(pa.array([[1.0, None]]))[0, 1])
    assert to_numpy(pa.array([[1, None]])).tolist() == [[1, None]]


def test_arrays_that_are_null_come_in_a_call_of_their_own() -> None:
    columns: Any = {0: ([[1.0]], [0, 0, 0]), 1: ([[1.0, 2.0], None, [3.0, 4.0]], [0, 1, 2])}
    assert [right for _, right in shapes("array", columns)] == [((2, 2), "float64")]
    assert [right for _, right in shapes("array", columns, nulls=True)] == [((1,), "object"), ((2, 2), "float64")]
    assert [right for _, right in shapes("pair", columns, nulls=True)] == [
        ((2,), "float64"),
        ((), "object"),
        ((2,), "float64"),
    ]


def test_vectors_can_not_be_changed() -> None:
    def spoil(x: Any, y: Any) -> Any:
        y[0] = 7

    columns: Any = {0: ([[1.0]], [0, 0]), 1: ([[1.0], [2.0]], [0, 1])}
    for form in FORMS:
        with pytest.raises(PredicateError, match="read-only"):
            answers_of(form, columns, spoil)


def test_an_error_names_the_shapes() -> None:
    columns: Any = {0: ([[1.0]], [0, 0]), 1: ([[1.0, 2.0], [2.0, 3.0]], [0, 1])}
    with pytest.raises(PredicateError, match=r"s0\.x: ndarray of 1 \(array.*s1\.x: ndarray of 2 x 2 \(array"):
        answers_of("array", columns, cosine)


def test_other_arrays_stay_lists() -> None:
    assert not any(map(is_vectors, (pa.list_(pa.string()), pa.list_(pa.list_(pa.int8())), pa.struct([]), pa.int8())))
    assert to_numpy(pa.array([["a"], ["b"]])).tolist() == [["a"], ["b"]]


def test_arrow_arrays_are_as_they_are() -> None:
    arguments = [Argument(f"s{at}_2", (Column(at, 2),), "") for at in (0, 1)]
    values = pa.array([[1.0], [1.0, 2.0]])
    calls: list[Any] = []

    def of(x: Any, ys: Any) -> Any:
        calls.append((x.tolist(), ys.to_pylist()))
        return pa.array([True] * len(ys))

    one = PythonPredicate("of", of, arrow=True)
    refs = {0: np.zeros(2, np.int64), 1: np.arange(2)}
    assert ask(one, arguments, refs, lambda _, at: (values, at)).tolist() == [TRUE, TRUE]
    assert calls == [([1.0], [[1.0], [1.0, 2.0]])]


lists = st.lists(
    st.none() | st.lists(st.none() | st.integers(-2, 2), max_size=2), min_size=1, max_size=4
)  # fmt: skip


@given(lists, lists, st.sampled_from(["array", "pair", "matrix"]), st.booleans(), st.data())
def test_every_form_is_asked_about_the_rows_that_it_says(
    lefts: Any, rights: Any, form: str, nulls: bool, data: st.DataObject
) -> None:
    """Whichever rows come together, the answer for a combination is what the function says of its values."""

    def single(x: Any, y: Any) -> bool:
        return hash((str(x), str(y))) % 2 == 0

    def plain(value: Any) -> Any:
        return None if value is None else value.tolist() if isinstance(value, np.ndarray) else value

    functions: dict[str, Any] = {
        "pair": lambda x, y: single(plain(x), plain(y)),
        "array": lambda x, ys: [single(plain(x), y) for y in ys.tolist()],
        "matrix": lambda xs, ys: [[single(x, y) for y in ys.tolist()] for x in xs.tolist()],
    }
    pairs = [(x, y) for x in range(len(lefts)) for y in range(len(rights))]
    drawn_pairs = data.draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    kind = pa.list_(pa.int32())
    sides = [(pa.array(values, kind), [pair[at] for pair in drawn_pairs]) for at, values in enumerate((lefts, rights))]
    expected = [
        NULL if not nulls and None in (x, y) else TRUE if single(x, y) else FALSE
        for x, y in ((lefts[left], rights[right]) for left, right in drawn_pairs)
    ]
    assert answers_of(form, dict(enumerate(sides)), functions[form], nulls) == expected


def test_a_symmetric_predicate_is_given_vectors_of_one_length_whoever_leads() -> None:
    """Few rows of several lengths against one: the side of fewer rows leads."""
    arguments = [Argument(f"s{at}_2", (Column(at, 2),), "") for at in (0, 1)]
    sides = {0: pa.array([[1.0], [1.0, 2.0], [3.0]]), 1: pa.array([[1.0], [2.0, 1.0]])}
    one = PythonPredicate("same", lambda x, ys: np.full(len(ys), len(x) == ys.shape[1]), symmetric=True)
    refs = {0: np.array([0, 1, 2, 0, 1, 2]), 1: np.array([0, 0, 0, 1, 1, 1])}
    answers = ask(one, arguments, refs, lambda argument, at: (sides[argument.columns[0].stream], at))
    assert answers.tolist() == [TRUE, FALSE, TRUE, FALSE, TRUE, FALSE]
