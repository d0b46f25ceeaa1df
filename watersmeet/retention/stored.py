"""The tuples that are stored, as the dead rule reads them: columns of a stream over all its chunks."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.model.query import Query
from watersmeet.predicate.model import Column
from watersmeet.state.chunk import Chunk
from watersmeet.state.deleted import live_rows
from watersmeet.state.store import Store

Ints = NDArray[np.int64]


class Stored:
    """The live rows of a join, numbered stream by stream in the order of their chunks; columns are read when asked for.

    Args:
        query: The join.
        store: Where they are.
        chunks: The chunks.
    """

    def __init__(self, query: Query, store: Store, chunks: Sequence[Chunk]) -> None:
        self._query, self._store = query, store
        self._chunks = [[chunk for chunk in chunks if chunk.stream == at] for at in range(len(query.streams))]
        self._live = [[live_rows(store, chunk) for chunk in found] for found in self._chunks]
        self._columns: dict[Column, pa.Array] = {}

    def rows(self, stream: int) -> int:
        """Return how many rows a stream has."""
        return sum(map(len, self._live[stream]))

    def column(self, column: Column) -> pa.Array:
        """Return a column of all live rows of its stream."""
        if column not in self._columns:
            time = self._query.streams[column.stream].time_type
            parts = [
                _taken(self._store.open(chunk, time).column(column), rows)
                for chunk, rows in zip(self._chunks[column.stream], self._live[column.stream], strict=True)
            ]
            self._columns[column] = pa.concat_arrays(parts) if parts else pa.array([], self._query.type_of(column))
        return self._columns[column]

    def numbered(self, stream: int, chunks: Collection[str]) -> Ints:
        """Return the numbers of the rows of some of a stream's chunks, given by their ids."""
        ends = np.cumsum([0, *map(len, self._live[stream])])
        found = [
            np.arange(ends[at], ends[at + 1]) for at, chunk in enumerate(self._chunks[stream]) if chunk.id in chunks
        ]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def located(self, stream: int, rows: Ints) -> dict[str, Ints]:
        """Return where rows are: their row numbers in each chunk, by the chunk's id."""
        ends = np.cumsum([0, *map(len, self._live[stream])])
        at = np.searchsorted(ends, rows, "right") - 1
        return {
            self._chunks[stream][number].id: self._live[stream][number][rows[at == number] - ends[number]]
            for number in np.unique(at).tolist()
        }


def _taken(values: pa.Array, rows: Ints) -> pa.Array:
    return values if len(values) == len(rows) else values.take(pa.array(rows))
