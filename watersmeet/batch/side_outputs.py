"""Side outputs: rows that are not joined but told of, counted, sampled and written to folders of their own."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.formatting import format_time, value_at
from watersmeet.query.query import StreamSpec
from watersmeet.state.chunks.rows import TIME
from watersmeet.state.store.store import Store

SIDES = ("late", "rejected", "denied", "orphan", "punctuation")
"""What is told of: three kinds of rows that are not taken, those without a partner, and punctuations of the output."""
SAMPLES = 3
"""How many rows are shown for each reason."""


def original(spec: StreamSpec, stream: int, rows: pa.RecordBatch) -> pa.Table:
    """Return rows of a stream with the columns that they came with; those that were left behind are NULL."""
    names = rows.schema.names

    def column(at: int) -> pa.Array:
        kind, name = spec.schema.field(at).type, f"s{stream}_{at}"
        if at == spec.time:
            return rows.column(TIME).cast(kind)
        return rows.column(name) if name in names else pa.nulls(rows.num_rows, kind)

    return pa.Table.from_arrays([column(at) for at in range(len(spec.schema))], schema=spec.schema)


def shown(
    spec: StreamSpec, stream: int, rows: pa.RecordBatch, at: int, wanted: frozenset[str] | None
) -> dict[str, str]:
    """Return a row as samples show it.

    Args:
        spec: Its stream.
        stream: The stream's position.
        rows: Rows of the stream.
        at: Which of them.
        wanted: The columns to show, in small letters; None for all.
    """
    names = {f"s{stream}_{field}": name for field, name in enumerate(spec.schema.names) if field != spec.time}
    names |= {TIME: spec.schema.field(spec.time).name, **_told(spec, stream, rows, at)}
    columns = [c for c in rows.schema.names if c in names and (wanted is None or names[c].lower() in wanted)]
    return {names[column]: text_of(spec, column, value_at(rows.column(column), at)) for column in columns}


def text_of(spec: StreamSpec, column: str, value: Any) -> str:
    """Return a value as samples show it: short, and the event time (`TIME`, in microseconds) as a moment."""
    if column == TIME and value is not None:
        return format_time(value, spec.time_type.tz is not None)
    return str(value)[:60]


def _told(spec: StreamSpec, stream: int, rows: pa.RecordBatch, row: int) -> dict[str, str]:
    """Return the columns in which a punctuation from a frame of its own says something, with the frame's names."""
    hidden = {f"s{stream}_{at}": found for at, found in enumerate(spec.hidden, len(spec.schema)) if found.told}
    here = [name for name in hidden if name in rows.schema.names and rows.column(name)[row].is_valid]
    return {name: hidden[name].text for name in here if not pa.types.is_boolean(hidden[name].type)}


def write(store: Store, path: str, rows: pa.Table) -> None:
    """Write rows as Parquet."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    store.write(path, sink.getvalue())
