"""`remember`: marks are forgotten in time; what is true stays exact, and what is false depends on no placement."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.batch.test_engine import strategies_of
from tests.budget import search
from tests.metadata.test_denial import NAMES, SCHEMA, cases, run_case
from watersmeet.metadata.constraints import (
    Clustering,
    Constraint,
    FlaggedPunctuations,
    ForeignKey,
    Key,
    MarkFile,
    Pattern,
)
from watersmeet.metadata.plan import MarkLifetime
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

BLANK = dict.fromkeys(NAMES)
END = FlaggedPunctuations(5, (Pattern(2, 2, 2),))


def run_of(folder: Path | str, promises: dict[str, tuple[Constraint, ...]], **options: Any) -> Run:
    streams = tuple(StreamSpec(name, SCHEMA, 1, Window(), 0, constraints=found) for name, found in promises.items())
    conjuncts = parse_where("a.k = b.k", [(s.name, s.schema) for s in streams], (), Dialect())
    return Run(Query(streams, conjuncts, "a.k = b.k"), Store(str(folder)), **options)


def feed(run: Run, *batches: list[tuple[int, int, int]], **more: Any) -> list[int]:
    """Run batches of (stream, time, k) and return how many rows each denied."""
    for rows in batches:
        first = sum(p["inputRows"]["a"] + p["inputRows"]["b"] for p in run.progress)
        made = [(at, BLANK | {"id": first + n, "ts": ts, "k": k} | more) for n, (at, ts, k) in enumerate(rows)]
        run.step(Central(), made)
    return [p["deniedRows"] for p in run.progress]


def test_tables_are_dated_once_and_forgotten_an_era_later() -> None:
    new, old = MarkFile("new", 1, 1), MarkFile("old", 1, 1, 80)
    assert MarkLifetime(40, None).date_files([new], 0) == (new,)
    assert MarkLifetime(40, 127).date_files([new, old], 0) == (new._replace(era=120), old)
    assert MarkLifetime(40, 127).date_files([new], 139)[0].era == 130  # not before it has been in effect
    assert MarkLifetime(40, 129).select_remembered([new, old]) == (new, old)
    assert MarkLifetime(40, 130).select_remembered([new, old]) == (new,)
    assert MarkLifetime(40, 130, purges=False).select_remembered([old]) == (old,)
    assert MarkLifetime(None, 10**9).select_remembered([old]) == (old,)


def test_a_key_is_denied_while_it_is_remembered(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"a": (Key((2,)),), "b": ()}, remember=40)
    moving = [(0, t, 1000 + t) for t in (10, 49)], [(1, t, 1000 + t) for t in (10, 49)]
    found = feed(run, [(0, 0, 7), (1, 0, 8)], [moving[0][0], moving[1][0]], [moving[0][1], moving[1][1]], [(0, 49, 7)])
    assert found == [0, 0, 0, 1]
    later = [[(0, 80, 2000), (1, 80, 2000)], [(0, 81, 2001), (1, 81, 2001)]]
    assert feed(run, *later, [(0, 85, 7)])[-1] == 1  # it was seen again at 49
    assert feed(run, [(0, 400, 3000), (1, 400, 3000)], [(0, 401, 3001), (1, 401, 3001)], [(0, 410, 7)])[-1] == 0


def test_a_punctuation_is_not_forgotten_before_it_is_in_effect(tmp_path: Path) -> None:
    by_time = FlaggedPunctuations(5, (Pattern(2, 2, 2),), "watermark")
    run = run_of(tmp_path, {"a": (by_time,), "b": ()}, remember=8)
    feed(run, [(0, 500, 7)], end=True)
    for t in range(0, 500, 50):
        feed(run, [(0, t, 1), (1, t, 1)])
    assert feed(run, [(0, 450, 7)])[-1] == 0
    assert feed(run, [(0, 501, 1), (1, 501, 1)], [(0, 502, 7)])[-1] == 1


def test_nothing_is_forgotten_before_a_purge_has_used_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"a": (Key((2,)),), "b": ()}, remember=4, purge_every=1000)
    feed(run, [(0, 0, 7), (1, 0, 7)])
    assert feed(run, *([(0, t, 100 + t), (1, t, 100 + t)] for t in range(10, 100, 10)), [(0, 200, 7)])[-1] == 1


@pytest.mark.long
def test_marks_of_every_promise_are_bounded(tmp_path: Path) -> None:
    kinds: dict[str, tuple[Constraint, ...]] = {
        "a": (Key((2, 4)), Clustering(2), END),
        "b": (Clustering(4), ForeignKey(2, Column(0, 2))),
    }
    sizes = {}
    for remember in (None, 40):
        run = run_of(tmp_path / str(remember), kinds, remember=remember)
        for t in range(0, 240, 10):
            feed(run, [(0, t, 2 * t), (1, t, 2 * t)], t=f"text {t}")
            feed(run, [(0, t, 2 * t)], end=True)
        sizes[remember] = {name: found["marks"] for name, found in run.progress[-1]["promises"].items()}
        assert sum(run.results.values()) == 24
    assert all(sizes[None][name] > 20 and sizes[40][name] < sizes[None][name] / 2 for name in "ab"), sizes


@st.composite
def true_auctions(draw: st.DrawFn) -> list[list[tuple[int, dict[str, Any]]]]:
    """Batches in which each key of `a` comes once, and rows of `b` come until they are said to have ended."""
    batches: list[list[tuple[int, dict[str, Any]]]] = []
    open_, number = [], 0
    for batch in range(draw(st.integers(3, 14))):
        ts, rows = 10 * batch, []
        for _ in range(draw(st.integers(0, 2))):
            open_.append(number := number + 1)
            rows.append((0, {"ts": ts, "k": number}))
        rows += [(1, {"ts": ts + draw(st.integers(0, 9)), "k": k}) for k in open_ if draw(st.booleans())]
        for k in [k for k in open_ if draw(st.booleans())]:
            open_.remove(k)
            rows.append((1, {"ts": ts, "k": k, "end": True}))
        batches.append(rows)
    return batches


@pytest.mark.long
@search(10)
@given(true_auctions(), st.integers(1, 60), st.sampled_from([1, 2, 5]), st.lists(strategies_of, min_size=14))
def test_what_is_true_stays_exact(batches: Any, remember: int, every: int, strategies: Any) -> None:
    with TemporaryDirectory() as folder:
        run, id_, rows = run_of(folder, {"a": (Key((2,)),), "b": (END,)}, remember=remember, purge_every=every), 0, []
        for batch, strategy in zip(batches, strategies, strict=False):
            made = [(at, BLANK | row | {"id": id_ + n}) for n, (at, row) in enumerate(batch)]
            id_ += len(made)
            rows += made
            run.step(strategy, made, "shuffle" if id_ % 2 else "local")
    pairs = [(a, b) for at, a in rows if not at for to, b in rows if to and not b["end"] and a["k"] == b["k"]]
    assert dict(run.results) == {((a["id"], b["id"]), max(a["ts"], b["ts"])): 1 for a, b in pairs}


@pytest.mark.long
@search(10)
@given(cases(), st.integers(1, 12), st.lists(strategies_of, min_size=6))
def test_what_is_false_depends_on_no_placement(case: dict[str, Any], remember: int, others: Any) -> None:
    case |= {"remember": remember, "extremes": {}}
    other = case | {"strategies": others, "exchanges": ["shuffle", "local"] * 3}
    found = []
    for each in (case, other):
        with TemporaryDirectory() as folder:
            run, _, _ = run_case(each, folder)
        found.append((run.results, [p["deniedRows"] for p in run.progress], [p["orphanRows"] for p in run.progress]))
    assert found[0] == found[1]
