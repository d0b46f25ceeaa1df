"""Denial: the rows of each stream that are not accepted any more after a batch (D_k).

[!] Like lateness it is decided at intake, by the state after the batch before: a denied row is never joined. Otherwise
results would depend on what had been purged by then.

What is denied by value is in files of marks, which this module also writes, opens and merges.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Mask
from watersmeet.formatting import value_at
from watersmeet.limits import limits
from watersmeet.metadata.constraints import (
    MARKS,
    Clustering,
    Constraint,
    ConstraintStates,
    FlaggedPunctuations,
    ForeignKey,
    InheritedPunctuations,
    Key,
    MarkFile,
    SortOrder,
    fields_of,
    ranges_of,
    state_of,
)
from watersmeet.metadata.marks import Marks, MarkShape, merge_tables
from watersmeet.metadata.spans import compute_threshold, lie_beyond
from watersmeet.predicate.model import Column
from watersmeet.query.query import Query
from watersmeet.state.store.file_format import digest, encode
from watersmeet.state.store.store import FileCache, Store

OPEN_MARKS: FileCache[Marks] = FileCache(4)
"""The tables of marks that this process has open: memory-mapped, as they are written once."""
StreamConstraint = tuple[int, Constraint]
"""A constraint with the position of its stream."""


@dataclass(frozen=True, slots=True)
class DeniedRows:
    """The rows that streams deny after a batch.

    Attributes:
        query: The join.
        watermark: Its watermark; None for minus infinity.
        times: For each stream the event time before which its rows are late; empty before the first watermark.
        frontiers: For sort orders the value beyond which rows are denied; missing before the first.
        marks: For keys, clusterings and punctuations the values and patterns that are denied, in one or more tables.
    """

    query: Query
    watermark: int | None = None
    times: Mapping[int, pa.Scalar] = field(default_factory=dict)
    frontiers: Mapping[StreamConstraint, pa.Scalar] = field(default_factory=dict)
    marks: Mapping[StreamConstraint, Sequence[Marks]] = field(default_factory=dict)

    def find_marks(
        self, source: StreamConstraint, values: Sequence[pa.Array]
    ) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Return for each row the first table, and the mark in it, that denies its values; both -1 if none does.

        Sort orders have no marks: see `frontiers`.
        """
        tables = self.marks.get(source, ())
        table, mark = (np.full(len(values[0]), -1) for _ in "tm")
        if not tables:
            return table, mark
        lookup = tables[0].shape.prepare(values)
        for number, marks in enumerate(tables):
            matches = marks.find_prepared(lookup, self.watermark)
            new = matches >= 0
            table[lookup.rows[new]], mark[lookup.rows[new]] = number, matches[new]
            lookup = lookup.take(~new)
        return table, mark

    def covers(self, source: StreamConstraint, lows: Sequence[pa.Array], highs: Sequence[pa.Array]) -> Mask:
        """Tell which intervals, one for each column of a constraint, are denied entirely."""
        tables, covered = self.marks.get(source, ()), np.zeros(len(lows[0]), bool)
        for marks in tables:
            covered |= marks.covers(lows, highs, self.watermark)
        if len(tables) > 1 and tables[0].shape.uses_spans:
            ends = [self.find_marks(source, side)[1] >= 0 for side in (lows, highs)]
            undecided = pa.array(np.flatnonzero(ends[0] & ends[1] & ~covered))
            if len(undecided):  # different tables deny the two ends: together they may deny all between
                whole = Marks(tables[0].shape, merge_tables(tables))
                low, high = ([column.take(undecided) for column in side] for side in (lows, highs))
                covered[undecided.to_numpy()] = whole.covers(low, high, self.watermark)
        return covered

    def find_denied(self, stream: int, rows: pa.RecordBatch) -> "Iterator[tuple[Mask, Constraint]]":
        """Yield each constraint that can deny rows of a stream so far, behind a mask of the new rows that it denies.

        Foreign keys deny none.
        """
        for constraint in self.query.streams[stream].constraints:
            source = stream, constraint
            values = [rows.column(f"s{stream}_{at}") for at in fields_of(constraint)]
            if isinstance(constraint, SortOrder):
                limit = self.frontiers.get(source)
                if limit is not None:
                    yield lie_beyond(values[0], constraint, limit), constraint
            elif not isinstance(constraint, ForeignKey) and self.marks.get(source):
                yield self.find_marks(source, values)[1] >= 0, constraint

    def describe_denial(
        self,
        stream: int,
        constraint: Constraint,
        rows: pa.RecordBatch,
        row: int,
        visible: Collection[str] | None = None,
    ) -> str:
        """Return in words why a constraint denies a row; it must be one that `find_denied` found.

        Args:
            stream: The row's stream.
            constraint: The constraint.
            rows: A block of rows.
            row: The position of the row in the block.
            visible: The columns whose values may be shown, in lower case; None for all.
        """
        names, fields = self.query.streams[stream].schema.names, fields_of(constraint)
        values = [rows.column(f"s{stream}_{at}").slice(row, 1) for at in fields]
        is_visible = visible is None or all(names[at].lower() in visible for at in fields)
        texts = [f" {value_at(value, 0)}" if is_visible else "" for value in values]
        subject = ", ".join(f"{names[at]}{text}" for at, text in zip(fields, texts, strict=True))
        if isinstance(constraint, SortOrder):
            side, limit = "above" if constraint.falling else "below", self.frontiers[stream, constraint]
            reached = f"{value_at(pa.repeat(limit, 1), 0)}, which the order had reached"
            return f"{subject} lies {side} {reached if is_visible else 'what the order had reached'}"
        table, mark = self.find_marks((stream, constraint), values)
        terms = self.marks[stream, constraint][int(table[0])].terms
        first, last = int(terms.first[mark[0]]), int(terms.last[mark[0]])
        batches = f"batch {last}" if first == last else f"batches {first} to {last}"
        return f"{subject} {_REASONS[type(constraint)]} in {batches}"


