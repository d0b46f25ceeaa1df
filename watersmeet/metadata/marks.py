"""Marks: what a stream has said can no longer come, as exact sets that grow.

A source of marks is one constraint or one declaration of punctuations of one stream. Its marks are the rows of an
immutable Arrow table, sorted so that to ask takes time in proportion to the values asked and to the logarithm of the
marks. Single columns of values that have an order become disjoint spans; all else is found by a hash, which only
proposes, and then compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.arrays import Ints, Mask
from watersmeet.errors import AFRESH, DefinitionError, StateError
from watersmeet.limits import limits
from watersmeet.metadata.spans import ALWAYS, Spans, Terms, at_most, equal, exact, exact_type, grouped, hashed
from watersmeet.predicate.types import spark_name

__all__ = ["ALWAYS", "Marks", "Shape", "Terms", "from_rows", "merged"]

Values: TypeAlias = pa.Array | pa.ChunkedArray
_HASH, _OPEN = "hash", "open"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the marks of a source look like.

    Attributes:
        types: The Arrow types of its columns.
        ranges: For each column whether a mark holds a range of it, both ends included, or else one value.

    Raises:
        DefinitionError: If there is no column, or one whose values can't be compared.
    """

    types: tuple[pa.DataType, ...]
    ranges: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not self.types or len(self.types) != len(self.ranges):
            raise DefinitionError(
                f"Marks have one column or more, each a range or not; there are {len(self.types)} types and "
                f"{len(self.ranges)} answers."
            )
        for kind in self.types:
            if exact_type(kind) is None:
                raise DefinitionError(
                    f"No marks can be made of a column of type {spark_name(kind)}; booleans, whole and real numbers, "
                    "decimals, texts, binaries, dates and timestamps in microseconds can be marked."
                )

    @property
    def spanned(self) -> bool:
        """Whether marks are disjoint spans of one column: ranges, or values that have neighbours."""
        return len(self.types) == 1 and (self.ranges[0] or exact_type(self.types[0]) == pa.int64())

    @property
    def schema(self) -> pa.Schema:
        """What a table of such marks looks like."""
        fields = [] if self.spanned else [(_HASH, pa.uint64())]
        for at, kind in enumerate(map(exact_type, self.types)):
            both = self.spanned or self.ranges[at]
            fields += [(f"low{at}", kind), (f"high{at}", kind)] if both else [(f"value{at}", kind)]
        if self.spanned and fields[0][1] != pa.int64():
            fields.append((_OPEN, pa.int8()))
        return pa.schema([*fields, *((name, pa.int64()) for name in Terms._fields)])

    def checked(self, values: Sequence[Values]) -> list[pa.Array]:
        """Return the columns of some rows, each as one array.

        Raises:
            DefinitionError: If they are not of the types of the marks.
        """
        if (given := [column.type for column in values]) != list(self.types):
            raise DefinitionError(f"The marks are of {_listed(self.types)}; what was given is of {_listed(given)}.")
        return [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in values]

    def asked(self, values: Sequence[Values]) -> "Asked":
        """Return values made ready to be asked about.

        Raises:
            DefinitionError: If they are not of the types of the marks.
        """
        columns = self.checked(values)
        rows = np.flatnonzero(_complete(columns))
        ready = [exact(_taken(column, rows)) for column in columns]
        hashes = None if self.spanned else hashed(_constants(self, ready), len(rows))
        if hashes is None and ready[0].type != pa.int64():
            return Asked(len(columns[0]), rows, ready, None)
        # In rising order neighbours find most of their way in the processor's cache.
        order = np.argsort(ready[0].to_numpy() if hashes is None else hashes)
        ready = [column.take(pa.array(order)) for column in ready]
        return Asked(len(columns[0]), rows[order], ready, None if hashes is None else hashes[order])


class Asked(NamedTuple):
    """Values that marks are to be asked about, made ready once for all tables.

    Attributes:
        size: How many rows they are of.
        rows: Those of them that have no NULL, in the order in which they are best looked up.
        values: Their columns, as marks hold them.
        hashes: The hashes by which marks are proposed; none where they are spans.
    """

    size: int
    rows: Ints
    values: list[pa.Array]
    hashes: Any

    def take(self, chosen: Mask) -> "Asked":
        """Return some of them, in the same order."""
        left = np.flatnonzero(chosen)
        if len(left) == len(self.rows):
            return self
        values = [column.take(pa.array(left)) for column in self.values]
        return Asked(self.size, self.rows[left], values, None if self.hashes is None else self.hashes[left])


