"""The progress of the last batches, in a log of its own: blocks of it are written once, beside the manifests."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from watersmeet.errors import StateError
from watersmeet.state.manifest import documents
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.sealed import seal, unseal
from watersmeet.state.store.store import Store

FOLDER = "progress"
HISTORY = 500
"""Batches whose progress is kept."""
Progress = Mapping[str, Any]


def path_of(start: int) -> str:
    """Return where the block lies that begins with a batch."""
    return f"{FOLDER}/{start:012d}.json"


def keep(store: Store, batch: int, progress: Sequence[Progress]) -> None:
    """Write the block that ends before a batch, if one does; to be called before the batch's manifest is published.

    Args:
        store: Where to.
        batch: The batch.
        progress: What the batches before it did, the last of them last.
    """
    if batch and batch % manifests.SNAPSHOT_EVERY == 0:
        start = batch - manifests.SNAPSHOT_EVERY
        block = [found for found in progress if found.get("batchId", -1) >= start]
        store.publish(path_of(start), seal(block))


def kept(batch: int) -> frozenset[str]:
    """Return the blocks that belong to the manifest of a batch; older ones are no longer told."""
    return frozenset(map(path_of, _starts(batch)))


def _starts(batch: int) -> range:
    """Return the batches with which the blocks begin that are told with a batch."""
    end = batch - batch % manifests.SNAPSHOT_EVERY
    start = max(0, end - HISTORY) // manifests.SNAPSHOT_EVERY * manifests.SNAPSHOT_EVERY
    return range(start, end, manifests.SNAPSHOT_EVERY)


def load(store: Store, batch: int) -> list[Progress]:
    """Return the progress of the last batches up to one, oldest first; what is damaged, gone or another's is left out.

    Nothing is computed from it: a query need not stop for a page of its diary.
    """
    latest = manifests.told(store, batch)
    streams = {name for progress in latest for name in progress.get("streams", ())}
    blocks = (_block(store, start) for start in _starts(batch))
    own = (one for block in blocks for one in block if not streams or streams.issuperset(one.get("streams", ())))
    return [*own, *latest][-HISTORY:]


def _block(store: Store, start: int) -> list[Progress]:
    """Return the progress in a block; nothing if it can't be read, or is of other batches."""
    with suppress(StateError, OSError):
        data = store.read(path_of(start))
        block: list[Progress] = [] if data is None else unseal(data, path_of(start), documents.Block)
        if all(one.get("batchId") in range(start, start + manifests.SNAPSHOT_EVERY) for one in block):
            return block
    return []
