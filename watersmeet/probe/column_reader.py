"""Reads columns of blocks, piece by piece where values are of variable length, so that what is read stays small."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.probe.chunk_table import ChunkTable, is_bulky
from watersmeet.probe.partials import Partials
from watersmeet.query.query import Query

Decide = Callable[[Partials, slice], Ints]
"""Returns where something holds in a piece of a block, which is given with its place there."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Looks the columns of blocks up.

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
        """Yield a block in pieces in which some columns take bounded bytes, each with where it begins."""
        return self.table.pieces(block, columns, limits().block_bytes)

    def where(self, block: Partials, columns: Iterable[Column], decide: Decide) -> Ints:
        """Return where in a block something holds that reads some columns, decided piece by piece."""
        found = [
            start + decide(piece, slice(start, start + len(piece))) for start, piece in self.pieces(block, columns)
        ]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def distinct(self, block: Partials, column: Column) -> tuple[pa.Array, NDArray[np.intp]]:
        """Return a column of the distinct rows in a block, and for each combination which row it has."""
        rows, at = np.unique(block.rows[column.stream], return_inverse=True)
        return self.table.gather(column, rows), at

    def lean(self, block: Partials) -> Partials:
        """Return a block without columns of variable length: those are for one piece of it at a time."""
        return block.only(self.fixed(block.carried))

    def fixed(self, columns: Iterable[Column]) -> frozenset[Column]:
        """Return the columns that are of fixed width, and so worth carrying."""
        return frozenset(column for column in columns if not is_bulky(self.query.type_of(column)))
