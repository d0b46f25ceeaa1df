"""Corners of metadata: foreign keys, NULL, NaN, and files that nobody names any more."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.metadata.constraints import Constraint, ForeignKey, Key, SortOrder
from watersmeet.placement import Central, Hash
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Count, Sliding, Window
from watersmeet.runtime.enact import FOLDERS
from watersmeet.state.manifest import history
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("k", pa.int64()),
        ("j", pa.int64()),
        ("x", pa.float64()),
        ("t", pa.timestamp("us", "UTC")),
    ]
)
NAN = float("nan")


def run_of(
    folder: Path, where: str, promises: Mapping[str, Sequence[Constraint]], windows: dict[str, Window] | None = None
) -> Run:
    names = sorted({"a", "b", *promises})
    streams = tuple(
        StreamSpec(name, SCHEMA, 1, (windows or {}).get(name, Window()), 0, constraints=tuple(promises.get(name, ())))
        for name in names
    )
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect())
    return Run(Query(streams, conjuncts, where), Store(str(folder)), steady=True)


def step(run: Run, *rows: tuple[str, dict[str, Any]], strategy: Any = None) -> dict[str, Any]:
    names = [stream.name for stream in run.query.streams]
    blank = dict.fromkeys(SCHEMA.names)
    run.step(strategy or Central(), [(names.index(name), {**blank, **row}) for name, row in rows])
    return dict(run.progress[-1])


def leaks(run: Run) -> set[str]:
    """Files of the store that no manifest names, once one more batch has begun."""
    step(run)
    step(run)
    live = manifests.load(run.store, run.batch)
    before = manifests.load(run.store, run.batch - 1)
    assert live is not None and before is not None
    return unneeded(run.store, live) - before.files


def unneeded(store: Store, live: Manifest) -> set[str]:
    """Files of a store that the newest manifest does not need."""
    needed = live.files | {*live.chain} | history.block_paths(live.batch)
    return {name for folder in FOLDERS for name in store.names(folder)} - needed


def test_a_row_with_two_foreign_keys_is_an_orphan_once(tmp_path: Path) -> None:
    foreign = ForeignKey(2, Column(0, 2)), ForeignKey(3, Column(2, 3))
    promises: dict[str, Sequence[Constraint]] = {"a": (Key((2,)), SortOrder(2)), "b": foreign, "c": (SortOrder(3),)}
    run = run_of(tmp_path, "a.k = b.k AND b.j = c.j", promises)
    step(run, ("b", {"id": 1, "ts": 0, "k": 5, "j": 5}), ("b", {"id": 2, "ts": 0, "k": 9, "j": 5}))
    step(run, ("a", {"id": 3, "ts": 0, "k": 9, "j": 9}), ("c", {"id": 4, "ts": 0, "k": 9, "j": 9}))
    assert [step(run)["orphanRows"], step(run)["orphanRows"]] == [2, 0]
    assert sorted(row["id"] for _, row in run.sides["orphan", "b"]) == [1, 2]
    reasons = {sample["row"]["id"]: sample["reason"] for sample in run.progress[2]["samples"]}
    assert reasons["1"].startswith("no a.k = 5 came") and reasons["2"].startswith("no c.j = 5 came")


def test_a_foreign_key_may_refer_to_an_event_time(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a.k = b.k", {"a": (SortOrder(1),), "b": (ForeignKey(5, Column(0, 1)),)})
    step(run, ("a", {"id": 1, "ts": 3, "k": 1}), ("b", {"id": 2, "ts": 3, "k": 1, "t": 3}))
    step(run, ("a", {"id": 3, "ts": 9, "k": 1}), ("b", {"id": 4, "ts": 9, "k": 1, "t": 5}))
    assert [step(run)["orphanRows"] for _ in range(2)] == [1, 0]


def test_rows_that_no_equality_admits_are_not_stored(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a.k = b.k", {})
    done = step(run, *((name, {"id": at, "ts": 0, "k": k}) for name in "ab" for at, k in enumerate((1, None))))
    assert (done["distinctRows"], sum(run.results.values())) == (2, 1)
    assert done["inputRows"] == {"a": 2, "b": 2} and done["rejectedRows"] == 0


def test_rows_of_a_count_window_are_stored_all_the_same(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a.k = b.k", {}, {"a": Count(2)})
    step(run, *(("a", {"id": at, "ts": at, "k": k}) for at, k in enumerate((1, 1, None))))
    step(run, ("b", {"id": 9, "ts": 5, "k": 1}))
    assert run.results == {((1, 9), 5): 1}


@pytest.mark.parametrize("where", ["a.x = b.x", "a.x >= b.x AND a.x <= b.x"])
def test_nan_leaves_under_falling_orders(tmp_path: Path, where: str) -> None:
    run = run_of(tmp_path, where, {name: (SortOrder(4, falling=True),) for name in "ab"})
    step(run, *((name, {"id": 1, "ts": 0, "x": NAN}) for name in "ab"))
    for at, x in enumerate((5.0, 4.0, 3.0)):
        step(run, *((name, {"id": 2 + at, "ts": 1 + at, "x": x}) for name in "ab"))
    step(run)
    assert run.progress[-1]["distinctRows"] == 2  # those at the frontier
    assert sum(run.results.values()) == 4


def test_files_of_chunks_that_leave_in_the_batch_that_wrote_them_are_removed(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a.k = b.k", {"b": (Key((2,)),)}, {"a": Sliding(5), "b": Sliding(5)})
    step(run, *(("a", {"id": k, "ts": 10, "k": k}) for k in range(9)))
    step(run, ("b", {"id": 20, "ts": 10, "k": 0}))
    step(run, ("a", {"id": 21, "ts": 1000, "k": 1}), ("b", {"id": 22, "ts": 1000, "k": 50}))
    assert leaks(run) == set()
    step(run, *((name, {"id": 30, "ts": 2000 + at, "k": at}) for name in "ab" for at in (0, 900)))
    assert leaks(run) == set()


def test_nothing_leaks_where_rows_are_stored_by_two_attributes(tmp_path: Path) -> None:
    promises: dict[str, Sequence[Constraint]] = {"a": [Key((2,))], "b": [SortOrder(2), SortOrder(3)], "c": [Key((3,))]}
    run = run_of(tmp_path, "a.k = b.k AND b.j = c.j", promises)
    for at in range(12):
        rows = [(name, {"id": 10 * at, "ts": at, "k": at, "j": at}) for name in "abc"]
        step(run, *rows, strategy=Hash(3))
    assert sum(run.results.values()) == 12
    step(run, strategy=Hash(3))
    assert run.progress[-1]["distinctRows"] <= 6
    assert leaks(run) == set()


def test_an_orphan_by_one_key_is_not_told_of_again_by_the_other(tmp_path: Path) -> None:
    foreign = ForeignKey(2, Column(0, 2)), ForeignKey(3, Column(2, 3))
    promises: dict[str, Sequence[Constraint]] = {"a": [SortOrder(2)], "b": foreign, "c": [SortOrder(3)]}
    run = run_of(tmp_path, "a.k = b.k AND b.j = c.j", promises)
    step(run, ("b", {"id": 1, "ts": 0, "k": 5, "j": 5}))
    step(run, ("a", {"id": 2, "ts": 0, "k": 9}))
    assert step(run, ("c", {"id": 3, "ts": 0, "j": 9}))["orphanRows"] == 1
    assert [step(run)["orphanRows"] for _ in range(2)] == [0, 0]


def test_a_constant_bounds_an_ordered_column(tmp_path: Path) -> None:
    """Nothing of another stream says where the bound lies, so it closes nothing."""
    run = run_of(tmp_path, "a.k < 5 AND a.k = b.k", {"a": (SortOrder(2),), "b": (SortOrder(2),)})
    for at in range(4):
        told = step(run, ("a", {"id": at, "ts": at, "k": at}), ("b", {"id": at, "ts": at, "k": at}))
    assert told["purgedRows"] == 2
    assert sum(run.results.values()) == 4
