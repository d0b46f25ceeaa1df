"""The stored tuples of a join by column, over all chunks of a stream, as the rules of this package read them."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.predicate.model import Column
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk, Rows
from watersmeet.state.store.chunk_writer import live_rows
from watersmeet.state.store.store import Store


class DistinctRows(NamedTuple):
    """Rows grouped into kinds of equal rows.

    Attributes:
        rows: One row of each kind.
        kind: For each row the position of its kind.
    """

    rows: Ints
    kind: Ints


class StoredColumns:
    """The live rows of a join, numbered by stream in the order of their chunks; columns are read on first use.

    Args:
        query: The join.
        store: The store of its state.
        chunks: The chunks.
    """

    def __init__(self, query: Query, store: Store, chunks: Sequence[Chunk]) -> None:
        self._query, self._store = query, store
        self._chunks = [[chunk for chunk in chunks if chunk.stream == at] for at in range(len(query.streams))]
        self._live = [[live_rows(store, chunk) for chunk in own] for own in self._chunks]
        self._columns: dict[Column, pa.Array] = {}
        self._distinct: dict[tuple[int, tuple[Column, ...]], DistinctRows] = {}

    def rows(self, stream: int) -> int:
        """Return the number of live rows of a stream."""
        return sum(map(len, self._live[stream]))

    def column(self, column: Column) -> pa.Array:
        """Return a column of all live rows of its stream; read from the chunks once, then kept."""
        if column not in self._columns:
            time = self._query.streams[column.stream].time_type
            parts = [
                _take(self._store.open(chunk, time).column(column), rows)
                for chunk, rows in zip(self._chunks[column.stream], self._live[column.stream], strict=True)
            ]
            self._columns[column] = pa.concat_arrays(parts) if parts else pa.array([], self._query.type_of(column))
        return self._columns[column]

    def times(self, stream: int) -> Ints:
        """Return the event times of all live rows of a stream."""
        return self._read_numbers(stream, lambda rows: rows.ts)

    def content_hashes(self, stream: int) -> Ints:
        """Return the content hashes of all live rows of a stream that stores them."""
        return self._read_numbers(stream, lambda rows: rows.hashes)

    def _read_numbers(self, stream: int, of: Callable[[Rows], Ints]) -> Ints:
        time = self._query.streams[stream].time_type
        live = zip(self._chunks[stream], self._live[stream], strict=True)
        return np.concatenate([np.empty(0, np.int64), *(of(self._store.open(c, time))[rows] for c, rows in live)])

    def find_distinct(self, stream: int, columns: Collection[Column]) -> "DistinctRows":
        """Return the rows of a stream grouped by their values in some columns; found once, then kept."""
        key = stream, tuple(sorted(columns))
        if key not in self._distinct:
            self._distinct[key] = find_distinct([self.column(column) for column in key[1]], self.rows(stream))
        return self._distinct[key]

    def locate(self, stream: int, rows: Ints) -> dict[str, Ints]:
        """Return the numbers of rows within their chunks, by the ids of the chunks."""
        ends = np.cumsum([0, *map(len, self._live[stream])])
        at = np.searchsorted(ends, rows, "right") - 1
        return {
            self._chunks[stream][number].id: self._live[stream][number][rows[at == number] - ends[number]]
            for number in np.unique(at).tolist()
        }


def _take(values: pa.Array, rows: Ints) -> pa.Array:
    return values if len(values) == len(rows) else values.take(pa.array(rows))


def find_distinct(columns: Sequence[pa.Array], rows: int) -> DistinctRows:
    """Return rows grouped by their values in all columns; `rows` is their number, as there may be no column.

    NULLs are alike; rows with a value that can't be compared are each a kind of their own.
    """
    kind, kinds = np.zeros(rows, np.int64), 1
    for values in columns:
        codes, count = _encode(values)
        kind, kinds = kind * count + codes, kinds * count
        if kinds > rows and kinds > count:  # so that the product stays small
            _, kind = np.unique(kind, return_inverse=True)
            kinds = int(kind.max(initial=-1)) + 1
    return _number_kinds(kind, kinds)


def _number_kinds(kind: Ints, kinds: int) -> DistinctRows:
    """Return the kinds that have rows, numbered anew without gaps, each with its first row; does not sort rows."""
    first = np.full(kinds, -1)
    first[kind[::-1]] = np.arange(len(kind))[::-1]  # the first row of a kind is written last
    present = np.flatnonzero(first >= 0)
    if len(present) == kinds:
        return DistinctRows(first, kind)
    number = np.empty(kinds, np.int64)
    number[present] = np.arange(len(present))
    return DistinctRows(first[present], number[kind])


def _encode(values: pa.Array) -> tuple[Ints, int]:
    """Return a number for each value, the same for equal ones; values that can't be compared get distinct numbers."""
    try:
        encoded = values.dictionary_encode(null_encoding="encode")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return np.arange(len(values)), max(1, len(values))
    return encoded.indices.to_numpy().astype(np.int64), max(1, len(encoded.dictionary))
