"""What counts as hot: rows that new tuples may probe, and no others."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.placement import Central
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Count, Sliding, Window
from watersmeet.spilling.parts import hot_parts, parts_of, spilled_parts
from watersmeet.state.manifest.rounds import NewUnit, SpillPlan
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64())])


def query_of(window: Window) -> Query:
    streams = tuple(StreamSpec(name, SCHEMA, 1, window, 0) for name in "ab")
    return Query(streams, parse_where("a.x = b.x", [(s.name, s.schema) for s in streams], (), Dialect()), "a.x = b.x")


@pytest.mark.long
@pytest.mark.parametrize(
    ("window", "watermark", "rows"),
    [
        (Sliding(10), None, 4),
        (Sliding(10), 16, 4),
        (Sliding(10), 17, 2),
        (Sliding(10), 30, 0),
        (Window(), 1000, 4),
        (Count(5), 1000, 4),
    ],
)
def test_rows_that_no_new_tuple_can_join_are_not_hot(
    tmp_path: Path, window: Window, watermark: int | None, rows: int
) -> None:
    query = query_of(window)
    run = Run(query, Store(str(tmp_path)), steady=True)
    for ts in (7, 8):
        run.step(Central(), [(stream, {"id": ts, "ts": ts, "x": ts}) for stream in (0, 1)])
    assert run.state is not None
    state = replace(run.state, watermark=watermark)
    parts = parts_of("j", query, state, 1, 1)
    assert sum(part.rows for part in hot_parts(parts)) == rows and not spilled_parts(parts)
    spilled = SpillPlan([NewUnit(part.group, part.chunks) for part in parts_of("j", query, run.state, 1, 1)]).apply(
        state
    )
    assert sum(part.rows for part in spilled_parts(parts_of("j", query, spilled, 1, 1))) == 4
