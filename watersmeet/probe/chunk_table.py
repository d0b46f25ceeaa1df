"""The chunks a task may probe, numbered, and the lookup of rows by reference."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.limits import limits
from watersmeet.predicate.buckets import hashes
from watersmeet.predicate.model import Column
from watersmeet.probe.partials import ROW_BITS, ROW_MASK, Partials
from watersmeet.query.query import Query
from watersmeet.spilling.owed import Owed
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.chunks.rows import Rows, widths
from watersmeet.state.store.store import Store


@dataclass(frozen=True, slots=True)
class Target:
    """A chunk that may be probed.

    Attributes:
        number: Its number in this batch's plan; part of every reference to its rows.
        chunk: What is known of it.
        owed: The tuples that have not asked it; None for none.
    """

    number: int
    chunk: Chunk
    owed: Owed | None = None


class ChunkTable:
    """All chunks that a task may probe or look rows up in."""

    def __init__(self, store: Store, query: Query, targets: list[Target]) -> None:
        self._store, self._query = store, query
        self._ordinals: dict[int, Ints] = {}
        self.assign(targets)

    def assign(self, targets: list[Target]) -> None:
        """Let these be all the chunks."""
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
        """Open a chunk."""
        rows = self._store.open(target.chunk, self._query.streams[target.chunk.stream].time_type)
        if target.number in self._ordinals:
            rows.ordinals = self._ordinals[target.number]
        return rows

    def number(self, target: Target, ordinals: Ints) -> None:
        """Give the rows of a chunk that this batch wrote their arrival ordinals, which no file holds yet."""
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
        """Yield a block in pieces whose values of some columns take about `most` bytes, each with where it begins.

        [!] By the rows' own sizes: one long text may be a candidate of thousands of others.

        Args:
            block: The block; it is its only piece if it is small, or if none of the columns is of variable length.
            columns: Columns of the streams joined, and others, which don't count.
            most: A piece of more has but one row.
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
        found = np.empty(len(refs), np.int64)
        for target, at in self._by_chunk(refs):
            found[at] = widths(self.rows(target).column(column), refs[at] & ROW_MASK)
        return found

    def _by_chunk(self, refs: Ints) -> Iterator[tuple[Target, Ints]]:
        """Yield the chunks that references name, each with where in them it is named."""
        numbers = refs >> ROW_BITS
        order = np.argsort(numbers, kind="stable")
        for at in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(refs) else ():
            yield self._by_number[int(numbers[at[0]])], at

    def hashes(self, block: Partials, column: Column) -> NDArray[np.uint64]:
        """Return the hashes of a member's column, by which buckets are chosen."""
        found = [
            hashes(piece.column(column, self.gather)) for _, piece in self.pieces(block, [column], limits().block_bytes)
        ]
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    def gather(self, column: Column, refs: Ints) -> pa.Array:
        """Return the values of a column for references of rows, in their order."""
        numbers = refs >> ROW_BITS
        rows = refs & ROW_MASK
        if not len(refs):
            return pa.array([], self._query.type_of(column))
        if bool((numbers == numbers[0]).all()):
            return self.rows(self._by_number[int(numbers[0])]).column(column).take(pa.array(rows))
        parts, places = [], []
        for target, at in self._by_chunk(refs):
            parts.append(self.rows(target).column(column).take(pa.array(rows[at])))
            places.append(at)
        back = np.empty(len(refs), dtype=np.int64)
        back[np.concatenate(places)] = np.arange(len(refs))
        return pa.concat_arrays(parts).take(pa.array(back))

    def contents(self, refs: Ints) -> Ints:
        """Return the content hashes of rows, which their stream must keep."""
        hashes = np.empty(len(refs), np.int64)
        for target, at in self._by_chunk(refs):
            hashes[at] = self.rows(target).hashes[refs[at] & ROW_MASK]
        return hashes

    def traces(self, refs: Ints) -> tuple[Ints, Ints]:
        """Return which groups of inner joins rows came from, as pairs: a position among the references, and a code."""
        places, codes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for target, at in self._by_chunk(refs):
            stored = self.rows(target).traces
            if stored is not None:
                found = stored.take(pa.array(refs[at] & ROW_MASK))
                lengths = pc.list_value_length(found).fill_null(0).to_numpy(zero_copy_only=False)
                places.append(np.repeat(at, lengths))
                codes.append(found.flatten().to_numpy(zero_copy_only=False))
        return np.concatenate(places), np.concatenate(codes)


def is_bulky(kind: pa.DataType) -> bool:
    """Tell whether a type's values are of variable length: such columns are looked up when needed, not copied along."""
    return not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _time(target: Target) -> tuple[int, int, int]:
    return target.chunk.low, target.chunk.high, target.number
