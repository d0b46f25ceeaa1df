"""When a stream is closed for a tuple, to the very value: no row goes too early, and none stays that could go."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.batch.scatter import Scatter
from tests.metadata.test_traps import END, ENDS, LATER, SCHEMA, K, T, X, join, side_ids, step
from watersmeet.batch.operator import Operator
from watersmeet.batch.plan import start
from watersmeet.limits import limited
from watersmeet.metadata.closing_rules import Frontier
from watersmeet.metadata.collector import MetadataCollector
from watersmeet.metadata.constraints import (
    Clustering,
    Constraint,
    FlaggedPunctuations,
    ForeignKey,
    Key,
    Pattern,
    SortOrder,
)
from watersmeet.metadata.denial import DeniedRows, read_table
from watersmeet.metadata.propagation import is_propagated
from watersmeet.placement import PSP, Central, Hash, Strategy
from watersmeet.predicate.model import Column
from watersmeet.query.query import Output, Query, StreamSpec
from watersmeet.query.windows import FOREVER, NEVER, Window
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.store import Store

BIG = 2**53


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "falling", "first"),
    [
        ("a.k < b.k", False, 5),
        ("a.k <= b.k", False, 6),
        ("a.k > b.k", True, 5),
        ("a.k >= b.k", True, 4),
        ("a.k = b.k", False, 6),
        ("a.k = b.k", True, 4),
        ("a.k + 1 <= b.k + 1", False, 6),
        ("a.k - 1 >= b.k - 1", True, 4),
    ],
)
@pytest.mark.parametrize("base", [0, BIG])
def test_a_tuple_goes_with_the_first_frontier_that_closes_the_other_stream(
    tmp_path: Path, where: str, falling: bool, first: int, base: int
) -> None:
    """b's row has 5; a's order reaches the value before the first that closes it, and then that one."""
    run = join(tmp_path, where, a=[SortOrder(K, falling)])
    step(run, b=[{"id": 1, "k": base + 5}])
    before, computed = first + 1 if falling else first - 1, "+" in where or "-" in where
    assert step(run, a=[{"id": 2, "k": base + before}])["purgedRows"] == 0
    assert step(run, a=[{"id": 3, "k": base + first}])["purgedRows"] == 0, "a batch too early"
    assert step(run)["purgedRows"] == 1 or computed, "not by doubles where these can't tell"
    assert step(run, a=[{"id": 4, "k": base + first + (-1000 if falling else 1000)}])["deniedRows"] == 0
    assert step(run)["distinctRows"] == 3, "a's rows stay: b promises nothing"
    assert sum(p["purgedRows"] for p in run.progress) == 1


@pytest.mark.parametrize("where", ["a.x = b.x", "a.x <= b.x AND a.x >= b.x"])
def test_a_range_is_closed_with_both_its_ends(tmp_path: Path, where: str) -> None:
    """Rows at the ends of a punctuation's range are among those that it speaks of."""
    ranges = FlaggedPunctuations(END, (Pattern(K, K, 0),))  # from k to id
    run = join(tmp_path, f"a.k = b.k AND {where}", b=[ranges])
    step(run, a=[{"id": k, "k": k, "x": 1.0} for k in range(6)])
    step(run, b=[{"id": 4, "k": 2, "end": True}])
    assert step(run)["purgedRows"] == 3
    step(run, b=[{"id": 10 + k, "k": k, "x": 1.0} for k in range(6)])
    assert side_ids(run, "denied") == [12, 13, 14]
    assert {ids for ids, _ in run.results} == {(k, 10 + k) for k in (0, 1, 5)}


