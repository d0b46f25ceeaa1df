"""The chunks that a task may probe, numbered, and the lookup of rows and columns by reference."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.predicate.numbers import hashes
from watersmeet.probe.partials import NOWHERE, ROW_BITS, ROW_MASK, Partials, references, uniform
from watersmeet.query.query import Query
from watersmeet.spilling.units import OwedBatches
from watersmeet.state.chunks.chunk import Chunk, Rows, widths
from watersmeet.state.store.store import Store

RUN = 64
"""Runs of references to one chunk are looked up one by one if they are of this length on average; else by chunk."""
Locate = Callable[[Partials, slice], Ints]
"""Returns the positions in a piece of a block at which something holds; the slice is its place in the block."""


@dataclass(frozen=True, slots=True)
class Target:
    """A chunk that may be probed.

    Attributes:
        number: Its number in this batch's plan; part of every reference to its rows.
        chunk: The chunk.
        owed: The tuples that are yet to probe it; None for none.
    """

    number: int
    chunk: Chunk
    owed: OwedBatches | None = None


class ChunkTable:
    """All chunks that a task may probe or look rows up in."""

    def __init__(self, store: Store, query: Query, targets: list[Target]) -> None:
        self._store, self._query = store, query
        self._ordinals: dict[int, Ints] = {}
        self.assign(targets)

    def assign(self, targets: list[Target]) -> None:
        """Let these be all the chunks, instead of those before; ordinals set by `number` stay."""
        self._by_number: Mapping[int, Target] = {target.number: target for target in targets}
        streams = range(len(self._query.streams))
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
        """Open a chunk in the store; its rows have ordinals if the batch numbered them."""
        rows = self._store.open(target.chunk, self._query.streams[target.chunk.stream].time_type)
        if target.number in self._ordinals:
            rows.ordinals = self._ordinals[target.number]
        return rows

    def number(self, target: Target, ordinals: Ints) -> None:
        """Set the arrival ordinals of the rows of a chunk from this batch, which no file holds yet."""
        self._ordinals[target.number] = ordinals

    @property
    def chunks(self) -> list[Chunk]:
        """All chunks."""
        return [target.chunk for target in self._by_number.values()]

    def chunk(self, number: int) -> Chunk:
        """Return a chunk by its number."""
        return self._by_number[number].chunk

    def column(self, column: Column, number: int) -> pa.Array:
        """Return a column of a chunk, whole, as a view."""
        return self.rows(self._by_number[number]).column(column)

    def pieces(self, block: Partials, columns: Iterable[Column], most: int) -> Iterator[tuple[int, Partials]]:
        """Yield a block in pieces whose values of some columns take about `most` bytes, each with its start.

        [!] By the actual sizes of rows: one long text may be a candidate of thousands of others.

        Args:
            block: The block; it is one piece if it is small, or if none of the columns is of variable length.
            columns: The columns; those of streams that are not joined yet don't count.
            most: The bytes of a piece; a larger piece has only one row.
        """
        bulky = [c for c in columns if c.stream in block.rows and is_bulky(self._query.type_of(c))]
        if not bulky:
            yield 0, block
            return
        ends = np.cumsum(sum(self._widths(column, block.rows[column.stream]) for column in bulky))
        start = 0
        while start < len(block):
            before = int(ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(ends, before + most, "right")))
            yield start, block if end - start == len(block) else block.slice(start, end - start)
            start = end

    def _widths(self, column: Column, refs: Ints) -> Ints:
        sizes = np.empty(len(refs), np.int64)
        for target, at in self._by_chunk(refs):
            sizes[at] = widths(self.rows(target).column(column), refs[at] & ROW_MASK)
        return sizes

    def _by_chunk(self, refs: Ints) -> Iterator[tuple[Target, Ints]]:
        """Yield the chunks of some references, each with the positions of its references."""
        numbers = refs >> ROW_BITS
        order = np.argsort(numbers, kind="stable")
        for at in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(refs) else ():
            yield self._by_number[int(numbers[at[0]])], at

    def hashes(self, block: Partials, column: Column) -> NDArray[np.uint64]:
        """Return the hashes of a member's column, which determine its buckets."""
        parts = [
            hashes(piece.column(column, self.gather)) for _, piece in self.pieces(block, [column], limits().block_bytes)
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    def gather(self, column: Column, refs: Ints) -> pa.Array:
        """Return the values of a column for references of rows, in their order; opens the chunks."""
        numbers = refs >> ROW_BITS
        rows = refs & ROW_MASK
        if not len(refs):
            return pa.array([], self._query.type_of(column))
        edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(refs)]
        if len(edges) * RUN <= len(refs):
            return pa.concat_arrays([self._values(column, numbers[a], rows[a:b]) for a, b in pairwise(edges)])
        parts, places = [], []
        for target, at in self._by_chunk(refs):
            parts.append(self._values(column, target.number, rows[at]))
            places.append(at)
        back = np.empty(len(refs), dtype=np.int64)
        back[np.concatenate(places)] = np.arange(len(refs))
        return pa.concat_arrays(parts).take(pa.array(back))

    def _values(self, column: Column, number: int, rows: Ints) -> pa.Array:
        """Return the values of a column for some rows of one chunk."""
        return self.rows(self._by_number[int(number)]).column(column).take(pa.array(rows))

    def contents(self, refs: Ints) -> Ints:
        """Return the content hashes of rows; their stream must store them."""
        hashes = np.empty(len(refs), np.int64)
        for target, at in self._by_chunk(refs):
            hashes[at] = self.rows(target).hashes[refs[at] & ROW_MASK]
        return hashes

    def traces(self, refs: Ints) -> tuple[Ints, Ints]:
        """Return the groups of inner joins that rows came from: positions among the references, and the groups' codes.

        A row of several groups comes once for each, one without traces not at all.
        """
        places, codes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for target, at in self._by_chunk(refs):
            stored = self.rows(target).traces
            if stored is not None:
                groups = stored.take(pa.array(refs[at] & ROW_MASK))
                lengths = pc.list_value_length(groups).fill_null(0).to_numpy(zero_copy_only=False)
                places.append(np.repeat(at, lengths))
                codes.append(groups.flatten().to_numpy(zero_copy_only=False))
        return np.concatenate(places), np.concatenate(codes)


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads columns of blocks, piece by piece if values are of variable length, so that memory stays bounded.

    Attributes:
        query: The join.
        table: The chunks that hold the rows.
    """

    query: Query
    table: ChunkTable

    def read(self, block: Partials, columns: Iterable[Column]) -> dict[str, pa.Array]:
        """Return columns for a whole block, by their generated names."""
        return {column.name: block.column(column, self.table.gather) for column in sorted(columns)}

    def pieces(self, block: Partials, columns: Iterable[Column]) -> Iterator[tuple[int, Partials]]:
        """Yield a block in pieces in which some columns take bounded bytes, each with its start."""
        return self.table.pieces(block, columns, limits().block_bytes)

    def where(self, block: Partials, columns: Iterable[Column], locate: Locate) -> Ints:
        """Return the positions in a block at which something holds, located piece by piece."""
        parts = [
            start + locate(piece, slice(start, start + len(piece))) for start, piece in self.pieces(block, columns)
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def distinct(self, block: Partials, column: Column) -> tuple[pa.Array, NDArray[np.intp]]:
        """Return a column for the distinct rows of a block, and for each combination which of them it has."""
        rows, at = np.unique(block.rows[column.stream], return_inverse=True)
        return self.table.gather(column, rows), at

    def lean(self, block: Partials) -> Partials:
        """Return a block without columns of variable length, which are read for one piece at a time."""
        return block.only(self.fixed(block.columns))

    def fixed(self, columns: Iterable[Column]) -> frozenset[Column]:
        """Return the columns of fixed width, which are worth carrying."""
        return frozenset(column for column in columns if not is_bulky(self.query.type_of(column)))


def start_partials(
    query: Query,
    target: Target,
    rows: Ints,
    ts: Ints,
    batch: Ints,
    asof: Mapping[int, Ints],
    tracked: Collection[int],
) -> Partials:
    """Return tuples of a chunk as partial results that have joined nothing yet.

    Args:
        query: The join.
        target: The chunk.
        rows: The numbers of its rows.
        ts: Their times.
        batch: The batches in which they count as new.
        asof: See `Partials`.
        tracked: The streams whose times the placement tracks.
    """
    origin = target.chunk.stream
    return Partials(
        joined=(origin,),
        rows={origin: references(target.number, rows)},
        moment=ts,
        high=ts,
        deadline=query.streams[origin].window.deadline(ts),
        here=uniform(NOWHERE, len(ts)),
        batch=batch,
        asof=dict(asof),
        times={origin: ts} if origin in tracked else {},
    )


def is_bulky(kind: pa.DataType) -> bool:
    """Tell whether a type's values are of variable length: such columns are looked up when needed, not carried."""
    return not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _time(target: Target) -> tuple[int, int, int]:
    return target.chunk.low, target.chunk.high, target.number
