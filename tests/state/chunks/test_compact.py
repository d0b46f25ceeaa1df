"""Compaction: a long window fed in small sips stays a handful of chunks."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.state.manifest.test_manifest import chunk
from watersmeet.limits import limits
from watersmeet.placement import PSP, Central, Strategy
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.chunks.merging import choose_merges
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SECOND = 1_000_000
FANOUT, LARGEST_BYTES = limits().merged_chunks, limits().merged_bytes
MOST = 40
"""Chunks a stream, where there were six hundred without merging: full tiers of each slice, and the open ones."""


@pytest.mark.parametrize(
    ("strategy", "window"),
    [
        pytest.param(Central(), 60, marks=pytest.mark.long),
        pytest.param(PSP(2), 60, marks=pytest.mark.slow),
        pytest.param(PSP(2), 600, marks=pytest.mark.slow),
        pytest.param(Central(), 600, marks=pytest.mark.slow),
    ],
)
def test_a_long_window_fed_once_a_second_keeps_few_chunks(tmp_path: Path, strategy: Strategy, window: int) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64())])
    streams = tuple(StreamSpec(name, schema, 1, Sliding(window * SECOND), 0) for name in "ab")
    never = parse_where("a.x < b.x", [(s.name, s.schema) for s in streams], (), Dialect())
    run, most = Run(Query(streams, never), Store(str(tmp_path))), 0
    for second in range(window + 40):
        row = {"id": second, "ts": second * SECOND, "x": 1.0}
        run.step(strategy, [(0, row), (1, row)])
        most = max(most, run.progress[-1]["stateChunks"])
    assert most / len(streams) <= MOST, most
    live = manifests.load(run.store, run.batch)
    assert live is not None
    assert set(run.store.names("chunks")) == live.files  # nothing dead is left on disk
    assert live.progress["stateRows"] <= 2 * (window + 100)


def test_small_chunks_wait_until_a_tier_is_full() -> None:
    chunks = [chunk(f"c{n}", batch=n) for n in range(FANOUT - 1)]
    assert choose_merges(chunks, FANOUT, None) == []
    (merge,) = choose_merges([*chunks, chunk("one more", batch=FANOUT)], FANOUT, None)
    assert len(merge.chunks) == FANOUT and not merge.sealed


def test_a_closed_slice_is_sealed_into_one() -> None:
    (merge,) = choose_merges([chunk("c0"), chunk("c1")], 4, 10)
    assert merge.sealed and {c.id for c in merge.chunks} == {"c0", "c1"}
    assert choose_merges([chunk("c0", sealed=True), chunk("c1", sealed=True)], 4, 10) == []


def test_a_quiet_slice_is_merged_though_it_is_open() -> None:
    (merge,) = choose_merges([chunk("c0", batch=0), chunk("c1", batch=0)], FANOUT + 1, None)
    assert len(merge.chunks) == 2 and not merge.sealed


def test_slices_owners_and_buckets_are_not_mixed() -> None:
    apart = [
        chunk("c0"),
        chunk("c1", start=10, end=20),
        chunk("c2", node=1),
        chunk("c3", bucket=1),
        chunk("c4", stream=0),
    ]
    assert choose_merges(apart, 4, 100) == []


def test_no_merge_grows_beyond_the_largest_chunk() -> None:
    large = [chunk(f"c{n}", bytes=LARGEST_BYTES // 2) for n in range(4)]
    assert [len(merge.chunks) for merge in choose_merges(large, 4, 10)] == [2, 2]
