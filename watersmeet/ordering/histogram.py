"""Orders by histograms: tuples are told apart by their values, and each probes first what it matches least.

The Transfer Join Method (TJM) of "Multi-Way Windowed Streams θ-Joins Using Cluster", section 3.2 and algorithm 3: the
next stream is the one that makes the fewest partial results, by equi-width histograms of the state. The paper looks one
step ahead; here whole orders are compared by the partial results of all their steps, since the least of one step may
lead to the most in the next. The step of algorithm 3 that may join two stored streams first is not taken: it would
build partial results without the new tuple, most of which it would then throw away, and no partial result is ever
stored here. The histograms are the chunks' own, merged on the driver before each batch; a tuple's course on the wire
says which order was chosen for it.

Text counts by its first bytes: an equality, or LIKE with a prefix, is told apart where texts begin differently.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Floats
from watersmeet.ordering.base import JoinOrder, Ordering
from watersmeet.ordering.selectivity import usual_share
from watersmeet.predicate.model import Bound, Column, Conjunct
from watersmeet.predicate.numbers import numbers
from watersmeet.probe.histogram import EquiWidth, as_values, evaluated, merged
from watersmeet.probe.hop_steps import Hop
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.chunks.zones import Zone

ATTRIBUTES = 2
"""Columns of a stream that tell its tuples' courses, at most; each is cut as its histogram is."""
ORDERS = 4
"""Orders of a stream's tuples, at most: each costs a pass over the new tuples."""
WAYS = 24
"""Beginnings of orders that are followed: with up to five streams all of them, with more the best on average."""


@dataclass(frozen=True)
class Courses:
    """The orders of one stream's tuples.

    Attributes:
        orders: The distinct ones.
        attributes: The columns that tell which, each with its histogram; empty where there is but one order.
        table: The order's position by the parts that the columns' values fall into, the last column running fastest.
    """

    orders: tuple[tuple[int, ...], ...]
    attributes: tuple[tuple[Column, EquiWidth], ...] = ()
    table: NDArray[np.int64] | None = None


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

    def courses(self, origin: int, values: Mapping[Column, pa.Array]) -> NDArray[np.int64]:
        """See JoinOrder; NULL and NaN belong to the last part."""
        known = self.by_origin[origin]
        assert known.table is not None
        cell: NDArray[np.int64] = np.zeros(1, np.int64)
        for column, histogram in known.attributes:
            cell = cell * len(histogram.counts) + histogram.part(numbers(values[column]))
        return known.table[cell]


@dataclass(frozen=True, slots=True)
class Histogram(Ordering):
    """Chooses each tuple's order by its values and the histograms of what is stored."""

    def plan(self, query: Query, chunks: tuple[Chunk, ...] = (), learned: Mapping[str, Any] | None = None) -> JoinOrder:
        """See Ordering."""
        statistics = Statistics(query, chunks)
        return HistogramOrder(tuple(_Origin(query, statistics, at).courses() for at in range(len(query.streams))))

    def estimates(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> dict[Hop, float]:
        """See Ordering; on average over the courses."""
        statistics = Statistics(query, chunks)
        every = (_Origin(query, statistics, at).estimates() for at in range(len(query.streams)))
        return {hop: found for each in every for hop, found in each.items()}


class Statistics:
    """What the chunks tell of the streams: rows, histograms, and the average share that a bound lets through."""

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
            if (histogram := merged(zones[column.name], query.type_of(column))) is not None
        }
        self._averages: dict[Bound, float | None] = {}

    def histogram(self, column: Column) -> EquiWidth | None:
        """Return the histogram of a column, if there is one."""
        return self._histograms.get(column)

    def shares(self, bounds: Sequence[Bound], values: Mapping[Column, Floats], size: int) -> list[Floats]:
        """Return for each bound which share of its stream's tuples it lets through, for each of some values."""
        arrays = {column.name: as_values(found, self._query.type_of(column)) for column, found in values.items()}
        ranges = evaluated(self._query.dialect, bounds, arrays, size)
        return [
            np.minimum(self._histograms[bound.column].within(*asked) / max(self.rows[bound.column.stream], 1), 1.0)
            for bound, asked in zip(bounds, ranges, strict=True)
        ]

    def average(self, bound: Bound) -> float | None:
        """Return the share that a bound over at most one column lets through on average; None if that is unknown."""
        if bound not in self._averages:
            self._averages[bound] = self._average(bound)
        return self._averages[bound]

    def _average(self, bound: Bound) -> float | None:
        read = [self._histograms.get(column) for column in bound.columns]
        if bound.column not in self._histograms or len(read) > 1 or None in read:
            return None
        if not bound.columns:
            return float(self.shares([bound], {}, 1)[0][0])
        (histogram,) = (found for found in read if found is not None)
        (share,) = self.shares([bound], {bound.columns[0]: histogram.middles}, len(histogram.counts))
        return float(np.average(share, weights=histogram.counts)) if histogram.total else None


