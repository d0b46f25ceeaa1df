"""Fuse: turns complete results into output rows, in blocks of bounded size, and writes them to the store as Parquet."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.arrays import cast_column
from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.probe.chunk_table import ChunkTable, is_bulky
from watersmeet.probe.partials import Gather, Partials
from watersmeet.query.cases import CASE, CONTENT, NEWEST, NONE, ROLE, WHOLE
from watersmeet.query.query import RESULT_TIME, Query
from watersmeet.state.store.store import Store

RESULTS = "results"
GROUP_ROWS = 1 << 20
Answers = Callable[[Partials], Mapping[str, pa.Array]]
Traces = Callable[[Partials], pa.Array]
TRACE_BYTES = 64
"""The approximate size of a trace."""


def output(query: Query, block: Partials, table: ChunkTable, traces: Traces | None = None) -> Iterator[pa.RecordBatch]:
    """Yield a block of results as output rows, in exactly the schema of result files and in pieces of limited size.

    Args:
        query: The join.
        block: The results.
        table: The chunks that hold their columns.
        traces: Returns the groups that some of them came from; needed if result files have a trace column.
    """
    most, traced = limits().output_bytes, traces if query.tracing == "results" else None
    size = max(1, most // (8 + 8 * len(query.output_columns) + (TRACE_BYTES if traced else 0)))
    for start in range(0, len(block), size):
        for _, part in table.pieces(block.slice(start, min(size, len(block) - start)), query.output_columns, most):
            columns = [*_trace_columns(part, traced), *_columns(query, part, table.gather)]
            yield pa.RecordBatch.from_arrays(columns, schema=query.file_schema)


def pending(
    query: Query, block: Partials, table: ChunkTable, answers: Answers, traces: Traces | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield combinations that Spark must decide: their output columns, and the inputs of the conjuncts left to Spark.

    Args:
        query: The join.
        block: The combinations.
        table: The chunks that hold their columns.
        answers: Returns the answers of Python predicates for some of them, by the calls' names.
        traces: Returns the groups that some of them came from; needed if they are traced.
    """
    schema, most = query.pending_schema, limits().output_bytes
    traced = traces if query.tracing != "none" else None
    input_fields = list(schema)[len(query.traced_schema) :]
    columns = {column.name: column for conjunct in query.deferred_conjuncts for column in conjunct.columns}
    size = max(1, most // (8 + 8 * len(schema)))
    for start in range(0, len(block), size):
        some = block.slice(start, min(size, len(block) - start))
        for _, part in table.pieces(some, {*query.output_columns, *columns.values()}, most):
            inputs = {**answers(part), **(_case(query, part) if query.optional else {})}
            inputs |= {n: part.column(c, table.gather) for n, c in columns.items() if c.stream in part.rows}
            values = [inputs.get(field.name, pa.nulls(len(part), field.type)) for field in input_fields]
            arrays = [*_trace_columns(part, traced), *_columns(query, part, table.gather), *values]
            # [!] mapInArrow does not cast: a block of another type kills the JVM with an opaque error.
            yield pa.RecordBatch.from_arrays(list(map(cast_column, arrays, schema.types)), schema=schema)


def _case(query: Query, block: Partials) -> dict[str, pa.Array]:
    """Return the columns by which Spark decides cases: number, role, whether it is whole, and the rank of its partner.

    A combination without a role claims that none of its pairs holds.
    """
    role = block.tags.get(ROLE, np.full(len(block), NONE))
    whole = pa.array(np.full(len(block), {*query.members, *query.optional} <= {*block.joined}))
    case = {CASE: pa.array(block.tags[CASE])} if CASE in block.tags else {}
    for stream in query.as_of_streams & {*block.joined}:
        case |= {NEWEST: pa.array(block.times[stream]), CONTENT: pa.array(block.tags[CONTENT])}
    return {**case, ROLE: pa.array(role), WHOLE: whole}


def _trace_columns(block: Partials, traces: Traces | None) -> list[pa.Array]:
    return [] if traces is None else [traces(block)]


def _columns(query: Query, block: Partials, gather: Gather) -> list[pa.Array]:
    """Return the columns of results: the outputs if the query names any, or else a struct per stream and the time."""
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
    """Return an output column; NULLs if the results have no member of its stream."""
    kind = query.type_of(column)
    if column.stream not in block.rows:
        return pa.nulls(len(block), kind)
    return cast_column(block.column(column, gather), kind)


@dataclass(slots=True)
class ResultWriter:
    """Writes the results of one task attempt; its files count only if the attempt's report does.

    Attributes:
        store: The store.
        schema: The output's schema.
        name: Unique to the task attempt.
        rows: How many rows were written.
        files: The paths of the files, in the store.
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
        """Append rows, cast to the schema; opens a file if none is open, and finishes it once it is large enough."""
        if self._writer is None:
            self._open()
        assert self._writer is not None
        rows = pa.RecordBatch.from_arrays(list(map(cast_column, rows.columns, self.schema.types)), schema=self.schema)
        self._writer.write_batch(rows, row_group_size=GROUP_ROWS)
        self.rows += rows.num_rows
        self._file_rows += rows.num_rows
        if self._file_rows >= limits().file_rows:
            self.close()

    def close(self) -> None:
        """Finish the current file, if any; call it after the last row."""
        if self._writer is not None and self._sink is not None:
            self._writer.close()
            self._sink.close()
        self._writer, self._sink, self._file_rows = None, None, 0

    def _open(self) -> None:
        """Create the next result file and its Parquet writer, and add the file to `files`."""
        path = f"{RESULTS}/{self.name}-{len(self.files)}.parquet"
        self.files.append(path)
        if self.store.local is not None:
            target = Path(self.store.local, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(str(target), "wb")
        else:
            system, full = self.store.remote(path)
            self._sink = system.open_output_stream(full)
        # Dictionaries of numbers cost more than all else and save nothing, once the pages are compressed.
        # [!] Spark's reader fails on dictionary-encoded arrays that contain NULLs.
        nested = any(pa.types.is_nested(field.type) for field in self.schema)
        texts = [] if nested else [field.name for field in self.schema if is_bulky(field.type)]
        self._writer = pq.ParquetWriter(self._sink, self.schema, compression="snappy", use_dictionary=texts or False)
