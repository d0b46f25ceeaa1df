"""Near-misses as people see them: the values that a conjunct refused, and when the rows happened."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from watersmeet.engine.sides import text_of
from watersmeet.kernel.missed import Missed
from watersmeet.kernel.steps import Hop
from watersmeet.kernel.table import ChunkTable
from watersmeet.model.query import Query
from watersmeet.predicate.model import Column
from watersmeet.show import plain
from watersmeet.state.rows import TIME

Miss = dict[str, dict[str, str]]
"""A near-miss: for each stream the values of some columns."""
Misses = dict[str, list[Miss]]
"""Near-misses by the text of the conjunct that refused them."""
NEARLY = 2
"""How many are shown in a line each, under their test."""


def shown(
    query: Query, table: ChunkTable, hops: Mapping[Hop, Mapping[str, Missed]], wanted: frozenset[str] | None
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


def _shown(query: Query, table: ChunkTable, missed: Missed, wanted: frozenset[str] | None) -> list[Miss]:
    """Return the near-misses of a conjunct of which something may be shown."""
    made: list[Miss] = [{} for _ in missed.found]
    for stream in sorted(missed.found[0]) if made else ():
        spec, refs = query.streams[stream], np.array([rows[stream] for rows in missed.found], np.int64)
        for name, column in _named(query, stream, missed.conjunct.columns, wanted):
            values, is_time = table.gather(column, refs), query.is_time(column)
            values = values.cast("int64") if is_time else values
            for at, miss in enumerate(made):
                value = text_of(spec, TIME if is_time else column.name, plain(values, at))
                miss.setdefault(spec.name, {})[name] = value
    return [miss for miss in made if miss]


def _named(
    query: Query, stream: int, read: Collection[Column], wanted: frozenset[str] | None
) -> Iterator[tuple[str, Column]]:
    """Yield the columns of a stream that a near-miss shows, by name: those that are read, then its event time.

    What Spark computes when a tuple comes in goes by its text, where everything may be shown. A table has no times.
    """
    spec = query.streams[stream]
    time, known = Column(stream, spec.time), len(spec.schema)
    mine = sorted(column for column in read if column.stream == stream and column != time)
    for column in (*mine, *(() if spec.table else (time,))):
        if column.field < known:
            name = spec.schema.field(column.field).name
            if wanted is None or name.lower() in wanted:
                yield name, column
        elif wanted is None and not (hidden := spec.hidden[column.field - known]).failed:
            yield hidden.text, column


def together(parts: Iterable[Misses]) -> Misses:
    """Return the near-misses of several tasks as one; what looks alike is shown once."""
    found: dict[str, dict[str, Miss]] = {}
    for part in parts:
        for text, misses in part.items():
            found.setdefault(text, {}).update({repr(miss): miss for miss in misses})
    return {text: list(misses.values()) for text, misses in found.items()}


def nearly(test: Mapping[str, Any]) -> list[str]:
    """Return a few near-misses of a test in a line each: the values that it read.

    >>> miss = {"a": {"x": "3.0", "ts": "2026-01-01T12:00:00.000Z"}, "b": {"x": "5.0"}}
    >>> nearly({"name": "a.x > b.x", "missed": [miss]})
    ['nearly: a.x = 3.0, b.x = 5.0']
    """
    return [f"nearly: {_line(test['name'], miss)}" for miss in test.get("missed", ())[:NEARLY]]


def _line(text: str, miss: Miss) -> str:
    values = [(stream, name, value) for stream, part in miss.items() for name, value in part.items()]
    read = [(stream, name, value) for stream, name, value in values if name.lower() in text.lower()]
    return ", ".join(f"{_told(stream, name)} = {_printable(value)}" for stream, name, value in read or values)


def _printable(value: str) -> str:
    """Return a value as one line that tells a terminal nothing."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value)


def _told(stream: str, name: str) -> str:
    """Return a column as people write it; what was computed names its stream itself."""
    return name if f"{stream}." in name else f"{stream}.{name}"
