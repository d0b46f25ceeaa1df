"""Marks answer like a naive list of what was said, whatever the types, and however they were merged."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.errors import DefinitionError, StateError
from watersmeet.limits import limited
from watersmeet.metadata import spans
from watersmeet.metadata.marks import ALWAYS, Marks, MarkShape, build_table, merge_tables
from watersmeet.state.chunks.chunk import Place
from watersmeet.state.store.file_format import encode, read_batch

pytestmark = pytest.mark.long

NAN, INF = math.nan, math.inf
LEAST, MOST = -(2**63), 2**63 - 1
WHOLE = [LEAST, LEAST + 1, -1, 0, 1, 2, 2**53, 2**53 + 1, 2**53 + 2, 2**62, 2**62 + 1, MOST - 1, MOST]
REAL = [-INF, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.0000000000000002, 2.0**53, 1e308, INF, NAN]
SINGLE = [-INF, -1.5, -(2.0**-149), -0.0, 0.0, 2.0**-149, 1.0, 1.0 + 2.0**-23, 3.0e38, INF, NAN]
TEXT = ["", "\0", "a", "a\0", "a\0\0", "ab", "prefixed", "prefixed\0", "prefixed1", "prefixed2", "é", "\uffff", "😀"]
BINARY = [text.encode() for text in TEXT[:-2]] + [b"\x7f", b"\x80", b"\xff"]
LONG = [Decimal(text) for text in ("-" + "9" * 38, "-1", "0", "1", f"{2**64}", f"{2**64 + 1}", f"{2**70}", "9" * 38)]
SHORT = [
    Decimal(text).scaleb(-2) for text in ("-" + "9" * 18, "-1", "0", "1", "2", f"{2**53}", f"{2**53 + 1}", "9" * 18)
]
KINDS: dict[pa.DataType, Sequence[Any]] = {
    pa.bool_(): [False, True],
    pa.int8(): [-128, -127, -1, 0, 1, 2, 3, 127],
    pa.int16(): [-(2**15), -1, 0, 1, 2, 2**15 - 1],
    pa.int32(): [-(2**31), -1, 0, 1, 2, 2**31 - 1],
    pa.int64(): WHOLE,
    pa.float32(): SINGLE,
    pa.float64(): REAL,
    pa.decimal128(18, 2): SHORT,
    pa.decimal128(38, 0): LONG,
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.binary(): BINARY,
    pa.large_binary(): BINARY,
    pa.date32(): [-(2**31), -1, 0, 1, 2, 2**31 - 1],
    pa.timestamp("us"): WHOLE,
    pa.timestamp("us", "UTC"): WHOLE,
}
Draw = Callable[[st.SearchStrategy[Any]], Any]
WATERMARKS = (None, 5, 6, 9)
kinds = pytest.mark.parametrize("kind", KINDS, ids=str)


def order(value: Any) -> Any:
    """What Spark sorts by."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


@dataclass(frozen=True)
class Statement:
    """A mark as it was said; a list of these is what marks are compared with."""

    low: tuple[Any, ...]
    high: tuple[Any, ...]
    since: int
    batch: int

    def covers(self, row: Sequence[Any], watermark: int | None) -> bool:
        if self.since != ALWAYS and (watermark is None or self.since >= watermark):
            return False
        ends = [*zip(self.low, row, self.high, strict=True)]
        return all(
            None not in (low, value, high) and order(low) <= order(value) <= order(high) for low, value, high in ends
        )


def column(values: Sequence[Any], kind: pa.DataType, slack: Sequence[Any] = ()) -> pa.Array:
    """An array of values; with slack before and after them, of which it is a slice."""
    return pa.array([*slack, *values, *slack], kind)[len(slack) :][: len(values)]


def columns(rows: Sequence[tuple[Any, ...]], shape: MarkShape) -> list[pa.Array]:
    return [column([row[at] for row in rows], kind, [None, *KINDS[kind][:2]]) for at, kind in enumerate(shape.types)]


def table(shape: MarkShape, said: Sequence[Statement], batch: int) -> Marks:
    lows, highs = columns([mark.low for mark in said], shape), columns([mark.high for mark in said], shape)
    since = np.array([mark.since for mark in said], np.int64)
    return reopened(Marks(shape, build_table(shape, lows, highs, batch, since)))


def reopened(marks: Marks) -> Marks:
    """The marks as a file gives them back."""
    data, [(offset, length, digest)] = encode([marks.table])
    return Marks(marks.shape, read_batch(pa.py_buffer(bytes(data)), Place("marks", offset, length, digest)))