def test_stored_partners_that_wait_keep_a_tuple(tmp_path: Path) -> None:
    """A chain: b is closed for a, and so a may go only if c is closed for each stored b that matches."""
    run = join(tmp_path, "a.k = b.k AND b.t = c.t", "abc", b=[ENDS], c=[Key((T,))])
    step(run, a=[{"id": 1, "k": 1}, {"id": 2, "k": 2}], b=[{"id": 3, "k": 1, "t": "p"}, {"id": 4, "k": 2, "t": "q"}])
    step(run, b=[{"id": 0, "k": k, "end": True} for k in (1, 2)], c=[{"id": 5, "t": "p"}])
    assert step(run)["purgedRows"] == 1  # the first of a; a is open for all of b, and b closed for one of two
    step(run, c=[{"id": 6, "t": "q"}])
    assert {ids for ids, _ in run.results} == {(1, 3, 5), (2, 4, 6)}


def test_tuples_alike_in_what_closes_them_but_not_in_what_they_match_are_told_apart(tmp_path: Path) -> None:
    run = join(tmp_path, "a.k = b.k AND a.t = c.t", "abc", b=[ENDS], c=[Key((T,))])
    step(run, a=[{"id": 1, "k": 1, "t": "p"}, {"id": 2, "k": 1, "t": "q"}], b=[{"id": 3, "k": 1}])
    step(run, b=[{"id": 0, "k": 1, "end": True}], c=[{"id": 4, "t": "p"}])
    assert step(run)["purgedRows"] == 1
    step(run, c=[{"id": 5, "t": "q"}])
    assert {ids for ids, _ in run.results} == {(1, 3, 4), (2, 3, 5)}


def test_a_stream_tied_only_through_another_may_have_partners(tmp_path: Path) -> None:
    """By equal columns c is closed for a, but no condition is over these two: which of c would match is not known."""
    run = join(tmp_path, "a.k = b.k AND b.k = c.k", "abc", c=[Key((K,))])
    step(run, a=[{"id": 1, "k": 1}], c=[{"id": 2, "k": 1}])
    assert [step(run, c=[{"id": 3, "k": 9}])["purgedRows"], step(run)["purgedRows"]] == [0, 0]
    step(run, b=[{"id": 4, "k": 1}])
    assert {ids for ids, _ in run.results} == {(1, 4, 2)}


@pytest.mark.parametrize("where", ["a.k = b.k", "a.k = b.k AND a.x <= b.x"])
@pytest.mark.parametrize(("pairs", "gone"), [(0, 0), (1, 1)])
def test_where_too_many_partners_would_have_to_be_looked_at_a_tuple_stays(
    tmp_path: Path, where: str, pairs: int, gone: int
) -> None:
    run = join(tmp_path, f"{where} AND b.t = c.t", "abc", b=[ENDS], c=[Key((T,))])
    with limited(purge_pairs=pairs):
        step(run, a=[{"id": 1, "k": 1, "x": 1.0}], b=[{"id": 2, "k": 1, "t": "p", "x": 1.0}])
        step(run, b=[{"id": 0, "k": 1, "end": True}], c=[{"id": 3, "t": "p"}])
        assert step(run)["purgedRows"] == gone


def test_columns_of_two_types_close_nothing(tmp_path: Path) -> None:
    """[!] A double equals both 2^53 and 2^53 + 1: that one came says nothing of the other."""
    run = join(tmp_path, "a.k = b.x AND b.x = c.k", "abc", b=[Key((X,))], c=[Key((K,))])
    step(run, a=[{"id": 1, "k": BIG + 1}], b=[{"id": 2, "x": float(BIG)}], c=[{"id": 3, "k": BIG}])
    assert step(run, a=[{"id": 4, "k": 1}])["purgedRows"] == 0
    step(run, c=[{"id": 5, "k": BIG + 1}])
    assert {ids for ids, _ in run.results} == {(1, 2, 3), (1, 2, 5)}