@dataclass(frozen=True)
class Marks:
    """The marks of a source, ready to be asked; `from_rows` and `merged` make the tables.

    Attributes:
        shape: What they look like.
        table: The marks; those of a memory-mapped file stay there.

    Raises:
        StateError: If the table isn't of that shape.

    >>> shape = Shape((pa.int64(),), (False,))
    >>> seen = pa.array([1, 2, 3, None, 7])
    >>> marks = Marks(shape, from_rows(shape, [seen], [seen], batch=4))
    >>> marks.find([pa.array([2, 5, 7, None])]).tolist()
    [0, -1, 1, -1]
    >>> marks.holds([pa.array([1, 3])], [pa.array([3, 7])]).tolist()
    [True, False]
    """

    shape: Shape
    table: pa.RecordBatch

    def __post_init__(self) -> None:
        if self.table.schema != self.shape.schema:
            raise StateError(
                f"Marks of {_listed(self.shape.types)} can't be read from a table of "
                f"{_listed(self.table.schema.types)}; restore it or {AFRESH}."
            )

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def nbytes(self) -> int:
        """How many bytes the marks take."""
        return int(self.table.nbytes)

    @property
    def bytes_each(self) -> float:
        """How many bytes a mark takes on average; coalesced ones count as one."""
        return self.nbytes / max(1, len(self))

    @cached_property
    def terms(self) -> Terms:
        """Since when each mark is in effect, and in which batches it was made."""
        return Terms(*(self.table.column(name).to_numpy() for name in Terms._fields))

    def find(self, values: Sequence[Values], watermark: int | None = None) -> Ints:
        """Return for each row the position of a mark in effect that covers it, -1 if there is none.

        A row with a NULL is covered by none. A mark is in effect if its `since` is ALWAYS or before the watermark.

        Raises:
            DefinitionError: If the values are not of the types of the marks.
        """
        asked = self.shape.asked(values)
        found = np.full(asked.size, -1)
        found[asked.rows] = self.found(asked, watermark)
        return found

    def found(self, asked: "Asked", watermark: int | None = None) -> Ints:
        """Return the same for the rows of values that were made ready, for this table and others of its shape."""
        if not len(self) or not len(asked.rows):
            return np.full(len(asked.rows), -1)
        return (self._spanned if self.shape.spanned else self._matched)(asked, watermark)

    def holds(self, lows: Sequence[Values], highs: Sequence[Values], watermark: int | None = None) -> Mask:
        """Tell which closed intervals, one for each column, lie as a whole in what marks in effect cover.

        Of several columns, in what one mark covers. Those with a NULL end do not, nor do those whose ends are the wrong
        way round.

        Raises:
            DefinitionError: If the ends are not of the types of the marks.
        """
        lows, highs = self.shape.checked(lows), self.shape.checked(highs)
        held, rows = np.zeros(len(lows[0]), np.bool_), np.flatnonzero(_complete([*lows, *highs]))
        ends = [(exact(_taken(low, rows)), exact(_taken(high, rows))) for low, high in zip(lows, highs, strict=True)]
        proper = np.logical_and.reduce([at_most(low, high) for low, high in ends])
        rows = rows[proper]
        if len(self) and len(rows):
            lows, highs = ([_taken(column, rows) for column in side] for side in (lows, highs))
            held[rows] = (self._held_by_spans if self.shape.spanned else self._held_by_one)(lows, highs, watermark)
        return held

    def _held_by_one(self, lows: list[pa.Array], highs: list[pa.Array], watermark: int | None) -> Mask:
        """Tell which intervals lie in one mark, of those that the hash of their constants proposes."""
        asked, held = self.shape.asked(lows), np.zeros(len(lows[0]), np.bool_)
        ends = [exact(column.take(pa.array(asked.rows))) for column in highs]
        for row, at in self._proposed(asked.hashes):
            fits = self._in_effect(at, watermark)
            row, at = self._covered(asked.values, row[fits], at[fits])
            held[asked.rows[self._covered(ends, row, at)[0]]] = True
        return held

    def _held_by_spans(self, lows: list[pa.Array], highs: list[pa.Array], watermark: int | None) -> Mask:
        """Tell which intervals of the only column begin in a span and end in it, or in one that is linked to it."""
        begin, end = self.find(lows, watermark), self.find(highs, watermark)
        held: Mask = (begin >= 0) & (begin == end)
        rows = np.flatnonzero((begin >= 0) & (begin < end))
        held[rows] = self._linked(begin[rows], end[rows], watermark)
        return held

    def _linked(self, begin: Ints, end: Ints, watermark: int | None) -> Mask:
        """Tell which spans are linked to later ones by others in effect, with nothing between them."""
        spans, found = self._spans, np.zeros(len(begin), np.bool_)
        rows = np.flatnonzero(spans.touching(begin))
        if len(rows):  # only spans on different terms touch their neighbours: most tables need not be gone through
            before = np.arange(len(self) - 1)
            broken = ~(spans.touching(before) & self._in_effect(before + 1, watermark))
            breaks = np.append(0, np.cumsum(broken))
            found[rows] = breaks[begin[rows]] == breaks[end[rows]]
        return found

    @cached_property
    def _spans(self) -> Spans:
        return _spans([self.table.column(name) for name in self.table.schema.names[: -len(Terms._fields)]])

    @cached_property
    def _always(self) -> bool:
        """Whether every mark is in effect at once."""
        return bool(np.all(self.terms.since == ALWAYS))

    def _in_effect(self, at: Ints, watermark: int | None) -> Mask:
        if self._always:
            return np.ones(len(at), bool)
        since = self.terms.since[at]
        return np.asarray((since == ALWAYS) if watermark is None else (since == ALWAYS) | (since < watermark))

    def _spanned(self, asked: "Asked", watermark: int | None) -> Ints:
        at = self._spans.at(asked.values[0])
        return at if self._always else np.where(self._in_effect(at, watermark), at, -1)

    def _matched(self, asked: "Asked", watermark: int | None) -> Ints:
        """Return the first mark in effect that covers each row, of those that its hash proposes."""
        found = np.full(len(asked.rows), -1)
        for row, at in self._proposed(asked.hashes):
            fits = np.flatnonzero((found[row] < 0) & self._in_effect(at, watermark))
            row, at = self._covered(asked.values, row[fits], at[fits])
            found[row[::-1]] = at[::-1]  # of several for one row the first is written last
        return found

    def _proposed(self, hashes: Any) -> Iterator[tuple[Ints, Ints]]:
        """Yield the pairs of a row and a mark that share a hash, a row's marks in rising order.

        Both sides are sorted, and the fewer are looked up among the more: most tables are those of one batch.
        """
        known = self.table.column(_HASH).to_numpy()
        if len(known) < len(hashes):
            yield from ((row, at) for at, row in _pairs(*_same(hashes, known)))
        else:
            yield from _pairs(*_same(known, hashes))

    def _covered(self, asked: Sequence[pa.Array], row: Ints, at: Ints) -> tuple[Ints, Ints]:
        """Return those of some pairs of a row and a mark in which the mark covers the row."""
        for number, column in enumerate(asked):
            names = [f"low{number}", f"high{number}"] if self.shape.ranges[number] else [f"value{number}"]
            marked = [self.table.column(name).take(pa.array(at)) for name in names]
            values = column.take(pa.array(row))
            ranged = len(names) > 1
            fits = at_most(marked[0], values) & at_most(values, marked[1]) if ranged else equal(values, marked[0])
            row, at = row[fits], at[fits]
        return row, at


