"""Near-misses as people read them: the values that a conjunct refused, and the event times of the rows."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from watersmeet.batch.side_outputs import text_of
from watersmeet.formatting import abbreviate, sanitize, value_at
from watersmeet.predicate.model import Column, ComparedValue, Conjunct
from watersmeet.probe.chunk_table import ChunkTable
from watersmeet.probe.evaluators.compared_values import is_informative
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.near_miss_search import ConjunctNearMisses
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import TIME

Miss = dict[str, Any]
"""A near-miss: the values that the conjunct compares, by their text, and for each stream those of some columns."""
Misses = dict[str, list[Miss]]
"""Near-misses by the text of the conjunct that refused them."""
MOST_LISTED = 2
"""The near-misses that are listed under their test."""


def render_samples(
    query: Query,
    table: ChunkTable,
    hops: Mapping[Hop, Mapping[str, ConjunctNearMisses]],
    shown_columns: frozenset[str] | None,
) -> dict[Hop, Misses]:
    """Return near-misses as samples of rows; reads the columns to show from the chunks.

    Args:
        query: The join.
        table: The chunks that hold the rows.
        hops: The near-misses, by hop and by conjunct.
        shown_columns: The columns to show, in lower case; None for all.
    """
    return {
        hop: {text: _render_sample(query, table, near_misses, shown_columns) for text, near_misses in misses.items()}
        for hop, misses in hops.items()
    }


def _render_sample(
    query: Query, table: ChunkTable, near_misses: ConjunctNearMisses, shown_columns: frozenset[str] | None
) -> list[Miss]:
    """Return the near-misses of a conjunct as text, leaving out those of which nothing may be shown."""
    misses: list[Miss] = [
        {value.text: text for value, text in compared.items() if _may_show(query, value, shown_columns)}
        for compared in near_misses.values
    ]
    for stream in sorted(near_misses.rows[0]) if misses else ():
        spec, refs = query.streams[stream], np.array([rows[stream] for rows in near_misses.rows], np.int64)
        for name, column in _columns_to_show(query, stream, near_misses.conjunct, shown_columns):
            values, is_time = table.gather(column, refs), query.is_time(column)
            values = values.cast("int64") if is_time else values
            for at, miss in enumerate(misses):
                value = text_of(spec, TIME if is_time else column.name, value_at(values, at))
                miss.setdefault(spec.name, {})[name] = value
    return [miss for miss in misses if miss]


def _may_show(query: Query, value: ComparedValue, shown_columns: frozenset[str] | None) -> bool:
    """Tell whether a value that a conjunct compares is shown: it must tell something, and all its columns be shown."""
    own = [c for c in value.columns if c.field < len(query.streams[c.stream].schema)]
    names = {query.streams[c.stream].schema.field(c.field).name.lower() for c in own}
    is_allowed = shown_columns is None or (len(own) == len(value.columns) and names <= shown_columns)
    return is_allowed and is_informative(query, value)


def _columns_to_show(
    query: Query, stream: int, conjunct: Conjunct, shown_columns: frozenset[str] | None
) -> Iterator[tuple[str, Column]]:
    """Yield the columns of a stream that a near-miss shows, by name: those that the conjunct reads, then its time.

    Hidden columns go by their text; they are shown only where all columns are, and nothing shown is computed from them.
    Tables have no times.
    """
    spec = query.streams[stream]
    time, own_count = Column(stream, spec.time), len(spec.schema)
    inside = {c for value in conjunct.comparing.values for c in value.columns if not query.is_named(c)}
    own = sorted({c for c in conjunct.columns if c.stream == stream and c != time and c not in query.flags} - inside)
    for column in (*own, *(() if spec.table else (time,))):
        name = spec.schema.field(column.field).name if column.field < own_count else query.name_of(column)
        if shown_columns is None or (column.field < own_count and name.lower() in shown_columns):
            yield name, column


def merge_misses(parts: Iterable[Misses]) -> Misses:
    """Return the near-misses of several tasks together, without duplicates."""
    merged: dict[str, dict[str, Miss]] = {}
    for part in parts:
        for text, misses in part.items():
            merged.setdefault(text, {}).update({repr(miss): miss for miss in misses})
    return {text: list(misses.values()) for text, misses in merged.items()}


def describe_near_misses(test: Mapping[str, Any]) -> list[str]:
    """Return a few near-misses of a test, a line each: the values that it read.

    >>> miss = {"a.x - b.x": "-2.0", "a": {"x": "3.0", "ts": "2026-01-01T12:00:00.000Z"}, "b": {"x": "5.0"}}
    >>> describe_near_misses({"name": "a.x - b.x > 0", "missed": [miss]})
    ['nearly: a.x - b.x = -2.0 (a.x = 3.0, b.x = 5.0)']
    """
    return [f"nearly: {_describe_miss(test['name'], miss)}" for miss in test.get("missed", ())[:MOST_LISTED]]


def _describe_miss(text: str, miss: Miss) -> str:
    """Return a near-miss in words: what the conjunct compared, and the values of the columns that it names."""
    terms = [f"{abbreviate(name)} = {sanitize(value, '')}" for name, value in miss.items() if isinstance(value, str)]
    streams = {stream: row for stream, row in miss.items() if not isinstance(row, str)}
    values = [(stream, name, value) for stream, row in streams.items() for name, value in row.items()]
    relevant = [value for value in values if value[1].lower() in text.lower()] or values
    columns = ", ".join(f"{_column_name(stream, name)} = {sanitize(value, '')}" for stream, name, value in relevant)
    return f"{', '.join(terms)} ({columns})" if terms and columns else columns or ", ".join(terms)


def _column_name(stream: str, name: str) -> str:
    """Return a column as people write it; computed columns already name their stream."""
    return name if f"{stream}." in name else f"{stream}.{name}"
