"""The rows of a chunk, opened: its columns by name, its times, its sorted index.

The file holds the event time as `ts` (int64 microseconds), the kept columns under their generated names, for count
windows their content hashes or arrival ordinals, for as-of joins their content hashes, where several batches' are owed
something the batch of each row, for results of inner joins that are traced the groups they came from, and for large
chunks the sorted index.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.predicate.model import Column
from watersmeet.predicate.numbers import is_text
from watersmeet.state.chunks.sorted_index import SortedColumn, sorted_column, without_orders

TIME = "ts"
HASH = "hash"
ORDINAL = "ordinal"
ARRIVAL = "arrival"
TRACE = "trace"


class Rows:
    """The rows of one chunk, opened: columns are views of the memory-mapped file, sort orders are kept.

    Args:
        batch: Its columns.
        time_type: The type of the event time.
        ordinals: The rows' arrival ordinals, if the stream has a count window and the batch doesn't hold them.
        mapped: What the mapped files take, which may hold other chunks, too.
    """

    def __init__(
        self, batch: pa.RecordBatch, time_type: pa.DataType, ordinals: NDArray[np.int64] | None, mapped: int = 0
    ) -> None:
        self._batch, self._size = batch, max(mapped, int(batch.nbytes))
        self._time_type = time_type
        self.grown: Callable[[Rows], None] | None = None
        """Is told once they take more bytes."""
        self._sorted: dict[Column, SortedColumn] = {}
        self.ts: NDArray[np.int64] = batch.column(TIME).to_numpy()
        self.names = set(batch.schema.names)
        self.ordinals = batch.column(ORDINAL).to_numpy() if ORDINAL in self.names else ordinals
        self.arrivals: NDArray[np.int64] | None = batch.column(ARRIVAL).to_numpy() if ARRIVAL in self.names else None
        """The batches in which rows of several came; None if they came in one, or if nobody need know."""

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def nbytes(self) -> int:
        """How many bytes they take: those of the files, and those of sort orders in memory."""
        return self._size + sum(column.nbytes for column in self._sorted.values())

    @property
    def hashes(self) -> NDArray[np.int64]:
        """The content hashes of the rows, where they are kept; see `Writer`."""
        return self._batch.column(HASH).to_numpy()  # type: ignore[no-any-return]

    @property
    def traces(self) -> pa.Array | None:
        """Which groups of inner joins the rows came from; None if they weren't traced, NULL where one wasn't."""
        return self._batch.column(TRACE) if TRACE in self.names else None

    def column(self, column: Column) -> pa.Array:
        """Return a column; the event time, kept as `ts`, comes back in its own type."""
        if column.name in self.names:
            return self._batch.column(column.name)
        return self._batch.column(TIME).cast(self._time_type)

    def to_merge(self, came: int | None = None) -> pa.RecordBatch:
        """Return the rows as a merge takes them: without sort orders, with the arrival ordinals instead of hashes.

        Args:
            came: The last batch in which one of them came, if they are to come with their batches.
        """
        left_out = (ORDINAL, ARRIVAL) if self.ordinals is None else (HASH, ORDINAL, ARRIVAL)
        kept = [name for name in without_orders(self._batch.schema.names) if name not in left_out]
        rows = self._batch.select(kept)
        if came is not None:
            arrivals = np.full(len(self), came) if self.arrivals is None else self.arrivals
            rows = rows.append_column(ARRIVAL, pa.array(arrivals, pa.int64()))
        return rows if self.ordinals is None else rows.append_column(ORDINAL, pa.array(self.ordinals))

    def order(self, column: Column) -> SortedColumn:
        """Return a column in rising order of its values; sorted once, and kept."""
        if column not in self._sorted:
            self._sorted[column] = sorted_column(self._batch, column, self.column(column))
            if self.grown is not None:
                self.grown(self)
        return self._sorted[column]


def widths(values: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return about how many bytes some values of a column take; those of text and binary are exact."""
    kind = values.type
    if pa.types.is_struct(kind):
        fields = (widths(values.field(at), rows) for at in range(kind.num_fields))
        return sum(fields, np.zeros(len(rows), np.int64))
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind)
    if not (lists or is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return np.full(len(rows), values.nbytes // max(1, len(values)) + 1)
    large = pa.types.is_large_list(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    edges = np.frombuffer(values.buffers()[1], np.int64 if large else np.int32)[values.offset :]
    counts: NDArray[np.int64] = np.subtract(edges[rows + 1], edges[rows], dtype=np.int64)
    if lists:
        counts *= values.nbytes // max(1, int(edges[len(values)]) - int(edges[0])) + 1
    return counts
