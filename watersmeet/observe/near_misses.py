"""Near-misses as people see them: the values that a conjunct refused, and when the rows happened."""

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
from watersmeet.state.chunks.rows import TIME

Miss = dict[str, Any]
"""A near-miss: the values that the conjunct compares, by their text, and for each stream those of some columns."""
Misses = dict[str, list[Miss]]
"""Near-misses by the text of the conjunct that refused them."""
NEARLY = 2
"""How many are shown in a line each, under their test."""


def shown(
    query: Query, table: ChunkTable, hops: Mapping[Hop, Mapping[str, ConjunctNearMisses]], wanted: frozenset[str] | None
) -> dict[Hop, Misses]:
    """Return near-misses as samples show rows.

    Args:
        query: The join.
        table: The chunks that hold the rows.
        hops: What was found, by hop and by conjunct.
        wanted: The columns to show, in small letters; None for all.
    """
    return {
        hop: {text: _shown(query, table, missed, wanted) for text, missed in found.items()}
        for hop, found in hops.items()
    }


def _shown(query: Query, table: ChunkTable, missed: ConjunctNearMisses, wanted: frozenset[str] | None) -> list[Miss]:
    """Return the near-misses of a conjunct of which something may be shown."""
    made: list[Miss] = [
        {value.text: text for value, text in compared.items() if _may_show(query, value, wanted)}
        for compared in missed.values
    ]
    for stream in sorted(missed.rows[0]) if made else ():
        spec, refs = query.streams[stream], np.array([rows[stream] for rows in missed.rows], np.int64)
        for name, column in _named(query, stream, missed.conjunct, wanted):
            values, is_time = table.gather(column, refs), query.is_time(column)
            values = values.cast("int64") if is_time else values
            for at, miss in enumerate(made):
                value = text_of(spec, TIME if is_time else column.name, value_at(values, at))
                miss.setdefault(spec.name, {})[name] = value
    return [miss for miss in made if miss]


def _may_show(query: Query, value: ComparedValue, wanted: frozenset[str] | None) -> bool:
    """Tell whether a value that a conjunct compares is shown: not if it reads a column that is not."""
    own = [c for c in value.columns if c.field < len(query.streams[c.stream].schema)]
    names = {query.streams[c.stream].schema.field(c.field).name.lower() for c in own}
    allowed = wanted is None or (len(own) == len(value.columns) and names <= wanted)
    return allowed and is_informative(query, value)


def _named(
    query: Query, stream: int, conjunct: Conjunct, wanted: frozenset[str] | None
) -> Iterator[tuple[str, Column]]:
    """Yield the columns of a stream that a near-miss shows, by name: those that are read, then its event time.

    What Spark computes when a tuple comes in goes by its text, where everything may be shown and what is computed from
    it is not. A table has no times.
    """
    spec = query.streams[stream]
    time, known = Column(stream, spec.time), len(spec.schema)
    inside = {c for value in conjunct.comparing.values for c in value.columns if not query.is_named(c)}
    mine = sorted({c for c in conjunct.columns if c.stream == stream and c != time and c not in query.flags} - inside)
    for column in (*mine, *(() if spec.table else (time,))):
        name = spec.schema.field(column.field).name if column.field < known else query.name_of(column)
        if wanted is None or (column.field < known and name.lower() in wanted):
            yield name, column


def together(parts: Iterable[Misses]) -> Misses:
    """Return the near-misses of several tasks as one; what looks alike is shown once."""
    found: dict[str, dict[str, Miss]] = {}
    for part in parts:
        for text, misses in part.items():
            found.setdefault(text, {}).update({repr(miss): miss for miss in misses})
    return {text: list(misses.values()) for text, misses in found.items()}


def nearly(test: Mapping[str, Any]) -> list[str]:
    """Return a few near-misses of a test in a line each: the values that it read.

    >>> miss = {"a.x - b.x": "-2.0", "a": {"x": "3.0", "ts": "2026-01-01T12:00:00.000Z"}, "b": {"x": "5.0"}}
    >>> nearly({"name": "a.x - b.x > 0", "missed": [miss]})
    ['nearly: a.x - b.x = -2.0 (a.x = 3.0, b.x = 5.0)']
    """
    return [f"nearly: {_line(test['name'], miss)}" for miss in test.get("missed", ())[:NEARLY]]


def _line(text: str, miss: Miss) -> str:
    compared = [f"{abbreviate(name)} = {sanitize(value, '')}" for name, value in miss.items() if isinstance(value, str)]
    streams = {stream: part for stream, part in miss.items() if not isinstance(part, str)}
    values = [(stream, name, value) for stream, part in streams.items() for name, value in part.items()]
    read = [(stream, name, value) for stream, name, value in values if name.lower() in text.lower()]
    columns = ", ".join(f"{_told(stream, name)} = {sanitize(value, '')}" for stream, name, value in read or values)
    return f"{', '.join(compared)} ({columns})" if compared and columns else columns or ", ".join(compared)


def _told(stream: str, name: str) -> str:
    """Return a column as people write it; what was computed names its stream itself."""
    return name if f"{stream}." in name else f"{stream}.{name}"
