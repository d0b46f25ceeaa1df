"""The traps of metadata on the engine, one by one: ways to lose results, to double them or to keep rows for ever.

Numbered as in the design; the oracle has tests of its own for what they mean (tests/testing/test_oracle.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.metadata.test_corners import leaks
from watersmeet.limits import limited
from watersmeet.metadata.constraints import Clustering, Constraint, FlaggedPunctuations, Key, Pattern, SortOrder
from watersmeet.placement import Central, Strategy
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Count, Window
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("k", pa.int64()),
        ("t", pa.string()),
        ("x", pa.float64()),
        ("end", pa.bool_()),
    ]
)
K, T, X, END = range(2, 6)
NAN = float("nan")
ENDS = FlaggedPunctuations(END, (Pattern(K, K, K),))
LATER = FlaggedPunctuations(END, (Pattern(K, K, K),), "watermark")


def join(
    folder: Path,
    where: str,
    names: str = "ab",
    delay: int = 1000,
    windows: dict[str, Window] | None = None,
    **promises: Sequence[Constraint],
) -> Run:
    streams = tuple(
        StreamSpec(
            name, SCHEMA, 1, (windows or {}).get(name, Window()), delay, constraints=tuple(promises.get(name, ()))
        )
        for name in names
    )
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect())
    return Run(Query(streams, conjuncts, where), Store(str(folder)), steady=True)


def step(run: Run, strategy: Strategy | None = None, **rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Run a batch of rows by stream; those without an event time given come at 0."""
    names, blank = [stream.name for stream in run.query.streams], dict.fromkeys(SCHEMA.names)
    made = [(names.index(name), {**blank, "ts": 0, **row}) for name, found in rows.items() for row in found]
    run.step(strategy or Central(), made)
    return dict(run.progress[-1])


def side_ids(run: Run, kind: str) -> list[int]:
    """Return the ids of rows of a side output."""
    return sorted(row["id"] for (side, _), rows in run.sides.items() if side == kind for _, row in rows)


def test_trap_1_a_key_that_was_seen_and_joined_waits_for_a_third_stream(tmp_path: Path) -> None:
    run = join(tmp_path, "a.k = b.k AND b.t = c.t", "abc", a=[Key((K,))], b=[Key((K,))])
    step(run, a=[{"id": 1, "k": 7}], b=[{"id": 2, "k": 7, "t": "p"}])
    assert [step(run, a=[{"id": 9, "k": 8}])["purgedRows"] for _ in range(2)] == [0, 0]
    step(run, c=[{"id": 3, "t": "p"}])
    step(run, c=[{"id": 4, "t": "p"}])
    assert sorted(ids for ids, _ in run.results) == [(1, 2, 3), (1, 2, 4)]


@pytest.mark.parametrize(("falling", "beyond"), [(False, 4), (True, 6)])
def test_trap_2_an_order_closes_beyond_the_frontier_and_never_at_it(tmp_path: Path, falling: bool, beyond: int) -> None:
    run = join(tmp_path, "a.k = b.k", b=[SortOrder(K, falling)])
    step(run, a=[{"id": k, "k": k} for k in (4, 5, 6)], b=[{"id": 10, "k": 5}])
    assert step(run, b=[{"id": 20 + k, "k": k} for k in (4, 5, 6)])["purgedRows"] == 1
    assert side_ids(run, "denied") == [20 + beyond]
    assert {ids for ids, _ in run.results} == {(5, 10)} | {(k, 20 + k) for k in (4, 5, 6) if k != beyond}


@pytest.mark.parametrize("slack", [0.0, 0.5])
def test_trap_2_nan_is_highest_and_moves_no_frontier(tmp_path: Path, slack: float) -> None:
    run = join(tmp_path, "a.x = b.x", a=[SortOrder(X, slack=slack)], b=[SortOrder(X, True, slack)])
    step(run, a=[{"id": 1, "x": 1.0}, {"id": 2, "x": NAN}], b=[{"id": 3, "x": 1.0}, {"id": 4, "x": NAN}])
    step(run, a=[{"id": 5, "x": 1.0}, {"id": 6, "x": NAN}], b=[{"id": 7, "x": 1.0}, {"id": 8, "x": NAN}])
    assert side_ids(run, "denied") == [8]
    assert {ids for ids, _ in run.results} == {(1, 3), (1, 7), (2, 4), (5, 3), (5, 7), (6, 4)}


