"""The progress of the last batches, in a log of its own: blocks of it are written once, beside the manifests."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from watersmeet.errors import StateError
from watersmeet.state import documents
from watersmeet.state import manifest as manifests
from watersmeet.state.sealed import seal, unseal
from watersmeet.state.store import Store

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
    end = batch - batch % manifests.SNAPSHOT_EVERY
    start = max(0, end - HISTORY) // manifests.SNAPSHOT_EVERY * manifests.SNAPSHOT_EVERY
    return frozenset(map(path_of, range(start, end, manifests.SNAPSHOT_EVERY)))


def load(store: Store, batch: int) -> list[Progress]:
    """Return the progress of the last batches up to one, oldest first; what is damaged or gone is left out.

    Nothing is computed from it: a query need not stop for a page of its diary.
    """
    found: list[Progress] = []
    for path in sorted(kept(batch)):
        data = store.read(path)
        with suppress(StateError):
            found += [] if data is None else unseal(data, path, documents.Block)
    return [*found, *manifests.told(store, batch)][-HISTORY:]
