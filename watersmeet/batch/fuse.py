"""Fuse: complete results become output rows, in blocks of bounded size, written to the store as Parquet."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.probe.chunk_table import ChunkTable
from watersmeet.probe.partials import Gather, Partials
from watersmeet.query.cases import CASE, CONTENT, NEWEST, NONE, ROLE, WHOLE
from watersmeet.query.query import RESULT_TIME, Query
from watersmeet.state.store.store import Store

RESULTS = "results"
GROUP_ROWS = 1 << 20
Answers = Callable[[Partials], Mapping[str, pa.Array]]
Traces = Callable[[Partials], pa.Array]
TRACE_BYTES = 64
"""About how many a trace takes."""


def output(query: Query, block: Partials, table: ChunkTable, traces: Traces | None = None) -> Iterator[pa.RecordBatch]:
    """Yield a block of results as rows of the files' schema, cast to it exactly.

    Args:
        query: The join.
        block: The results.
        table: Where their columns are.
        traces: Returns the groups that some of them came from; needed where results say so.
    """
    most, traced = limits().output_bytes, traces if query.tracing == "results" else None
    size = max(1, most // (8 + 8 * len(query.output_columns) + (TRACE_BYTES if traced else 0)))
    for start in range(0, len(block), size):
        for _, part in table.pieces(block.slice(start, min(size, len(block) - start)), query.output_columns, most):
            columns = [*_traced(part, traced), *_columns(query, part, table.gather)]
            yield pa.RecordBatch.from_arrays(columns, schema=query.file_schema)


def pending(
    query: Query, block: Partials, table: ChunkTable, answers: Answers, traces: Traces | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield combinations that Spark has to decide: what they would put out, and what the conjuncts left to it read.

    Args:
        query: The join.
        block: The combinations.
        table: Where their columns are.
        answers: Returns what Python predicates answer about some of them, by the calls' names.
        traces: Returns the groups that some of them came from; needed where they are to say so.
    """
    schema, most = query.pending_schema, limits().output_bytes
    traced = traces if query.tracing != "none" else None
    read = list(schema)[len(query.traced_schema) :]
    columns = {column.name: column for conjunct in query.deferred_conjuncts for column in conjunct.columns}
    size = max(1, most // (8 + 8 * len(schema)))
    for start in range(0, len(block), size):
        some = block.slice(start, min(size, len(block) - start))
        for _, part in table.pieces(some, {*query.output_columns, *columns.values()}, most):
            known = {**answers(part), **(_case(query, part) if query.optional else {})}
            known |= {n: part.column(c, table.gather) for n, c in columns.items() if c.stream in part.rows}
            values = [known.get(field.name, pa.nulls(len(part), field.type)) for field in read]
            shown = [*_traced(part, traced), *_columns(query, part, table.gather), *values]
            yield pa.RecordBatch.from_arrays(list(map(_cast, shown, schema.types)), schema=schema)


def _case(query: Query, block: Partials) -> dict[str, pa.Array]:
    """Return of which case combinations are, and in which role; those that are of none claim that no pair holds."""
    role = block.tags.get(ROLE, np.full(len(block), NONE))
    whole = pa.array(np.full(len(block), {*query.members, *query.optional} <= {*block.joined}))
    case = {CASE: pa.array(block.tags[CASE])} if CASE in block.tags else {}
    for stream in query.as_of_streams & {*block.joined}:
        case |= {NEWEST: pa.array(block.times[stream]), CONTENT: pa.array(block.tags[CONTENT])}
    return {**case, ROLE: pa.array(role), WHOLE: whole}


def _traced(block: Partials, traces: Traces | None) -> list[pa.Array]:
    return [] if traces is None else [traces(block)]


def _columns(query: Query, block: Partials, gather: Gather) -> list[pa.Array]:
    time = pa.array(block.high).cast(query.streams[0].time_type)
    if query.outputs:
        return [
            time if out.column == RESULT_TIME else _column(query, block, out.column, gather) for out in query.outputs
        ]
    structs = []
    for position, stream in enumerate(query.streams):
        if position in query.hidden_streams:
            continue
        if position not in block.rows:
            structs.append(pa.nulls(len(block), pa.struct(list(stream.schema))))
            continue
        values = [_column(query, block, Column(position, at), gather) for at in range(len(stream.schema))]
        structs.append(pa.StructArray.from_arrays(values, fields=list(stream.schema)))
    return [*structs, time]


def _column(query: Query, block: Partials, column: Column, gather: Gather) -> pa.Array:
    """Return an output column; NULL of a stream that the results lack."""
    kind = query.type_of(column)
    return _cast(block.column(column, gather), kind) if column.stream in block.rows else pa.nulls(len(block), kind)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # [!] mapInArrow does not cast: a block of another type kills the JVM with an opaque error.
    return values if values.type == kind else values.cast(kind)


@dataclass(slots=True)
class ResultWriter:
    """Writes the results of one task attempt; its files count only if the attempt's report does.

    Attributes:
        store: The store.
        schema: The output's schema.
        name: Unique to the task attempt.
        rows: How many rows were written.
        files: Where they are.
    """

    store: Store
    schema: pa.Schema
    name: str
    rows: int = 0
    files: list[str] = field(default_factory=list)
    _writer: pq.ParquetWriter | None = None
    _sink: pa.NativeFile | None = None
    _file_rows: int = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        if self._writer is None:
            self._open()
        assert self._writer is not None
        rows = pa.RecordBatch.from_arrays(list(map(_cast, rows.columns, self.schema.types)), schema=self.schema)
        self._writer.write_batch(rows, row_group_size=GROUP_ROWS)
        self.rows += rows.num_rows
        self._file_rows += rows.num_rows
        if self._file_rows >= limits().file_rows:
            self.close()

    def close(self) -> None:
        """Finish the file under way, if any."""
        if self._writer is not None and self._sink is not None:
            self._writer.close()
            self._sink.close()
        self._writer, self._sink, self._file_rows = None, None, 0

    def _open(self) -> None:
        path = f"{RESULTS}/{self.name}-{len(self.files)}.parquet"
        self.files.append(path)
        if self.store.local is not None:
            target = Path(self.store.local, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(str(target), "wb")
        else:
            system, full = self.store.remote(path)
            self._sink = system.open_output_stream(full)
        # [!] Spark's reader fails on arrays with NULLs where they are encoded by a dictionary.
        plain = not any(pa.types.is_nested(kind) for kind in self.schema.types)
        self._writer = pq.ParquetWriter(self._sink, self.schema, compression="snappy", use_dictionary=plain)
