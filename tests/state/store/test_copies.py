"""Copies of remote chunks: every host keeps its own in bounds, whichever of its processes fetches them."""

import tempfile
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from obstore.store import LocalStore

from tests.state.store.test_store import write_chunk
from watersmeet.limits import limited
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store import remote
from watersmeet.state.store.store import Store

STORE = Store("far://hosts")


def connected(folder: Path) -> remote.Remote:
    create = remote.create_by_put(lambda: LocalStore(folder / "far", mkdir=True))
    return remote.Remote(pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem()), "far", create)


def copies(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.arrow"))


def fetch(folder: Path, host: str, chunks: list[Chunk], most: int, batches: list[list[Chunk]]) -> None:
    """Do what a worker process of a host does: open chunks, then run tasks that name some of them."""
    remote.connect = lambda root: connected(folder)  # type: ignore[assignment]
    tempfile.tempdir = str(folder / host)
    with limited(copied_bytes=most):
        for chunk in chunks:
            assert STORE.open(chunk, pa.int64()).ts.tolist() == [1, 3, 5]
        for batch in batches:
            STORE.retain("run", batch)


@pytest.mark.long
def test_every_host_removes_its_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "connect", lambda root: connected(tmp_path))
    chunks = [write_chunk(STORE, f"r-b0-copied{number}") for number in range(60)]
    size = len(STORE.read(chunks[0].place.path) or b"")
    for host in ("one", "two"):
        (tmp_path / host).mkdir()

    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])

    def run(*work: tuple[str, list[Chunk], list[list[Chunk]]]) -> None:
        processes = [
            context.Process(target=fetch, args=(tmp_path, host, part, 32 * size, batches))
            for host, part, batches in work
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * len(processes)

    run(("one", chunks, []), ("two", chunks, []))
    assert all(0 < len(copies(tmp_path / host)) <= 32 for host in ("one", "two"))
    for _ in range(4):  # processes that end before they have fetched much
        here = {path.name for path in copies(tmp_path / "one")}
        run(("one", [chunk for chunk in chunks if Path(chunk.place.path).name not in here][:4], []))
    assert len(copies(tmp_path / "one")) <= 36
    run(("one", chunks[:2], [chunks[:2], chunks[1:2]]), ("two", chunks[:2], [chunks[:2], []]))
    names = {host: {path.name for path in copies(tmp_path / host)} for host in ("one", "two")}
    first, second = (Path(chunk.place.path).name for chunk in chunks[:2])
    assert first not in names["one"] and second in names["one"]
    assert first not in names["two"] and second not in names["two"]
