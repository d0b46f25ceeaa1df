"""Python predicates are asked once per distinct combination of argument rows, and their answers checked."""

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from watersmeet.errors import PredicateError, SqlError
from watersmeet.limits import limited
from watersmeet.placement import PSP, Central
from watersmeet.predicate.model import Argument, Column, Dialect, PythonPredicate
from watersmeet.predicate.parse import parse_where
from watersmeet.predicate.python import predicate
from watersmeet.probe.answer_cache import AnswerCache, AnswerKey
from watersmeet.probe.predicate_calls import FALSE, NULL, TRUE, UNKNOWN, ask
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("img", pa.binary())])


def run_of(folder: Path, where: str, predicates: tuple[PythonPredicate, ...], names: str = "abc") -> Run:
    streams = tuple(StreamSpec(name, SCHEMA, 1, Sliding(1000), 0) for name in names)
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], predicates, Dialect())
    return Run(Query(streams, conjuncts, where, (), predicates), Store(str(folder)))


def rows(names: str, each: int, first: int = 0) -> list[tuple[int, dict[str, Any]]]:
    return [
        (at, {"id": 100 * at + first + i, "ts": first + i, "x": float(i), "img": bytes([i % 250])})
        for at, _ in enumerate(names)
        for i in range(each)
    ]


@pytest.mark.parametrize("exchange", ["local", "shuffle"])
def test_partial_results_that_share_members_share_answers(tmp_path: Path, exchange: str) -> None:
    calls: list[tuple[bytes, int]] = []

    @predicate
    def count_calls(x: bytes, ys: Any) -> Any:
        calls.extend((x, y) for y in ys)
        return np.ones(len(ys), dtype=bool)

    run = run_of(tmp_path, "count_calls(b.img, c.img)", (count_calls,))
    run.step(Central(), rows("abc", 6), exchange)
    assert sum(run.results.values()) == 6**3
    # 36 distinct pairs (b, c); without sharing, each of 216 partial results would ask. In one task every pair is asked
    # once; hops in separate tasks (a tuple that probes first, one that was stored) can't share, so at most once a hop.
    assert len(set(calls)) == 36
    assert len(calls) <= 36 * {"local": 1, "shuffle": 2}[exchange]
    assert run.progress[-1]["predicates"]["count_calls"]["pairs"] == len(calls)


def test_answers_are_remembered_from_batch_to_batch(tmp_path: Path) -> None:
    calls: list[tuple[bytes, bytes]] = []

    @predicate(form="pair")
    def count_calls(x: bytes, y: bytes) -> bool:
        calls.append((x, y))
        return True

    run = run_of(tmp_path, "count_calls(b.img, c.img)", (count_calls,))
    run.step(Central(), rows("abc", 4))
    run.step(Central(), [(0, {"id": 99, "ts": 500, "x": 0.0, "img": b"new"})])
    assert sum(run.results.values()) == 5 * 16
    assert len(calls) == 16  # the new tuple of a meets only pairs (b, c) that were asked before


def test_the_cheaper_and_more_selective_predicate_goes_first(tmp_path: Path) -> None:
    clock = {"now": 0.0}
    calls = {"slow": 0, "quick": 0}

    @predicate
    def slow(x: float, ys: Any) -> Any:
        calls["slow"] += len(ys)
        clock["now"] += 1.0 * len(ys)
        return np.ones(len(ys), dtype=bool)

    @predicate
    def quick(x: float, ys: Any) -> Any:
        calls["quick"] += len(ys)
        return ys == x

    run = run_of(tmp_path, "slow(a.x, b.x) AND quick(a.x, b.x)", (slow, quick), "ab")
    from watersmeet.batch.worker import Worker
    from watersmeet.testing import run as engine

    worker, engine.WORKER = engine.WORKER, Worker(lambda: clock["now"])
    try:
        run.step(Central(), rows("ab", 20))
    finally:
        engine.WORKER = worker
    assert sum(run.results.values()) == 20
    # As written first; once its cost is known, slow sees only what quick lets through.
    assert calls["quick"] == 400
    assert calls["slow"] < 400