def test_trap_2_nan_alone_is_no_frontier(tmp_path: Path) -> None:
    run = join(tmp_path, "a.x = b.x", a=[SortOrder(X)], b=[SortOrder(X, True)])
    for at in (0, 2):
        step(run, a=[{"id": at, "x": NAN}], b=[{"id": at + 1, "x": NAN}])
    assert side_ids(run, "denied") == [] and run.results.total() == 4
    step(run, a=[{"id": 4, "x": 1.0}], b=[{"id": 5, "x": 1.0}])
    step(run, a=[{"id": 6, "x": NAN}], b=[{"id": 7, "x": NAN}])
    assert side_ids(run, "denied") == [7]


def test_trap_2_null_is_never_denied_and_neither_extends_nor_ends_a_run(tmp_path: Path) -> None:
    run = join(tmp_path, "a.id < b.id", a=[Key((K,)), SortOrder(X), ENDS], b=[Clustering(K)])
    step(run, a=[{"id": 1, "k": None, "x": None}, {"id": 2, "k": 1, "x": 5.0}], b=[{"id": 10, "k": 1}])
    step(run, a=[{"id": 3, "k": None, "x": None}], b=[{"id": 11, "k": None}])
    step(run, a=[{"id": 4, "k": None, "x": None}], b=[{"id": 12, "k": 1}])
    assert side_ids(run, "denied") == []
    step(run, b=[{"id": 13, "k": 2}, {"id": 14, "k": None}])
    step(run, b=[{"id": 15, "k": 1}, {"id": 16, "k": None}])
    assert side_ids(run, "denied") == [15]


def test_trap_3_a_pattern_of_two_values_is_not_one_of_the_first(tmp_path: Path) -> None:
    pair = FlaggedPunctuations(END, (Pattern(K, K, K), Pattern(T, T, T)))
    run = join(tmp_path, "a.k = b.k", b=[pair])
    step(run, a=[{"id": 1, "k": 79}], b=[{"id": 2, "k": 79, "t": "ip", "end": True}])
    assert step(run)["purgedRows"] == 0
    step(run, b=[{"id": 3, "k": 79, "t": "ip"}, {"id": 4, "k": 79, "t": "other"}])
    assert side_ids(run, "denied") == [3] and {ids for ids, _ in run.results} == {(1, 4)}


@pytest.mark.parametrize("promise", [Key((K,)), ENDS])
def test_trap_4_rows_of_a_promises_own_batch_count_as_before_it(tmp_path: Path, promise: Constraint) -> None:
    run = join(tmp_path, "a.k = b.k", b=[promise])
    end = [{"id": 1, "k": 5, "end": True}] if promise == ENDS else []
    step(run, a=[{"id": 0, "k": 5}], b=[*end, {"id": 2, "k": 5}, {"id": 3, "k": 5}])
    step(run, b=[{"id": 4, "k": 5}])
    assert {ids for ids, _ in run.results} == {(0, 2), (0, 3)} and side_ids(run, "denied") == [4]


@pytest.mark.parametrize("slack", [0, 1, 2])
def test_trap_4_partitions_that_take_turns_need_slack(tmp_path: Path, slack: int) -> None:
    """A value that every other batch brings is over at once without slack, and never with it."""
    run = join(tmp_path, "a.k = b.k", a=[Clustering(K, slack)], b=[SortOrder(K, slack=slack)])
    for at in range(6):
        step(run, a=[{"id": at, "k": at % 2}], b=[{"id": 10 + at, "k": at % 2}])
    rows = range(2, 6), range(2, 6, 2)
    assert side_ids(run, "denied") == ([*rows[0], *(10 + at for at in rows[1])] if slack == 0 else [])


@pytest.mark.parametrize(
    ("column", "one", "other"),
    [("k", 2**53, 2**53 + 1), ("t", "prefixed-1", "prefixed-2"), ("t", "p", "p\0"), ("x", NAN, float("inf"))],
)
def test_trap_5_denied_values_are_compared_exactly(tmp_path: Path, column: str, one: Any, other: Any) -> None:
    run = join(tmp_path, f"a.{column} = b.{column}", b=[Key((SCHEMA.get_field_index(column),))])
    step(run, a=[{"id": 1, column: one}, {"id": 2, column: other}], b=[{"id": 3, column: one}])
    assert step(run)["purgedRows"] == 1  # the row of a whose key b has had
    step(run, b=[{"id": 4, column: one}, {"id": 5, column: other}])
    assert side_ids(run, "denied") == [4] and {ids for ids, _ in run.results} == {(1, 3), (2, 5)}


