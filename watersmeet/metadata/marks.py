"""Marks: the values that a constraint denies, as exact sets that grow.

The marks of a constraint are the rows of an immutable Arrow table, sorted so that a lookup takes time proportional to
the number of values and to the logarithm of the number of marks. Marks over a single column whose values are ordered
become disjoint spans; all others are found by a hash, which only proposes candidates, and then compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.arrays import Ints, Mask
from watersmeet.caching import cached_property
from watersmeet.errors import AFRESH, DefinitionError, StateError
from watersmeet.limits import limits
from watersmeet.metadata.spans import (
    ALWAYS,
    MarkTerms,
    Spans,
    are_at_most,
    are_equal,
    exact_type,
    exact_values,
    group_rows,
    hash_rows,
)
from watersmeet.predicate.types import spark_name

__all__ = ["ALWAYS", "MarkShape", "MarkTerms", "Marks", "build_table", "merge_tables"]

ArrowValues: TypeAlias = pa.Array | pa.ChunkedArray
_HASH, _OPEN = "hash", "open"


@dataclass(frozen=True, slots=True)
class MarkShape:
    """The columns of a constraint's marks.

    Attributes:
        types: The Arrow types of the columns.
        ranges: For each column, whether a mark holds an inclusive range instead of a single value.

    Raises:
        DefinitionError: If there is no column, or one whose values can't be compared.
    """

    types: tuple[pa.DataType, ...]
    ranges: tuple[bool, ...]

    def __post_init__(self) -> None:
        """Check the columns' types.

        Raises:
            DefinitionError: If there is no column, or one that can't be marked.
        """
        if not self.types or len(self.types) != len(self.ranges):
            raise DefinitionError(
                "Marks have one column or more, and for each column one type and one flag for ranges; there are "
                f"{len(self.types)} types and {len(self.ranges)} flags."
            )
        for kind in self.types:
            if exact_type(kind) is None:
                raise DefinitionError(
                    f"No marks can be made of a column of type {spark_name(kind)}; booleans, whole and real numbers, "
                    "decimals, texts, binaries, dates and timestamps in microseconds can be marked."
                )

    @property
    def uses_spans(self) -> bool:
        """Whether marks are disjoint spans of one column: ranges, or values with immediate neighbours."""
        return len(self.types) == 1 and (self.ranges[0] or exact_type(self.types[0]) == pa.int64())

    @property
    def schema(self) -> pa.Schema:
        """The schema of a table of such marks."""
        fields = [] if self.uses_spans else [(_HASH, pa.uint64())]
        for at, kind in enumerate(map(exact_type, self.types)):
            both = self.uses_spans or self.ranges[at]
            fields += [(f"low{at}", kind), (f"high{at}", kind)] if both else [(f"value{at}", kind)]
        if self.uses_spans and fields[0][1] != pa.int64():
            fields.append((_OPEN, pa.int8()))
        return pa.schema([*fields, *((name, pa.int64()) for name in MarkTerms._fields)])

    def check_columns(self, values: Sequence[ArrowValues]) -> list[pa.Array]:
        """Return the columns of some rows, each as one array.

        Raises:
            DefinitionError: If they are not of the types of the marks.
        """
        if (types := [column.type for column in values]) != list(self.types):
            raise DefinitionError(
                f"The marks are of types {_list_types(self.types)}, the values of types {_list_types(types)}."
            )
        return [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in values]

    def prepare(self, values: Sequence[ArrowValues]) -> "Lookup":
        """Return values prepared for lookups.

        Raises:
            DefinitionError: If they are not of the types of the marks.
        """
        columns = self.check_columns(values)
        rows = np.flatnonzero(_are_complete(columns))
        ready = [exact_values(_take(column, rows)) for column in columns]
        hashes = None if self.uses_spans else hash_rows(_constants(self, ready), len(rows))
        if hashes is None and ready[0].type != pa.int64():
            return Lookup(len(columns[0]), rows, ready, None)
        # In rising order neighbours find most of their way in the processor's cache.
        order = np.argsort(ready[0].to_numpy() if hashes is None else hashes)
        ready = [column.take(pa.array(order)) for column in ready]
        return Lookup(len(columns[0]), rows[order], ready, None if hashes is None else hashes[order])


class Lookup(NamedTuple):
    """Values to look up in marks, prepared once for all tables of a shape.

    Attributes:
        size: How many rows there were, including those with a NULL.
        rows: The rows without a NULL, in the order in which they are best looked up.
        values: The columns of these rows, as marks hold them.
        hashes: Their hashes; None if the marks are spans.
    """

    size: int
    rows: Ints
    values: list[pa.Array]
    hashes: Any

    def take(self, chosen: Mask) -> "Lookup":
        """Return the chosen rows, in the same order."""
        rest = np.flatnonzero(chosen)
        if len(rest) == len(self.rows):
            return self
        values = [column.take(pa.array(rest)) for column in self.values]
        return Lookup(self.size, self.rows[rest], values, None if self.hashes is None else self.hashes[rest])


@dataclass(frozen=True)
class Marks:
    """A table of marks, ready for lookups; `build_table` and `merge_tables` create such tables.

    Attributes:
        shape: The columns of the marks.
        table: The marks; those of a memory-mapped file are not copied.

    Raises:
        StateError: If the table isn't of that shape.

    >>> shape = Shape((pa.int64(),), (False,))
    >>> values = pa.array([1, 2, 3, None, 7])
    >>> marks = Marks(shape, build_table(shape, [values], [values], batch=4))
    >>> marks.find([pa.array([2, 5, 7, None])]).tolist()
    [0, -1, 1, -1]
    >>> marks.covers([pa.array([1, 3])], [pa.array([3, 7])]).tolist()
    [True, False]
    """

    shape: MarkShape
    table: pa.RecordBatch

    def __post_init__(self) -> None:
        """Check the table's schema.

        Raises:
            StateError: If it is not that of the shape.
        """
        if self.table.schema != self.shape.schema:
            raise StateError(
                f"Marks of {_list_types(self.shape.types)} can't be read from a table of "
                f"{_list_types(self.table.schema.types)}; restore it or {AFRESH}."
            )

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def nbytes(self) -> int:
        """The size of the marks in bytes."""
        return int(self.table.nbytes)

    @cached_property
    def terms(self) -> MarkTerms:
        """When each mark takes effect, and in which batches it was made."""
        return MarkTerms(*(self.table.column(name).to_numpy() for name in MarkTerms._fields))

    def find(self, values: Sequence[ArrowValues], watermark: int | None = None) -> Ints:
        """Return for each row the position of a mark in effect that covers it, -1 if there is none.

        A row with a NULL is covered by none. A mark is in effect if its `since` is ALWAYS or before the watermark.

        Raises:
            DefinitionError: If the values are not of the types of the marks.
        """
        lookup = self.shape.prepare(values)
        matches = np.full(lookup.size, -1)
        matches[lookup.rows] = self.find_prepared(lookup, watermark)
        return matches

    def find_prepared(self, lookup: "Lookup", watermark: int | None = None) -> Ints:
        """Do what `find` does for the rows of a lookup, which may be used for all tables of this shape."""
        if not len(self) or not len(lookup.rows):
            return np.full(len(lookup.rows), -1)
        return (self._find_in_spans if self.shape.uses_spans else self._find_by_hash)(lookup, watermark)

    def covers(self, lows: Sequence[ArrowValues], highs: Sequence[ArrowValues], watermark: int | None = None) -> Mask:
        """Tell which closed intervals, one for each column, are covered entirely by marks in effect.

        With several columns, a single mark must cover all intervals of a row. Intervals with a NULL end or reversed
        ends are not covered.

        Raises:
            DefinitionError: If the ends are not of the types of the marks.
        """
        lows, highs = self.shape.check_columns(lows), self.shape.check_columns(highs)
        covered, rows = np.zeros(len(lows[0]), np.bool_), np.flatnonzero(_are_complete([*lows, *highs]))
        ends = [
            (exact_values(_take(low, rows)), exact_values(_take(high, rows)))
            for low, high in zip(lows, highs, strict=True)
        ]
        proper = np.logical_and.reduce([are_at_most(low, high) for low, high in ends])
        rows = rows[proper]
        if len(self) and len(rows):
            lows, highs = ([_take(column, rows) for column in side] for side in (lows, highs))
            covered[rows] = (self._covers_by_spans if self.shape.uses_spans else self._covers_by_one_mark)(
                lows, highs, watermark
            )
        return covered

    def _covers_by_one_mark(self, lows: list[pa.Array], highs: list[pa.Array], watermark: int | None) -> Mask:
        """Tell which intervals a single mark covers, among those proposed by the hash of their constants."""
        lookup, covered = self.shape.prepare(lows), np.zeros(len(lows[0]), np.bool_)
        ends = [exact_values(column.take(pa.array(lookup.rows))) for column in highs]
        for row, at in self._propose_pairs(lookup.hashes):
            fits = self._in_effect(at, watermark)
            row, at = self._keep_covering(lookup.values, row[fits], at[fits])
            covered[lookup.rows[self._keep_covering(ends, row, at)[0]]] = True
        return covered

    def _covers_by_spans(self, lows: list[pa.Array], highs: list[pa.Array], watermark: int | None) -> Mask:
        """Tell which intervals begin in a span and end in the same one, or in one linked to it without a gap."""
        begin, end = self.find(lows, watermark), self.find(highs, watermark)
        covered: Mask = (begin >= 0) & (begin == end)
        rows = np.flatnonzero((begin >= 0) & (begin < end))
        covered[rows] = self._are_linked(begin[rows], end[rows], watermark)
        return covered

    def _are_linked(self, begin: Ints, end: Ints, watermark: int | None) -> Mask:
        """Tell which spans are linked to later ones by spans in effect, without gaps."""
        spans, matches = self._spans, np.zeros(len(begin), np.bool_)
        rows = np.flatnonzero(spans.touch_next(begin))
        if len(rows):  # only spans with different terms touch their neighbours, so most tables need no scan
            before = np.arange(len(self) - 1)
            broken = ~(spans.touch_next(before) & self._in_effect(before + 1, watermark))
            breaks = np.append(0, np.cumsum(broken))
            matches[rows] = breaks[begin[rows]] == breaks[end[rows]]
        return matches

    @cached_property
    def _spans(self) -> Spans:
        return _spans([self.table.column(name) for name in self.table.schema.names[: -len(MarkTerms._fields)]])

    @cached_property
    def _always(self) -> bool:
        """Whether every mark takes effect immediately."""
        return bool(np.all(self.terms.since == ALWAYS))

    def _in_effect(self, at: Ints, watermark: int | None) -> Mask:
        if self._always:
            return np.ones(len(at), bool)
        since = self.terms.since[at]
        return np.asarray((since == ALWAYS) if watermark is None else (since == ALWAYS) | (since < watermark))

    def _find_in_spans(self, lookup: "Lookup", watermark: int | None) -> Ints:
        at = self._spans.find(lookup.values[0])
        return at if self._always else np.where(self._in_effect(at, watermark), at, -1)

    def _find_by_hash(self, lookup: "Lookup", watermark: int | None) -> Ints:
        """Return the first mark in effect that covers each row, among those proposed by its hash."""
        matches = np.full(len(lookup.rows), -1)
        for row, at in self._propose_pairs(lookup.hashes):
            fits = np.flatnonzero((matches[row] < 0) & self._in_effect(at, watermark))
            row, at = self._keep_covering(lookup.values, row[fits], at[fits])
            matches[row[::-1]] = at[::-1]  # of several for one row the first is written last
        return matches

    def _propose_pairs(self, hashes: Any) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs of a row and a mark that share a hash, in blocks; the marks of a row come in ascending order.

        Both sides are sorted, and the smaller is looked up in the larger: most tables are those of a single batch.
        """
        marked = self.table.column(_HASH).to_numpy()
        if len(marked) < len(hashes):
            yield from ((row, at) for at, row in _pairs(*_find_equal(hashes, marked)))
        else:
            yield from _pairs(*_find_equal(marked, hashes))

    def _keep_covering(self, columns: Sequence[pa.Array], row: Ints, at: Ints) -> tuple[Ints, Ints]:
        """Return the pairs of a row and a mark in which the mark covers the row."""
        for number, column in enumerate(columns):
            names = [f"low{number}", f"high{number}"] if self.shape.ranges[number] else [f"value{number}"]
            marked = [self.table.column(name).take(pa.array(at)) for name in names]
            values = column.take(pa.array(row))
            ranged = len(names) > 1
            fits = (
                are_at_most(marked[0], values) & are_at_most(values, marked[1])
                if ranged
                else are_equal(values, marked[0])
            )
            row, at = row[fits], at[fits]
        return row, at


