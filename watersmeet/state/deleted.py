"""Deletion vectors: which rows of a chunk are dead, in a small file of its own beside the chunk.

Row numbers stay as they are, so that references to rows and remembered answers hold. Probes need not know: no dead row
can be part of a result. Merges leave dead rows out, and a chunk of which a quarter is dead is written anew.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.state.chunk import CHUNKS, Chunk
from watersmeet.state.ipc import encode
from watersmeet.state.sealed import digest
from watersmeet.state.store import Store

Ints = NDArray[np.int64]


def with_dead(store: Store, chunk: Chunk, name: str, rows: Ints) -> Chunk:
    """Write which rows of a chunk are dead, besides those that were; return the chunk that names the file.

    [!] Where all are dead nothing is written: no manifest names such a chunk, so nobody would remove the file.

    Args:
        store: Where to.
        chunk: The chunk.
        name: Unique to the task attempt.
        rows: The numbers of the rows.
    """
    rows = np.union1d(dead_rows(store, chunk), rows)
    if len(rows) == chunk.rows:
        return chunk.without(None, len(rows))
    data, _ = encode([pa.record_batch([pa.array(rows.astype(np.uint32))], names=["row"])])
    path = f"{CHUNKS}/{name}-{chunk.id.replace('/', '-')}-{digest(data)}.deleted"
    store.write(path, data)
    return chunk.without(path, len(rows))


def dead_rows(store: Store, chunk: Chunk) -> Ints:
    """Return the numbers of a chunk's dead rows, in rising order.

    Raises:
        StateError: If the file is missing or damaged.
    """
    if chunk.deleted is None:
        return np.zeros(0, np.int64)
    data = store.map_digested(chunk.deleted)
    found: Ints = pa.ipc.open_stream(data).read_next_batch().column(0).to_numpy().astype(np.int64)
    return found


def live_rows(store: Store, chunk: Chunk, dead: Ints | None = None) -> Ints:
    """Return the numbers of a chunk's rows that are not dead.

    Args:
        store: Where it is.
        chunk: The chunk.
        dead: More rows that are dead, besides those that it names.
    """
    found = np.delete(np.arange(chunk.rows), dead_rows(store, chunk))
    return found if dead is None else np.setdiff1d(found, dead, assume_unique=True)
