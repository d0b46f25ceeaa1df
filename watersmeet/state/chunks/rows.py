"""The rows of an open chunk: its columns by name, its times, its sorted index.

The file holds the event time as `ts` (int64 microseconds) and the columns that the join needs, under their generated
names. Beside these it may hold content hashes or arrival ordinals (count windows), content hashes (as-of joins), the
batch of each row (if tuples of several batches are owed results), the groups of inner joins that rows came from (if
they are traced), and sort orders (large chunks).
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.predicate.model import Column
from watersmeet.predicate.numbers import is_text
from watersmeet.state.chunks.sorted_index import SortedColumn, drop_sort_orders, sort_column

TIME = "ts"
HASH = "hash"
ORDINAL = "ordinal"
ARRIVAL = "arrival"
TRACE = "trace"


class Rows:
    """The rows of an open chunk: columns are views of the memory-mapped file, sort orders are cached.

    Args:
        batch: Its columns.
        time_type: The type of the event time.
        ordinals: The rows' arrival ordinals, if the stream has a count window and the batch doesn't hold them.
        mapped_bytes: The size of the mapped files, which may hold other chunks too.
    """

    def __init__(
        self, batch: pa.RecordBatch, time_type: pa.DataType, ordinals: Ints | None, mapped_bytes: int = 0
    ) -> None:
        self._batch, self._size = batch, max(mapped_bytes, int(batch.nbytes))
        self._time_type = time_type
        self.on_growth: Callable[[Rows], None] | None = None
        """Called when they take more bytes."""
        self._sorted: dict[Column, SortedColumn] = {}
        self.ts: Ints = batch.column(TIME).to_numpy()
        self.names = set(batch.schema.names)
        self.ordinals = batch.column(ORDINAL).to_numpy() if ORDINAL in self.names else ordinals
        self.arrivals: Ints | None = batch.column(ARRIVAL).to_numpy() if ARRIVAL in self.names else None
        """The batch of each row; None if all came in one batch, or if it doesn't matter."""

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def nbytes(self) -> int:
        """The bytes they take: the mapped files, and sort orders in memory."""
        return self._size + sum(column.nbytes for column in self._sorted.values())

    @property
    def hashes(self) -> Ints:
        """The content hashes of the rows, if they are stored; see `ChunkWriter`."""
        return self._batch.column(HASH).to_numpy()  # type: ignore[no-any-return]

    @property
    def traces(self) -> pa.Array | None:
        """Which groups of inner joins the rows came from; None if they weren't traced, NULL where one wasn't."""
        return self._batch.column(TRACE) if TRACE in self.names else None

    def column(self, column: Column) -> pa.Array:
        """Return a column; the event time, stored as `ts`, in its own type."""
        if column.name in self.names:
            return self._batch.column(column.name)
        return self._batch.column(TIME).cast(self._time_type)

    def to_merge(self, last_batch: int | None = None) -> pa.RecordBatch:
        """Return the rows as a merge takes them: without sort orders, with arrival ordinals instead of hashes.

        Args:
            last_batch: The last batch in which one of them arrived; None if their batches are not needed.
        """
        excluded = (ORDINAL, ARRIVAL) if self.ordinals is None else (HASH, ORDINAL, ARRIVAL)
        names = [name for name in drop_sort_orders(self._batch.schema.names) if name not in excluded]
        rows = self._batch.select(names)
        if last_batch is not None:
            arrivals = np.full(len(self), last_batch) if self.arrivals is None else self.arrivals
            rows = rows.append_column(ARRIVAL, pa.array(arrivals, pa.int64()))
        return rows if self.ordinals is None else rows.append_column(ORDINAL, pa.array(self.ordinals))

    def order(self, column: Column) -> SortedColumn:
        """Return a column in rising order of its values; it is sorted at most once."""
        if column not in self._sorted:
            self._sorted[column] = sort_column(self._batch, column, self.column(column))
            if self.on_growth is not None:
                self.on_growth(self)
        return self._sorted[column]


def widths(values: pa.Array, rows: Ints) -> Ints:
    """Return roughly how many bytes some values of a column take; exact for text and binary."""
    kind = values.type
    if pa.types.is_struct(kind):
        fields = (widths(values.field(at), rows) for at in range(kind.num_fields))
        return sum(fields, np.zeros(len(rows), np.int64))
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind)
    if not (lists or is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return np.full(len(rows), values.nbytes // max(1, len(values)) + 1)
    large = pa.types.is_large_list(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    edges = np.frombuffer(values.buffers()[1], np.int64 if large else np.int32)[values.offset :]
    counts: Ints = np.subtract(edges[rows + 1], edges[rows], dtype=np.int64)
    if lists:
        counts *= values.nbytes // max(1, int(edges[len(values)]) - int(edges[0])) + 1
    return counts
