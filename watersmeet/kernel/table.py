"""The chunks a task may probe, numbered, and the lookup of rows by reference."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.kernel.partials import ROW_BITS, ROW_MASK
from watersmeet.predicate.model import Column
from watersmeet.query import Query
from watersmeet.state.chunk import Chunk, Rows
from watersmeet.state.store import Store


@dataclass(frozen=True, slots=True)
class Target:
    """A chunk that may be probed.

    Attributes:
        number: Its number in this batch's plan; part of every reference to its rows.
        chunk: What is known of it.
        fresh: Whether this batch wrote it, so that only tuples which arrived earlier in the batch are admitted.
    """

    number: int
    chunk: Chunk
    fresh: bool


class ChunkTable:
    """All chunks that a task may probe or look rows up in."""

    def __init__(self, store: Store, query: Query, targets: list[Target]) -> None:
        self._store, self._query = store, query
        self._by_number: Mapping[int, Target] = {target.number: target for target in targets}
        streams = range(len(query.streams))
        self._by_stream = [sorted((t for t in targets if t.chunk.stream == s), key=_time) for s in streams]
        # Chunks overlap in time, so the scan for an interval starts where the running maximum of `high` reaches it.
        self._lows = [np.array([t.chunk.low for t in ts], dtype=np.int64) for ts in self._by_stream]
        self._highs = [
            np.maximum.accumulate(np.array([t.chunk.high for t in ts], dtype=np.int64)) for ts in self._by_stream
        ]

    def overlapping(self, stream: int, low: int, high: int) -> list[Target]:
        """Return the chunks of a stream that may hold rows with times in [low, high]."""
        first = int(np.searchsorted(self._highs[stream], low, "left"))
        last = int(np.searchsorted(self._lows[stream], high, "right"))
        return [t for t in self._by_stream[stream][first:last] if t.chunk.high >= low]

    def rows(self, target: Target) -> Rows:
        """Open a chunk."""
        return self._store.open(target.chunk, self._query.streams[target.chunk.stream].time_type)

    @property
    def ids(self) -> set[str]:
        """The ids of all chunks."""
        return {target.chunk.id for target in self._by_number.values()}

    def chunk(self, number: int) -> Chunk:
        """Return a chunk by its number."""
        return self._by_number[number].chunk

    def column(self, column: Column, number: int) -> pa.Array:
        """Return a column of a chunk, whole, as a view."""
        return self.rows(self._by_number[number]).column(column)

    def width(self, stream: int) -> int:
        """Return the average bytes of a stream's row."""
        chunks = [target.chunk for target in self._by_stream[stream]]
        return sum(chunk.bytes for chunk in chunks) // max(1, sum(chunk.rows for chunk in chunks))

    def gather(self, column: Column, refs: NDArray[np.int64]) -> pa.Array:
        """Return the values of a column for references of rows, in their order."""
        numbers = refs >> ROW_BITS
        rows = refs & ROW_MASK
        if not len(refs):
            return pa.array([], self._query.type_of(column))
        if bool((numbers == numbers[0]).all()):
            return self.rows(self._by_number[int(numbers[0])]).column(column).take(pa.array(rows))
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        parts = [
            self.rows(self._by_number[int(numbers[group[0]])]).column(column).take(pa.array(rows[group]))
            for group in np.split(order, cuts)
        ]
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(back))


def _time(target: Target) -> tuple[int, int, int]:
    return target.chunk.low, target.chunk.high, target.number
