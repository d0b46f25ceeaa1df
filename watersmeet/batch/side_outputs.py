"""Side outputs: rows that take no part in the join are counted, sampled and, if asked for, written to folders."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.formatting import format_time, value_at
from watersmeet.query.query import StreamSpec
from watersmeet.state.chunks.chunk import TIME
from watersmeet.state.store.store import Store

SIDES = ("late", "rejected", "denied", "orphan", "punctuation")
"""The kinds: three of rows that are not admitted, rows without a parent, and punctuations of the output."""
SAMPLES = 3
"""How many sample rows there are per cause."""


def original_rows(spec: StreamSpec, stream: int, rows: pa.RecordBatch) -> pa.Table:
    """Return rows of a stream in their source's schema; columns that the join did not read are NULL."""
    names = rows.schema.names

    def column(at: int) -> pa.Array:
        kind, name = spec.schema.field(at).type, f"s{stream}_{at}"
        if at == spec.time:
            return rows.column(TIME).cast(kind)
        return rows.column(name) if name in names else pa.nulls(rows.num_rows, kind)

    return pa.Table.from_arrays([column(at) for at in range(len(spec.schema))], schema=spec.schema)


def sample_row(
    spec: StreamSpec, stream: int, rows: pa.RecordBatch, at: int, columns: frozenset[str] | None
) -> dict[str, str]:
    """Return a row as samples show it: the text of each column, by name.

    Args:
        spec: Its stream.
        stream: The stream's position.
        rows: Rows of the stream.
        at: Which of them.
        columns: The columns to show, in lower case; None for all.
    """
    names = {f"s{stream}_{field}": name for field, name in enumerate(spec.schema.names) if field != spec.time}
    names |= {TIME: spec.schema.field(spec.time).name, **_punctuation_columns(spec, stream, rows, at)}
    visible = [c for c in rows.schema.names if c in names and (columns is None or names[c].lower() in columns)]
    return {names[column]: text_of(spec, column, value_at(rows.column(column), at)) for column in visible}


def text_of(spec: StreamSpec, column: str, value: Any) -> str:
    """Return a value as samples show it: short, and the event time (`TIME`, in microseconds) as a moment."""
    if column == TIME and value is not None:
        return format_time(value, spec.time_type.tz is not None)
    return str(value)[:60]


def _punctuation_columns(spec: StreamSpec, stream: int, rows: pa.RecordBatch, row: int) -> dict[str, str]:
    """Return the pattern columns of a punctuation that comes from a frame of its own: their names in that frame."""
    hidden = {
        f"s{stream}_{at}": column for at, column in enumerate(spec.hidden, len(spec.schema)) if column.punctuation
    }
    here = [name for name in hidden if name in rows.schema.names and rows.column(name)[row].is_valid]
    return {name: hidden[name].text for name in here if not pa.types.is_boolean(hidden[name].type)}


def write(store: Store, path: str, rows: pa.Table) -> None:
    """Write rows as Parquet."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    store.write(path, sink.getvalue())
