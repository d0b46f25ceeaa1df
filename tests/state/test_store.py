"""The store: files that appear whole or not at all, on this host's file system and elsewhere."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from watersmeet.errors import StateError
from watersmeet.state import store as stores
from watersmeet.state.chunk import Chunk
from watersmeet.state.store import Store
from watersmeet.state.write import Writer


@pytest.fixture(params=["path", "file uri", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store on a local path, on a file:// URI, and on a file system that is not this host's."""
    if request.param == "path":
        yield Store(str(tmp_path))
    elif request.param == "file uri":
        yield Store(f"file://{tmp_path}")
    else:
        far = pafs.SubTreeFileSystem(str(tmp_path / "far"), pafs.LocalFileSystem())
        monkeypatch.setattr(stores, "_connect", lambda root: (far, root.removeprefix("far://")))
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "cache"))
        yield Store("far://bucket/watersmeet")


def written(store: Store, name: str = "r-b0-p0a1") -> Chunk:
    rows = pa.record_batch({"ts": pa.array([5, 1, 3]), "hash": pa.array([0, 0, 0]), "s0_1": pa.array([50, 10, 30])})
    writer = Writer(store, name, 0, ((),), ((),), frozenset())
    (chunk,) = writer.write(0, rows, np.zeros(3, np.int64), 10, lambda start, bucket: (0,), 0)
    return chunk


def test_publish_is_create_if_absent(store: Store) -> None:
    assert store.read("manifests/1.json") is None
    assert store.publish("manifests/1.json", b"one")
    assert not store.publish("manifests/1.json", b"two")
    assert store.read("manifests/1.json") == b"one"
    assert store.names("manifests") == ["manifests/1.json"]  # no draft is left


def test_names_and_remove(store: Store) -> None:
    for name in ("chunks/a.arrow", "chunks/deep/b.arrow", "other/c"):
        store.write(name, b"x")
    assert sorted(store.names("chunks")) == ["chunks/a.arrow", "chunks/deep/b.arrow"]
    store.remove(["chunks/a.arrow", "chunks/never.arrow"])
    assert store.names("chunks") == ["chunks/deep/b.arrow"]
    assert store.names("nowhere") == []


def test_chunks_are_read_back_sorted_by_time(store: Store) -> None:
    rows = store.open(written(store), pa.int64())
    assert rows.ts.tolist() == [1, 3, 5]


def test_a_missing_chunk_is_an_error(store: Store) -> None:
    chunk = written(store, "r-b0-p0a2")
    store.remove([chunk.place.path])
    with pytest.raises(StateError, match="is missing or empty: a manifest names it"):
        store.open(chunk, pa.int64())


@pytest.mark.parametrize("damage", ["flipped", "schema", "length", "cut", "empty"])
def test_a_damaged_chunk_is_an_error(tmp_path: Path, damage: str) -> None:
    store = Store(str(tmp_path))
    chunk = written(store, f"r-b0-{damage}")
    path, place = tmp_path / chunk.place.path, chunk.place
    data = bytearray(path.read_bytes())
    flipped = {"flipped": place.offset + place.length - 9, "schema": place.offset - 9, "length": 6}.get(damage)
    if flipped is not None:
        data[flipped] ^= 1
    path.write_bytes({"cut": bytes(data)[: place.offset + 9], "empty": b""}.get(damage, bytes(data)))
    said = {"cut": "is cut short", "empty": "is cut short|is missing or empty"}
    with pytest.raises(StateError, match=said.get(damage, "fails its checksum")):
        store.open(chunk, pa.int64())


def test_damaged_ordinals_are_an_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    chunk = replace(written(store, "r-b0-ordinals"), ordinals="chunks/x.ordinals")
    with pytest.raises(StateError, match=r"x.ordinals under .* is missing or empty"):
        store.open(chunk, pa.int64())
    store.write("chunks/x.ordinals", b"not an Arrow file at all")
    with pytest.raises(StateError, match=r"x.ordinals under .* fails its checksum"):
        store.open(chunk, pa.int64())


def test_of_many_publishers_one_wins(tmp_path: Path) -> None:
    store, won = Store(str(tmp_path)), list[int]()

    def publish(number: int) -> None:
        if store.publish("x", str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.read("x") == str(won[0]).encode()


def test_a_file_appears_only_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))

    def crash(*paths: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.link", crash)
    with pytest.raises(KeyboardInterrupt):
        store.publish("manifests/1.json", b"one")
    assert store.read("manifests/1.json") is None


def test_remote_chunks_are_cached_on_this_host_until_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = pafs.SubTreeFileSystem(str(tmp_path / "far"), pafs.LocalFileSystem())
    monkeypatch.setattr(stores, "_connect", lambda root: (far, root.removeprefix("far://")))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "cache"))
    store = Store("far://cached")
    chunk = written(store, "r-b0-p0a3")
    store.open(chunk, pa.int64())
    assert [path.name for path in (tmp_path / "cache").rglob("*.arrow")] == [Path(chunk.place.path).name]
    store.remove(chunk.files)
    assert not list((tmp_path / "cache").rglob("*.arrow"))
