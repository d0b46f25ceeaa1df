"""What purging must not do and what it must: dead rows have no later result and may go in any part; all closed, all go.

Properties 3, 4 and 5 of the design of metadata; the others are in test_denial.py, test_marks.py and test_cuts.py.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from tests.batch.extremes import ALWAYS_SCAN, NEVER_SCAN
from tests.batch.test_engine import strategies_of
from tests.budget import FEW
from tests.metadata.test_denial import THIRD, WHERE, run_case
from watersmeet.arrays import Ints
from watersmeet.batch.finish import Finish
from watersmeet.batch.plan import BatchPlan
from watersmeet.metadata.constraints import Clustering, Constraint, FlaggedPunctuations, Key, Pattern, SortOrder
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run

pytestmark = pytest.mark.long

Dead = dict[str, Ints]
MERGING = {"merged_chunks": 2, "tier_rows": 1}
"""Chunks are merged as soon as there are two, so that dead rows do go, and tables of marks, too."""
CLOSING = {
    "k": ["key", "clustered", "rising, slack", "ends", "ends by time", "ranges"],
    "t": ["key of text", "clustered, slack", "key of two", "ends of two", "range and text"],
    "x": ["rising", "falling"],
}
"""The promises by which a column of `where` is closed."""


@contextmanager
def purging(see: Callable[[BatchPlan, Dead], Dead]) -> Iterator[None]:
    """Have tasks purge what `see` returns, told the batch's plan and the rows that were found dead."""
    found = Finish.dead
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Finish, "dead", lambda finish, node: see(finish._plan, found(finish, node)))
        yield


def ids(plan: BatchPlan, dead: Dead) -> Iterator[tuple[str, int]]:
    """Yield the streams and ids of rows."""
    for chunk in plan.chunks:
        if chunk.id in dead:
            spec = plan.query.streams[chunk.stream]
            rows = plan.store.open(chunk, spec.time_type).column(Column(chunk.stream, 0))
            yield from ((spec.name, number) for number in rows.take(pa.array(dead[chunk.id])).to_pylist())


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Joins in which much is closed: streams promise what `where` asks for, and values move on from batch to batch."""
    names = draw(st.sampled_from(["ab", "abc"]))
    where = [draw(st.sampled_from(sorted(text for text in WHERE if text)))]
    where += [draw(st.sampled_from(sorted(THIRD)))] if names == "abc" else [""]
    fitting = [kind for column, kinds in CLOSING.items() if f".{column}" in "".join(where) for kind in kinds]
    batches, rng = draw(st.integers(3, 5)), random.Random(draw(st.integers(0, 1 << 30)))
    return {
        "names": names,
        "promises": {name: draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=2)) for name in names},
        "where": where,
        "batches": [[(rng.choice(names), row(rng, at)) for _ in range(6 * len(names))] for at in range(batches)],
        "delays": [draw(st.integers(0, 10)) for _ in names],
        "windows": [None for _ in names],
        "strategies": [draw(strategies_of) for _ in range(batches)],
        "exchanges": [draw(st.sampled_from(["local", "local", "shuffle"])) for _ in range(batches)],
        "foreign": False,
        "extremes": MERGING | draw(st.sampled_from([ALWAYS_SCAN, NEVER_SCAN])),
    }


def row(rng: random.Random, batch: int) -> dict[str, Any]:
    """Return a row whose values are about as far on as its batch is."""
    return {
        "ts": 5 * batch + rng.randint(0, 9),
        "k": rng.choice([batch, batch, batch, batch + 1, batch - 1, None]),
        "x": rng.choice([batch + 0.5, batch - 0.0, float(batch), 1.0 - batch, float("nan"), None]),
        "t": rng.choice([f"p{batch // 2}", f"p{batch // 2}", f"p{batch // 2}\0", None]),
        "end": rng.choice([None, False, False, False, True]),
        "low": batch - rng.randint(0, 2),
        "high": batch + rng.randint(-1, 1),
    }


First = dict[tuple[str, int], int]
"""The first batch that let a row go, by its stream and id."""


def note(first: First, plan: BatchPlan, dead: Dead) -> None:
    for row in ids(plan, dead):
        first.setdefault(row, plan.batch)


def assert_unmissed(first: First, case: dict[str, Any], outcome: oracle.Outcome, arrivals: list[Any]) -> None:
    """No result is made in the batch that let one of its members go, or later."""
    batch = {arrival.row["id"]: arrival.batch for arrival in arrivals}
    for members, _ in outcome.results:
        made = max(batch[member] for member in members)
        for row in zip(case["names"], members, strict=True):
            assert first.get(row, made + 1) > made, f"{row} went in batch {first[row]} and joins in batch {made}"


@FEW
@given(case=cases())
def test_no_dead_row_has_a_later_result(case: dict[str, Any]) -> None:
    """Property 4: whatever a batch would purge has no result in it or after it; nothing is purged to see that."""
    first: First = {}

    def record_dead(plan: BatchPlan, dead: Dead) -> Dead:
        note(first, plan, dead)
        return {}

    with TemporaryDirectory() as folder, purging(record_dead):
        run, wanted, arrivals = run_case(case, folder)
    assert run.results == wanted.results
    assert_unmissed(first, case, wanted, arrivals)


@FEW
@given(case=cases(), seed=st.integers(0, 1000))
def test_any_part_of_the_dead_rows_may_go(case: dict[str, Any], seed: int) -> None:
    """Property 3: whether a dead row goes, some batches later or never, changes no result and no row that is denied.

    Those that go are gone for the dead rule at once, but for probes only when their chunk is written anew, which may be
    too late for anybody to miss them. So it is looked at, too, whether anybody would.
    """
    rng, first = random.Random(seed), First()

    def some(plan: BatchPlan, dead: Dead) -> Dead:
        chosen = {key: rows[[rng.random() < 0.5 for _ in rows]] for key, rows in sorted(dead.items())}
        note(first, plan, chosen)
        return {key: rows for key, rows in chosen.items() if len(rows)}

    with TemporaryDirectory() as folder, purging(some):
        run, wanted, arrivals = run_case(case, folder)
    assert run.results == wanted.results
    assert sum(p["deniedRows"] for p in run.progress) == len(wanted.denied)
    assert_unmissed(first, case, wanted, arrivals)


# -- trees of equalities

COLUMNS = 4
TREE = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        *((f"c{at}", pa.int64()) for at in range(COLUMNS)),
        *((f"end{at}", pa.bool_()) for at in range(COLUMNS)),
        ("low", pa.int64()),
        ("high", pa.int64()),
    ]
)
LOW, HIGH = len(TREE) - 2, len(TREE) - 1
FAR = 1000


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """A tree of equalities over two to five streams, what closes each of its columns, and some rows."""
    size = draw(st.integers(2, COLUMNS + 1))
    edges = [(draw(st.integers(0, at - 1)), at) for at in range(1, size)]
    values = st.lists(st.integers(0, 2), min_size=COLUMNS, max_size=COLUMNS)
    row = st.tuples(st.integers(0, size - 1), st.integers(0, 20), values)
    kinds = st.sampled_from(["key", "clustered", "rising", "falling", "ends", "ranges"])
    return {
        "size": size,
        "edges": edges,
        "closes": {(at, edge): draw(kinds) for edge, pair in enumerate(edges) for at in pair},
        "batches": draw(st.lists(st.lists(row, max_size=10), min_size=1, max_size=3)),
        "strategy": draw(strategies_of),
    }


def promise(kind: str, edge: int) -> Constraint:
    column = 2 + edge
    made: dict[str, Constraint] = {
        "key": Key((column,)),
        "clustered": Clustering(column),
        "rising": SortOrder(column, slack=2 * FAR),  # true of all rows but the last
        "falling": SortOrder(column, falling=True, slack=2 * FAR),
        "ends": FlaggedPunctuations(2 + COLUMNS + edge, (Pattern(column, column, column),)),
        "ranges": FlaggedPunctuations(2 + COLUMNS + edge, (Pattern(column, LOW, HIGH),)),
    }
    return made[kind]


def closing(kind: str, edge: int) -> list[dict[str, Any]]:
    """Rows that deny all values of a column; those that aren't punctuations have no event time, and are not stored."""
    column, flag = f"c{edge}", f"end{edge}"
    rows: dict[str, list[dict[str, Any]]] = {
        "key": [{column: value} for value in range(3)],
        "clustered": [{column: value} for value in range(3)],  # and then another one: see `run_tree`
        "rising": [{column: 4 * FAR}],
        "falling": [{column: -4 * FAR}],
        "ends": [{"ts": 0, flag: True, column: value} for value in range(3)],
        "ranges": [{"ts": 0, flag: True, "low": 0, "high": 2}],
    }
    return rows[kind]


