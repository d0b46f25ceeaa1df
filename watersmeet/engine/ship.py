"""Partial results on the wire: one flat Arrow schema for all hops, so that any of them can cross a Spark shuffle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.kernel.hop import BLOCK_BYTES, is_bulky
from watersmeet.kernel.partials import Gather, Partials
from watersmeet.predicate.model import Column
from watersmeet.query import Query

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Wire:
    """The schema of what travels between hops: bookkeeping, row references, as-of counts, columns, messages.

    Attributes:
        query: The join.
    """

    query: Query

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column that may have to travel."""
        needed = {c for conjunct in self.query.conjuncts for c in conjunct.columns} | set(self.query.shown)
        return tuple(sorted(needed))

    @property
    def schema(self) -> pa.Schema:
        """The schema."""
        fields = [("node", pa.int32()), ("here", pa.int32()), ("origin", pa.int8())]
        fields += [("store", pa.bool_()), ("probe", pa.bool_()), ("hash", pa.int64())]
        fields += [(name, pa.int64()) for name in ("moment", "high", "deadline")]
        fields += [(f"r{stream}", pa.int64()) for stream in range(len(self.query.streams))]
        fields += [(f"a{stream}", pa.int64()) for stream in self.query.counted]
        fields += [(column.name, self.query.type_of(column)) for column in self.columns]
        return pa.schema([*fields, ("body", pa.binary())])

    def block(self, rows: int, values: dict[str, pa.Array]) -> pa.RecordBatch:
        """Return a block with the given columns and NULL in all others."""
        schema = self.schema
        arrays = [
            values[field.name].cast(field.type) if field.name in values else pa.nulls(rows, field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def messages(self, nodes: list[int], body: bytes) -> pa.RecordBatch:
        """Return a message to several nodes."""
        size = len(nodes)
        return self.block(size, {"node": pa.array(nodes, pa.int32()), "body": pa.array([body] * size, pa.binary())})

    def ship(
        self, block: Partials, to: NDArray[np.bool_], here: int, carry: Sequence[Column], gather: Gather
    ) -> Iterator[pa.RecordBatch]:
        """Yield partial results, each once for every node it must visit, in blocks of bounded size."""
        width = 64 + sum(_width(block, column, gather) for column in carry)
        size = max(64, BLOCK_BYTES // width)
        rows, nodes = np.nonzero(to)
        for start in range(0, len(rows), size):
            part = block.take(rows[start : start + size])
            yield self._encode(part, nodes[start : start + size], here, carry, gather)

    def _encode(
        self, part: Partials, nodes: Ints, here: int, carry: Sequence[Column], gather: Gather
    ) -> pa.RecordBatch:
        values = {
            "node": pa.array(nodes, pa.int32()),
            "here": pa.array(np.full(len(part), here), pa.int32()),
            "origin": pa.array(np.full(len(part), part.origin), pa.int8()),
            "store": pa.array(np.zeros(len(part), bool)),
            "probe": pa.array(np.ones(len(part), bool)),
            "moment": pa.array(part.moment),
            "high": pa.array(part.high),
            "deadline": pa.array(part.deadline),
        }
        values |= {f"r{stream}": pa.array(refs) for stream, refs in part.rows.items()}
        values |= {f"a{stream}": pa.array(counts) for stream, counts in part.asof.items()}
        values |= {column.name: part.column(column, gather) for column in carry}
        return self.block(len(part), values)

    def receive(self, rows: pa.RecordBatch, joined: tuple[int, ...]) -> Partials:
        """Return rows of one origin that have come this far as a block of partial results, all columns pinned."""
        carried = {c: rows.column(c.name) for c in self.columns if c.stream in joined}
        ints = {name: rows.column(name).to_numpy() for name in ("moment", "high", "deadline")}
        return Partials(
            joined=joined,
            rows={stream: rows.column(f"r{stream}").to_numpy() for stream in joined},
            asof={
                s: rows.column(f"a{s}").to_numpy() for s in self.query.counted if not rows.column(f"a{s}").null_count
            },
            carried=carried,
            pinned=frozenset(carried),
            **ints,
        )


def _width(block: Partials, column: Column, gather: Gather) -> int:
    """Return about how many bytes a value of a column takes, from the first rows."""
    few = block.slice(0, min(16, len(block)))
    values = few.column(column, gather)
    return 8 if not is_bulky(values.type) else values.nbytes // max(1, len(few))
