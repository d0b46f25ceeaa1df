"""Tables of marks as files: written once, memory-mapped, and kept open between lookups."""

import numpy as np
import pyarrow as pa

from watersmeet.limits import limits
from watersmeet.metadata.constraint_state import MARKS, MarkFile
from watersmeet.metadata.marks import Marks, MarkShape, merge_tables
from watersmeet.state.store.budget import Cache, most_open
from watersmeet.state.store.file_format import digest, encode
from watersmeet.state.store.store import Store

_opened: Cache[tuple[str, str], Marks] = Cache()
"""The tables that this process has open, by the root of the store and the path."""


def write_table(store: Store, name: str, table: pa.RecordBatch) -> MarkFile:
    """Write a table to a file whose name is never used again, and return the file."""
    data, _ = encode([table])
    path = f"{MARKS}/{name}-{digest(data)}.marks"
    store.write(path, data)
    return MarkFile(path, table.num_rows, len(data))


def read_table(store: Store, file: MarkFile) -> pa.RecordBatch:
    """Return the table in a file.

    Raises:
        StateError: If its file is missing or damaged.
    """
    return pa.ipc.open_stream(store.map_digested(file.path)).read_next_batch()


def open_marks(store: Store, file: MarkFile, shape: MarkShape) -> Marks:
    """Return the marks of a file, ready for lookups; the file stays open for later calls."""
    return _opened.load(
        (store.root, file.path),
        lambda: Marks(shape, read_table(store, file)),
        lambda marks: marks.nbytes,
        most_open(store.open_bytes or limits().open_bytes, _opened.size) // 4,
    )


def forget_missing() -> None:
    """Close the open tables whose files have been deleted."""
    _opened.forget(lambda key: Store(key[0]).is_gone(key[1]))


def coalesce_files(store: Store, name: str, files: tuple[MarkFile, ...], shape: MarkShape) -> tuple[MarkFile, ...]:
    """Return files that replace mark files: those of similar size and the same era are merged once there are enough.

    Merging writes new files, whose names begin with `name`, and removes none.
    """
    tiers: dict[tuple[int, int | None], list[MarkFile]] = {}
    for file in files:
        tiers.setdefault((_tier(file.rows), file.era), []).append(file)
    merged: list[MarkFile] = []
    for number, ((_, era), tier) in enumerate(tiers.items()):
        if len(tier) < limits().merged_chunks:
            merged += tier
            continue
        table = merge_tables([open_marks(store, file, shape) for file in tier])
        merged.append(write_table(store, f"{name}-t{number}", table)._replace(era=era))
    return tuple(merged)


def _tier(rows: int) -> int:
    base, size = limits().merged_chunks, max(1, rows // max(1, limits().tier_rows))
    return int(np.log(size) / np.log(max(2, base)))