def build_table(
    shape: MarkShape, low: Sequence[ArrowValues], high: Sequence[ArrowValues], batch: int, since: Ints | int = ALWAYS
) -> pa.RecordBatch:
    """Return a table of the marks that a batch makes.

    Rows with a NULL, and ranges whose ends are reversed, mark nothing and are left out.

    Args:
        shape: The columns of the marks.
        low: The values of the columns; for ranges, their lower ends.
        high: The upper ends of ranges; for other columns it is not read.
        batch: The batch.
        since: The event time, in microseconds, that the watermark must pass before each mark takes effect.

    Raises:
        DefinitionError: If the columns are not of the types of the marks.
    """
    lows, highs = shape.check_columns(low), shape.check_columns(high)
    ends = [(start, end if ranged else start) for start, end, ranged in zip(lows, highs, shape.ranges, strict=True)]
    rows = np.flatnonzero(_are_complete([column for pair in ends for column in pair]))
    ends = [(exact_values(_take(start, rows)), exact_values(_take(end, rows))) for start, end in ends]
    proper = np.flatnonzero(np.logical_and.reduce([are_at_most(start, end) for start, end in ends]))
    ends = [(_take(start, proper), _take(end, proper)) for start, end in ends]
    batches = np.full(len(proper), batch)
    terms = MarkTerms(np.broadcast_to(np.asarray(since, np.int64), len(lows[0]))[rows][proper], batches, batches)
    return _table(shape, _columns(shape, ends, len(proper)), terms)


