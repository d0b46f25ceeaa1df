"""What a manifest names is on the disk before it; and publishing without hard links."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.state.manifest.test_manifest import START, chain
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.claim import DESCRIPTION, claim
from watersmeet.state.store import local_files
from watersmeet.state.store.store import Store


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were written through, in order."""
    paths, real = list[str](), os.fsync

    def fsync(descriptor: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def test_a_durable_store_writes_bytes_before_names(tmp_path: Path, synced: list[str]) -> None:
    store = Store(str(tmp_path), durable=True)
    assert store.publish("a/x", b"1")
    assert len(synced) == 3 and synced[0].endswith(".draft") and set(synced[1:]) == {str(tmp_path / "a"), str(tmp_path)}
    assert not store.publish("a/x", b"2") and store.read("a/x") == b"1"
    synced.clear()
    store.write("a/y", b"1")
    store.sync(["a/x", "a/y"])
    assert set(synced[:2]) == {str(tmp_path / "a" / name) for name in "xy"}
    assert set(synced[2:]) == {str(tmp_path / "a"), str(tmp_path)}


def test_other_stores_write_nothing_through(tmp_path: Path, synced: list[str]) -> None:
    store = Store(str(tmp_path))
    store.publish("x", b"1")
    store.sync(["x"])
    Store("s3://bucket/x", durable=True).sync(["x"])
    assert synced == []


def test_a_file_that_cannot_be_written_through_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        local_files.sync([str(tmp_path / "x"), str(tmp_path / "y")])


# -- NFS


def test_a_link_whose_answer_was_lost_is_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS repeats the request, and the server finds the name that the first one gave."""
    link = os.link

    def link_twice(source: Any, target: Any) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    store = Store(str(tmp_path))
    assert store.publish("a/x", b"mine") and not store.publish("a/x", b"mine")


# -- file systems without hard links


@pytest.fixture(params=[errno.EPERM, errno.EOPNOTSUPP])
def no_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Any, target: Any) -> None:
        raise OSError(request.param, "no hard links here")

    monkeypatch.setattr(os, "link", link)


@pytest.mark.usefixtures("no_links")
def test_publishing_without_hard_links(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert store.publish("a/x", b"1") and not store.publish("a/x", b"2")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x"] and store.read("a/x") == b"1"


@pytest.mark.usefixtures("no_links")
def test_a_name_that_could_not_be_given_is_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: Any, target: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output error"):
        patch.setattr(os, "replace", replace)
        Store(str(tmp_path)).publish("a/x", b"1")
    assert Store(str(tmp_path)).publish("a/x", b"1"), "the name is not another run's"


@pytest.mark.usefixtures("no_links")
def test_a_name_taken_by_a_run_that_was_cut_is_no_manifest(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    history = chain(store, 3)
    (tmp_path / manifests.path_of(3)).touch()
    assert manifests.newest(store) == 2
    store.remove(name for name in store.names(manifests.FOLDER) if name not in history[-1].chain)
    assert manifests.publish(store, history[-1].follow(), history[-1]) is not None


@pytest.mark.usefixtures("no_links")
def test_an_empty_description_is_none(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    (tmp_path / DESCRIPTION).touch()
    name = claim(store, {"where": "x"})
    assert claim(store, {"where": "x"}) == name


def test_other_failures_of_a_link_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Any, target: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="full"):
        manifests.publish(Store(str(tmp_path)), START.follow(), START)
    assert [path.name for path in (tmp_path / manifests.FOLDER).iterdir()] == []