def from_rows(
    shape: Shape, low: Sequence[Values], high: Sequence[Values], batch: int, since: Ints | int = ALWAYS
) -> pa.RecordBatch:
    """Return the table of the marks that a batch makes.

    Rows with a NULL, and ranges whose ends are the wrong way round, mark nothing and are left out.

    Args:
        shape: What the marks look like.
        low: The columns: of ranges where they begin.
        high: Where ranges end; what it holds for other columns is not read.
        batch: The batch.
        since: The event time, in microseconds, that the watermark has to pass before each is in effect.

    Raises:
        DefinitionError: If the columns are not of the types of the marks.
    """
    lows, highs = shape.checked(low), shape.checked(high)
    ends = [(start, end if ranged else start) for start, end, ranged in zip(lows, highs, shape.ranges, strict=True)]
    rows = np.flatnonzero(_complete([column for pair in ends for column in pair]))
    ends = [(exact(_taken(start, rows)), exact(_taken(end, rows))) for start, end in ends]
    proper = np.flatnonzero(np.logical_and.reduce([at_most(start, end) for start, end in ends]))
    ends = [(_taken(start, proper), _taken(end, proper)) for start, end in ends]
    made = np.full(len(proper), batch)
    terms = Terms(np.broadcast_to(np.asarray(since, np.int64), len(lows[0]))[rows][proper], made, made)
    return _table(shape, _columns(shape, ends, len(proper)), terms)


