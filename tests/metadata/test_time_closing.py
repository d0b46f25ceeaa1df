"""Conditions over event times let state go by the watermark, with no window: on the engine, against the oracle."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from tests.batch.extremes import EXTREMES
from tests.batch.test_engine import strategies_of
from tests.budget import search
from watersmeet.limits import limited
from watersmeet.placement import Central, Hash, Strategy
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("k", pa.int64())])
Rows = list[tuple[str, int, int | None]]
Where = Callable[[dict[str, Any]], bool]


@dataclass(frozen=True)
class Condition:
    """A condition as text and as Python, and how many rows stay when all streams have moved on."""

    text: str
    holds: Where
    streams: str
    purges: str
    """The streams whose rows all leave in the end."""


def gap(r: dict[str, Any], one: str, two: str) -> int:
    return int(r[two]["ts"]) - int(r[one]["ts"])


def same(r: dict[str, Any], one: str, two: str) -> bool:
    return r[one]["k"] is not None and r[one]["k"] == r[two]["k"]


CONDITIONS = {
    "between": Condition(
        "b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 MICROSECONDS", lambda r: 0 <= gap(r, "a", "b") <= 5, "ab", "ab"
    ),
    "strict": Condition(
        "a.ts < b.ts AND b.ts - a.ts < INTERVAL 5 MICROSECONDS", lambda r: 0 < gap(r, "a", "b") < 5, "ab", "ab"
    ),
    "keyed": Condition(
        "a.k = b.k AND a.ts <= b.ts AND b.ts <= a.ts + INTERVAL 4 MICROSECONDS",
        lambda r: same(r, "a", "b") and 0 <= gap(r, "a", "b") <= 4,
        "ab",
        "ab",
    ),
    "one side": Condition("a.ts < b.ts", lambda r: gap(r, "a", "b") > 0, "ab", "b"),
    "chain": Condition(
        "a.ts <= b.ts AND b.ts <= a.ts + INTERVAL 4 MICROSECONDS AND b.ts <= c.ts "
        "AND c.ts <= b.ts + INTERVAL 3 MICROSECONDS",
        lambda r: 0 <= gap(r, "a", "b") <= 4 and 0 <= gap(r, "b", "c") <= 3,
        "abc",
        "abc",
    ),
    "untimed third": Condition(
        "a.ts <= b.ts AND b.ts <= a.ts + INTERVAL 4 MICROSECONDS AND b.k = c.k",
        lambda r: 0 <= gap(r, "a", "b") <= 4 and same(r, "b", "c"),
        "abc",
        "",
    ),
    "cycle": Condition(
        "a.ts <= b.ts AND b.ts <= c.ts AND c.ts <= a.ts + INTERVAL 6 MICROSECONDS AND a.k = b.k",
        lambda r: gap(r, "a", "b") >= 0 and gap(r, "b", "c") >= 0 and gap(r, "a", "c") <= 6 and same(r, "a", "b"),
        "abc",
        "abc",
    ),
}


def query_of(condition: Condition, delays: list[int]) -> Query:
    pairs = zip(condition.streams, delays, strict=True)
    streams = tuple(StreamSpec(name, SCHEMA, 1, Window(), delay) for name, delay in pairs)
    conjuncts = parse_where(condition.text, [(s.name, s.schema) for s in streams], (), Dialect())
    return Query(streams, conjuncts, condition.text)


def run_join(
    condition: Condition,
    batches: list[Rows],
    delays: list[int],
    strategies: list[Strategy],
    exchanges: list[str],
    extremes: list[dict[str, Any]],
    folder: str,
) -> tuple[Run, oracle.Outcome]:
    run = Run(query_of(condition, delays), Store(folder))
    arrivals, number = [], 0
    for batch, rows in enumerate(batches):
        made = []
        for name, ts, k in rows:
            row = {"id": number, "ts": ts, "k": k}
            number += 1
            made.append((condition.streams.index(name), row))
            arrivals.append(oracle.Arrival(batch, name, ts, content_key(row), row))
        with limited(**extremes[batch % len(extremes)]):
            run.step(strategies[batch % len(strategies)], made, exchanges[batch % len(exchanges)])
    streams = [oracle.Stream(n, oracle.Unbounded(), d) for n, d in zip(condition.streams, delays, strict=True)]
    return run, oracle.join(streams, arrivals, condition.holds)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    condition = draw(st.sampled_from([*CONDITIONS.values()]))
    row = st.tuples(st.sampled_from(condition.streams), st.integers(0, 24), st.sampled_from([0, 1, None]))
    batches = draw(st.lists(st.lists(row, max_size=20), min_size=2, max_size=6))
    batches = [[(n, 6 * b + t // 2, k) for n, t, k in rows] for b, rows in enumerate(batches)]
    few = st.lists(strategies_of, min_size=1, max_size=3)
    return {
        "condition": condition,
        "batches": batches,
        "delays": [draw(st.integers(0, 8)) for _ in condition.streams],
        "strategies": draw(few),
        "exchanges": draw(st.lists(st.sampled_from(["local", "shuffle"]), min_size=1, max_size=2)),
        "extremes": [draw(st.sampled_from(EXTREMES)) | draw(st.sampled_from([{}, {"purge_pairs": 0}]))],
    }


@pytest.mark.long
@search(40)
@given(cases())
def test_results_are_the_oracles_whatever_was_purged(case: dict[str, Any]) -> None:
    if any(isinstance(strategy, Hash) for strategy in case["strategies"]) and "k =" not in case["condition"].text:
        case["strategies"] = [Central()]
    with TemporaryDirectory() as folder:
        run, wanted = run_join(**case, folder=folder)
        assert run.results == wanted.results


@pytest.mark.long
@pytest.mark.parametrize("name", CONDITIONS)
def test_what_no_later_row_can_match_leaves(name: str, tmp_path: Path) -> None:
    condition = CONDITIONS[name]
    early: list[Rows] = [[(n, ts, ts % 2) for ts in range(40) for n in condition.streams]]
    late: list[Rows] = [[(n, 1000 + at, 7) for n in condition.streams] for at in range(4)]
    run, wanted = run_join(
        condition, early + late, [0] * len(condition.streams), [Central()], ["local"], [{}], str(tmp_path)
    )
    assert run.results == wanted.results
    stays = 40 * (len(condition.streams) - len(condition.purges))
    assert run.progress[-1]["distinctRows"] - stays in range(1, 4 * len(condition.streams) + 1)
    assert sum(p["purgedRows"] for p in run.progress) >= 40 * len(condition.purges)
