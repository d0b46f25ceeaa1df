"""Orders by histograms: a tuple's values determine its order, which starts with the stream that it matches least.

The Transfer Join Method (TJM) of "Multi-Way Windowed Streams θ-Joins Using Cluster", section 3.2 and algorithm 3: the
next stream is the one that produces the fewest partial results, by equi-width histograms of the state. The paper looks
one step ahead; here whole orders are compared by the partial results of all their steps, since the best first step may
lead to a bad second one. The step of algorithm 3 that may join two stored streams first is left out: it would build
partial results without the new tuple, discard most of them, and no partial result is ever stored here. The histograms
are the chunks' own, merged on the driver before each batch; a tuple's course on the wire identifies its order.

Histograms only steer the order, so they need not be exact. Text is represented by its first bytes: equalities, and LIKE
with a prefix, distinguish texts that begin differently.
"""

import atexit
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import takewhile
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Floats, Ints, Mask
from watersmeet.ordering.join_order import JoinOrder, Ordering
from watersmeet.ordering.selectivity import usual_share
from watersmeet.predicate.model import Bound, Column, Conjunct, Dialect
from watersmeet.predicate.numbers import TEXT_BYTES, is_text, numbers
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.hop_steps import Hop
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.chunks.sorted_index import BINS, Zone

LARGEST = float(2**63 - 1024)
"""The largest double that is a long."""
POINT = 1e-9
"""Ranges narrower than this, relative to their place, mean one value: bounds contain a margin for rounding."""
BEFORE_SURROGATES = 0xD7FF
"""The last code point before the surrogates, which are not characters."""
ATTRIBUTES = 2
"""The most columns that determine the courses of a stream's tuples; each is divided like its histogram."""
ORDERS = 4
"""The most orders of a stream's tuples: each costs a pass over the new tuples."""
WAYS = 24
"""Beginnings of orders that are followed: all of them with up to five streams, the best on average with more."""


@dataclass(frozen=True)
class EquiWidth:
    """Counts of values in equal parts of [low, high].

    Attributes:
        low: Where the first part begins.
        high: Where the last ends.
        counts: How many values each part holds.
        whole: Whether values are whole numbers (days, microseconds): one value then has a width of 1.
        point: The width, relative to its place, up to which a range means one value.
    """

    low: float
    high: float
    counts: Floats
    whole: bool = False
    point: float = POINT

    @property
    def total(self) -> float:
        """How many values there are."""
        return float(self.counts.sum())

    @property
    def middles(self) -> Floats:
        """The middle of each part."""
        edges = np.linspace(self.low, self.high, len(self.counts) + 1)
        return edges[:-1] + np.diff(edges) / 2  # the sum of two may be more than the largest double

    def part(self, values: Floats) -> Ints:
        """Return the part that each value falls into: beyond the ends the nearest, for NaN the last."""
        width, last = self.high - self.low, len(self.counts) - 1
        if width == 0:
            return np.zeros(len(values), np.int64)
        inside = np.clip(np.where(np.isnan(values), self.high, values), self.low, self.high)
        return np.minimum(((inside - self.low) / width * len(self.counts)).astype(np.int64), last)

    def within(self, low: Floats, high: Floats) -> Floats:
        """Return roughly how many values lie in each range; 0 for a range with a NaN as an end.

        A range of one value counts the whole part that the value falls into, unless values are whole numbers: with few
        distinct numbers that is right, with many it is too much but the same for all.
        """
        low, high = np.where(np.isnan(low), np.inf, low), np.where(np.isnan(high), -np.inf, high)
        pad = 0.5 if self.whole else 0.0
        if self.low == self.high:
            return np.where((low - pad <= self.low) & (self.low <= high + pad), self.total, 0.0)
        counts = np.where(low > high, 0.0, self.below(high + pad) - self.below(low - pad))
        if self.whole:
            return counts
        point = self._points(low, high) & (high >= self.low) & (low <= self.high)
        return np.where(point, self.counts[self.part(low)], counts)

    def below(self, values: Floats) -> Floats:
        """Return roughly how many values are lower than each of these."""
        edges = np.linspace(self.low, self.high, len(self.counts) + 1)
        return np.asarray(np.interp(values, edges, np.concatenate([[0.0], np.cumsum(self.counts)])))

    def _points(self, low: Floats, high: Floats) -> Mask:
        with np.errstate(invalid="ignore", over="ignore"):  # infinity less infinity, or the largest less the smallest
            return np.isfinite(low) & (low <= high) & (high - low <= self.point * np.maximum(1, np.abs(low)))


