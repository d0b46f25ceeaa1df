"""A store that somebody else may have filled: nothing leads out of it."""

import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from watersmeet.errors import StateError
from watersmeet.metadata.constraints import ConstraintState, MarkFile
from watersmeet.state.chunks.chunk import lies_in
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store import local_files, remote
from watersmeet.state.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "store" / "chunks").mkdir(parents=True)
    (tmp_path / "store" / "chunks" / "x").write_text("x")
    return Store(str(tmp_path / "store"), confined=True)


def test_files_of_the_store_are_read(store: Store, tmp_path: Path) -> None:
    assert store.read("chunks/x") == b"x" and store.read("chunks/y") is None and store.read("\0") is None
    assert store.names("chunks") == ["chunks/x"] and store.names("none") == []
    (tmp_path / "link").symlink_to(tmp_path / "store")
    assert Store(str(tmp_path / "link"), confined=True).read("chunks/x") == b"x"
    (tmp_path / "store" / "y").symlink_to("chunks/x")
    assert store.read("y") == b"x"


def test_links_and_pipes_are_not(store: Store, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "store" / "pipe")
    for name, target in (("link", tmp_path / "secret"), ("folder", tmp_path), ("null", Path("/dev/null"))):
        (tmp_path / "store" / name).symlink_to(target)
    for path in ("link", "folder/secret", "null", "pipe", "../secret", "chunks/../../secret"):
        with pytest.raises(StateError, match="is a link that leads out of the checkpoint, or no file; put the file"):
            store.read(path)
        with pytest.raises(StateError, match="is a link that leads out of the checkpoint"):
            store._map(path)
    with pytest.raises(StateError, match="leads out of the checkpoint"):
        store.names("folder")


def test_a_document_that_is_too_large(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "LARGEST", 0)
    with pytest.raises(StateError, match="has more than 0 bytes: no document of Watersmeet's is that large"):
        store.read("chunks/x")


def test_a_remote_document_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    monkeypatch.setattr(remote, "connect", lambda root: SimpleNamespace(system=far, at=lambda path: path))
    (tmp_path / "x").write_bytes(b"xyz")
    store = Store("s3://bucket/ck", confined=True)
    assert store.read("x") == b"xyz" and store.read("y") is None
    monkeypatch.setattr(local_files, "LARGEST", 2)
    with pytest.raises(StateError, match="s3://bucket/ck/x has more than 2 bytes: no document of Watersmeet's is that"):
        store.read("x")
    assert Store("s3://bucket/ck").read("x") == b"xyz"


def test_columns_that_are_not_what_they_claim(store: Store) -> None:
    ends = pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0]))
    strange = pa.StringArray.from_buffers(1, ends, pa.py_buffer(b"\xff"))
    batch = pa.record_batch({"x": strange})
    Store(store.root).validate(batch)
    with pytest.raises(pa.ArrowInvalid):
        store.validate(batch)


@pytest.mark.parametrize("path", ["marks/", "/marks/x", "marks/../x", "chunks/x", "marks//x", "marks/.", "marks/\0"])
def test_marks_lie_in_their_folder(tmp_path: Path, path: str) -> None:
    assert lies_in("marks/x", "marks")
    store, before = Store(str(tmp_path)), manifests.Manifest(batch=-1, streams=())
    state = ConstraintState((MarkFile(path, 1, 1),))
    manifests.publish(store, before.follow(constraints=((state,),)), before)
    with pytest.raises(StateError, match=r"^A manifest names the marks .*, which are not in the folder marks/ of its"):
        manifests.load(store, 0)