def merge_tables(parts: Sequence[Marks]) -> pa.RecordBatch:
    """Return one table that is equivalent to several; the order of merging makes no difference.

    Of equal marks it keeps the smallest `since`, the first batch and the last.

    Raises:
        DefinitionError: If there are no parts, or parts of different shapes.
    """
    if len(shapes := {part.shape for part in parts}) != 1:
        raise DefinitionError(f"Only marks of one shape can be merged; {len(parts)} tables have {len(shapes)} shapes.")
    shape = parts[0].shape
    columns = [
        pa.concat_arrays([part.table.column(name) for part in parts])
        for name in shape.schema.names[: -len(MarkTerms._fields)]
    ]
    terms = MarkTerms(*(np.concatenate(same) for same in zip(*(part.terms for part in parts), strict=True)))
    return _table(shape, columns, terms)


def _columns(shape: MarkShape, ends: Sequence[tuple[pa.Array, pa.Array]], rows: int) -> list[pa.Array]:
    """Return the columns of a table of marks, without their terms."""
    if shape.uses_spans:
        return [*ends[0]] + ([] if ends[0][0].type == pa.int64() else [pa.array(np.zeros(rows, np.int8))])
    lows = [start for start, _ in ends]
    values = [column for pair, ranged in zip(ends, shape.ranges, strict=True) for column in pair[: 1 + ranged]]
    return [pa.array(hash_rows(_constants(shape, lows), rows)), *values]


