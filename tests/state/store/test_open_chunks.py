"""Chunks that a process keeps open: counted by what they really take, and unmapped once they are closed."""

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.state.store.test_store import is_mapped, write_chunk
from watersmeet.limits import limited
from watersmeet.predicate.model import Column, Dialect
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store import budget
from watersmeet.state.store import store as stores
from watersmeet.state.store.budget import OpenChunks
from watersmeet.state.store.chunk_writer import ChunkWriter
from watersmeet.state.store.store import PAGE, Store

X = Column(0, 1)


@pytest.fixture
def open_chunks(monkeypatch: pytest.MonkeyPatch) -> OpenChunks:
    """What is open, nothing yet."""
    chunks = OpenChunks()
    monkeypatch.setattr(stores, "_open_chunks", chunks)
    return chunks


def large(store: Store, name: str, rows: int = 5000, slices: int = 1) -> list[Chunk]:
    """Write chunks that fill pages, one for each slice."""
    numbers = np.arange(rows)
    batch = pa.record_batch({"ts": numbers, "hash": np.zeros(rows, np.int64), "s0_1": numbers[::-1].copy()})
    with limited(files=1):
        starts = numbers // (rows // slices) * (rows // slices)
        return ChunkWriter(store, name, 0, ((),), ((),), frozenset()).write(
            0, batch, starts, rows // slices, lambda start, bucket: (0,), 0
        )


def test_a_sort_order_made_late_closes_other_chunks(tmp_path: Path, open_chunks: OpenChunks) -> None:
    store = Store(str(tmp_path))
    rows = [store.open(large(store, f"r-b0-late{number}")[0], pa.int64()) for number in range(8)]
    before = open_chunks.nbytes
    with limited(open_bytes=before):
        assert len(open_chunks) == 8
        for one in rows:  # all are open, so that no file is opened meanwhile
            one.order(X)
            assert open_chunks.nbytes <= before
    assert 1 <= len(open_chunks) < 8


def test_a_file_counts_whole_for_each_of_its_chunks(tmp_path: Path, open_chunks: OpenChunks) -> None:
    store = Store(str(tmp_path))
    chunks = large(store, "r-b0-shared", slices=4)
    (path,) = {chunk.place.path for chunk in chunks}
    size = (tmp_path / path).stat().st_size
    for chunk in chunks:
        assert size < store.open(chunk, pa.int64()).nbytes <= size + 2 * PAGE
    assert open_chunks.nbytes > 4 * size


def test_many_small_files_count_by_pages(tmp_path: Path, open_chunks: OpenChunks) -> None:
    store = Store(str(tmp_path))
    for number in range(10):
        store.open(write_chunk(store, f"r-b0-small{number}"), pa.int64())
    assert open_chunks.nbytes == 10 * 2 * PAGE


def test_no_more_than_so_many_are_open(
    tmp_path: Path, open_chunks: OpenChunks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MOST_CHUNKS", 8)
    store = Store(str(tmp_path))
    for number in range(20):
        store.open(write_chunk(store, f"r-b0-many{number}"), pa.int64())
        assert len(open_chunks) <= 8
    assert len(open_chunks) > 4


def test_what_the_user_says_comes_before_the_limits(tmp_path: Path, open_chunks: OpenChunks) -> None:
    store = Store(str(tmp_path), open_bytes=6 * PAGE)
    with limited(open_bytes=1 << 30):
        for number in range(10):
            store.open(write_chunk(store, f"r-b0-said{number}"), pa.int64())
    assert open_chunks.nbytes <= 6 * PAGE


def test_little_is_open_where_address_space_is_short(
    tmp_path: Path, open_chunks: OpenChunks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "most_open", lambda limit, cached: min(limit, 4 * PAGE))
    store = Store(str(tmp_path), open_bytes=1 << 30)
    for number in range(10):
        store.open(write_chunk(store, f"r-b0-short{number}"), pa.int64())
    assert open_chunks.nbytes <= 4 * PAGE


def test_closed_chunks_are_unmapped_whatever_was_done_with_them(tmp_path: Path, open_chunks: OpenChunks) -> None:
    store, duck = Store(str(tmp_path)), Duck(Dialect())
    (chunk,) = large(store, "r-b0-used")
    rows = store.open(chunk, pa.int64())
    rows.order(X)
    column = {"x": rows.column(X)}
    pairs = duck.join(column, {"y": pa.array([3, 4])}, ["x = y"], (len(rows), 2))
    assert sum(len(found) for found, _ in pairs) == 2
    assert len(duck.filter(column, ["x < 10"], len(rows))) == 10
    assert duck.values(column, "x + 1", len(rows))[0].as_py() == 5000
    values = rows.column(X).take(pa.array([1]))
    del rows, column, pairs
    assert is_mapped("r-b0-used")
    store.open(write_chunk(store, "r-b0-other"), pa.int64())
    open_chunks.close()
    assert not is_mapped("r-b0-used") and is_mapped("r-b0-other")
    assert values.to_pylist() == [4998]


def test_open_chunks_make_room_for_another(
    tmp_path: Path, open_chunks: OpenChunks, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, really = Store(str(tmp_path)), pa.memory_map
    chunks = [write_chunk(store, f"r-b0-room{number}") for number in range(4)]
    for chunk in chunks[:3]:
        store.open(chunk, pa.int64())

    def refuse(path: str) -> Any:
        if len(open_chunks) > 1:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return really(path)

    monkeypatch.setattr(pa, "memory_map", refuse)
    assert store.open(chunks[3], pa.int64()).ts.tolist() == [1, 3, 5]
    assert len(open_chunks) == 2


def test_an_address_space_that_is_full_of_other_things_is_an_error(
    tmp_path: Path, open_chunks: OpenChunks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> Any:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    store = Store(str(tmp_path))
    chunk = write_chunk(store, "r-b0-full")
    monkeypatch.setattr(pa, "memory_map", refuse)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        store.open(chunk, pa.int64())