def merge_zones(zones: Iterable[tuple[Zone, int]], kind: pa.DataType) -> EquiWidth | None:
    """Return the histogram of a column; None if no chunk has values that span a finite range.

    Texts that all begin alike have none: they may be one text or many.

    Args:
        zones: The zone of each chunk and its rows; a zone without counts is assumed to be even.
        kind: The column's type.
    """
    parts = [(zone, rows) for zone, rows in zones if zone.low <= zone.high and np.isfinite(zone.high - zone.low)]
    low = min((zone.low for zone, _ in parts), default=np.inf)
    high = max((zone.high for zone, _ in parts), default=-np.inf)
    if not np.isfinite(high - low) or (is_text(kind) and low == high):
        return None
    if low == high:
        return EquiWidth(low, high, np.array([float(sum(rows for _, rows in parts))]), is_whole(kind))
    # A bound on text has no margin, and two texts that differ in their last bytes are close to each other as numbers.
    histogram = EquiWidth(low, high, np.zeros(BINS), is_whole(kind), 0.0 if is_text(kind) else POINT)
    edges = np.linspace(low, high, BINS + 1)
    for zone, rows in parts:
        if zone.low == zone.high:
            histogram.counts[histogram.part(np.array([zone.low]))] += rows
        else:
            part = EquiWidth(zone.low, zone.high, np.array(zone.counts or (rows,), dtype=np.float64))
            histogram.counts[:] += np.diff(part.below(edges))
    return histogram


def is_whole(kind: pa.DataType) -> bool:
    """Tell whether a column's values, as numbers, are whole."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind))


def as_values(values: Floats, kind: pa.DataType) -> pa.Array:
    """Return numbers as a column of a type, the inverse of `predicate.numbers.numbers`; NULL for what doesn't fit."""
    if is_text(kind):
        return pa.array([_text(value) for value in values.tolist()], kind)
    if pa.types.is_boolean(kind):
        return pa.array(values >= 0.5)
    if pa.types.is_decimal(kind):
        return pa.array([_to_decimal(value, kind) for value in values.tolist()], kind)
    if not is_whole(kind):
        return pa.array(values).cast(kind, safe=False)
    integers = pa.array(np.round(np.clip(values, -LARGEST, LARGEST)).astype(np.int64))
    return (integers.cast(pa.int32(), safe=False) if pa.types.is_date32(kind) else integers).cast(kind, safe=False)


def _to_decimal(value: float, kind: pa.DataType) -> Decimal | None:
    number = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=400))
    return number if len(number.as_tuple().digits) <= kind.precision else None


def _text(value: float) -> str:
    """Return the text that a number stands for; if its bytes are not a text, the last text below them."""
    octets = int(value).to_bytes(TEXT_BYTES, "big")
    try:
        return octets.decode().rstrip("\0")
    except UnicodeDecodeError as error:
        # A character cut off at the end is completed, so that the number stays the same.
        rest = octets[error.start :] + b"\xbf\xbf\xbf"
        code = bisect_right(range(sys.maxunicode + 1), rest, key=_utf8) - 1
        last = chr(BEFORE_SURROGATES if 0xD800 <= code <= 0xDFFF else code)
        return octets[: error.start].decode() + last + chr(sys.maxunicode) * 2  # as many as fill the bytes that count


def _utf8(code: int) -> bytes:
    return chr(code).encode("utf-8", "surrogatepass")


Ranges = list[tuple[Floats, Floats]]


