"""Why a pair is no match: the first filter that refuses it is named, with the conjunct."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.engine.operator import Operator
from watersmeet.engine.plan import start
from watersmeet.engine.route import Routes
from watersmeet.exchange.tasks import take_in
from watersmeet.kernel.answers import AnswerCache
from watersmeet.kernel.duck import Duck
from watersmeet.kernel.hop import Hops
from watersmeet.kernel.partials import Partials, references
from watersmeet.kernel.route import NOWHERE
from watersmeet.kernel.steps import entry_conjuncts, step
from watersmeet.kernel.table import ChunkTable, Target
from watersmeet.kernel.why import Refusal, first_refusal, first_refused
from watersmeet.model.query import Query, StreamSpec
from watersmeet.model.windows import Count, Sliding, Window
from watersmeet.placement import Central
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.predicate.python import predicate
from watersmeet.state.store import Store
from watersmeet.testing.run import Run, blocks
from watersmeet.testing.stages import attempt

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.int32()), ("y", pa.float64())])
Row = Mapping[str, Any]
TEN = Sliding(10)


@predicate(form="pair")
def alike(x: int, y: int) -> bool:
    return x % 2 == y % 2


def row(ts: int, x: int = 0, y: float = 0.0) -> Row:
    return {"id": 100 * ts + x, "ts": ts, "x": x, "y": y}


def query_of(where: str, window: Window = TEN, names: str = "ab") -> Query:
    streams = tuple(StreamSpec(name, SCHEMA, 1, window, 0) for name in names)
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (alike,), Dialect())
    return Query(streams, conjuncts, where, (), (alike,))


@dataclass
class Stored:
    """Two rows, of the first and the second stream, in chunks of their own."""

    query: Query
    hops: Hops
    targets: dict[int, Target]
    rows: tuple[Row, Row]
    batch: int

    def why_not(self, origin: int = 0) -> Refusal | None:
        """What refuses the pair when the row of one of the streams probes the other's."""
        stream = 1 - origin
        hop = step(self.query, (origin,), stream)
        return first_refusal(self.hops.probe(self.block(origin), hop, self.targets[stream]), 0, self.hops.filters(hop))

    def why_not_in(self) -> Refusal | None:
        """What refuses the row of the first stream before it probes anything."""
        return first_refused(self.block(0), self.hops.entry_filters(entry_conjuncts(self.query, 0)))

    def block(self, origin: int) -> Partials:
        ts, one = np.array([self.rows[origin]["ts"]]), np.zeros(1, np.int64)
        return Partials(
            joined=(origin,),
            rows={origin: references(self.targets[origin].number, one)},
            moment=ts,
            high=ts,
            deadline=self.query.streams[origin].window.deadline(ts),
            here=np.array([NOWHERE]),
            batch=one + self.batch,
            asof={1 - origin: np.array([4])},
        )


def stored(folder: Path, query: Query, a: Row, b: Row, *, fresh: bool = False, ordinal: int | None = None) -> Stored:
    store = Store(str(folder))
    batch = Operator(query, Central(), store, "run").plan(start(query))
    report = take_in(batch, attempt(), [blocks(query, [(0, a), (1, b)])])
    numbered = list(report.numbered)
    targets = {chunk.stream: Target(number, chunk) for number, chunk in numbered}
    table = ChunkTable(store, query, list(targets.values()))
    if ordinal is not None:
        table.number(targets[1], np.array([ordinal]))
    routes = Routes(batch.placement)
    hops = Hops(query, table, Duck(Dialect()), AnswerCache(), time.perf_counter, routes, "run")
    return Stored(query, hops, targets, (a, b), 0 if fresh else 1)


def told(refusal: Refusal | None) -> tuple[str, str | None] | None:
    if refusal is None:
        return None
    return refusal.filter, None if refusal.conjunct is None else refusal.conjunct.text