_REASONS = {
    Key: "was seen before (key),",
    Clustering: "was over: the last of its run came",
    FlaggedPunctuations: "was closed by a punctuation",
    InheritedPunctuations: "was closed by a punctuation of the join",
}


def shape_of(query: Query, source: StreamConstraint) -> MarkShape:
    """Return the columns of a constraint's marks."""
    stream, constraint = source
    return MarkShape(tuple(query.type_of(Column(stream, at)) for at in fields_of(constraint)), ranges_of(constraint))


def load_denied_rows(query: Query, store: Store, watermark: int | None, states: ConstraintStates) -> DeniedRows:
    """Return the rows that streams deny after a batch; this opens the tables of marks.

    Args:
        query: The join.
        store: The store that holds the tables of marks.
        watermark: The join's watermark after the batch.
        states: The states of the constraints of all streams.
    """
    frontiers: dict[StreamConstraint, pa.Scalar] = {}
    marks: dict[StreamConstraint, list[Marks]] = {}
    for stream, spec in enumerate(query.streams):
        for number, constraint in enumerate(spec.constraints):
            source, state = (stream, constraint), state_of(states, stream, number)
            if isinstance(constraint, SortOrder):
                limit = compute_threshold(constraint, state.frontier, query.type_of(Column(stream, constraint.field)))
                frontiers |= {} if limit is None else {source: limit}
            elif state.files:
                shape = shape_of(query, source)
                marks[source] = [open_marks(store, file, shape) for file in state.files]
    return DeniedRows(query, watermark, late_times(query, watermark), frontiers, marks)


def late_times(query: Query, watermark: int | None) -> dict[int, pa.Scalar]:
    """Return for each stream the event time before which its rows are late, in its type; empty if there is none."""
    if watermark is None:
        return {}
    time = pa.scalar(watermark, pa.int64())
    return {at: time.cast(stream.time_type) for at, stream in enumerate(query.streams)}


def write_table(store: Store, name: str, table: pa.RecordBatch) -> MarkFile:
    """Write a table to a file whose name is never used again, and return the file."""
    data, _ = encode([table])
    path = f"{MARKS}/{name}-{digest(data)}.marks"
    store.write(path, data)
    return MarkFile(path, table.num_rows, len(data))


def read_table(store: Store, file: MarkFile) -> pa.RecordBatch:
    """Return the table in a file.

    Raises:
        StateError: If its file is missing or damaged.
    """
    return pa.ipc.open_stream(store.map_digested(file.path)).read_next_batch()


def open_marks(store: Store, file: MarkFile, shape: MarkShape) -> Marks:
    """Return the marks of a file, ready for lookups; the file stays open for later calls."""
    return OPEN_MARKS.load(store, file.path, lambda: Marks(shape, read_table(store, file)), lambda marks: marks.nbytes)


def coalesce_files(store: Store, name: str, files: tuple[MarkFile, ...], shape: MarkShape) -> tuple[MarkFile, ...]:
    """Return files that replace mark files: those of similar size and the same era are merged once there are enough.

    Merging writes new files, whose names begin with `name`, and removes none.
    """
    tiers: dict[tuple[int, int | None], list[MarkFile]] = {}
    for file in files:
        tiers.setdefault((_tier(file.rows), file.era), []).append(file)
    merged: list[MarkFile] = []
    for number, ((_, era), tier) in enumerate(tiers.items()):
        if len(tier) < limits().merged_chunks:
            merged += tier
            continue
        table = merge_tables([open_marks(store, file, shape) for file in tier])
        merged.append(write_table(store, f"{name}-t{number}", table)._replace(era=era))
    return tuple(merged)


def _tier(rows: int) -> int:
    base, size = limits().merged_chunks, max(1, rows // max(1, limits().tier_rows))
    return int(np.log(size) / np.log(max(2, base)))
