"""Spark's part of a checkpoint and the join's belong together."""

from pathlib import Path

import pytest

from tests.state.manifest.test_manifest import START
from watersmeet.errors import StateError
from watersmeet.spark.checkpoint.offsets import Offsets
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.store import Store


def finish_batch(checkpoint: Path) -> None:
    """Do what a running query does at the end of a batch."""
    store = Store(str(checkpoint / "watersmeet"))
    before = manifests.last(store) or START
    after = manifests.publish(store, before.follow(offered=before.batch + 1), before)
    assert after is not None
    Store(str(checkpoint)).write(f"commits/{after.batch}", b"v1")


class Busy(Store):
    """A store beside which a query finishes a batch each time that something is listed."""

    def names(self, folder: str) -> list[str]:
        names = super().names(folder)
        finish_batch(Path(self.root.removesuffix("/watersmeet")))
        return names


def test_beside_a_running_query_nothing_is_missing(tmp_path: Path) -> None:
    """It refuses the start by its lease; restoring anything would do harm."""
    finish_batch(tmp_path)
    state = Offsets(Busy(str(tmp_path))).load_state(Busy(str(tmp_path / "watersmeet")))
    assert state is not None and state.batch >= 0


def test_state_that_lacks_a_batch_is_refused(tmp_path: Path) -> None:
    finish_batch(tmp_path)
    Store(str(tmp_path)).write("commits/1", b"v1")
    store, message = (
        Store(str(tmp_path / "watersmeet")),
        "Spark has finished batch 1, but the newest state is of batch 0",
    )
    with pytest.raises(StateError, match=message):
        Offsets(Store(str(tmp_path))).load_state(store)


def test_unfinished_files_are_removed_only_under_the_lease(tmp_path: Path) -> None:
    """[!] They may be those of a run that has taken over, which is writing them."""
    checkpoint, left = Store(str(tmp_path)), "offsets/.0.5b83f0d0-1543-48f1-ad04-f2a2c97fa2bd.tmp"
    checkpoint.write(left, b"")

    def check() -> None:
        raise StateError("Another run has taken over.")

    with pytest.raises(StateError, match="taken over"):
        Offsets(checkpoint).remove_unfinished(check)
    assert checkpoint.names("offsets") == [left]
    Offsets(checkpoint).remove_unfinished(lambda: None)
    assert checkpoint.names("offsets") == []