@st.composite
def batches(draw: st.DrawFn, shape: MarkShape) -> list[list[Statement]]:
    """What some batches say, NULLs, duplicates and ranges the wrong way round included."""
    values = [st.sampled_from([*KINDS[kind], *KINDS[kind], None]) for kind in shape.types]
    since = st.sampled_from([ALWAYS, ALWAYS, 5, 8])
    found = []
    for batch in range(draw(st.integers(1, 4))):
        said = []
        for _ in range(draw(st.integers(0, 5))):
            low = draw(st.tuples(*values))
            high = tuple(
                draw(some) if ranged else at for some, ranged, at in zip(values, shape.ranges, low, strict=True)
            )
            said.append(Statement(low, high, draw(since), batch))
        found.append(said)
    return found


def grouped(parts: list[Marks], draw: Draw) -> Marks:
    """The parts merged in groups drawn by dice, until there is one."""
    while len(parts) > 1:
        parts = draw(st.permutations(parts))
        size = draw(st.integers(2, len(parts)))
        parts = [*parts[size:], reopened(Marks(parts[0].shape, merge_tables(parts[:size])))]
    return parts[0]


def check(shape: MarkShape, draw: Draw) -> None:
    """Compare what merged marks answer with the list, and with another way of merging."""
    said = draw(batches(shape))
    parts = [table(shape, some, batch) for batch, some in enumerate(said)]
    marks, everything = grouped(parts, draw), [mark for some in said for mark in some]
    assert marks.table.equals(merge_tables(parts))
    rows = [*itertools.product(*([*KINDS[kind], None] for kind in shape.types))]
    rows = rows if len(rows) < 50 else draw(st.lists(st.sampled_from(rows), min_size=50, max_size=50))
    for watermark in WATERMARKS:
        with limited(block_rows=draw(st.sampled_from([1, 7, 1 << 17]))):
            found = marks.find(columns(rows, shape), watermark)
        for row, at in zip(rows, found.tolist(), strict=True):
            covering = [mark for mark in everything if mark.covers(row, watermark)]
            assert (at >= 0) == bool(covering), (row, watermark)
            if covering:
                check_terms(marks, at, covering, watermark)


def check_terms(marks: Marks, at: int, covering: Sequence[Statement], watermark: int | None) -> None:
    since, first, last = (int(part[at]) for part in marks.terms)
    assert since == ALWAYS or (watermark is not None and since < watermark)
    assert since in {mark.since for mark in covering}
    made = [mark.batch for mark in covering]
    if not any(marks.shape.ranges):
        assert first <= min(made) <= max(made) <= last


@kinds
@pytest.mark.parametrize("ranged", [False, True], ids=["constants", "ranges"])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_one_column_answers_like_a_list(kind: pa.DataType, ranged: bool, data: st.DataObject) -> None:
    check(MarkShape((kind,), (ranged,)), data.draw)


@pytest.mark.parametrize(
    "ranges", [(False, False), (False, True), (True, False), (True, True), (False, True, True), (False, False, True)]
)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_several_columns_answer_like_a_list(ranges: tuple[bool, ...], data: st.DataObject) -> None:
    types = data.draw(st.tuples(*(st.sampled_from([*KINDS]) for _ in ranges)))
    check(MarkShape(types, ranges), data.draw)


def touch(left: Any, right: Any, kind: pa.DataType) -> bool:
    """Whether values are known to have nothing between them."""
    if isinstance(left, float):
        number = np.float32 if kind == pa.float32() else np.float64
        return order(left) == order(right) or left == INF or bool(np.nextafter(number(left), number(INF)) == right)
    if kind == pa.decimal128(18, 2):
        return bool(right - left == Decimal("0.01"))
    return isinstance(left, int) and right - left == 1


def is_denied(said: Sequence[Statement], low: Any, high: Any, watermark: int | None, kind: pa.DataType) -> bool:
    """Whether marks cover each value of an interval and what lies between neighbours, by brute force."""
    inside = sorted((value for value in KINDS[kind] if order(low) <= order(value) <= order(high)), key=order)
    values = all(any(mark.covers((value,), watermark) for mark in said) for value in inside)
    return (
        bool(inside)
        and values
        and all(
            touch(*pair, kind) or any(all(mark.covers((value,), watermark) for value in pair) for mark in said)
            for pair in itertools.pairwise(inside)
        )
    )