def evaluate_bounds(dialect: Dialect, bounds: Sequence[Bound], columns: Mapping[str, pa.Array], rows: int) -> Ranges:
    """Return the range of each bound per row, computed by DuckDB from values of the columns that it reads.

    A missing end is infinite; if computing one raises for any row, all are.
    """
    with _borrow_connection(dialect) as duck:
        answer = duck.ends(columns, bounds, rows)
    ends = [(None, None)] * len(bounds) if answer is None else answer[0]
    return [
        (np.full(rows, -np.inf) if low is None else low, np.full(rows, np.inf) if high is None else high)
        for low, high in ends
    ]


_IDLE: dict[Dialect, list[Duck]] = {}
atexit.register(_IDLE.clear)  # DuckDB complains of connections that outlive the interpreter


@contextmanager
def _borrow_connection(dialect: Dialect) -> Iterator[Duck]:
    """Context manager: lend an idle connection, else a new one; opening one takes longer than all its queries here.

    It is kept for the next caller, unless the block raises.
    """
    waiting = _IDLE.setdefault(dialect, [])
    try:
        duck = waiting.pop()
    except IndexError:
        duck = Duck(dialect)
    yield duck
    waiting.append(duck)


@dataclass(frozen=True)
class Courses:
    """The orders of one stream's tuples.

    Attributes:
        orders: The distinct ones.
        attributes: The columns that determine which, each with its histogram; empty if there is only one order.
        table: The order's position by the bins of the columns' values, the last column varying fastest.
    """

    orders: tuple[tuple[int, ...], ...]
    attributes: tuple[tuple[Column, EquiWidth], ...] = ()
    table: Ints | None = None


@dataclass(frozen=True)
class HistogramOrder(JoinOrder):
    """Orders by values."""

    by_origin: tuple[Courses, ...]

    def orders(self, origin: int) -> tuple[tuple[int, ...], ...]:
        """See JoinOrder."""
        return self.by_origin[origin].orders

    def reads(self, origin: int) -> tuple[Column, ...]:
        """See JoinOrder."""
        return tuple(column for column, _ in self.by_origin[origin].attributes)

    def courses(self, origin: int, values: Mapping[Column, pa.Array]) -> Ints:
        """Return the position of each tuple's order by the bins of its values; NULL and NaN belong to the last bin."""
        courses = self.by_origin[origin]
        assert courses.table is not None
        cell: Ints = np.zeros(1, np.int64)
        for column, histogram in courses.attributes:
            cell = cell * len(histogram.counts) + histogram.part(numbers(values[column]))
        return courses.table[cell]