@pytest.mark.parametrize("strategy", [PSP(3), Hash(3), Scatter(5, 1), Scatter(5, 2)])
def test_partners_that_another_node_keeps_count_too(tmp_path: Path, strategy: Strategy) -> None:
    run = join(tmp_path, "a.k = b.k AND b.x = c.x", "abc", b=[ENDS])
    rows = [[{"id": 10 * at + k, "ts": 50 * at, "k": k, "x": 1.0 + k % 3} for k in range(9)] for at in range(2)]
    step(run, strategy, a=rows[0], b=rows[1])
    step(run, strategy, b=[{"id": k, "k": k, "end": True} for k in range(9)])
    assert step(run, strategy)["purgedRows"] == 0, "c is open for all of them"
    step(run, strategy, c=[{"id": 30, "ts": 60, "x": 1.0}])
    assert {ids for ids, _ in run.results} == {(k, 10 + k, 30) for k in (0, 3, 6)}


def test_a_frontier_of_a_time_moved_by_an_interval() -> None:
    kind = pa.timestamp("us", "UTC")
    at = DeniedRows(QUERY, times={0: pa.scalar(100, pa.int64()).cast(kind)})
    moved = {by: Frontier(Column(0, 9), moved=by).value(at) for by in (0, 10, -10, FOREVER, NEVER)}
    values = {by: None if found is None else found.cast(pa.int64()).as_py() for by, found in moved.items()}
    assert values == {0: 100, 10: 110, -10: 90, FOREVER: None, NEVER: NEVER + 100}
    assert Frontier(Column(1, 9), moved=10).value(at) is None


# -- what one task hears, block by block

QUERY = Query(
    (
        StreamSpec(
            "a", SCHEMA, 1, Window(), 0, constraints=(Key((K,)), Clustering(K), SortOrder(K), SortOrder(K, True))
        ),
        StreamSpec("b", SCHEMA, 1, Window(), 0),
    )
)