def _table(shape: MarkShape, columns: Sequence[pa.Array], terms: MarkTerms) -> pa.RecordBatch:
    """Return marks as a table: sorted, coalesced and without duplicates."""
    if shape.uses_spans:
        spans, terms = _spans(columns).coalesce(terms)
        columns = [spans.low, spans.high] + ([] if spans.open is None else [pa.array(spans.open)])
    else:
        order, starts = group_rows(columns)
        columns = [column.take(pa.array(order[starts])) for column in columns]
        terms = terms.take(order).combine(starts) if len(starts) else terms
    return pa.RecordBatch.from_arrays([*columns, *map(pa.array, terms)], schema=shape.schema)


def _spans(columns: Sequence[pa.Array]) -> Spans:
    low, high, *flags = columns
    return Spans(low, high, flags[0].to_numpy() if flags else None)


def _constants(shape: MarkShape, columns: Sequence[pa.Array]) -> list[pa.Array]:
    return [column for column, ranged in zip(columns, shape.ranges, strict=True) if not ranged]


def _are_complete(columns: Sequence[pa.Array]) -> Mask:
    """Tell which rows have no NULL."""
    valid = [pc.is_valid(column).to_numpy(zero_copy_only=False) for column in columns]
    return np.logical_and.reduce(valid)  # type: ignore[no-any-return]


def _take(values: pa.Array, rows: Ints) -> pa.Array:
    return values if len(rows) == len(values) else values.take(pa.array(rows))


def _find_equal(ordered: Any, numbers: Any) -> tuple[Ints, Ints]:
    """Return where each number begins among ordered ones, and how often it occurs."""
    begin, counts = np.searchsorted(ordered, numbers), np.zeros(len(numbers), np.int64)
    there = np.flatnonzero(ordered[np.minimum(begin, len(ordered) - 1)] == numbers)
    counts[there] = np.searchsorted(ordered, numbers[there], side="right") - begin[there]
    return begin, counts


def _pairs(begin: Ints, counts: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs of a row and one of its proposed positions, in ascending order and in blocks."""
    before = np.cumsum(counts) - counts
    total, size = int(counts.sum()), limits().block_rows
    for start in range(0, total, size):
        pair = np.arange(start, min(start + size, total))
        row = np.searchsorted(before, pair, side="right") - 1
        yield row, begin[row] + pair - before[row]


def _list_types(types: Sequence[pa.DataType]) -> str:
    return ", ".join(map(spark_name, types))