def test_trap_5_both_zeros_are_one_value(tmp_path: Path) -> None:
    run = join(tmp_path, "a.x = b.x", a=[Key((X,))], b=[Key((X,)), Clustering(X)])
    step(run, a=[{"id": 1, "x": 0.0}, {"id": 2, "x": None}], b=[{"id": 3, "x": -0.0}, {"id": 4, "x": None}])
    assert step(run)["purgedRows"] == 2
    step(run, a=[{"id": 5, "x": -0.0}, {"id": 6, "x": None}], b=[{"id": 7, "x": 0.0}, {"id": 8, "x": None}])
    assert side_ids(run, "denied") == [5, 7]


def test_trap_6_late_denied_and_rejected_rows_mark_and_move_and_extend(tmp_path: Path) -> None:
    promises: list[Constraint] = [Key((T,)), Clustering(K, 1), SortOrder(X)]
    run = join(tmp_path, "a.t = b.t", delay=0, a=promises, b=[])
    step(run, a=[{"id": 1, "ts": 100, "k": 1, "t": "one", "x": 1.0}], b=[{"id": 2, "ts": 100, "t": "late"}])
    step(run, a=[{"id": 3, "ts": 5, "k": 2, "t": "late", "x": 2.0}])  # late
    step(run, a=[{"id": 4, "ts": None, "k": 1, "t": "none", "x": 3.0}])  # rejected: extends the run of 1
    step(run, a=[{"id": 5, "ts": 200, "k": 2, "t": "one", "x": 4.0}])  # denied by its key: extends the run of 2
    assert (side_ids(run, "late"), side_ids(run, "rejected"), side_ids(run, "denied")) == ([3], [4], [5])
    again = [("late", 1, 9.0), ("none", 1, 9.0), ("new", 2, 3.5), ("runs", 1, 9.0), ("still", 2, 9.0)]
    rows = [{"id": 10 + at, "ts": 300, "t": t, "k": k, "x": x} for at, (t, k, x) in enumerate(again)]
    step(run, a=rows)
    assert side_ids(run, "denied") == [5, 10, 11, 12]
    assert sum(p["purgedRows"] for p in run.progress) >= 1  # b's row, whose partner came too late


def test_trap_6_denied_rows_move_the_watermark(tmp_path: Path) -> None:
    run = join(tmp_path, "a.k = b.k", delay=0, a=[Key((K,))])
    step(run, a=[{"id": 1, "ts": 1, "k": 1}], b=[{"id": 2, "ts": 100, "k": 2}])
    assert step(run, a=[{"id": 3, "ts": 50, "k": 1}])["watermark"] == 50
    assert side_ids(run, "denied") == [3]


def test_trap_7_rows_are_counted_for_a_window_before_any_is_left_out(tmp_path: Path) -> None:
    """Rows that can join nothing, or are dead at once, still push others out of a count window."""
    run = join(tmp_path, "a.k = b.k", windows={"a": Count(2)}, b=[Key((K,)), ENDS])
    step(run, b=[{"id": 9, "k": 1, "end": True}])
    step(run, a=[{"id": 1, "ts": 1, "k": 2}, {"id": 2, "ts": 2, "k": 1}, {"id": 3, "ts": 3, "k": None}])
    step(run)
    step(run, b=[{"id": 4, "ts": 4, "k": 2}])
    assert run.results == {}, "two rows came after the one that matches"
    step(run, a=[{"id": 5, "ts": 5, "k": 3}, {"id": 6, "ts": 6, "k": 1}])
    step(run)
    step(run, b=[{"id": 7, "ts": 7, "k": 3}])
    assert {ids for ids, _ in run.results} == {(5, 7)}


