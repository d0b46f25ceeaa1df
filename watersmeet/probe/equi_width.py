"""Equi-width histograms: how many tuples of a stream have a column's value in a range.

Chunks have their own (`Zone.counts`); those of a column are merged over their common range. They only steer the join
order, so nothing here has to be exact.
"""

import atexit
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Floats, Ints, Mask
from watersmeet.predicate.model import Bound, Dialect
from watersmeet.predicate.numbers import TEXT_BYTES, is_text
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.state.chunks.sorted_index import BINS, Zone

LARGEST = float(2**63 - 1024)
"""The largest double that is a long."""
POINT = 1e-9
"""Ranges narrower than this, relative to their place, mean one value: bounds contain a margin for rounding."""
BEFORE_SURROGATES = 0xD7FF
"""The last code point before the surrogates, which are not characters."""


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


def merge_zones(zones: Iterable[tuple[Zone, int]], kind: pa.DataType, bins: int = BINS) -> EquiWidth | None:
    """Return the histogram of a column; None if no chunk has values that span a finite range.

    Texts that all begin alike have none: they may be one text or many.

    Args:
        zones: The zone of each chunk and its rows; a zone without counts is assumed to be even.
        kind: The column's type.
        bins: Into how many parts to cut the common range.
    """
    parts = [(zone, rows) for zone, rows in zones if zone.low <= zone.high and np.isfinite(zone.high - zone.low)]
    low = min((zone.low for zone, _ in parts), default=np.inf)
    high = max((zone.high for zone, _ in parts), default=-np.inf)
    if not np.isfinite(high - low) or (is_text(kind) and low == high):
        return None
    if low == high:
        return EquiWidth(low, high, np.array([float(sum(rows for _, rows in parts))]), is_whole(kind))
    # A bound on text has no margin, and two texts that differ in their last bytes are close to each other as numbers.
    histogram = EquiWidth(low, high, np.zeros(bins), is_whole(kind), 0.0 if is_text(kind) else POINT)
    edges = np.linspace(low, high, bins + 1)
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
    """Lend an idle connection; opening one takes longer than all its queries here."""
    waiting = _IDLE.setdefault(dialect, [])
    try:
        duck = waiting.pop()
    except IndexError:
        duck = Duck(dialect)
    yield duck
    waiting.append(duck)
