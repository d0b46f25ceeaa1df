"""Manifests: deltas on snapshots, written once, never half."""

import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from watersmeet.errors import StateError
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.chunks.sorted_index import Zone
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.manifest import SNAPSHOT_EVERY, Manifest, StreamState
from watersmeet.state.store.store import Store

START = Manifest(-1, (StreamState(), StreamState()))


def chunk(name: str, node: int = 0, **changes: Any) -> Chunk:
    place = Place(f"chunks/{name}.arrow", 8, 16, "")
    plain = {"id": name, "stream": 1, "batch": 3, "start": 0, "end": 10, "bucket": WHOLE, "rows": 5, "bytes": 40}
    return Chunk(**{**plain, "low": 1, "high": 9, "owners": (node,), "place": place, **changes})


def chain(store: Store, batches: int) -> list[Manifest]:
    """Publish manifests in which every batch adds a chunk, drops the one of four batches ago and moves another."""
    history = [START]
    for batch in range(batches):
        before = history[-1]
        chunks = {key: c for key, c in before.chunks.items() if key != f"c{batch - 4}"}
        if f"c{batch - 1}" in chunks:
            chunks[f"c{batch - 1}"] = chunks[f"c{batch - 1}"].owned_by([batch % 3])
        chunks[f"c{batch}"] = chunk(f"c{batch}", zones={"s1_2": Zone(-1.5, 2.5, True)}, ordinals=f"chunks/{batch}.o")
        state = StreamState(latest=batch, arrived=10 * batch, idle=batch % 2 == 0, active_at=batch, rows=3, advance=1)
        after = before.follow(
            chunks=chunks,
            streams=(state, StreamState()),
            watermark=batch,
            progress={"batchId": batch},
        )
        manifest = manifests.publish(store, replace(after, input=f"input {batch}"), before)
        assert manifest is not None
        history.append(manifest)
    return history[1:]


