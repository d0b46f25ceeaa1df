"""Deletion vectors: which rows of a chunk are dead, in small files beside the chunks, one for each purge of a node.

Row numbers don't change, so references to rows and cached answers stay valid. Probes ignore deletion vectors: no dead
row can be part of a result. Merges leave dead rows out, and a chunk of which a quarter is dead is rewritten.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.limits import limits
from watersmeet.state.chunks.chunk import CHUNKS, Chunk
from watersmeet.state.store.budget import Cache, most_open
from watersmeet.state.store.file_format import digest, encode
from watersmeet.state.store.store import Store

_files: Cache[tuple[str, str], Mapping[str, Ints]] = Cache()
"""The dead rows of chunks, by their ids, for each file that this process has read, by the store's root and path."""


def mark_dead(store: Store, chunks: Sequence[Chunk], name: str, dead: Mapping[str, Ints]) -> list[Chunk]:
    """Write which rows of chunks are dead, besides those that already were; return the chunks, which name the file.

    [!] Nothing is written for chunks whose rows are all dead: no manifest names them, so the file would never be swept.

    Args:
        store: The store.
        chunks: The chunks.
        name: Unique to the task attempt and its node.
        dead: The numbers of the rows that died, by the chunks' ids.
    """
    rows = {chunk.id: np.union1d(dead_rows(store, chunk), dead[chunk.id]) for chunk in chunks}
    partial = {chunk.id: rows[chunk.id] for chunk in chunks if len(rows[chunk.id]) < chunk.rows}
    path = _write(store, name, partial) if partial else None
    return [chunk.with_dead(path if chunk.id in partial else None, len(rows[chunk.id])) for chunk in chunks]


def _write(store: Store, name: str, rows: Mapping[str, Ints]) -> str:
    """Write the numbers of dead rows by chunk to a file named by its content, and return its path."""
    ends = np.cumsum([0, *map(len, rows.values())], dtype=np.int32)
    numbers = pa.array(np.concatenate([*rows.values()]).astype(np.uint32))
    columns = {"chunk": pa.array([*rows]), "rows": pa.ListArray.from_arrays(pa.array(ends), numbers)}
    buffer, _ = encode([pa.record_batch(columns)])
    path = f"{CHUNKS}/{name}-{digest(buffer)}.deleted"
    store.write(path, buffer)
    return path


def dead_rows(store: Store, chunk: Chunk) -> Ints:
    """Return the numbers of a chunk's dead rows, in rising order.

    Raises:
        StateError: If the file is missing or damaged.
    """
    path = chunk.deleted
    if path is None:
        return np.zeros(0, np.int64)
    most = most_open(store.open_bytes or limits().open_bytes, _files.size) // 16
    return _files.load((store.root, path), lambda: _read(store, path), _size, most)[chunk.id]


def forget_missing() -> None:
    """Drop cached files that have been removed."""
    _files.forget(lambda key: Store(key[0]).is_gone(key[1]))


def _size(dead: Mapping[str, Ints]) -> int:
    return sum(rows.nbytes for rows in dead.values())


def _read(store: Store, path: str) -> dict[str, Ints]:
    """Return the numbers of dead rows in a file, by chunk."""
    batch = pa.ipc.open_stream(store.map_digested(path)).read_next_batch()
    store.validate(batch)
    chunks, rows = batch.columns
    numbers = rows.flatten().to_numpy().astype(np.int64)
    return dict(zip(chunks.to_pylist(), np.split(numbers, rows.offsets.to_numpy()[1:-1]), strict=True))


def live_rows(store: Store, chunk: Chunk, dead: Ints | None = None) -> Ints:
    """Return the numbers of a chunk's rows that are not dead.

    Args:
        store: The store.
        chunk: The chunk.
        dead: More dead rows, besides those that the chunk names.

    Raises:
        StateError: If the file of dead rows is missing or damaged.
    """
    live = np.ones(chunk.rows, bool)
    live[dead_rows(store, chunk)] = False
    if dead is not None:
        live[dead] = False
    return np.flatnonzero(live)
