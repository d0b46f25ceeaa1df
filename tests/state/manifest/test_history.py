"""The progress of the last batches: whole, and bounded."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.state.manifest.test_manifest import START
from watersmeet.state.manifest import history
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.manifest import SNAPSHOT_EVERY
from watersmeet.state.store.store import Store


def diary(store: Store, batches: int, **fields: Any) -> None:
    """Publish manifests as a run does, blocks of progress and all."""
    last, progress = START, list[history.Progress]()
    for batch in range(batches):
        history.write_block(store, batch, progress)
        manifest = manifests.publish(store, last.follow(progress={"batchId": batch, **fields}), last)
        assert manifest is not None
        store.remove({*last.chain} - {*manifest.chain} | history.block_paths(last.batch) - history.block_paths(batch))
        last, progress = manifest, [*progress, manifest.progress]


@pytest.mark.long
def test_the_last_batches_are_told(tmp_path: Path) -> None:
    store, last = Store(str(tmp_path)), 2 * history.HISTORY + 7
    diary(store, last + 1)
    batches = [progress["batchId"] for progress in history.load(store, last)]
    assert batches == list(range(last - history.HISTORY + 1, last + 1))
    assert len(store.names(history.FOLDER)) <= history.HISTORY // SNAPSHOT_EVERY + 2


def test_a_short_run_is_told_from_its_first_batch_on(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    diary(store, SNAPSHOT_EVERY + 3)
    for last in (SNAPSHOT_EVERY, SNAPSHOT_EVERY + 2):
        assert [progress["batchId"] for progress in history.load(store, last)] == list(range(last + 1))


def test_a_damaged_page_is_left_out(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    diary(store, 3 * SNAPSHOT_EVERY)
    (tmp_path / history.path_of(0)).write_bytes(b"{}")
    (tmp_path / history.path_of(SNAPSHOT_EVERY)).unlink()
    batches = [progress["batchId"] for progress in history.load(store, 3 * SNAPSHOT_EVERY - 1)]
    assert batches == list(range(2 * SNAPSHOT_EVERY, 3 * SNAPSHOT_EVERY))


def test_a_page_of_other_batches_or_streams_is_left_out(tmp_path: Path) -> None:
    store, other = Store(str(tmp_path / "mine")), Store(str(tmp_path / "other"))
    diary(store, 3 * SNAPSHOT_EVERY, streams={"a": {}, "b": {}})
    diary(other, 3 * SNAPSHOT_EVERY, streams={"a": {}, "c": {}})
    last, pages = 3 * SNAPSHOT_EVERY - 1, [history.path_of(at) for at in (0, SNAPSHOT_EVERY)]
    shutil.copy(tmp_path / "other" / pages[0], tmp_path / "mine" / pages[0])
    assert [entry["batchId"] for entry in history.load(store, last)] == list(range(SNAPSHOT_EVERY, last + 1))
    shutil.copy(tmp_path / "mine" / pages[1], tmp_path / "mine" / pages[0])
    assert [entry["batchId"] for entry in history.load(store, last)] == list(range(SNAPSHOT_EVERY, last + 1))


def test_a_page_that_can_not_be_read_does_not_stop_a_query(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    diary(store, SNAPSHOT_EVERY + 1)
    (tmp_path / history.path_of(0)).unlink()
    (tmp_path / history.path_of(0)).mkdir()
    assert [entry["batchId"] for entry in history.load(store, SNAPSHOT_EVERY)] == [SNAPSHOT_EVERY]
