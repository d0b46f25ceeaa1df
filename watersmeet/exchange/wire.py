"""Partial results on the wire: one flat Arrow schema for all hops, so that any of them can cross a Spark shuffle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.probe.chunk_table import is_bulky
from watersmeet.probe.partials import Gather, Partials
from watersmeet.query.query import Query

WIDTH = 128
"""About how many bytes the fixed columns of a row take."""


@dataclass(frozen=True)
class Wire:
    """The schema of what travels between hops: bookkeeping, row references, as-of counts, columns, messages.

    Columns of variable length stay behind: whoever needs one looks the row up in the store.

    Attributes:
        query: The join.
        tracked: Streams whose members' times travel along.
    """

    query: Query
    tracked: tuple[int, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column that may have to travel."""
        return tuple(sorted(column for column in self.query.needed_columns if not is_bulky(self.query.type_of(column))))

    @property
    def schema(self) -> pa.Schema:
        """The schema."""
        fields = [("node", pa.int32()), ("here", pa.int64()), ("origin", pa.int8()), ("course", pa.int16())]
        fields += [(name, pa.int64()) for name in ("moment", "high", "deadline", "batch")]
        fields += [(f"r{stream}", pa.int64()) for stream in range(len(self.query.streams))]
        fields += [(f"a{stream}", pa.int64()) for stream in self.query.counted_streams]
        fields += [(f"t{stream}", pa.int64()) for stream in self.tracked]
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
        self, block: Partials, to: NDArray[np.bool_], course: int, carry: Sequence[Column], gather: Gather
    ) -> Iterator[pa.RecordBatch]:
        """Yield partial results of one course, each once for every node it must visit, in blocks of bounded size."""
        size = max(1, limits().block_bytes // (WIDTH + 16 * len(carry)))
        rows, nodes = np.nonzero(to)
        for start in range(0, len(rows), size):
            part = block.take(rows[start : start + size])
            yield self._encode(part, nodes[start : start + size], course, carry, gather)

    def _encode(
        self, part: Partials, nodes: Ints, course: int, carry: Sequence[Column], gather: Gather
    ) -> pa.RecordBatch:
        values = {
            "node": pa.array(nodes, pa.int32()),
            "here": pa.array(part.here),
            "origin": pa.array(np.full(len(part), part.origin), pa.int8()),
            "course": pa.array(np.full(len(part), course), pa.int16()),
            "moment": pa.array(part.moment),
            "high": pa.array(part.high),
            "deadline": pa.array(part.deadline),
            "batch": pa.array(part.batch),
        }
        values |= {f"r{stream}": pa.array(refs) for stream, refs in part.rows.items()}
        values |= {f"a{stream}": pa.array(counts) for stream, counts in part.asof.items()}
        values |= {f"t{stream}": pa.array(times) for stream, times in part.times.items()}
        values |= {c.name: part.column(c, gather) for c in carry if not is_bulky(self.query.type_of(c))}
        return self.block(len(part), values)

    def receive(self, rows: pa.RecordBatch, joined: tuple[int, ...], carry: Sequence[Column]) -> Partials:
        """Return rows of one origin and course that have come this far as a block of partial results."""

        def ints(name: str) -> Ints:
            return rows.column(name).to_numpy()  # type: ignore[no-any-return]

        return Partials(
            joined=joined,
            rows={stream: ints(f"r{stream}") for stream in joined},
            moment=ints("moment"),
            high=ints("high"),
            deadline=ints("deadline"),
            here=ints("here"),
            batch=ints("batch"),
            asof={s: ints(f"a{s}") for s in self.query.counted_streams if s != joined[0]},
            times={s: ints(f"t{s}") for s in self.tracked if s in joined},
            columns={c: rows.column(c.name) for c in carry if not is_bulky(self.query.type_of(c))},
        )