def merged(parts: Sequence[Marks]) -> pa.RecordBatch:
    """Return one table that answers as several do together; the same whatever they were merged from before.

    Of equal marks the smallest `since`, the first and the last batch are kept.

    Raises:
        DefinitionError: If there are no parts, or parts of different shapes.
    """
    if len(shapes := {part.shape for part in parts}) != 1:
        raise DefinitionError(f"Marks of one shape can be merged; the {len(parts)} parts have {len(shapes)} shapes.")
    shape = parts[0].shape
    columns = [
        pa.concat_arrays([part.table.column(name) for part in parts])
        for name in shape.schema.names[: -len(Terms._fields)]
    ]
    terms = Terms(*(np.concatenate(same) for same in zip(*(part.terms for part in parts), strict=True)))
    return _table(shape, columns, terms)


def _columns(shape: Shape, ends: Sequence[tuple[pa.Array, pa.Array]], rows: int) -> list[pa.Array]:
    """Return the columns of marks that a table has besides their terms."""
    if shape.spanned:
        return [*ends[0]] + ([] if ends[0][0].type == pa.int64() else [pa.array(np.zeros(rows, np.int8))])
    lows = [start for start, _ in ends]
    values = [column for pair, ranged in zip(ends, shape.ranges, strict=True) for column in pair[: 1 + ranged]]
    return [pa.array(hashed(_constants(shape, lows), rows)), *values]


def _table(shape: Shape, columns: Sequence[pa.Array], terms: Terms) -> pa.RecordBatch:
    """Return marks as a table: sorted, without duplicates, and coalesced."""
    if shape.spanned:
        spans, terms = _spans(columns).coalesced(terms)
        columns = [spans.low, spans.high] + ([] if spans.open is None else [pa.array(spans.open)])
    else:
        order, starts = grouped(columns)
        columns = [column.take(pa.array(order[starts])) for column in columns]
        terms = terms.take(order).over(starts) if len(starts) else terms
    return pa.RecordBatch.from_arrays([*columns, *map(pa.array, terms)], schema=shape.schema)


def _spans(columns: Sequence[pa.Array]) -> Spans:
    low, high, *flags = columns
    return Spans(low, high, flags[0].to_numpy() if flags else None)


def _constants(shape: Shape, columns: Sequence[pa.Array]) -> list[pa.Array]:
    return [column for column, ranged in zip(columns, shape.ranges, strict=True) if not ranged]


def _complete(columns: Sequence[pa.Array]) -> Mask:
    """Tell which rows have no NULL."""
    valid = [pc.is_valid(column).to_numpy(zero_copy_only=False) for column in columns]
    return np.logical_and.reduce(valid)  # type: ignore[no-any-return]


def _taken(values: pa.Array, rows: Ints) -> pa.Array:
    return values if len(rows) == len(values) else values.take(pa.array(rows))


def _same(ordered: Any, asked: Any) -> tuple[Ints, Ints]:
    """Return where in ordered numbers those asked begin, and how many times they are there."""
    begin, counts = np.searchsorted(ordered, asked), np.zeros(len(asked), np.int64)
    there = np.flatnonzero(ordered[np.minimum(begin, len(ordered) - 1)] == asked)
    counts[there] = np.searchsorted(ordered, asked[there], side="right") - begin[there]
    return begin, counts


def _pairs(begin: Ints, counts: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs of a row and one of the positions proposed for it, in rising order, in blocks."""
    before = np.cumsum(counts) - counts
    total, size = int(counts.sum()), limits().block_rows
    for start in range(0, total, size):
        pair = np.arange(start, min(start + size, total))
        row = np.searchsorted(before, pair, side="right") - 1
        yield row, begin[row] + pair - before[row]


def _listed(types: Sequence[pa.DataType]) -> str:
    return ", ".join(map(spark_name, types))