@pytest.mark.parametrize(
    ("form", "function", "message"),
    [
        ("array", lambda x, ys: 1 / 0, "Predicate 'bad' raised ZeroDivisionError: division by zero"),
        ("array", lambda x, ys: sys.exit(3), "Predicate 'bad' raised SystemExit: 3 for arguments"),
        ("array", lambda x, ys: [True], r"returned a mask of shape \(1,\); \(2,\) was expected"),
        ("array", lambda x, ys: np.zeros(len(ys)), "returned float64 values; a mask must hold booleans"),
        ("array", lambda x, ys: [Decimal(1), None], "returned Decimal values; a mask must hold booleans and None"),
        ("array", lambda x, ys: pa.array(["yes", None]), "returned str values; a mask must hold booleans and None"),
        ("array", lambda x, ys: np.ma.array([1.0, 2.0], mask=[True, False]), "returned float64 values"),
        ("matrix", lambda xs, ys: [[True], [True, False]], "returned rows of different lengths"),
        ("pair", lambda x, y: 1, "returned int; form 'pair' returns True, False or None"),
        ("matrix", lambda xs, ys: np.zeros((1, 1), bool), r"returned a mask of shape \(1, 1\)"),
    ],
)
def test_a_bad_predicate_is_named(tmp_path: Path, form: Any, function: Any, message: str) -> None:
    bad = PythonPredicate("bad", function, form)
    run = run_of(tmp_path, "bad(a.x, b.img)", (bad,), "ab")
    with pytest.raises(PredicateError, match=message):
        run.step(PSP(1), rows("ab", 3))


def test_an_error_names_the_arguments(tmp_path: Path) -> None:
    @predicate(form="pair")
    def typed(x: float, y: bytes) -> bool:
        raise TypeError("no")

    run = run_of(tmp_path, "a.id < 9 AND typed( - a.x, coalesce(b.img, b.img) )", (typed,), "ab")
    message = r"- a\.x = -0\.0 \(double\), coalesce\(b\.img, b\.img\) = b'.*' \(binary\)"
    with pytest.raises(PredicateError, match=message):
        run.step(Central(), rows("ab", 1))


def test_arrow_arrays_and_expressions_as_arguments(tmp_path: Path) -> None:
    @predicate(arrow=True)
    def same_length(x: int, ys: pa.Array) -> pa.Array:
        assert isinstance(ys, pa.Array)
        return pa.array([y.as_py() == x for y in ys])

    run = run_of(tmp_path, "same_length(length(a.img), length(b.img))", (same_length,), "ab")
    run.step(PSP(2), rows("ab", 5))
    assert sum(run.results.values()) == 25


def test_three_streams_in_one_call_and_constants(tmp_path: Path) -> None:
    @predicate(form="pair")
    def sums(x: float, y: float, z: float, limit: int) -> bool:
        return x + y + z < limit

    run = run_of(tmp_path, "sums(a.x, b.x, c.x, 4)", (sums,))
    run.step(PSP(3), rows("abc", 5), "shuffle")
    assert sum(run.results.values()) == sum(x + y + z < 4 for x in range(5) for y in range(5) for z in range(5))


def key_of(call: str, run: str = "run", left: str = "a", right: str = "b") -> AnswerKey:
    return AnswerKey(run, left, right, call)


@pytest.mark.parametrize("shared", [False, True])
def test_the_cache_keeps_to_its_limit(tmp_path: Path, shared: bool) -> None:
    cache = AnswerCache(tmp_path if shared else None, limit=400)
    first = cache.table(key_of("first"), (10, 10))
    assert first is not None
    first[:] = TRUE
    assert cache.table(key_of("first"), (10, 10)) is first
    assert cache.table(key_of("too large"), (100, 100)) is None
    for call in "abcd":
        cache.table(key_of(call), (10, 10))
    assert len(list(tmp_path.iterdir())) == (4 if shared else 0)
    again = cache.table(key_of("first"), (10, 10))
    assert again is not None
    assert (again == UNKNOWN).all()  # the oldest answers were dropped to make room