def test_trap_8_punctuations_move_no_time_take_no_ordinal_and_join_nothing(tmp_path: Path) -> None:
    run = join(tmp_path, "a.k = b.k", delay=0, windows={"a": Count(1)}, a=[ENDS])
    step(run, a=[{"id": 1, "ts": 1, "k": 1}], b=[{"id": 9, "ts": 1, "k": 9}])
    done = step(run, a=[{"id": 2, "ts": 10_000, "k": 9, "end": True}])
    assert (done["watermark"], done["punctuations"]) == (1, 1)
    step(run, b=[{"id": 3, "ts": 2, "k": 1}])
    assert {ids for ids, _ in run.results} == {(1, 3)} and side_ids(run, "late") == []


def test_trap_8_null_in_a_punctuation_is_rejected_and_denies_nothing(tmp_path: Path) -> None:
    pair = FlaggedPunctuations(END, (Pattern(K, K, K), Pattern(T, T, T)))
    run = join(tmp_path, "a.k = b.k", b=[pair])
    step(run, a=[{"id": 1, "k": 1}], b=[{"id": 2, "k": 1, "t": None, "end": True}])
    step(run, b=[{"id": 3, "k": 1, "t": "p"}, {"id": 4, "k": 1, "t": None}])
    assert (side_ids(run, "rejected"), side_ids(run, "denied")) == ([2], [])
    assert {ids for ids, _ in run.results} == {(1, 3), (1, 4)}


def test_trap_9_a_row_whose_partners_are_all_denied_is_joined_with_those_that_are_stored(tmp_path: Path) -> None:
    """The paper's figure 7, read as code, never stores some tuples; the dead rule lets go after they have joined."""
    run = join(tmp_path, "a.k = b.k AND b.t = c.t", "abc", a=[ENDS], b=[ENDS], c=[])
    step(run, a=[{"id": 1, "k": 1}, {"id": 9, "k": 1, "end": True}], c=[{"id": 2, "t": "p"}])
    step(run, b=[{"id": 3, "k": 1, "t": "p"}])  # closed for it is a, but a row of a is stored, and c is open
    assert step(run, c=[{"id": 4, "t": "p"}])["purgedRows"] == 0
    step(run, b=[{"id": 8, "k": 1, "end": True}, {"id": 5, "k": 1, "t": "q"}])
    step(run, c=[{"id": 6, "t": "q"}])
    assert {ids for ids, _ in run.results} == {(1, 3, 2), (1, 3, 4), (1, 5, 6)}


def test_trap_10_neighbours_take_one_mark_and_tables_are_merged(tmp_path: Path) -> None:
    run = join(tmp_path, "a.k = b.k", a=[Key((K,)), Key((T,))], b=[Key((K,))])
    with limited(merged_chunks=2):
        for at in range(12):
            step(run, a=[{"id": at, "k": at, "t": f"t{at}"}], b=[{"id": at, "k": at}])
        step(run)
    shown = run.progress[-1]["promises"]
    assert shown["a"]["marks"] - shown["b"]["marks"] == 12 and shown["b"]["marks"] <= 4
    assert step(run, a=[{"id": 50 + at, "k": 100 + at, "t": f"t{at}"} for at in range(12)])["deniedRows"] == 12
    assert run.progress[-1]["distinctRows"] <= 2 and leaks_none(run)


def leaks_none(run: Run) -> bool:
    step(run)
    step(run)
    return leaks(run) == set()


@pytest.mark.parametrize("marks", [[LATER], [LATER, SortOrder(K)]])
def test_a_punctuation_by_watermark_waits_until_it_is_passed(tmp_path: Path, marks: list[Constraint]) -> None:
    """[!] Not at its own time: a row of that very time is not late yet."""
    run = join(tmp_path, "a.k = b.k", delay=0, b=marks)
    step(run, a=[{"id": 1, "ts": 5, "k": 1}], b=[{"id": 2, "ts": 5, "k": 1}, {"id": 9, "ts": 10, "k": 1, "end": True}])
    done = [step(run, a=[{"id": ts, "ts": ts, "k": 3}], b=[{"id": ts, "ts": ts, "k": 1}]) for ts in (10, 11, 12)]
    assert [p["watermark"] for p in done] == [10, 11, 12]
    assert [p["deniedRows"] for p in done] == [0, 0, 1]
    assert [p["purgedRows"] for p in done] == [0, 0, 1]  # a's row, once the watermark before the batch is 11
    assert {ids for ids, _ in run.results} == {(1, 2), (1, 10), (1, 11)}