def test_blocks_of_a_task_are_collected_together(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    collector = MetadataCollector(Operator(QUERY, Central(), store, "r").plan(start(QUERY)), "task")
    for values in ([3, 1], [], [7, None, 7], [2]):
        collector.collect_data(0, pa.record_batch({"s0_2": pa.array(values, pa.int64())}))
    collected = collector.finish()
    keys, runs = (read_table(store, found) for at in (0, 1) if (found := collected[0, at].file) is not None)
    assert (keys["low0"].to_pylist(), keys["high0"].to_pylist()) == ([1, 7], [3, 7])
    assert sorted(runs["value"].to_pylist()) == [1, 2, 3, 7]
    assert (collected[0, 2].frontier, collected[0, 3].frontier) == (7, 1)


# -- orphans and punctuations of the output


def test_punctuations_over_columns_that_are_not_shown_stay_inside() -> None:
    ends = FlaggedPunctuations(END, (Pattern(K, K, K), Pattern(T, T, T)))
    shown = [replace(QUERY, outputs=tuple(Output(name, Column(0, at)) for name, at in some)) for some in COLUMNS]
    assert [is_propagated(query, 0, ends) for query in (QUERY, *shown)] == [True, True, False]


COLUMNS = ([("k", K), ("t", T)], [("k", K), ("x", X)])


@pytest.mark.parametrize(
    ("promise", "orphans"),
    [(SortOrder(K), [1]), (Key((K, T)), []), (FlaggedPunctuations(END, (Pattern(K, K, K), Pattern(T, T, T))), [])],
)
def test_only_promises_about_the_parents_column_alone_make_orphans(
    tmp_path: Path, promise: Constraint, orphans: list[int]
) -> None:
    run = join(tmp_path, "a.k = b.k", a=[promise], b=[ForeignKey(K, Column(0, K))])
    step(run, b=[{"id": 1, "k": 5}, {"id": 2, "k": 9}, {"id": 3, "k": None}])
    step(run, a=[{"id": 4, "k": 9, "t": "p"}, {"id": 5, "k": 5, "t": "p", "end": True, "ts": None}])
    step(run, a=[{"id": 6, "k": 10, "t": "p"}])
    step(run)
    step(run)
    assert side_ids(run, "orphan") == orphans


def test_a_row_waits_for_its_parent_however_many_batches_that_takes(tmp_path: Path) -> None:
    run = join(tmp_path, "a.k = b.k", a=[SortOrder(K)], b=[ForeignKey(K, Column(0, K))])
    for at in range(12):
        step(run, b=[{"id": at, "k": at}])
    step(run, a=[{"id": 20, "k": 3}])
    assert step(run)["orphanRows"] == 3
    step(run, a=[{"id": 21, "k": 30}], b=[{"id": 30, "k": 31}, {"id": 31, "k": 3}])
    assert step(run)["orphanRows"] == 8
    assert side_ids(run, "orphan") == [0, 1, 2, *range(4, 12)]
    assert {ids for ids, _ in run.results} == {(20, 3), (20, 31)}, "a foreign key denies nothing"


def test_a_row_without_one_of_two_parents_is_an_orphan_by_the_other(tmp_path: Path) -> None:
    foreign = ForeignKey(K, Column(0, K)), ForeignKey(X, Column(2, X))
    run = join(tmp_path, "a.k = b.k AND b.x = c.x", "abc", a=[SortOrder(K)], b=foreign, c=[SortOrder(X)])
    step(run, b=[{"id": 1, "k": 5, "x": None}, {"id": 2, "k": None, "x": 5.0}, {"id": 3, "k": None, "x": None}])
    step(run, a=[{"id": 4, "k": 9}], c=[{"id": 5, "x": 9.0}])
    step(run)
    assert side_ids(run, "orphan") == [1, 2]
    step(run, b=[{"id": 6, "k": None, "x": 9.0}])
    step(run)
    state = manifests.load(run.store, run.batch)
    assert state is not None and state.constraints[1][0].waiting == (), "nobody waits for a parent of NULL"


def test_punctuations_that_wait_for_the_watermark_go_to_the_output_after_it(tmp_path: Path) -> None:
    run = join(tmp_path, "a.k = b.k", delay=0, b=[LATER])
    step(run, b=[{"id": 1, "ts": 10, "k": 1, "end": True}])
    out = []
    for ts in (9, 10, 11, 12, 13):
        done = step(run, a=[{"id": ts, "ts": ts, "k": 5}], b=[{"id": ts, "ts": ts, "k": 6}])
        out.append((done["watermark"], done["punctuationsOut"]))
    assert out == [(9, 0), (10, 0), (11, 0), (12, 1), (13, 0)], "by the watermark before the batch"


def test_a_frontier_never_goes_back(tmp_path: Path) -> None:
    run = join(tmp_path, "a.k = b.k", a=[SortOrder(K)], b=[SortOrder(K, True)])
    for at, k in enumerate((9, 3, 5, 9)):
        step(run, a=[{"id": at, "k": k}], b=[{"id": 10 + at, "k": -k}])
    assert side_ids(run, "denied") == [1, 2, 11, 12]


def test_punctuations_go_to_the_output_once_nothing_stored_matches(tmp_path: Path) -> None:
    run = join(tmp_path, "a.k = b.k", a=[Key((K,))], b=[FlaggedPunctuations(END, (Pattern(K, K, 0),))])
    step(run, a=[{"id": 1, "k": 1}], b=[{"id": 2, "k": 1}, {"id": 3, "k": 3}])
    step(run, b=[{"id": 1, "k": 0, "end": True}, {"id": 3, "k": 2, "end": True}, {"id": 9, "k": 7, "end": True}])
    out = [step(run)["punctuationsOut"] for _ in range(3)]
    assert out == [2, 0, 0], "b's row with 3 stays, since a may bring its partner; that with 1 went before"
    step(run, a=[{"id": 4, "k": 3}])
    assert [step(run)["punctuationsOut"] for _ in range(3)] == [0, 1, 0]
    said = [row for _, row in run.sides["punctuation", "b"]]
    assert said == [{"k_low": 0, "k_high": 1}, {"k_low": 7, "k_high": 9}, {"k_low": 2, "k_high": 3}]