def test_the_cache_that_can_not_be_shared_is_kept_in_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = AnswerCache(tmp_path / "file")
    assert cache.table(key_of("f"), (1, 1)) is not None
    cache.retain("run", {"a"})
    small = AnswerCache(tmp_path / "few")
    with limited(shared_answers=2):
        assert all(small.table(key_of(call, "ended"), (1, 1)) is not None for call in "abcd")
        before = set((tmp_path / "few").iterdir())
        assert all(small.table(key_of(call), (1, 1)) is not None for call in "abcd")
    after = set((tmp_path / "few").iterdir())
    assert (len(before), len(after), before & after) == (2, 2, set())


def test_processes_share_what_they_know(tmp_path: Path) -> None:
    one, other = AnswerCache(tmp_path), AnswerCache(tmp_path)
    first, second = one.table(key_of("f"), (2, 3)), other.table(key_of("f"), (2, 3))
    assert first is not None and second is not None
    first[1, 2] = TRUE
    assert second[1, 2] == TRUE
    assert (second == UNKNOWN).sum() == 5
    for different in (key_of("g"), key_of("f", "other"), key_of("f", right="c")):
        table = other.table(different, (2, 3))
        assert table is not None and (table == UNKNOWN).all()


@pytest.mark.parametrize("shared", [False, True])
def test_the_cache_forgets_chunks_that_are_gone(tmp_path: Path, shared: bool) -> None:
    cache = AnswerCache(tmp_path if shared else None)
    tables = {call: cache.table(call, (1, 1)) for call in (key_of("f"), key_of("f", right="gone"))}
    for table in tables.values():
        assert table is not None
        table[:] = TRUE
    left_behind = AnswerCache(tmp_path if shared else None).table(key_of("f", left="gone"), (1, 1))
    others = cache.table(key_of("f", "other run", "gone"), (1, 1))
    assert left_behind is not None and others is not None
    cache.retain("run", {"a", "b"})
    assert cache.table(key_of("f"), (1, 1)) is tables[key_of("f")]
    assert cache.table(key_of("f", "other run", "gone"), (1, 1)) is others
    assert len(list(tmp_path.iterdir())) == (2 if shared else 0)
    again = cache.table(key_of("f", right="gone"), (1, 1))
    assert again is not None and again[0, 0] == UNKNOWN


def test_answers_of_a_predicate_that_was_changed_are_not_remembered(tmp_path: Path) -> None:
    """Who starts a query again, from its checkpoint, may have mended a predicate meanwhile."""

    def run_with(answer: bool) -> Run:
        function = PythonPredicate("similar", lambda x, y: answer, "pair")
        return run_of(tmp_path, "similar(b.img, c.img)", (function,))

    run = run_with(False)
    run.step(Central(), rows("abc", 4))
    again = run_with(True)
    again.batch = run.batch
    again.step(Central(), [(0, {"id": 99, "ts": 500, "x": 0.0, "img": b"new"})])
    assert (sum(run.results.values()), sum(again.results.values())) == (0, 16)


