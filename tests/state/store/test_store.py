"""The store: files that appear whole or not at all, on this host's file system and elsewhere."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from obstore.store import LocalStore

from tests.batch.test_engine import SCHEMA
from watersmeet.errors import DefinitionError, StateError
from watersmeet.limits import limited
from watersmeet.placement import Central
from watersmeet.predicate.model import Column
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store import remote
from watersmeet.state.store import store as stores
from watersmeet.state.store.budget import OpenChunks
from watersmeet.state.store.chunk_writer import ChunkWriter
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run


def elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let far:// be a file system that is not this host's; copies of its files go to `cache`."""
    system = pafs.SubTreeFileSystem(str(folder / "far"), pafs.LocalFileSystem())

    def connect(root: str) -> remote.Remote:
        base = root.removeprefix("far://")
        create = remote.create_by_put(lambda: LocalStore(folder / "far" / base, mkdir=True))
        return remote.Remote(system, base, create)

    monkeypatch.setattr(remote, "connect", connect)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(folder / "cache"))


@pytest.fixture(params=["path", "file uri", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store on a local path, on a file:// URI, and on a file system that is not this host's."""
    if request.param == "path":
        yield Store(str(tmp_path))
    elif request.param == "file uri":
        yield Store(f"file://{tmp_path}")
    else:
        elsewhere(tmp_path, monkeypatch)
        yield Store("far://bucket/watersmeet")


def write_chunk(store: Store, name: str = "r-b0-p0a1") -> Chunk:
    rows = pa.record_batch({"ts": pa.array([5, 1, 3]), "hash": pa.array([0, 0, 0]), "s0_1": pa.array([50, 10, 30])})
    writer = ChunkWriter(store, name, 0, ((),), ((),), frozenset())
    (chunk,) = writer.write(0, rows, np.zeros(3, np.int64), 10, lambda start, bucket: (0,), 0)
    return chunk


def test_publish_is_create_if_absent(store: Store) -> None:
    assert store.read("manifests/1.json") is None
    assert store.publish("manifests/1.json", b"one")
    assert not store.publish("manifests/1.json", b"two")
    assert store.read("manifests/1.json") == b"one"
    assert store.names("manifests") == ["manifests/1.json"]  # no draft is left


def test_a_name_is_taken_by_one_of_many_at_once(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        for turn in range(20):
            published = list(pool.map(lambda who, turn=turn: store.publish(f"leases/{turn}", b"%d" % who), range(8)))
            assert published.count(True) == 1
            assert store.read(f"leases/{turn}") == b"%d" % published.index(True)


def test_a_file_whose_answer_was_lost_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(tmp_path, monkeypatch)
    honest, store = remote.connect("far://bucket"), Store("far://bucket")

    def asks_again(path: str, content: bytes) -> bool:
        honest.create(path, content)
        return honest.create(path, content)

    monkeypatch.setattr(remote, "connect", lambda root: replace(honest, create=asks_again))
    assert store.publish("manifests/1.json", b"mine")
    assert not store.publish("manifests/1.json", b"another's")


def test_a_store_that_takes_names_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(tmp_path, monkeypatch)
    honest, store = remote.connect("far://bucket"), Store("far://bucket")
    store.check()
    assert store.names("") == []

    def overwrites(path: str, content: bytes) -> bool:
        store.write(path, content)
        return True

    monkeypatch.setattr(remote, "connect", lambda root: replace(honest, create=overwrites))
    with pytest.raises(DefinitionError, match="far://bucket lets a name be taken twice"):
        store.check()
    assert store.names("") == []


def test_state_is_not_kept_where_nothing_is_made_at_once() -> None:
    with pytest.raises(
        DefinitionError, match=r"^ftp://host/state: state can't be kept on 'ftp:'.*abfs, abfss, gs, hdfs, s3, viewfs"
    ):
        remote.connect("ftp://host/state")


def test_an_hdfs_that_is_not_there_is_an_error_at_once() -> None:
    pytest.importorskip("hdfs_native")
    with pytest.raises(ConnectionRefusedError):
        remote.connect("hdfs://127.0.0.1:1/state")


def test_names_and_remove(store: Store) -> None:
    for name in ("chunks/a.arrow", "chunks/deep/b.arrow", "other/c"):
        store.write(name, b"x")
    assert sorted(store.names("chunks")) == ["chunks/a.arrow", "chunks/deep/b.arrow"]
    store.remove(["chunks/a.arrow", "chunks/never.arrow"])
    assert store.names("chunks") == ["chunks/deep/b.arrow"]
    assert store.names("nowhere") == []


def test_chunks_are_read_back_sorted_by_time(store: Store) -> None:
    rows = store.open(write_chunk(store), pa.int64())
    assert rows.ts.tolist() == [1, 3, 5]


def test_a_missing_chunk_is_an_error(store: Store) -> None:
    chunk = write_chunk(store, "r-b0-p0a2")
    store.remove([chunk.place.path])
    with pytest.raises(StateError, match="is missing or empty: a manifest names it"):
        store.open(chunk, pa.int64())


# -- chunks that are open


def is_mapped(name: str) -> bool:
    return name in Path("/proc/self/maps").read_text()


def test_removed_files_do_not_stay_mapped(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    chunk = write_chunk(store, "r-b0-mapped")
    assert store.open(chunk, pa.int64()).ts.tolist() == [1, 3, 5]
    assert is_mapped("r-b0-mapped")
    store.remove(chunk.files)
    assert not is_mapped("r-b0-mapped")


@pytest.mark.long
def test_what_a_run_no_longer_names_does_not_stay_mapped(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    one, two, other = (write_chunk(store, f"r-b0-named{name}") for name in ("1", "2", "3"))
    for chunk in (one, two, other):
        store.open(chunk, pa.int64())
    store.retain("other run", [other])
    store.retain("run", [one, two])
    store.retain("run", [two])  # as a task does, while the driver removes the file
    assert [is_mapped(f"named{name}") for name in ("1", "2", "3")] == [False, True, True]
    Path(tmp_path, other.place.path).unlink()  # by somebody else, after the end of the other run
    store.retain("new run", [])
    assert [is_mapped(f"named{name}") for name in ("1", "2", "3")] == [False, True, False]


def test_open_chunks_are_bounded_by_bytes_sort_orders_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_chunks = OpenChunks()
    monkeypatch.setattr(stores, "_open_chunks", open_chunks)
    store = Store(str(tmp_path))
    chunks = [write_chunk(store, f"r-b0-bound{number}") for number in range(40)]
    size = store.open(chunks[0], pa.int64()).nbytes
    with limited(open_bytes=10 * size):
        for chunk in chunks:
            rows = store.open(chunk, pa.int64())
            assert open_chunks.nbytes <= 10 * size
            rows.order(Column(0, 1))
        assert rows.nbytes > size
        assert 2 <= len(open_chunks) < 10
    monkeypatch.setattr("watersmeet.state.store.file_format.digest", None)
    assert store.open(chunks[0], pa.int64()).ts.tolist() == [1, 3, 5]  # what was right once is not read again


def test_a_long_run_keeps_no_more_open_than_is_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_chunks = OpenChunks()
    monkeypatch.setattr(stores, "_open_chunks", open_chunks)
    streams = tuple(StreamSpec(name, SCHEMA, 1, Sliding(10), 0) for name in "ab")
    run = Run(Query(streams), Store(str(tmp_path)))
    for batch in range(16):
        run.step(Central(), [(at % 2, {"id": at, "ts": 10 * batch + at, "x": 0.0, "k": "p"}) for at in range(10)])
    assert (
        len(open_chunks) <= 24
    )  # two tasks wrote two streams sixteen times; what was merged last lives for one batch more
    assert all(Path(tmp_path, key.path).exists() for key in open_chunks)


def test_copies_of_remote_chunks_go_with_what_a_run_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(tmp_path, monkeypatch)
    store = Store("far://copies")
    chunk = write_chunk(store, "r-b0-copy")
    store.open(chunk, pa.int64())
    store.retain("run", [chunk])
    assert len(list((tmp_path / "cache").rglob("*.arrow"))) == 1
    store.retain("run", [])
    assert not list((tmp_path / "cache").rglob("*.arrow"))


@pytest.mark.parametrize("how", ["mode", "link", "file"])
def test_a_folder_of_copies_that_others_could_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    elsewhere(tmp_path, monkeypatch)
    store = Store(f"far://private-{how}")
    chunk = write_chunk(store, "r-b0-private")
    folder = tmp_path / "cache" / f"watersmeet-{os.getuid()}"
    folder.parent.mkdir()
    if how == "mode":
        folder.mkdir()
        folder.chmod(0o777)
    elif how == "link":
        folder.symlink_to(tmp_path, target_is_directory=True)
    else:
        folder.touch()
    with pytest.raises(StateError, match=r"for copies of remote state, is not private to this user; remove it"):
        store.open(chunk, pa.int64())


@pytest.mark.parametrize("damage", ["flipped", "schema", "length", "cut", "empty"])
def test_a_damaged_chunk_is_an_error(tmp_path: Path, damage: str) -> None:
    store = Store(str(tmp_path))
    chunk = write_chunk(store, f"r-b0-{damage}")
    path, place = tmp_path / chunk.place.path, chunk.place
    content = bytearray(path.read_bytes())
    flipped = {"flipped": place.offset + place.length - 9, "schema": place.offset - 9, "length": 6}.get(damage)
    if flipped is not None:
        content[flipped] ^= 1
    path.write_bytes({"cut": bytes(content)[: place.offset + 9], "empty": b""}.get(damage, bytes(content)))
    message = {"cut": "is cut short", "empty": "is cut short|is missing or empty"}
    with pytest.raises(StateError, match=message.get(damage, "fails its checksum")):
        store.open(chunk, pa.int64())


def test_damaged_ordinals_are_an_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    chunk = replace(write_chunk(store, "r-b0-ordinals"), ordinals="chunks/x.ordinals")
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
    elsewhere(tmp_path, monkeypatch)
    store = Store("far://cached")
    chunk = write_chunk(store, "r-b0-p0a3")
    store.open(chunk, pa.int64())
    assert [path.name for path in (tmp_path / "cache").rglob("*.arrow")] == [Path(chunk.place.path).name]
    assert (tmp_path / "cache" / f"watersmeet-{os.getuid()}").stat().st_mode & 0o777 == 0o700
    store.remove(chunk.files)
    assert not list((tmp_path / "cache").rglob("*.arrow"))


def test_copies_of_remote_chunks_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(tmp_path, monkeypatch)
    store = Store("far://bounded")
    chunks = [write_chunk(store, f"r-b0-many{number}") for number in range(20)]
    size = len(store.read(chunks[0].place.path) or b"")
    with limited(copied_bytes=8 * size):
        for chunk in chunks:
            assert store.open(chunk, pa.int64()).ts.tolist() == [1, 3, 5]
            assert sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.arrow")) <= 10 * size
    names = {path.name for path in (tmp_path / "cache").rglob("*.arrow")}
    assert Path(chunks[-1].place.path).name in names and Path(chunks[0].place.path).name not in names


def test_a_damaged_copy_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(tmp_path, monkeypatch)
    store = Store("far://forged")
    chunk = write_chunk(store, "r-b0-forged")
    copy = store._copy_path(chunk.place.path)
    copy.parent.mkdir(parents=True, mode=0o700)
    content = bytearray(store.read(chunk.place.path) or b"")
    content[-9] ^= 1
    copy.write_bytes(content)
    assert store.open(chunk, pa.int64()).ts.tolist() == [1, 3, 5]
    (tmp_path / "far" / "forged" / chunk.place.path).write_bytes(content)
    copy.write_bytes(content)
    stores._open_chunks.forget(lambda key: True)
    with pytest.raises(StateError, match="fails its checksum"):
        store.open(chunk, pa.int64())


def test_a_folder_that_cannot_be_read_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chunks").mkdir()

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        Store(str(tmp_path)).names("chunks")