class _Origin:
    """Chooses the orders of one stream's tuples."""

    def __init__(self, query: Query, statistics: Statistics, origin: int) -> None:
        self._query, self._statistics, self._origin = query, statistics, origin
        self._attributes = self._chosen()
        sizes = [len(histogram.counts) for _, histogram in self._attributes]
        self._cells = int(np.prod(sizes, dtype=np.int64))
        self._shares = self._by_cell(sizes)
        self._weights = self._by_size()

    def courses(self) -> Courses:
        """Return the orders and what tells them apart."""
        by_cell = self._orders()
        weights: dict[tuple[int, ...], float] = defaultdict(float)
        for order, weight in zip(by_cell, self._weights, strict=True):
            weights[order] += weight
        kept = tuple(sorted(weights, key=lambda order: (-weights[order], order))[:ORDERS])
        if len(kept) == 1:
            return Courses(kept)
        return Courses(kept, tuple(self._attributes), np.array([_nearest(order, kept) for order in by_cell]))

    def estimates(self) -> dict[Hop, float]:
        """Return for each hop of the orders the matches expected per partial result."""
        hops = [
            ((self._origin, *order[:at]), target) for order in self.courses().orders for at, target in enumerate(order)
        ]
        return {(tuple(sorted(to)), target): float(self._weights @ self._matches(to, target)) for to, target in hops}

    def _chosen(self) -> list[tuple[Column, EquiWidth]]:
        """Return the columns whose values say most: those that the most bounds on other streams read."""
        read: dict[Column, int] = defaultdict(int)
        for bound in self._usable():
            for column in bound.columns:
                read[column] += 1
        known = [(c, h) for c in read if (h := self._statistics.histogram(c)) is not None and len(h.counts) > 1]
        return sorted(known, key=lambda found: (-read[found[0]], found[0]))[:ATTRIBUTES]

    def _usable(self) -> list[Bound]:
        """Return the bounds that the values of the origin's columns alone decide."""
        return [
            bound
            for conjunct in self._query.conjuncts
            for bound in conjunct.bounds
            if bound.columns
            and {column.stream for column in bound.columns} == {self._origin}
            and self._statistics.histogram(bound.column) is not None
        ]

    def _by_cell(self, sizes: Sequence[int]) -> dict[Bound, Floats]:
        """Return the shares that bounds let through, for each combination of the attributes' parts."""
        columns = {column for column, _ in self._attributes}
        bounds = [bound for bound in self._usable() if set(bound.columns) <= columns]
        if not bounds:
            return {}
        cells = np.unravel_index(np.arange(self._cells), sizes)
        values = {column: h.middles[at] for (column, h), at in zip(self._attributes, cells, strict=True)}
        return dict(zip(bounds, self._statistics.shares(bounds, values, self._cells), strict=True))

    def _by_size(self) -> Floats:
        """Return about how many tuples each combination holds, the attributes taken to be independent."""
        weights = np.ones(1)
        for _, histogram in self._attributes:
            weights = np.outer(weights, histogram.counts / max(histogram.total, 1.0)).ravel()
        return weights

    def _orders(self) -> list[tuple[int, ...]]:
        """Return each combination's order: the one whose steps make the fewest partial results."""
        begun = [_PartialOrder((self._origin,), np.ones(self._cells), np.zeros(self._cells))]
        for _ in self._query.streams[1:]:
            longer = [self._on(order, target) for order in begun for target in self._candidates(order.joined)]
            begun = sorted(longer, key=lambda order: float(self._weights @ order.made))[:WAYS]
        best = np.argmin([order.made for order in begun], axis=0)
        return [begun[at].joined[1:] for at in best.tolist()]

    def _on(self, order: "_PartialOrder", target: int) -> "_PartialOrder":
        """Return the beginning with one more step."""
        size = order.size * self._matches(order.joined, target)
        last = len(order.joined) + 1 == len(self._query.streams)  # then they are results, the same in any order
        return _PartialOrder((*order.joined, target), size, order.made if last else order.made + size)

    def _candidates(self, joined: tuple[int, ...]) -> list[int]:
        """Return the streams not joined yet, those first that a conjunct ties to the others: they win where all tie."""
        rest = [stream for stream in range(len(self._query.streams)) if stream not in joined]
        return sorted(rest, key=lambda stream: not self._decided(joined, stream))

    def _decided(self, joined: tuple[int, ...], target: int) -> list[Conjunct]:
        after = {*joined, target}
        return [c for c in self._query.conjuncts if target in c.streams and len(c.streams) > 1 and c.streams <= after]

    def _matches(self, joined: tuple[int, ...], target: int) -> Floats:
        """Return the matches expected per partial result, for each combination."""
        alone = [c for c in self._query.conjuncts if c.streams == {target}]
        found = np.full(self._cells, float(self._statistics.rows[target]))
        for conjunct in (*alone, *self._decided(joined, target)):
            found = found * self._share(conjunct, joined, target)
        return found

    def _share(self, conjunct: Conjunct, joined: tuple[int, ...], target: int) -> Floats | float:
        """Return which share of the target's tuples a conjunct lets through; by the origin's values if they tell."""
        usable = [
            b for b in conjunct.bounds if b.column.stream == target and {c.stream for c in b.columns} <= {*joined}
        ]
        told = [self._shares[bound] for bound in usable if bound in self._shares]
        if told:
            return np.asarray(np.min(told, axis=0))
        average = min((a for bound in usable if (a := self._statistics.average(bound)) is not None), default=inf)
        return average if average < inf else usual_share(conjunct)


class _PartialOrder(NamedTuple):
    """The beginning of an order: what a tuple of each combination has become, and all that was made on the way."""

    joined: tuple[int, ...]
    size: Floats
    made: Floats


def _nearest(order: tuple[int, ...], kept: Sequence[tuple[int, ...]]) -> int:
    """Return the position of the order kept that begins most as this one does."""
    alike = [next((at for at, (a, b) in enumerate(zip(order, o, strict=True)) if a != b), len(order)) for o in kept]
    return alike.index(max(alike))