def answers_of(form: Any, columns: dict[int, tuple[Any, list[int]]], function: Any, nulls: bool = False) -> list[int]:
    """Ask a predicate about columns of as many streams: for each its values, and which of them each combination has."""
    arguments = [Argument(f"s{at}_2", (Column(at, 2),), f"s{at}.x") for at in columns]
    refs = {stream: np.array(at) for stream, (_, at) in columns.items()}

    def fetch(argument: Argument, rows: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        values = columns[argument.columns[0].stream][0]
        return values if isinstance(values, pa.Array) else pa.array(values), rows

    answers: list[int] = ask(PythonPredicate("asked", function, form, nulls), arguments, refs, fetch).tolist()
    return answers


def test_rows_that_only_look_like_a_run_are_taken_one_by_one() -> None:
    """Rows 0, 0, 2 span three rows as 0, 1, 2 do; a predicate over three streams meets such."""
    calls: list[list[int]] = []

    def of(x: int, ys: np.ndarray, zs: np.ndarray) -> np.ndarray:
        calls.extend([x, int(y), int(z)] for y, z in zip(ys, zs, strict=True))
        return ys < 12

    columns = {0: ([5, 6], [0, 0, 0, 1]), 1: ([10, 11, 12], [0, 0, 2, 1]), 2: ([20, 21, 22], [0, 1, 2, 0])}
    assert answers_of("array", columns, of) == [TRUE, TRUE, FALSE, TRUE]
    assert calls == [[5, 10, 20], [5, 10, 21], [5, 12, 22], [6, 11, 20]]


def test_a_value_is_handed_over_as_one_object_however_often_it_is_asked_about() -> None:
    """An image would else be copied for every pair it is in."""
    calls: dict[str, list[list[Any]]] = {"array": [], "pair": []}

    def array(x: bytes, ys: np.ndarray) -> np.ndarray:
        calls["array"].append(list(ys))
        return np.ones(len(ys), dtype=bool)

    def pair(x: bytes, y: bytes) -> bool:
        calls["pair"].append([x, y])
        return True

    columns = {0: ([b"one", b"two"], [0, 0, 1, 1]), 1: ([b"three", b"unused", b"four"], [0, 2, 0, 2])}
    for form, function in (("array", array), ("pair", pair)):
        assert answers_of(form, columns, function) == [TRUE] * 4
        objects = [value for row in calls[form] for value in row]
        assert len({id(value) for value in objects}) == len(set(objects))
    assert calls["array"] == [[b"three", b"four"]] * 2
    assert calls["pair"] == [[x, y] for x in (b"one", b"two") for y in (b"three", b"four")]


def symmetric_calls(where: str, folder: Path, first: str, **options: Any) -> list[tuple[bytes, list[bytes]]]:
    """Join ten rows of a stream that are there with two of the other that come; return what was asked."""
    calls: list[tuple[bytes, list[bytes]]] = []

    @predicate(symmetric=True, **options)
    def twin(x: bytes, ys: Any) -> Any:
        calls.append((x, [y if isinstance(y, bytes) else y.as_py() for y in ys]))
        return np.array([y == x for y in calls[-1][1]])

    run = run_of(folder, where, (twin,), "ab")
    more, fewer = [at for at in (0, 1) if "ab"[at] == first], [at for at in (0, 1) if "ab"[at] != first]
    run.step(Central(), [row for row in rows("ab", 10) if row[0] in more])
    run.step(Central(), [row for row in rows("ab", 2) if row[0] in fewer])
    assert sum(run.results.values()) == 2
    return calls


@pytest.mark.parametrize("where", ["twin(a.img, b.img)", "twin(b.img, a.img)"])
@pytest.mark.parametrize("first", "ab")
@pytest.mark.parametrize("arrow", [False, True])
def test_a_symmetric_predicate_is_called_for_the_side_of_fewer_rows(
    tmp_path: Path, where: str, first: str, arrow: bool
) -> None:
    """Without being told, it is given the first argument's rows one by one, be they ever so many."""
    calls = symmetric_calls(where, tmp_path, first, arrow=arrow)
    assert sorted(x for x, _ in calls) == [bytes([0]), bytes([1])]
    assert all(sorted(ys) == [bytes([i]) for i in range(10)] for _, ys in calls)


def test_a_symmetric_predicate_takes_two_arguments_of_any_streams() -> None:
    def same(x: Any, ys: Any) -> Any:
        return np.array([y == x for y in ys])

    one = Argument("s0_2", (Column(0, 2),), "a.x")
    for arguments in ([one, one], [one, Argument("3", (), "3")]):
        answers = ask(
            PythonPredicate("same", same if arguments[1] is not one else lambda xs, ys: xs == ys, symmetric=True),
            arguments,
            {0: np.array([0, 1, 2])},
            lambda argument, refs: (pa.array([1, 2, 3] if argument.columns else [3]), refs),
        )
        assert answers.tolist() == ([TRUE] * 3 if arguments[1] is one else [FALSE, FALSE, TRUE])
    twin = PythonPredicate("twin", same, symmetric=True)
    streams = [(name, SCHEMA) for name in "ab"]
    with pytest.raises(SqlError, match="twin is symmetric: it takes two arguments, not 3"):
        parse_where("twin(a.x, b.x, 1)", streams, (twin,), Dialect())


@pytest.mark.parametrize("form", ["array", "pair", "matrix"])
def test_a_predicate_is_asked_about_rows_of_several_chunks_at_once_but_not_about_a_matrix(
    tmp_path: Path, form: Any
) -> None:
    """Five batches of three rows are several chunks; the tuple that comes then asks about all of them."""
    shapes: list[tuple[int, ...]] = []

    def near(x: Any, y: Any) -> Any:
        shapes.append((*np.shape(x), *np.shape(y)))
        return np.less_equal(*np.broadcast_arrays(x[:, None], y)) if form == "matrix" else x <= y

    answers = []
    for bytes_ in (0, 1 << 20):
        run = run_of(tmp_path / str(bytes_), "near(a.x, b.x)", (PythonPredicate("near", near, form),), "ab")
        shapes.clear()
        with limited(asked_bytes=bytes_):
            for batch in range(5):
                run.step(Central(), [row for row in rows("ab", 3, 10 * batch) if row[0] == 1])
            run.step(Central(), [(0, {"id": 1000, "ts": 60, "x": 1.0, "img": b""})])
        answers.append((run.results, list(shapes)))
    assert answers[0][0] == answers[1][0] and len(answers[0][0]) == 10
    apart, together = answers[0][1], answers[1][1]
    assert len(apart) > 1 and sum(shape[-1] if shape else 1 for shape in apart) == 15
    assert together == ([(15,)] if form == "array" else apart)


@pytest.mark.parametrize("form", ["array", "matrix"])
def test_whole_numbers_stay_whole_numbers_where_a_null_is_not_asked_about(form: Any) -> None:
    kinds: list[Any] = []

    def of(x: Any, ys: np.ndarray) -> np.ndarray:
        kinds.append(ys.dtype)
        return np.ones((len(x), len(ys)) if form == "matrix" else len(ys), dtype=bool)

    columns: dict[int, tuple[Any, list[int]]] = {0: ([1, 2], [0, 0, 1]), 1: ([7, None, 9], [0, 1, 2])}
    assert answers_of(form, columns, of) == [TRUE, NULL, TRUE]
    assert set(kinds) == {np.dtype(np.int64)}
    assert answers_of(form, columns, of, nulls=True) == [TRUE, TRUE, TRUE]
    assert kinds[-1] == np.dtype(object)


@pytest.mark.parametrize("values", [[1, 2, 3], [1.5, None, 3.5], [True, False, True], ["x", "y", "z"]], ids=repr)
@pytest.mark.parametrize("at", [[0, 1, 2], [0, 2, 1]], ids=["a run", "no run"])
def test_a_predicate_can_not_change_what_others_will_be_given(values: list[Any], at: list[int]) -> None:
    columns = {0: ([1, 2], [0, 0, 1]), 1: (values, at)}
    with pytest.raises(PredicateError, match="read-only"):
        answers_of("array", columns, lambda x, ys: ys.put(0, None), nulls=True)


@pytest.mark.parametrize("form", ["array", "pair"])
def test_lists_that_a_predicate_changes_are_its_own(form: Any) -> None:
    def is_longer(values: list[str]) -> bool:
        values.append("0")
        return len(values) == 2

    functions = {"array": lambda x, ys: np.array([is_longer(y) for y in ys]), "pair": lambda x, y: is_longer(y)}
    columns: dict[int, tuple[Any, list[int]]] = {0: ([1, 2], [0, 0, 1, 1]), 1: ([["1"], ["2"]], [0, 1, 0, 1])}
    assert answers_of(form, columns, functions[form]) == [TRUE] * 4


def test_calls_that_differ_in_a_sign_are_not_taken_for_each_other(tmp_path: Path) -> None:
    @predicate
    def near(x: float, ys: Any) -> Any:
        return np.abs(ys - x) < 0.5

    def results(where: str, folder: str) -> int:
        run = run_of(tmp_path / folder, where, (near,), "ab")
        row = {"id": 1, "ts": 1, "x": 2.0, "img": b""}
        run.step(Central(), [(0, row), (1, row), (1, {**row, "id": 2, "x": -2.0})])
        return sum(run.results.values())

    assert results("near(a.x, b.x) OR near(-a.x, b.x)", "or") == 2
    assert results("near(a.x, b.x) AND NOT near(-a.x, b.x)", "and") == 1


@pytest.mark.parametrize(
    "mask",
    [
        np.ma.array([True, True, False], mask=[False, True, False]),
        np.ma.array([True, None, False], mask=[False, True, False], dtype=object),
        np.array([np.True_, None, False], dtype=object),
        [True, None, False],
        pa.array([True, None, False]),
        pa.chunked_array([[True, None], [False]]),
        pd.array([True, pd.NA, False], dtype="boolean"),
        pd.Series([True, pd.NA, False], dtype="boolean"),
    ],
    ids=["masked", "masked objects", "objects", "list", "arrow", "chunks", "pandas array", "series"],
)
def test_masks_may_hold_nulls(mask: Any) -> None:
    arguments = (Argument("s0_2", (Column(0, 2),), "a.x"), Argument("s1_2", (Column(1, 2),), "b.x"))
    refs = {0: np.zeros(3, dtype=np.int64), 1: np.arange(3)}
    values = pa.array([1.0, 2.0, 3.0])
    predicate = PythonPredicate("said", lambda x, ys: mask)
    assert ask(predicate, arguments, refs, lambda _, at: (values, at)).tolist() == [TRUE, NULL, FALSE]


def test_a_masked_answer_is_null() -> None:
    arguments = (Argument("s0_2", (Column(0, 2),), "a.x"), Argument("s1_2", (Column(1, 2),), "b.x"))
    refs = {0: np.zeros(2, dtype=np.int64), 1: np.arange(2)}
    values = pa.array([1.0, 2.0])
    pair = PythonPredicate("pair", lambda x, y: np.ma.masked, "pair")
    matrix = PythonPredicate("matrix", lambda xs, ys: np.ma.array([[True, True]], mask=[[False, True]]), "matrix")
    assert ask(pair, arguments, refs, lambda _, at: (values, at)).tolist() == [NULL, NULL]
    assert ask(matrix, arguments, refs, lambda _, at: (values, at)).tolist() == [TRUE, NULL]


def test_a_matrix_whose_first_argument_is_a_constant(tmp_path: Path) -> None:
    less = predicate(form="matrix", name="less")(lambda lefts, rights: lefts[:, None] < rights[None, :])
    run = run_of(tmp_path, "less(1, a.x) AND a.id = b.id", (less,), "ab")
    run.step(Central(), rows("ab", 4))
    plain = run_of(tmp_path / "plain", "1 < a.x AND a.id = b.id", (), "ab")
    plain.step(Central(), rows("ab", 4))
    assert run.results == plain.results
