"""Equi-width histograms: how many tuples of a stream have a column's value in a range.

Chunks bring their own (`Zone.counts`); those of a column are merged over their common range. They only steer the join
order, so nothing here has to be exact.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.kernel.duck import Duck
from watersmeet.predicate.model import Bound, Dialect
from watersmeet.state.chunk import BINS, Zone

Floats = NDArray[np.float64]

LARGEST = float(2**63 - 1024)
"""The largest double that is a long."""
POINT = 1e-9
"""Ranges narrower than this, relative to their place, ask for one value: bounds hold a margin for rounding."""


@dataclass(frozen=True)
class EquiWidth:
    """Counts of values in equal parts of [low, high].

    Attributes:
        low: Where the first part begins.
        high: Where the last ends.
        counts: How many values each part holds.
        whole: Whether values are whole numbers (days, microseconds): one value then has a width of 1.
    """

    low: float
    high: float
    counts: Floats
    whole: bool = False

    @property
    def total(self) -> float:
        """How many values there are."""
        return float(self.counts.sum())

    @property
    def middles(self) -> Floats:
        """The middle of each part."""
        edges = np.linspace(self.low, self.high, len(self.counts) + 1)
        return (edges[:-1] + edges[1:]) / 2

    def part(self, values: Floats) -> NDArray[np.int64]:
        """Return the part that each value falls into: beyond the ends the nearest, for NaN the last."""
        width, last = self.high - self.low, len(self.counts) - 1
        if width == 0:
            return np.zeros(len(values), np.int64)
        inside = np.clip(np.where(np.isnan(values), self.high, values), self.low, self.high)
        return np.minimum(((inside - self.low) / width * len(self.counts)).astype(np.int64), last)

    def within(self, low: Floats, high: Floats) -> Floats:
        """Return about how many values lie in each range; none in one with a NaN for its end.

        A range of one value gets the whole part that the value falls into, unless values are whole numbers: among few
        distinct numbers that is right, among many it is too much but the same for all.
        """
        low, high = np.where(np.isnan(low), np.inf, low), np.where(np.isnan(high), -np.inf, high)
        pad = 0.5 if self.whole else 0.0
        if self.low == self.high:
            return np.where((low - pad <= self.low) & (self.low <= high + pad), self.total, 0.0)
        found = np.where(low > high, 0.0, self.below(high + pad) - self.below(low - pad))
        if self.whole:
            return found
        point = _points(low, high) & (high >= self.low) & (low <= self.high)
        return np.where(point, self.counts[self.part(low)], found)

    def below(self, values: Floats) -> Floats:
        """Return about how many values are lower than each of these."""
        edges = np.linspace(self.low, self.high, len(self.counts) + 1)
        return np.asarray(np.interp(values, edges, np.concatenate([[0.0], np.cumsum(self.counts)])))


def _points(low: Floats, high: Floats) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):  # infinity less infinity
        return np.isfinite(low) & (low <= high) & (high - low <= POINT * np.maximum(1, np.abs(low)))


def merged(zones: Iterable[tuple[Zone, int]], whole: bool = False, bins: int = BINS) -> EquiWidth | None:
    """Return one histogram of a column, or None if no chunk has values of it that span a finite range.

    Args:
        zones: The zone of each chunk and its rows; a zone without counts is taken to be even.
        whole: Whether values are whole numbers.
        bins: Into how many parts to cut the common range.
    """
    parts = [(zone, rows) for zone, rows in zones if zone.low <= zone.high and np.isfinite(zone.high - zone.low)]
    low = min((zone.low for zone, _ in parts), default=np.inf)
    high = max((zone.high for zone, _ in parts), default=-np.inf)
    if not np.isfinite(high - low):
        return None
    if low == high:
        return EquiWidth(low, high, np.array([float(sum(rows for _, rows in parts))]), whole)
    made = EquiWidth(low, high, np.zeros(bins), whole)
    edges = np.linspace(low, high, bins + 1)
    for zone, rows in parts:
        if zone.low == zone.high:
            made.counts[made.part(np.array([zone.low]))] += rows
        else:
            own = EquiWidth(zone.low, zone.high, np.array(zone.counts or (rows,), dtype=np.float64), whole)
            made.counts[:] += np.diff(own.below(edges))
    return made


def is_whole(kind: pa.DataType) -> bool:
    """Tell whether a column's values, as numbers, are whole."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind))


def as_values(values: Floats, kind: pa.DataType) -> pa.Array:
    """Return numbers as a column of some type, as `state.chunk.numbers` would read it; NULL for what doesn't fit."""
    if pa.types.is_boolean(kind):
        return pa.array(values >= 0.5)
    if pa.types.is_decimal(kind):
        return pa.array([_decimal(value, kind) for value in values.tolist()], kind)
    if not is_whole(kind):
        return pa.array(values).cast(kind, safe=False)
    rounded = pa.array(np.round(np.clip(values, -LARGEST, LARGEST)).astype(np.int64))
    return (rounded.cast(pa.int32(), safe=False) if pa.types.is_date32(kind) else rounded).cast(kind, safe=False)


def _decimal(value: float, kind: pa.DataType) -> Decimal | None:
    made = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=400))
    return made if len(made.as_tuple().digits) <= kind.precision else None


Ranges = list[tuple[Floats, Floats]]


def evaluated(dialect: Dialect, bounds: Sequence[Bound], columns: Mapping[str, pa.Array], rows: int) -> Ranges:
    """Return for each bound the range that it asks for, given values of the columns that it reads."""
    ends = [end for bound in bounds for end in (bound.low, bound.high) if end is not None]
    if not ends:
        return []
    with _idle(dialect) as duck:
        values = iter(duck.numbers(columns, ends, rows))
    return [
        (
            np.full(rows, -np.inf) if bound.low is None else next(values),
            np.full(rows, np.inf) if bound.high is None else next(values),
        )
        for bound in bounds
    ]


_IDLE: dict[Dialect, list[Duck]] = {}


@contextmanager
def _idle(dialect: Dialect) -> Iterator[Duck]:
    """Lend a connection that nobody else uses; opening one takes longer than all that is asked of it here."""
    waiting = _IDLE.setdefault(dialect, [])
    try:
        duck = waiting.pop()
    except IndexError:
        duck = Duck(dialect)
    yield duck
    waiting.append(duck)
