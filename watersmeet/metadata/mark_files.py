"""Tables of marks as files: written once, memory-mapped, and kept open while they are asked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.limits import limits
from watersmeet.metadata.constraint_state import MARKS, MarkFile
from watersmeet.metadata.marks import Marks, Shape, merged
from watersmeet.state.store.budget import Cache, most_open
from watersmeet.state.store.file_format import digest, encode
from watersmeet.state.store.store import Store

_opened: Cache[tuple[str, str], Marks] = Cache()
"""The tables that this process has open, by the store's root and the path."""


def write_table(store: Store, name: str, table: pa.RecordBatch) -> MarkFile:
    """Write a table under a name that is unique for ever."""
    data, _ = encode([table])
    path = f"{MARKS}/{name}-{digest(data)}.marks"
    store.write(path, data)
    return MarkFile(path, table.num_rows, len(data))


def read_table(store: Store, file: MarkFile) -> pa.RecordBatch:
    """Return a table.

    Raises:
        StateError: If its file is missing or damaged.
    """
    return pa.ipc.open_stream(store.map_digested(file.path)).read_next_batch()


def opened(store: Store, file: MarkFile, shape: Shape) -> Marks:
    """Return the marks of a file, ready to be asked."""
    return _opened.load(
        (store.root, file.path),
        lambda: Marks(shape, read_table(store, file)),
        lambda marks: marks.nbytes,
        most_open(store.open_bytes or limits().open_bytes, _opened.size) // 4,
    )


def forget_missing() -> None:
    """Close the tables whose files are gone."""
    _opened.forget(lambda key: Store(key[0]).is_gone(key[1]))


def coalesced(store: Store, name: str, files: tuple[MarkFile, ...], shape: Shape) -> tuple[MarkFile, ...]:
    """Return tables of marks with those of a size and an era merged, once there are several of them."""
    tiers: dict[tuple[int, int | None], list[MarkFile]] = {}
    for file in files:
        tiers.setdefault((_tier(file.rows), file.era), []).append(file)
    kept: list[MarkFile] = []
    for number, ((_, era), tier) in enumerate(tiers.items()):
        if len(tier) < limits().merged_chunks:
            kept += tier
            continue
        table = merged([opened(store, file, shape) for file in tier])
        kept.append(write_table(store, f"{name}-t{number}", table)._replace(era=era))
    return tuple(kept)


def _tier(rows: int) -> int:
    base, size = limits().merged_chunks, max(1, rows // max(1, limits().tier_rows))
    return int(np.log(size) / np.log(max(2, base)))


_ERAS = 4
"""Into how many eras the time is cut for which marks are remembered: they are forgotten at most one later."""


@dataclass(frozen=True, slots=True)
class Recall:
    """What becomes of marks in a batch.

    Attributes:
        remember: For how many microseconds of the watermark marks are remembered; None for ever.
        watermark: The watermark before the batch; None for minus infinity.
        purges: Whether the batch has looked at all that the marks let go.
    """

    remember: int | None = None
    watermark: int | None = None
    purges: bool = True

    @property
    def dates(self) -> bool:
        """Whether marks are to be dated; those from before the first watermark count as made at it."""
        return self.remember is not None and self.watermark is not None

    def dated(self, files: Sequence[MarkFile], since: int) -> tuple[MarkFile, ...]:
        """Return tables of marks, each with its era; those that have one keep it.

        Args:
            files: The tables.
            since: The latest time that the watermark has to pass before some mark of those without an era is in effect.
        """
        if self.remember is None or self.watermark is None:
            return tuple(files)
        era = max(self.watermark, since) // self._step * self._step
        return tuple(file._replace(era=era) if file.era is None else file for file in files)

    def kept(self, files: Sequence[MarkFile]) -> tuple[MarkFile, ...]:
        """Return the tables that are remembered after the batch."""
        if self.remember is None or self.watermark is None or not self.purges:
            return tuple(files)
        last = self.watermark - self.remember - self._step
        return tuple(file for file in files if file.era is None or file.era > last)

    @property
    def _step(self) -> int:
        return max(1, (self.remember or 0) // _ERAS)


EVERYTHING = Recall()
"""Nothing is forgotten."""