@kinds
@pytest.mark.parametrize("ranged", [False, True], ids=["constants", "ranges"])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_intervals_are_held_as_by_brute_force(kind: pa.DataType, ranged: bool, data: st.DataObject) -> None:
    shape = MarkShape((kind,), (ranged,))
    said = data.draw(batches(shape))
    marks = grouped([table(shape, some, batch) for batch, some in enumerate(said)], data.draw)
    everything = [mark for some in said for mark in some]
    end = st.sampled_from([*KINDS[kind], None])
    asked = data.draw(st.lists(st.tuples(end, end), min_size=40, max_size=40))
    low, high = (column([pair[at] for pair in asked], kind) for at in (0, 1))
    for watermark in WATERMARKS:
        expected = [None not in pair and is_denied(everything, *pair, watermark, kind) for pair in asked]
        assert marks.covers([low], [high], watermark).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_ranges_of_small_numbers_are_held_as_by_counting(data: st.DataObject) -> None:
    shape, number = MarkShape((pa.int8(),), (True,)), st.integers(0, 12)
    some = st.lists(st.tuples(number, number, st.sampled_from([ALWAYS, 5, 8])), max_size=12)
    said = [Statement((low,), (high,), since, 0) for low, high, since in data.draw(some)]
    marks = table(shape, said, 0)
    asked = [*itertools.combinations_with_replacement(range(13), 2)]
    low, high = (column([pair[at] for pair in asked], pa.int8()) for at in (0, 1))
    for watermark in WATERMARKS:
        denied = {value for value in range(13) if any(mark.covers((value,), watermark) for mark in said)}
        expected = [denied.issuperset(range(first, last + 1)) for first, last in asked]
        assert marks.covers([low], [high], watermark).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_boxes_of_several_columns_are_held_by_one_mark(data: st.DataObject) -> None:
    shape = MarkShape((pa.int8(), pa.string(), pa.int8()), (True, False, True))
    number, word = st.integers(0, 4), st.sampled_from("ab")
    mark = st.tuples(number, number, word, number, number, st.sampled_from([ALWAYS, 5]))
    said = [
        Statement((k, t, n), (kk, t, nn), since, 0) for k, kk, t, n, nn, since in data.draw(st.lists(mark, max_size=8))
    ]
    end = st.tuples(number | st.none(), word, number)
    asked = data.draw(st.lists(st.tuples(end, end), min_size=20, max_size=20))
    lows, highs = ([column([pair[at][c] for pair in asked], shape.types[c]) for c in range(3)] for at in (0, 1))
    for watermark in WATERMARKS:
        expected = [
            low[0] is not None
            and high[0] is not None
            and low[0] <= high[0]
            and low[2] <= high[2]
            and any(mark.covers(low, watermark) and mark.covers(high, watermark) for mark in said)
            for low, high in asked
        ]
        assert table(shape, said, 0).covers(lows, highs, watermark).tolist() == expected


WORD, NUMBER = MarkShape((pa.string(),), (False,)), MarkShape((pa.int64(),), (False,))


def marks_of(shape: MarkShape, values: Sequence[Any], batch: int = 0, since: int = ALWAYS) -> Marks:
    array = pa.array(values, shape.types[0])
    return Marks(shape, build_table(shape, [array], [array], batch, since))


def test_numbers_in_sequence_become_one_mark() -> None:
    parts = [marks_of(NUMBER, range(start, 10_000, 7), batch=start) for start in range(7)]
    marks = Marks(NUMBER, merge_tables(parts))
    assert marks.table.num_rows == 1
    assert [part.tolist() for part in marks.terms] == [[ALWAYS], [0], [6]]


def test_marks_that_wait_for_the_watermark_keep_apart_from_those_in_effect() -> None:
    marks = Marks(
        NUMBER,
        merge_tables(
            [marks_of(NUMBER, [1, 3]), marks_of(NUMBER, [2], batch=1, since=5), marks_of(NUMBER, [4], since=7)]
        ),
    )
    assert marks.terms.since.tolist() == [ALWAYS, 5, ALWAYS, 7]
    assert [marks.find([pa.array([2])], at).tolist() for at in (None, 5, 6)] == [[-1], [-1], [1]]
    assert [marks.covers([pa.array([1])], [pa.array([3])], at).tolist() for at in (None, 5, 6)] == [
        [False],
        [False],
        [True],
    ]


def test_marks_that_wait_become_one_only_if_nothing_tells_them_apart() -> None:
    marks = Marks(
        NUMBER, merge_tables([marks_of(NUMBER, [1, 2], 0, 5), marks_of(NUMBER, [3], 1, 5), marks_of(NUMBER, [4], 1, 6)])
    )
    assert [part.tolist() for part in marks.terms] == [[5, 5, 6], [0, 1, 1], [0, 1, 1]]