def run_tree(case: dict[str, Any], folder: Path) -> Run:
    size, blank = case["size"], dict.fromkeys(TREE.names)
    own = [[(kind, edge) for (at, edge), kind in case["closes"].items() if at == stream] for stream in range(size)]
    streams = tuple(
        StreamSpec("abcde"[at], TREE, 1, Window(), 1000, constraints=tuple(promise(*found) for found in own[at]))
        for at in range(size)
    )
    text = " AND ".join(f"{'abcde'[one]}.c{at} = {'abcde'[two]}.c{at}" for at, (one, two) in enumerate(case["edges"]))
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    run = Run(Query(streams, conjuncts, text), Store(str(folder)))
    for rows in case["batches"]:
        made = [
            (at, {**blank, "id": 0, "ts": ts, **{f"c{n}": value for n, value in enumerate(values)}})
            for at, ts, values in rows
        ]
        run.step(case["strategy"], made)
    run.step(
        Central(),
        [(at, {**blank, **row}) for at in range(size) for found in own[at] for row in closing(*found)],
    )
    others = [(at, {**blank, f"c{edge}": FAR}) for at in range(size) for kind, edge in own[at] if kind == "clustered"]
    run.step(Central(), others)
    return run


@FEW
@given(case=trees())
def test_where_all_is_closed_nothing_stays(case: dict[str, Any]) -> None:
    """Property 5: in a tree of equalities, once every column is closed, state is empty within as many batches."""
    with TemporaryDirectory() as folder:
        run = run_tree(case, Path(folder))
        for _ in range(case["size"]):
            run.step(Central(), [])
    assert run.progress[-1]["distinctRows"] == run.progress[-1]["stateRows"] == 0