SEVERAL = "a.x < b.x AND b.x < 9 AND exp(a.y) < b.y AND a.y < exp(b.y) AND alike(a.x, b.x) AND 8 / (b.x - 5) > 0"


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (row(50, 2), row(50, 4, 3.0), ("raising", "8 / (b.x - 5) > 0")),
        (row(50, 2), row(50, 6, 3.0), None),
        (row(50, 2), row(50, 8, 3.0), None),
        (row(50, 2), row(40, 6, 3.0), ("window", None)),
        (row(50, 2), row(60, 6, 3.0), ("window", None)),
        (row(50, 2), row(50, 1, 3.0), ("SQL", "a.x < b.x")),
        (row(50, 2), row(50, 10, 3.0), ("SQL", "b.x < 9")),
        (row(50, 2), row(50, 6, 0.5), ("near", "exp(a.y) < b.y")),
        (row(50, 2, -3.0), row(50, 6, -4.0), ("near", "exp(a.y) < b.y")),
        (row(50, 2), row(50, 7, 3.0), ("Python predicates", "alike(a.x, b.x)")),
    ],
)
def test_the_first_filter_that_refuses(tmp_path: Path, a: Row, b: Row, wanted: tuple[str, str | None] | None) -> None:
    assert told(stored(tmp_path, query_of(SEVERAL), a, b).why_not()) == wanted


@pytest.mark.parametrize(("a", "b", "finder"), [(50, 51, 1), (51, 50, 0), (50, 50, 1)])
def test_only_what_arrived_last_finds_a_match(tmp_path: Path, a: int, b: int, finder: int) -> None:
    pair = stored(tmp_path, query_of(""), row(a), row(b), fresh=True)
    assert pair.why_not(finder) is None
    assert told(pair.why_not(1 - finder)) == ("arrival order", None)


@pytest.mark.parametrize(("ordinal", "wanted"), [(3, None), (2, ("count window", None))])
def test_a_count_window(tmp_path: Path, ordinal: int, wanted: tuple[str, None] | None) -> None:
    assert told(stored(tmp_path, query_of("", Count(2)), row(50), row(40), ordinal=ordinal).why_not()) == wanted


@pytest.mark.parametrize(("x", "wanted"), [(1, ("hopeful", "8 / (b.x - a.x) > 0")), (5, None), (3, None)])
def test_before_the_last_hop_what_raises_is_hoped_for(tmp_path: Path, x: int, wanted: tuple[str, str] | None) -> None:
    query = query_of("8 / (b.x - a.x) > 0 AND c.x > 0", names="abc")
    assert told(stored(tmp_path, query, row(50, 3), row(50, x)).why_not()) == wanted


def test_a_pair_that_stops_the_join_says_how(tmp_path: Path) -> None:
    refusal = stored(tmp_path, query_of(SEVERAL.replace("- 5", "- 4")), row(50, 2), row(50, 4, 3.0)).why_not()
    assert told(refusal) == ("raising", "8 / (b.x - 4) > 0")
    assert refusal is not None and refusal.error is not None and "DIVIDE_BY_ZERO" in refusal.error


def test_what_denies_is_named_where_another_would_raise(tmp_path: Path) -> None:
    refusal = stored(tmp_path, query_of("8 / a.x > 0 AND 8 / b.x > 8"), row(50, 0), row(50, 2)).why_not()
    assert told(refusal) == ("raising", "8 / b.x > 8")
    assert refusal is not None and refusal.error is None


@pytest.mark.parametrize(("x", "wanted"), [(1, ("SQL", "a.x > 1")), (2, None)])
def test_a_tuple_that_never_probes(tmp_path: Path, x: int, wanted: tuple[str, str] | None) -> None:
    assert told(stored(tmp_path, query_of("a.x > 1 AND a.x < b.x"), row(50, x), row(50, 9)).why_not_in()) == wanted


def test_a_pair_is_a_result_if_nothing_refuses_it(tmp_path: Path) -> None:
    dice = Random(5)
    query = query_of("a.x <= b.x AND alike(a.x, b.x) AND a.x + b.x > 3", Sliding(4))
    for at in range(40):
        a, b = (row(dice.randrange(8), dice.randrange(6)) for _ in "ab")
        pair = stored(tmp_path / f"{at}", query, a, b, fresh=True)
        run = Run(query, Store(str(tmp_path / f"run{at}")))
        run.step(Central(), [(0, a), (1, b)])
        found = [origin for origin in (0, 1) if pair.why_not(origin) is None]
        assert len(found) == run.results.total()