def test_of_equal_marks_the_smallest_since_and_all_batches_are_kept() -> None:
    marks = Marks(
        WORD, merge_tables([marks_of(WORD, ["x"], 3, 9), marks_of(WORD, ["x"], 7, 5), marks_of(WORD, ["x"], 5, 6)])
    )
    assert [part.tolist() for part in marks.terms] == [[5], [3], [7]]


@pytest.mark.parametrize("ranges", [(False,), (True,)])
def test_values_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch, ranges: tuple[bool]) -> None:
    monkeypatch.setattr(spans, "hashes", lambda values: np.zeros(len(values), np.uint64))
    shape = MarkShape((pa.string(),), ranges)
    marks = Marks(shape, merge_tables([marks_of(shape, ["b", "a", "c"]), marks_of(shape, ["a", "d"])]))
    assert len(marks) == 4
    found = marks.find([pa.array(["a", "x", "c", "d", None])])
    assert (found >= 0).tolist() == [True, False, True, True, False]


def test_hashes_tell_large_numbers_apart() -> None:
    """A double holds one in 1,024 of these: by their hashes alone each would have as many candidates."""
    ids = pa.array(np.arange(2**62, 2**62 + 4096))
    for values in (ids, ids.cast(pa.decimal128(38, 0))):
        assert len(np.unique(spans.hash_rows([spans.exact_values(values)], len(values)))) == len(values)


def test_hashes_of_texts_are_those_of_their_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    values = spans.exact_values(pa.array(["slack", *TEXT, "x" * 300])[1:])
    whole = spans.hash_rows([values], len(values))
    monkeypatch.setattr(spans, "_SHORT_BYTES", 10)
    assert whole.tolist() == spans.hash_rows([values], len(values)).tolist()


@kinds
def test_there_may_be_no_marks_and_nothing_asked(kind: pa.DataType) -> None:
    for ranged, rest in itertools.product([False, True], [(), (pa.string(),)]):
        shape = MarkShape((kind, *rest), (ranged, *(False for _ in rest)))
        none = [pa.array([], kind) for kind in shape.types]
        marks = reopened(Marks(shape, build_table(shape, none, none, 0)))
        assert not len(marks) and not marks.table.schema.metadata
        assert marks.table.equals(merge_tables([marks, marks]))
        assert not len(marks.find(none))
        assert marks.find([pa.nulls(2, kind) for kind in shape.types]).tolist() == [-1, -1]
        assert marks.find([pa.array(KINDS[kind][:1], kind) for kind in shape.types]).tolist() == [-1]


def test_chunked_columns_are_taken_as_one() -> None:
    values = pa.chunked_array([["a"], [], ["b", None]])
    marks = Marks(WORD, build_table(WORD, [values], [values], 0))
    assert sorted(marks.find([pa.chunked_array([["b"], ["c", "a"]])]).tolist()) == [-1, 0, 1]
    assert marks.covers([values], [values]).tolist() == [True, True, False]


def test_bytes_are_those_of_the_table() -> None:
    marks = marks_of(WORD, [f"{number:036}" for number in range(1000)])
    assert marks.nbytes == marks.table.nbytes
    each = 36 + 8 + 8 + 24  # the text and where it ends, a hash, the terms
    assert marks.nbytes / len(marks) == pytest.approx(each, rel=0.01)


def test_shapes_that_cannot_be_are_refused() -> None:
    with pytest.raises(DefinitionError, match="type array<bigint>"):
        MarkShape((pa.list_(pa.int64()),), (False,))
    for types, ranges in [((), ()), ((pa.int64(),), (False, True))]:
        with pytest.raises(DefinitionError, match=f"there are {len(types)} types and {len(ranges)} flags"):
            MarkShape(types, ranges)


def test_what_does_not_fit_is_refused() -> None:
    word, pair = marks_of(WORD, ["a"]), MarkShape((pa.string(), pa.int64()), (False, False))
    with pytest.raises(DefinitionError, match="are of types string, the values of types bigint"):
        word.find([pa.array([1])])
    with pytest.raises(DefinitionError, match="are of types string, bigint, the values of types string"):
        table(pair, [], 0).covers([pa.array(["a"])], [pa.array(["b"])])
    with pytest.raises(DefinitionError, match="2 tables have 2 shapes"):
        merge_tables([word, marks_of(NUMBER, [1])])
    with pytest.raises(DefinitionError, match="0 tables have 0 shapes"):
        merge_tables([])
    with pytest.raises(StateError, match="Marks of bigint can't be read from a table of uint64, binary"):
        Marks(NUMBER, word.table)
