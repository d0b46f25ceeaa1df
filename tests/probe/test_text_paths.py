"""Which way text is found: by its first bytes where they tell texts apart, else by DuckDB's hashes."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.arrays import Ints
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.probe import search
from watersmeet.probe.candidates import AccessPath, expand_pairs
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

FIELDS = [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("y", pa.binary())]
ROWS = 1000


def query_of(where: str) -> Query:
    streams = tuple(StreamSpec(name, pa.schema(FIELDS), 1, Sliding(10 * ROWS), 0) for name in "ab")
    return Query(streams, parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect()), where)


@pytest.mark.parametrize(
    ("where", "text", "candidates"),
    [
        ("a.k = b.k", "{:03}-key", ROWS),
        ("a.k = b.k", "key-number-{:03}", 0),
        ("a.k LIKE concat(b.k, '%')", "{:03}-key", ROWS),
        ("startswith(a.k, b.k)", "{:03}-key", ROWS),
    ],
)
def test_candidates_are_as_few_as_first_bytes_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, text: str, candidates: int
) -> None:
    counts = []

    def count(path: AccessPath, block: int) -> Iterator[tuple[Ints, Ints]]:
        counts.append(path.pairs)
        return expand_pairs(path, block)

    monkeypatch.setattr(search, "expand_pairs", count)
    run = Run(query_of(where), Store(str(tmp_path)))
    rows = [{"id": at, "ts": at, "k": text.format(at), "y": b""} for at in range(ROWS)]
    run.step(Central(), [(0, row) for row in rows])
    run.step(Central(), [(1, {**row, "ts": ROWS}) for row in rows])
    assert sum(run.results.values()) == ROWS and sum(counts) == candidates


def test_zones_count_what_bounds_look_up_or_read_and_can_be_a_number() -> None:
    query = query_of("a.k LIKE concat(b.k, '%') AND a.id > length(b.y)")
    assert query.indexed_columns == ((Column(0, 0), Column(0, 2)), ())
    assert query.zoned_columns == ((Column(0, 0), Column(0, 2)), (Column(1, 2),))
