"""Deletion vectors: several chunks share a file, rows add up, and damage is told."""

from pathlib import Path

import numpy as np
import pytest

from watersmeet.errors import StateError
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.store.chunk_writer import DEAD_ROWS, dead_rows, live_rows, mark_dead
from watersmeet.state.store.store import Store


def chunk(name: str, rows: int) -> Chunk:
    return Chunk(name, 0, 0, 0, 1, WHOLE, rows, 10, 0, 0, (0,), Place("chunks/x", 0, 0, ""))


def test_chunks_share_a_file_and_rows_add_up(tmp_path: Path) -> None:
    store, chunks = Store(str(tmp_path)), [chunk("a/1", 5), chunk("b/2", 3), chunk("c/3", 2)]
    dead = {"a/1": np.array([4, 1]), "b/2": np.array([0]), "c/3": np.array([0, 1])}
    first = mark_dead(store, chunks, "one", dead)
    assert [chunk.dead for chunk in first] == [2, 1, 2]
    assert first[0].deleted == first[1].deleted is not None
    assert first[2].deleted is None  # no manifest will name it
    assert [dead_rows(store, chunk).tolist() for chunk in first[:2]] == [[1, 4], [0]]
    assert live_rows(store, first[0], np.array([0])).tolist() == [2, 3]
    (second,) = mark_dead(store, first[:1], "two", {"a/1": np.array([0])})
    assert dead_rows(store, second).tolist() == [0, 1, 4] and second.dead == 3
    assert live_rows(store, second).tolist() == [2, 3]
    assert len(store.names("chunks")) == 2


def test_nothing_is_written_where_all_are_dead(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    (dead_chunk,) = mark_dead(store, [chunk("a", 2)], "one", {"a": np.array([0, 1])})
    assert (dead_chunk.live, dead_chunk.deleted, store.names("chunks")) == (0, None, [])


def test_damage_is_told(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    (partial,) = mark_dead(store, [chunk("a", 3)], "one", {"a": np.array([1])})
    path = tmp_path / str(partial.deleted)
    path.write_bytes(path.read_bytes()[:-9] + bytes(9))
    path.with_name("other").write_bytes(b"")
    with pytest.raises(StateError, match="fails its checksum"):
        dead_rows(store, partial)


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    present, removed = (mark_dead(store, [chunk("a", 3)], name, {"a": np.array([1])})[0] for name in ("kept", "gone"))
    for one in (present, removed):
        assert dead_rows(store, one).tolist() == [1]
    (tmp_path / str(removed.deleted)).unlink()
    DEAD_ROWS.forget_missing()
    assert [path for root, path in DEAD_ROWS._values if root == store.root] == [present.deleted]