@dataclass(frozen=True, slots=True)
class Histogram(Ordering):
    """Chooses each tuple's order by its values and the histograms of what is stored."""

    def plan(self, query: Query, chunks: tuple[Chunk, ...] = (), learned: Mapping[str, Any] | None = None) -> JoinOrder:
        """See Ordering."""
        statistics = Statistics(query, chunks)
        return HistogramOrder(tuple(_Origin(query, statistics, at).courses() for at in range(len(query.streams))))

    def estimates(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> dict[Hop, float]:
        """See Ordering; averaged over the courses."""
        statistics = Statistics(query, chunks)
        by_origin = (_Origin(query, statistics, at).estimates() for at in range(len(query.streams)))
        return {hop: matches for hops in by_origin for hop, matches in hops.items()}


class Statistics:
    """Statistics of the streams from their chunks: rows, histograms, and the average selectivity of bounds."""

    def __init__(self, query: Query, chunks: Iterable[Chunk]) -> None:
        self._query = query
        self.rows = [0] * len(query.streams)
        zones: dict[str, list[tuple[Zone, int]]] = defaultdict(list)
        for chunk in chunks:
            if not chunk.bucket.first:
                continue
            self.rows[chunk.stream] += chunk.rows
            for name, zone in chunk.zones.items():
                zones[name].append((zone, chunk.rows))
        self._histograms = {
            column: histogram
            for columns in query.zoned_columns
            for column in columns
            if (histogram := merge_zones(zones[column.name], query.type_of(column))) is not None
        }
        self._averages: dict[Bound, float | None] = {}

    def histogram(self, column: Column) -> EquiWidth | None:
        """Return the histogram of a column, if there is one."""
        return self._histograms.get(column)

    def shares(self, bounds: Sequence[Bound], values: Mapping[Column, Floats], size: int) -> list[Floats]:
        """Return for each bound the share of its stream's tuples that pass, for each combination of values.

        Args:
            bounds: The bounds, on columns with a histogram.
            values: The values of the columns that they read, as many each as there are combinations.
            size: How many combinations there are.
        """
        arrays = {column.name: as_values(array, self._query.type_of(column)) for column, array in values.items()}
        ranges = evaluate_bounds(self._query.dialect, bounds, arrays, size)
        return [
            np.minimum(self._histograms[bound.column].within(*interval) / max(self.rows[bound.column.stream], 1), 1.0)
            for bound, interval in zip(bounds, ranges, strict=True)
        ]

    def average(self, bound: Bound) -> float | None:
        """Return the average share of tuples that pass a bound over at most one column; None if that is unknown."""
        if bound not in self._averages:
            self._averages[bound] = self._average(bound)
        return self._averages[bound]

    def _average(self, bound: Bound) -> float | None:
        """Return the average share of tuples that pass a bound, uncached; None if histograms don't tell."""
        histograms = [self._histograms.get(column) for column in bound.columns]
        if bound.column not in self._histograms or len(histograms) > 1 or None in histograms:
            return None
        if not bound.columns:
            return float(self.shares([bound], {}, 1)[0][0])
        (histogram,) = (each for each in histograms if each is not None)
        (share,) = self.shares([bound], {bound.columns[0]: histogram.middles}, len(histogram.counts))
        return float(np.average(share, weights=histogram.counts)) if histogram.total else None


class _Origin:
    """Chooses the orders of one stream's tuples."""

    def __init__(self, query: Query, statistics: Statistics, origin: int) -> None:
        self._query, self._statistics, self._origin = query, statistics, origin
        self._attributes = self._choose_attributes()
        sizes = [len(histogram.counts) for _, histogram in self._attributes]
        self._cells = int(np.prod(sizes, dtype=np.int64))
        self._shares = self._cell_shares(sizes)
        self._weights = self._cell_weights()

    def courses(self) -> Courses:
        """Return the orders, at most `ORDERS`, and how values determine them; for others the nearest stand in."""
        by_cell = self._orders()
        weights: dict[tuple[int, ...], float] = defaultdict(float)
        for order, weight in zip(by_cell, self._weights, strict=True):
            weights[order] += weight
        orders = tuple(sorted(weights, key=lambda order: (-weights[order], order))[:ORDERS])
        if len(orders) == 1:
            return Courses(orders)
        return Courses(orders, tuple(self._attributes), np.array([_nearest_order(order, orders) for order in by_cell]))

    def estimates(self) -> dict[Hop, float]:
        """Return the expected matches per partial result for each hop of the orders."""
        hops = [
            ((self._origin, *order[:at]), target) for order in self.courses().orders for at, target in enumerate(order)
        ]
        return {(tuple(sorted(to)), target): float(self._weights @ self._matches(to, target)) for to, target in hops}

    def _choose_attributes(self) -> list[tuple[Column, EquiWidth]]:
        """Return the columns with a histogram that the most bounds on other streams read, at most `ATTRIBUTES`."""
        uses: dict[Column, int] = defaultdict(int)
        for bound in self._usable_bounds():
            for column in bound.columns:
                uses[column] += 1
        candidates = [(c, h) for c in uses if (h := self._statistics.histogram(c)) is not None and len(h.counts) > 1]
        return sorted(candidates, key=lambda pair: (-uses[pair[0]], pair[0]))[:ATTRIBUTES]

    def _usable_bounds(self) -> list[Bound]:
        """Return the bounds on columns with a histogram that depend on the origin's columns alone."""
        return [
            bound
            for conjunct in self._query.conjuncts
            for bound in conjunct.bounds
            if bound.columns
            and {column.stream for column in bound.columns} == {self._origin}
            and self._statistics.histogram(bound.column) is not None
        ]

    def _cell_shares(self, sizes: Sequence[int]) -> dict[Bound, Floats]:
        """Return the share of tuples that pass each bound, for each combination of the attributes' bins."""
        columns = {column for column, _ in self._attributes}
        bounds = [bound for bound in self._usable_bounds() if set(bound.columns) <= columns]
        if not bounds:
            return {}
        cells = np.unravel_index(np.arange(self._cells), sizes)
        values = {column: h.middles[at] for (column, h), at in zip(self._attributes, cells, strict=True)}
        return dict(zip(bounds, self._statistics.shares(bounds, values, self._cells), strict=True))

    def _cell_weights(self) -> Floats:
        """Return the share of tuples in each combination, assuming that the attributes are independent."""
        weights = np.ones(1)
        for _, histogram in self._attributes:
            weights = np.outer(weights, histogram.counts / max(histogram.total, 1.0)).ravel()
        return weights

    def _orders(self) -> list[tuple[int, ...]]:
        """Return each combination's order: the one whose steps produce the fewest partial results."""
        beam = [_PartialOrder((self._origin,), np.ones(self._cells), np.zeros(self._cells))]
        for _ in self._query.streams[1:]:
            longer = [self._extend(order, target) for order in beam for target in self._candidates(order.joined)]
            beam = sorted(longer, key=lambda order: float(self._weights @ order.total))[:WAYS]
        best = np.argmin([order.total for order in beam], axis=0)
        return [beam[at].joined[1:] for at in best.tolist()]

    def _extend(self, order: "_PartialOrder", target: int) -> "_PartialOrder":
        """Return the beginning with one more step."""
        size = order.size * self._matches(order.joined, target)
        is_last = len(order.joined) + 1 == len(self._query.streams)  # these are results, the same in any order
        return _PartialOrder((*order.joined, target), size, order.total if is_last else order.total + size)

    def _candidates(self, joined: tuple[int, ...]) -> list[int]:
        """Return the streams not yet joined, those tied to joined ones by a conjunct first, which breaks ties."""
        rest = [stream for stream in range(len(self._query.streams)) if stream not in joined]
        return sorted(rest, key=lambda stream: not self._conjuncts(joined, stream))

    def _conjuncts(self, joined: tuple[int, ...], target: int) -> list[Conjunct]:
        after = {*joined, target}
        return [c for c in self._query.conjuncts if target in c.streams and len(c.streams) > 1 and c.streams <= after]

    def _matches(self, joined: tuple[int, ...], target: int) -> Floats:
        """Return the expected matches per partial result in a stream, for each combination of the attributes' bins."""
        alone = [c for c in self._query.conjuncts if c.streams == {target}]
        matches = np.full(self._cells, float(self._statistics.rows[target]))
        for conjunct in (*alone, *self._conjuncts(joined, target)):
            matches = matches * self._share(conjunct, joined, target)
        return matches

    def _share(self, conjunct: Conjunct, joined: tuple[int, ...], target: int) -> Floats | float:
        """Return the share of the target's tuples that pass a conjunct: by values, on average, or the usual one."""
        usable = [
            b for b in conjunct.bounds if b.column.stream == target and {c.stream for c in b.columns} <= {*joined}
        ]
        by_cell = [self._shares[bound] for bound in usable if bound in self._shares]
        if by_cell:
            return np.asarray(np.min(by_cell, axis=0))
        average = min((a for bound in usable if (a := self._statistics.average(bound)) is not None), default=inf)
        return average if average < inf else usual_share(conjunct)


class _PartialOrder(NamedTuple):
    """The beginning of an order: for each combination the partial results after its last step, and after all steps."""

    joined: tuple[int, ...]
    size: Floats
    total: Floats


def _nearest_order(order: tuple[int, ...], orders: Sequence[tuple[int, ...]]) -> int:
    """Return the position of the order that has the longest beginning in common with this one."""
    common = [sum(takewhile(bool, (a == b for a, b in zip(order, other, strict=True)))) for other in orders]
    return common.index(max(common))
