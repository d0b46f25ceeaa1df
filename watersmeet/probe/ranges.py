"""Ranges: the values of a column that partial results look for, and in which chunks they may be used.

[!] A row that no access path proposes is never tested, so its conjunct never raises. A range whose conjunct may
overflow is used only for partial results whose values, with the chunk's zone map, rule that out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Floats, Mask
from watersmeet.predicate.model import Bound, Column, Operand, Operation
from watersmeet.probe.candidates import Range
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.evaluators.numpy_comparisons import Numbers, double_values, take_numbers
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.chunks.sorted_index import Zone

Span = tuple[Floats | float, Floats | float]
SpanOf = Callable[[Operand], Span]


def columns_of(bounds: Iterable[Bound]) -> set[Column]:
    """Return the columns of other streams that must be read to evaluate bounds."""
    return {column for bound in bounds for column in bound.columns} | {
        column for bound in bounds for operand in _others(bound) for column in operand.columns
    }


def ranges(duck: Duck, table: Mapping[str, pa.Array], bounds: Sequence[Bound], rows: int) -> list[Range]:
    """Return for each bound the interval that each partial result looks for, computed by NumPy or else by DuckDB.

    An empty list if an end raises (the lower case of Σ can't be carried over): the conjunct itself decides.

    Args:
        duck: The process's DuckDB connection.
        table: The columns that the bounds read, by generated names.
        bounds: The bounds.
        rows: How many partial results there are.
    """
    # NULL comes back as NaN, for which no row can match; the conjunct itself decides.
    if all(bound.numeric is not None and not bound.operations for bound in bounds):
        return [_numeric_range(bound, table, rows) for bound in bounds]
    operands = list(dict.fromkeys(operand for bound in bounds for operand in _others(bound)))
    answer = duck.ends(table, bounds, rows, [operand.sql for operand in operands])
    if answer is None:
        return []
    ends, numbers = answer
    values = dict(zip(operands, numbers, strict=True))
    return [_range(bound, low, high, values, rows) for bound, (low, high) in zip(bounds, ends, strict=True)]


def _numeric_range(bound: Bound, table: Mapping[str, pa.Array], rows: int) -> Range:
    """Return the interval of a bound that NumPy computes; see `ranges`."""
    everywhere = np.arange(rows)

    def gather(column: Column) -> Numbers:
        return take_numbers(table[column.name], everywhere)

    assert bound.numeric is not None
    low, high = (None if end is None else double_values(end, gather, rows) for end in bound.numeric)
    return _range(bound, low, high, {}, rows)


def concat_ranges(pieces: Sequence[list[Range]]) -> list[Range]:
    """Return the ranges of a block from those of its pieces; none if a piece has none."""
    if len(pieces) <= 1 or not all(pieces):
        return pieces[0] if pieces and all(pieces) else []
    return [_concat_ranges(of) for of in zip(*pieces, strict=True)]


def _concat_ranges(pieces: Sequence[Range]) -> Range:
    first = pieces[0]
    operands = {operand: np.concatenate([piece.operands[operand] for piece in pieces]) for operand in first.operands}
    low, high = (np.concatenate([getattr(piece, end) for piece in pieces]) for end in ("low", "high"))
    extremes = {operand: _extremes(numbers) for operand, numbers in operands.items()}
    return replace(first, low=low, high=high, operands=operands, extremes=extremes)


def _others(bound: Bound) -> list[Operand]:
    """Return the operands of a bound that belong to other streams."""
    operands = (operand for operation in bound.operations for operand in operation.operands)
    return [operand for operand in operands if bound.column not in operand.columns]


def _range(bound: Bound, low: Floats | None, high: Floats | None, values: Mapping[Operand, Floats], rows: int) -> Range:
    """Return a column's range for each row of a block, its ends moved outwards by one double.

    A missing lower end is -inf, a missing upper end NaN.
    """
    low = np.full(rows, -np.inf) if low is None else low
    # NaN sorts above infinity, so a range without an upper end runs to the last row.
    high = np.full(rows, np.nan) if high is None else high
    equal = bound.low == bound.high
    operands = {operand: values[operand] for operand in _others(bound)}
    with np.errstate(over="ignore"):  # beyond the largest double comes infinity
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    extremes = {operand: _extremes(numbers) for operand, numbers in operands.items()}
    return Range(bound.column, low, high, equal, bound.operations, operands, extremes)


def misses(chunk: Chunk, range_: Range) -> bool:
    """Tell whether a chunk's zone map shows that none of its rows is in a range."""
    zone = chunk.zones.get(range_.column.name)
    if zone is None or np.isnan(range_.low).any() or np.isnan(range_.high).any():
        return False
    return zone.misses(float(range_.low.min()), float(range_.high.max()))


def usable(
    intervals: Sequence[Range], chunk: Chunk, time: Column, rows: int
) -> list[tuple[Sequence[Range], Mask | None]]:
    """Return which ranges may be used in a chunk, each with a mask of the partial results; None for all of them.

    Args:
        intervals: The ranges, of `rows` partial results each.
        chunk: The chunk that is probed.
        time: The event time of its stream, which has no zone map of its own.
        rows: How many partial results there are.
    """
    masks = [_cannot_overflow(one, _zone(one.column, chunk, time)) for one in intervals if one.operations]
    if all(np.all(mask) for mask in masks):
        return [(intervals, None)]
    safe = [one for one in intervals if not one.operations]
    all_sure = np.broadcast_to(reduce(np.logical_and, masks), rows)
    return [(safe, None)] if not all_sure.any() else [(intervals, all_sure), (safe, ~all_sure)]


def _zone(column: Column, chunk: Chunk, time: Column) -> Span | None:
    zone = Zone(chunk.low, chunk.high, False) if column == time else chunk.zones.get(column.name)
    if zone is None:
        return None
    return (zone.low, zone.high) if zone.low <= zone.high else (np.nan, np.nan)


def _cannot_overflow(range_: Range, zone: Span | None) -> Mask | bool:
    """Return for which partial results no operation can overflow, whichever row of the chunk they meet.

    Args:
        range_: What they look for.
        zone: The least and the greatest value in the chunk; None, if they are unknown, rules nothing out.
    """
    if zone is None:
        return False

    def widest(operand: Operand) -> Span:
        return range_.extremes.get(operand, zone)

    def each(operand: Operand) -> Span:
        return (range_.operands[operand],) * 2 if operand in range_.operands else zone

    if all(_reach(operation, widest)[1] for operation in range_.operations):
        return True
    return reduce(np.logical_and, (_reach(operation, each)[1] for operation in range_.operations))


def _extremes(values: Floats) -> tuple[float, float]:
    numbers = values[~np.isnan(values)]
    return (float(numbers.min()), float(numbers.max())) if len(numbers) else (np.nan, np.nan)


def _reach(part: Operand | Operation, span_of: SpanOf) -> tuple[Span, Mask | bool]:
    """Return the interval in which a part lies, and whether nothing in it can overflow.

    NaN means NULL, with which nothing overflows: it compares as within every limit.
    """
    if isinstance(part, Operand):
        return span_of(part), True
    parts = [_reach(inner, span_of) for inner in part.parts]
    low, high = (end * part.scale for end in _SPANS[part.sign](*(span for span, _ in parts)))
    over = np.less(low, -part.limit) | np.greater(high, part.limit)
    return (low, high), reduce(np.logical_and, (is_safe for _, is_safe in parts), np.logical_not(over))


def _sum(one: Span, two: Span) -> Span:
    return one[0] + two[0], one[1] + two[1]


def _difference(one: Span, two: Span) -> Span:
    return one[0] - two[1], one[1] - two[0]


def _product(one: Span, two: Span) -> Span:
    products = [x * y for x in one for y in two]
    return reduce(np.minimum, products), reduce(np.maximum, products)


def _absolute(one: Span) -> Span:
    return np.zeros_like(one[0]), np.maximum(np.abs(one[0]), np.abs(one[1]))


_SPANS: dict[str, Callable[..., Span]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "abs": _absolute,
    "is": lambda one: one,
}
