"""What streams have denied up to a batch: the rows of each that will not be accepted any more (D_k).

[!] It is enforced at intake, judged by the state after the batch before, as lateness is: a denied row is never joined.
Otherwise results would depend on what had been purged by then.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Mask
from watersmeet.formatting import value_at
from watersmeet.metadata.constraint_state import Promises, at
from watersmeet.metadata.constraints import (
    Clustering,
    Constraint,
    FlaggedPunctuations,
    ForeignKey,
    InheritedPunctuations,
    Key,
    SortOrder,
)
from watersmeet.metadata.frontiers import beyond, threshold
from watersmeet.metadata.mark_files import opened
from watersmeet.metadata.marks import Marks, Shape, merged
from watersmeet.predicate.model import Column
from watersmeet.query.query import Query
from watersmeet.state.store.store import Store

Source = tuple[int, Constraint]
"""A promise of a stream, by the stream's position."""


@dataclass(frozen=True, slots=True)
class Denied:
    """What was denied up to a batch.

    Attributes:
        query: The join.
        watermark: Its watermark; None for minus infinity.
        times: For each stream the event time before which its rows are denied; none before the first watermark.
        frontiers: For promised orders the value below which, or above which, rows are denied; none before the first.
        marks: For keys, clusters and punctuations the values and patterns that are denied, in one or more tables.
    """

    query: Query
    watermark: int | None = None
    times: Mapping[int, pa.Scalar] = field(default_factory=dict)
    frontiers: Mapping[Source, pa.Scalar] = field(default_factory=dict)
    marks: Mapping[Source, Sequence[Marks]] = field(default_factory=dict)

    def find(self, source: Source, values: Sequence[pa.Array]) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Return for each row the table, and the mark in it, by which its values are denied; -1 if by none."""
        tables = self.marks.get(source, ())
        table, mark = (np.full(len(values[0]), -1) for _ in "tm")
        if not tables:
            return table, mark
        asked = tables[0].shape.asked(values)
        for number, marks in enumerate(tables):
            found = marks.found(asked, self.watermark)
            new = found >= 0
            table[asked.rows[new]], mark[asked.rows[new]] = number, found[new]
            asked = asked.take(~new)
        return table, mark

    def holds(self, source: Source, lows: Sequence[pa.Array], highs: Sequence[pa.Array]) -> Mask:
        """Tell which intervals, one for each column that a promise is about, are denied as a whole."""
        tables, held = self.marks.get(source, ()), np.zeros(len(lows[0]), bool)
        for marks in tables:
            held |= marks.holds(lows, highs, self.watermark)
        if len(tables) > 1 and tables[0].shape.spanned:
            ends = [self.find(source, side)[1] >= 0 for side in (lows, highs)]
            left = pa.array(np.flatnonzero(ends[0] & ends[1] & ~held))
            if len(left):  # each end is denied, by different tables: what lies between them may be, by all together
                whole = Marks(tables[0].shape, merged(tables))
                low, high = ([column.take(left) for column in side] for side in (lows, highs))
                held[left.to_numpy()] = whole.holds(low, high, self.watermark)
        return held

    def judged(self, stream: int, rows: pa.RecordBatch) -> "Iterator[tuple[Mask, Constraint]]":
        """Yield for each promise of a stream which of some new rows it denies."""
        for promise in self.query.streams[stream].constraints:
            source = stream, promise
            values = [rows.column(f"s{stream}_{at}") for at in fields_of(promise)]
            if isinstance(promise, SortOrder):
                limit = self.frontiers.get(source)
                if limit is not None:
                    yield beyond(values[0], promise, limit), promise
            elif not isinstance(promise, ForeignKey) and self.marks.get(source):
                yield self.find(source, values)[1] >= 0, promise

    def reason(
        self, stream: int, promise: Constraint, rows: pa.RecordBatch, row: int, wanted: Collection[str] | None = None
    ) -> str:
        """Return why a promise denies a row, for people.

        Args:
            stream: The row's stream.
            promise: The promise.
            rows: Some rows.
            row: Which of them it is.
            wanted: The columns whose values may be shown, in small letters; None for all.
        """
        names, fields = self.query.streams[stream].schema.names, fields_of(promise)
        values = [rows.column(f"s{stream}_{at}").slice(row, 1) for at in fields]
        open_to_all = wanted is None or all(names[at].lower() in wanted for at in fields)
        told = [f" {value_at(value, 0)}" if open_to_all else "" for value in values]
        shown = ", ".join(f"{names[at]}{value}" for at, value in zip(fields, told, strict=True))
        if isinstance(promise, SortOrder):
            side, limit = "above" if promise.falling else "below", self.frontiers[stream, promise]
            reached = f"{value_at(pa.repeat(limit, 1), 0)}, which the order had reached"
            return f"{shown} lies {side} {reached if open_to_all else 'what the order had reached'}"
        table, mark = self.find((stream, promise), values)
        terms = self.marks[stream, promise][int(table[0])].terms
        first, last = int(terms.first[mark[0]]), int(terms.last[mark[0]])
        return (
            f"{shown} {_CLOSED[type(promise)]} in {f'batch {last}' if first == last else f'batches {first} to {last}'}"
        )


_CLOSED = {
    Key: "was seen before (key),",
    Clustering: "was over: the last of its run came",
    FlaggedPunctuations: "was closed by a punctuation",
    InheritedPunctuations: "was closed by a punctuation of the join",
}


def fields_of(promise: Constraint) -> tuple[int, ...]:
    """Return the columns that a promise is about."""
    match promise:
        case Key(fields) | InheritedPunctuations(_, fields):
            return fields
        case FlaggedPunctuations(_, patterns):
            return tuple(pattern.field for pattern in patterns)
        case Clustering(field) | SortOrder(field) | ForeignKey(field):
            return (field,)


def ranges_of(promise: Constraint) -> tuple[bool, ...]:
    """Return for each column that a promise is about whether it speaks of ranges, not of values."""
    match promise:
        case FlaggedPunctuations(_, patterns):
            return tuple(not pattern.constant for pattern in patterns)
        case InheritedPunctuations(_, _, ranges):
            return ranges
    return (False,) * len(fields_of(promise))


def shape_of(query: Query, source: Source) -> Shape:
    """Return what the marks of a promise look like."""
    stream, promise = source
    return Shape(tuple(query.type_of(Column(stream, at)) for at in fields_of(promise)), ranges_of(promise))


def denied(query: Query, store: Store, watermark: int | None, promises: Promises) -> Denied:
    """Return what was denied up to a batch.

    Args:
        query: The join.
        store: Where tables of marks are.
        watermark: The join's watermark after the batch.
        promises: What the promises of its streams have come to.
    """
    frontiers: dict[Source, pa.Scalar] = {}
    marks: dict[Source, list[Marks]] = {}
    for stream, spec in enumerate(query.streams):
        for number, promise in enumerate(spec.constraints):
            source, known = (stream, promise), at(promises, stream, number)
            if isinstance(promise, SortOrder):
                limit = threshold(promise, known.frontier, query.type_of(Column(stream, promise.field)))
                frontiers |= {} if limit is None else {source: limit}
            elif known.files:
                shape = shape_of(query, source)
                marks[source] = [opened(store, file, shape) for file in known.files]
    return Denied(query, watermark, times_before(query, watermark), frontiers, marks)


def times_before(query: Query, watermark: int | None) -> dict[int, pa.Scalar]:
    """Return for each stream the event time before which its rows are late, in the type of its event times."""
    if watermark is None:
        return {}
    time = pa.scalar(watermark, pa.int64())
    return {at: time.cast(stream.time_type) for at, stream in enumerate(query.streams)}
