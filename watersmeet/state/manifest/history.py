"""The progress of the last batches, stored in blocks beside the manifests; each block is written once."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from watersmeet.errors import StateError
from watersmeet.state.manifest import documents
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.file_format import seal, unseal
from watersmeet.state.store.store import Store

FOLDER = "progress"
HISTORY = 500
"""The number of batches whose progress is stored."""
Progress = Mapping[str, Any]


def path_of(start: int) -> str:
    """Return the path of the block that begins with a batch."""
    return f"{FOLDER}/{start:012d}.json"


def write_block(store: Store, batch: int, progress: Sequence[Progress]) -> None:
    """Write the block that ends before a batch, if one does. Call it before the batch's manifest is published.

    Args:
        store: The store.
        batch: The batch.
        progress: The progress of the batches before it, oldest first.
    """
    if batch and batch % manifests.SNAPSHOT_EVERY == 0:
        start = batch - manifests.SNAPSHOT_EVERY
        block = [entry for entry in progress if entry.get("batchId", -1) >= start]
        store.publish(path_of(start), seal(block))


def block_paths(batch: int) -> frozenset[str]:
    """Return the paths of the blocks that belong to the manifest of a batch; older ones are no longer read."""
    return frozenset(map(path_of, _starts(batch)))


def _starts(batch: int) -> range:
    """Return the first batches of the blocks that belong to a batch."""
    end = batch - batch % manifests.SNAPSHOT_EVERY
    start = max(0, end - HISTORY) // manifests.SNAPSHOT_EVERY * manifests.SNAPSHOT_EVERY
    return range(start, end, manifests.SNAPSHOT_EVERY)


def load(store: Store, batch: int) -> list[Progress]:
    """Return the progress of the last batches up to one, oldest first.

    Blocks that are damaged, missing or of another query are left out: nothing is computed from progress, so a query
    need not stop for it.
    """
    latest = manifests.recent_progress(store, batch)
    streams = {name for progress in latest for name in progress.get("streams", ())}
    blocks = (_block(store, start) for start in _starts(batch))
    entries = (entry for block in blocks for entry in block)
    earlier = (entry for entry in entries if not streams or streams.issuperset(entry.get("streams", ())))
    return [*earlier, *latest][-HISTORY:]


def _block(store: Store, start: int) -> list[Progress]:
    """Return the progress in a block; nothing if it can't be read, or belongs to other batches."""
    with suppress(StateError, OSError):
        text = store.read(path_of(start))
        block: list[Progress] = [] if text is None else unseal(text, path_of(start), documents.ProgressBlock)
        if all(entry.get("batchId") in range(start, start + manifests.SNAPSHOT_EVERY) for entry in block):
            return block
    return []
