"""Deletion vectors: which rows of a chunk are dead, in small files beside the chunks, one for each purge of a node.

Row numbers stay as they are, so that references to rows and remembered answers hold. Probes need not know: no dead row
can be part of a result. Merges leave dead rows out, and a chunk of which a quarter is dead is written anew.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.limits import limits
from watersmeet.state.chunks.chunk import CHUNKS, Chunk
from watersmeet.state.store.budget import most_open
from watersmeet.state.store.cache import Cache
from watersmeet.state.store.ipc import encode
from watersmeet.state.store.sealed import digest
from watersmeet.state.store.store import Store

_opened: Cache[tuple[str, str], Mapping[str, Ints]] = Cache()
"""The files that this process has read, by the store's root and the path: the dead rows of chunks, by their ids."""


def with_dead(store: Store, chunks: Sequence[Chunk], name: str, dead: Mapping[str, Ints]) -> list[Chunk]:
    """Write which rows of chunks are dead, besides those that were; return the chunks, which name the file.

    [!] Of chunks whose rows are all dead nothing is written: no manifest names them, so nobody would remove the file.

    Args:
        store: Where to.
        chunks: The chunks.
        name: Unique to the task attempt and its node.
        dead: The numbers of the rows that died, by the chunks' ids.
    """
    rows = {chunk.id: np.union1d(dead_rows(store, chunk), dead[chunk.id]) for chunk in chunks}
    left = {chunk.id: rows[chunk.id] for chunk in chunks if len(rows[chunk.id]) < chunk.rows}
    path = _write(store, name, left) if left else None
    return [chunk.without(path if chunk.id in left else None, len(rows[chunk.id])) for chunk in chunks]


def _write(store: Store, name: str, rows: Mapping[str, Ints]) -> str:
    ends = np.cumsum([0, *map(len, rows.values())], dtype=np.int32)
    numbers = pa.array(np.concatenate([*rows.values()]).astype(np.uint32))
    columns = {"chunk": pa.array([*rows]), "rows": pa.ListArray.from_arrays(pa.array(ends), numbers)}
    data, _ = encode([pa.record_batch(columns)])
    path = f"{CHUNKS}/{name}-{digest(data)}.deleted"
    store.write(path, data)
    return path


def dead_rows(store: Store, chunk: Chunk) -> Ints:
    """Return the numbers of a chunk's dead rows, in rising order.

    Raises:
        StateError: If the file is missing or damaged.
    """
    path = chunk.deleted
    if path is None:
        return np.zeros(0, np.int64)
    most = most_open(store.open_bytes or limits().open_bytes, _opened.size) // 16
    return _opened.load((store.root, path), lambda: _read(store, path), _size, most)[chunk.id]


def forget_missing() -> None:
    """Forget the files that are gone."""
    _opened.forget(lambda key: Store(key[0]).is_gone(key[1]))


def _size(dead: Mapping[str, Ints]) -> int:
    return sum(rows.nbytes for rows in dead.values())


def _read(store: Store, path: str) -> dict[str, Ints]:
    batch = pa.ipc.open_stream(store.map_digested(path)).read_next_batch()
    store.validate(batch)
    chunks, rows = batch.columns
    numbers = rows.flatten().to_numpy().astype(np.int64)
    return dict(zip(chunks.to_pylist(), np.split(numbers, rows.offsets.to_numpy()[1:-1]), strict=True))


def live_rows(store: Store, chunk: Chunk, dead: Ints | None = None) -> Ints:
    """Return the numbers of a chunk's rows that are not dead.

    Args:
        store: Where it is.
        chunk: The chunk.
        dead: More rows that are dead, besides those that it names.
    """
    live = np.ones(chunk.rows, bool)
    live[dead_rows(store, chunk)] = False
    if dead is not None:
        live[dead] = False
    return np.flatnonzero(live)