def test_what_is_loaded_is_what_was_published(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for published in chain(store, 2 * SNAPSHOT_EVERY + 5):
        loaded = manifests.load(store, published.batch)
        assert loaded is not None
        assert loaded == published


@pytest.mark.parametrize("file", ["/etc/passwd", "../x", "chunks/../../x", "chunks/./x", "chunks//x", "results/x"])
@pytest.mark.parametrize("which", ["rows", "ordinals"])
def test_files_outside_of_the_store_are_refused(tmp_path: Path, file: str, which: str) -> None:
    store = Store(str(tmp_path))
    bad = chunk("c", place=Place(file, 8, 16, "")) if which == "rows" else chunk("c", ordinals=file)
    first = START.follow(chunks={"c": bad})
    manifests.publish(store, first, START)
    with pytest.raises(StateError, match="which is not in the folder chunks/ of its store"):
        manifests.load(store, 0)


def test_most_manifests_hold_only_what_changed(tmp_path: Path) -> None:
    """A commit must not grow with the number of chunks."""
    store, chunks = Store(str(tmp_path)), {f"c{n}": chunk(f"c{n}") for n in range(2000)}
    first = START.follow(chunks=chunks)
    manifests.publish(store, first, START)
    manifests.publish(store, first.follow(chunks={**chunks, "new": chunk("new")}), first)
    sizes = [(tmp_path / manifests.path_of(batch)).stat().st_size for batch in (0, 1)]
    assert sizes[0] > 300_000 and sizes[1] < 2_000


def test_a_manifest_is_written_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    first, _ = chain(store, 2)
    assert not manifests.publish(store, first.follow(watermark=99), first)
    assert manifests.load(store, 1).watermark == 1  # type: ignore[union-attr]


def test_no_manifest_is_none_but_a_missing_link_is_an_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    chain(store, 4)
    assert manifests.load(store, 4) is None
    store.remove([manifests.path_of(1)])
    with pytest.raises(StateError, match=r"The manifest of batch 1 under .* is missing, and batch 3 builds on it"):
        manifests.load(store, 3)


def test_a_damaged_manifest_is_an_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    chain(store, 1)
    path = tmp_path / manifests.path_of(0)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(StateError, match=r"The manifest of batch 0 under .* is damaged"):
        manifests.load(store, 0)


def test_any_changed_bit_is_an_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    chain(store, 3)
    for batch in range(3):
        path = tmp_path / manifests.path_of(batch)
        whole, rng = path.read_bytes(), random.Random(batch)
        for _ in range(200):
            content = bytearray(whole)
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            path.write_bytes(content)
            with pytest.raises(StateError, match=r"The manifest of batch \d under .* (is damaged|is of format)"):
                manifests.load(store, 2)
        path.write_bytes(whole)
    assert manifests.load(store, 2) is not None


@pytest.mark.parametrize("body", [b"", b"{}", b"\n", b"watersmeet", b"watersmeet 4 \n{}", b"\xff\xfe 4 x\n"])
def test_what_is_no_manifest_is_an_error(tmp_path: Path, body: bytes) -> None:
    store = Store(str(tmp_path))
    store.write(manifests.path_of(0), body)
    with pytest.raises(StateError, match=r"The manifest of batch 0 under .* is damaged"):
        manifests.load(store, 0)


def test_manifests_of_two_histories_are_not_mixed(tmp_path: Path) -> None:
    one, other = Store(str(tmp_path / "one")), Store(str(tmp_path / "other"))
    chain(one, 4)
    first = START.follow(streams=(StreamState(latest=7), StreamState()))
    manifest = manifests.publish(other, first, START)
    assert manifest is not None
    manifests.publish(other, manifest.follow(), manifest)
    (tmp_path / "one" / manifests.path_of(1)).write_bytes((tmp_path / "other" / manifests.path_of(1)).read_bytes())
    with pytest.raises(StateError, match=r"batch 1 under .* is not the one that batch 3 builds on"):
        manifests.load(one, 3)


def test_a_manifest_under_another_number_is_an_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    chain(store, 2)
    (tmp_path / manifests.path_of(1)).rename(tmp_path / manifests.path_of(2))
    with pytest.raises(StateError, match=r"The manifest of batch 2 under .* belongs to batch 1"):
        manifests.load(store, 2)


def test_newest(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert manifests.newest(store) is None
    chain(store, 12)
    for stray in ("000000000099.json.0.draft", "notes.json", "99.json", "000000000098 (copy).json", ".DS_Store"):
        (tmp_path / "manifests" / stray).touch()
    assert manifests.newest(store) == 11


def test_a_snapshot_makes_the_manifests_before_it_needless(tmp_path: Path) -> None:
    store, last = Store(str(tmp_path)), SNAPSHOT_EVERY + 2
    history = chain(store, last + 1)
    assert history[SNAPSHOT_EVERY - 1].chain == tuple(map(manifests.path_of, range(SNAPSHOT_EVERY)))
    assert history[-1].chain == tuple(map(manifests.path_of, (last - 2, last - 1, last)))
    store.remove(name for name in store.names("manifests") if name not in history[-1].chain)
    assert manifests.load(store, last) == history[-1]


def test_a_chunk_travels_whole() -> None:
    sent = chunk("c", zones={"s1_2": Zone(-1.5, 2.5, True, (1, 2))}, ordinals="chunks/c.o")
    assert pickle.loads(pickle.dumps(sent)) == sent


def test_a_newest_manifest_that_is_listed_but_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """[!] Taken for none, a start would begin anew, and void all that there is."""
    store = Store(str(tmp_path))
    chain(store, 2)
    path = tmp_path / manifests.path_of(1)
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(StateError, match=r"^The manifest of batch 1 under .* is listed, but can't be read; restore it"):
        manifests.last(store)


def test_a_manifest_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    """A snapshot makes all before it needless, and the query that goes on removes them."""
    history = chain(Store(str(tmp_path)), SNAPSHOT_EVERY)

    class Busy(Store):
        def read(self, path: str) -> bytes | None:
            if path == manifests.path_of(3):
                own = Store(self.root)
                manifests.publish(own, history[-1].follow(), history[-1])
                own.remove(history[-1].chain)
            return super().read(path)

    newest = manifests.last(Busy(str(tmp_path)))
    assert newest is not None and newest.batch == SNAPSHOT_EVERY
