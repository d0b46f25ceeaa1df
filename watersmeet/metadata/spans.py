"""Values in Spark's order, compared exactly, disjoint spans of them, and frontiers, beyond which all of them lie.

Types whose values fit into 64 bits (whole numbers, times, booleans, real numbers, decimals of up to 18 digits) are
mapped to whole numbers in the same order, so that neighbours differ by one. Texts and binaries are compared by their
bytes, longer decimals as they are.

NaN is the highest value. It never moves the frontier of a sort order, and a falling order denies it. NULL neither moves
a frontier nor is denied.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Ints, Mask, to_mask
from watersmeet.metadata.constraints import SortOrder
from watersmeet.predicate.numbers import hashes

Hashes = NDArray[np.uint64]

ALWAYS = int(np.iinfo(np.int64).min)
"""The `since` of marks that take effect immediately."""
_LAST = int(np.iinfo(np.int64).max)
_SHORT_BYTES = int(np.iinfo(np.int32).max)
_WHOLE: dict[pa.DataType, type[np.generic]] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.date32(): np.int32,
}
_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
Plain = int | str | None
"""A frontier as JSON can hold it; None before the first value."""


def exact_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type to which values of a type are mapped for comparison; None if they can't be compared."""
    timed = pa.types.is_timestamp(kind) and kind.unit == "us"
    short = pa.types.is_decimal128(kind) and kind.precision <= 18
    if timed or short or kind in _WHOLE or kind in (pa.bool_(), pa.float32(), pa.float64()):
        return pa.int64()
    if kind in _TEXTS:
        return pa.large_binary()
    return kind if pa.types.is_decimal128(kind) else None


def exact_values(values: pa.Array) -> pa.Array:
    """Return values mapped to their `exact_type`; what NULL is mapped to has no meaning."""
    kind = values.type
    if kind in _TEXTS:
        return values.cast(pa.large_binary())
    if exact_type(kind) != pa.int64():
        return values
    if pa.types.is_boolean(kind):
        return values.fill_null(False).cast(pa.int8()).cast(pa.int64())
    if pa.types.is_decimal(kind):
        return pa.array(np.ascontiguousarray(_raw_numbers(values, np.int64, 2)[::2]))
    if pa.types.is_floating(kind):
        return pa.array(_steps(_raw_numbers(values, np.float32 if kind == pa.float32() else np.float64)))
    return pa.array(_raw_numbers(values, _WHOLE.get(kind, np.int64)).astype(np.int64, copy=False))


def _raw_numbers(values: pa.Array, kind: type[np.generic], of: int = 1) -> NDArray[Any]:
    """Return the numbers that make up values of fixed width, `of` for each; those of NULL have no meaning."""
    if not len(values):
        return np.empty(0, kind)
    start = values.offset * of * np.dtype(kind).itemsize
    return np.frombuffer(values.buffers()[1], kind, len(values) * of, start)


def _steps(values: NDArray[Any]) -> Ints:
    """Return how many steps real numbers are from zero: -0.0 equals 0.0, and every NaN comes right after infinity."""
    whole = np.int32 if values.dtype == np.float32 else np.int64
    bits = values.view(whole).astype(np.int64)
    steps = np.where(bits < 0, int(np.iinfo(whole).min) - bits, bits)
    infinite = int(np.array(np.inf, values.dtype).view(whole))
    return np.where(np.isnan(values), infinite + 1, steps)


def hash_rows(columns: list[pa.Array], rows: int) -> Hashes:
    """Return a hash for each row of exact columns; distinct rows collide only by chance."""
    combined = np.zeros(rows, np.uint64)
    for column in columns:
        for part in _parts(column):
            combined = combined * np.uint64(0x9E3779B97F4A7C15) ^ part
    return combined


def _parts(values: pa.Array) -> list[Hashes]:
    """Return hashes that together distinguish values; numbers are split into 32 bits, which doubles hold exactly."""
    if values.type == pa.large_binary():
        return [_text_hashes(values)]
    words = 2 if values.type == pa.int64() else 4
    halves = _raw_numbers(values, np.uint32, words)
    return [hashes(pa.array(np.ascontiguousarray(halves[at::words]))) for at in range(words)]


def _text_hashes(values: pa.Array) -> Hashes:
    """Return hashes of texts, in pieces small enough for offsets of 32 bits."""
    if not len(values):
        return np.empty(0, np.uint64)
    edges = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, values.offset * 8)
    size, half = int(edges[-1] - edges[0]), len(values) // 2
    if size > _SHORT_BYTES and half:
        return np.concatenate([_text_hashes(values[:half]), _text_hashes(values[half:])])
    data = (values.buffers()[2] or pa.py_buffer(b"")).slice(int(edges[0]), size)
    near = pa.py_buffer((edges - edges[0]).astype(np.int32))
    return hashes(pa.Array.from_buffers(pa.binary(), len(values), [None, near, data]))


def are_equal(left: pa.Array, right: pa.Array) -> Mask:
    """Tell which exact values are equal."""
    return pc.equal(left, right).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def are_at_most(left: pa.Array, right: pa.Array) -> Mask:
    """Tell which exact values are less than or equal to others."""
    return pc.less_equal(left, right).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def rank_values(values: pa.Array) -> Ints:
    """Return the rank of each exact value among the distinct ones, from 0."""
    return pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64) - 1  # type: ignore[no-any-return]


def group_rows(columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """Return an order of rows by hash (the first column), then by value, and where each group of equal rows starts."""
    keys = columns[0].to_numpy()
    order = np.argsort(keys, kind="stable")
    twins = keys[order][1:] == keys[order][:-1]
    shared = order[np.append(False, twins) | np.append(twins, False)] if len(keys) else order
    places = np.zeros((len(columns), len(keys)), np.int64)
    for place, column in zip(places[1:], columns[1:], strict=True):
        place[shared] = rank_values(column.take(pa.array(shared)))
    if len(shared):
        order = np.lexsort((*places[:0:-1], keys))
    differs = np.any(np.diff(places[:, order], axis=1) != 0, axis=0) | (np.diff(keys[order]) != 0)
    return order, np.flatnonzero(np.append(True, differs))[: len(keys)]


class MarkTerms(NamedTuple):
    """When marks take effect, and where they come from.

    Attributes:
        since: The event time that the watermark must pass before the mark takes effect; ALWAYS if there is none.
        first: The first batch in which it was made.
        last: The last one.
    """

    since: Ints
    first: Ints
    last: Ints

    def take(self, at: Ints | Mask) -> "MarkTerms":
        """Return the terms of some marks."""
        return MarkTerms(*(part[at] for part in self))

    def combine(self, starts: Ints) -> "MarkTerms":
        """Return the terms of runs of marks each of which is merged into one mark."""
        since, first = (np.minimum.reduceat(part, starts) for part in (self.since, self.first))
        return MarkTerms(since, first, np.maximum.reduceat(self.last, starts))

    def may_join_next(self) -> Mask:
        """Tell which marks may be merged with the next: both take effect immediately, or their terms are the same."""
        since, first, last = (part[:-1] == part[1:] for part in self)
        return np.asarray(since & ((self.since[1:] == ALWAYS) | first & last))


@dataclass(frozen=True, slots=True)
class Spans:
    """Disjoint spans of exact values, in ascending order.

    Attributes:
        low: Where each begins.
        high: Where it ends.
        open: 1 where it begins after that value, not at it; None where neighbours differ by one, so that none does.
            Ends need no such flag: where a span ends before its high, the next one begins at it.
    """

    low: pa.Array
    high: pa.Array
    open: NDArray[np.int8] | None = None

    def find(self, values: pa.Array) -> Ints:
        """Return for each exact value the position of the span that contains it, -1 if there is none."""
        at = _count(self.low, values) - 1
        if self.open is None:
            return np.where((at >= 0) & (values.to_numpy() <= self.high.to_numpy()[at]), at, -1)
        at -= self.open[at] & are_equal(self.low.take(_from_zero(at)), values)
        return np.where((at >= 0) & are_at_most(values, self.high.take(_from_zero(at))), at, -1)

    def touch_next(self, at: Ints) -> Mask:
        """Tell for the spans at these positions whether there is no gap before the next one."""
        ends, starts = self.high.take(pa.array(at)), self.low.take(pa.array(at + 1))
        return are_equal(ends, starts) if self.open is not None else np.equal(ends.to_numpy() + 1, starts.to_numpy())

    def coalesce(self, terms: MarkTerms) -> "tuple[Spans, MarkTerms]":
        """Return disjoint spans with the same values as these, which may overlap here, and their terms.

        Where spans overlap, the result has the smallest `since` and all batches. Neighbours are merged if their terms
        allow it. The result depends only on which values have which terms, not on how they were divided before.
        """
        if self.open is None:
            low, high, terms = _coalesce(self.low.to_numpy(), self.high.to_numpy(), terms)
            return Spans(pa.array(low), pa.array(high)), terms
        # The n-th distinct value becomes 2n, and all that lies between it and the next becomes 2n + 1. Open ends may be
        # taken as closed: a mark, which has closed ones, holds what is next to a value only if it holds the value.
        values = pa.concat_arrays([self.low, self.high])
        places = rank_values(values)
        low, high = 2 * places[: len(terms.since)], 2 * places[len(terms.since) :]
        low, high, terms = _coalesce(low, high, terms)
        where = np.empty(len(values), np.int64)
        where[places] = np.arange(len(values))
        ends = [values.take(pa.array(where[place])) for place in (low // 2, (high + 1) // 2)]
        return Spans(ends[0], ends[1], (low % 2).astype(np.int8)), terms


def _from_zero(at: Ints) -> pa.Array:
    return pa.array(np.maximum(at, 0))


def _count(ordered: pa.Array, values: pa.Array) -> Ints:
    """Return for each value how many of the ordered ones, which ascend, are less than or equal to it."""
    if ordered.type == pa.int64():
        return np.asarray(np.searchsorted(ordered.to_numpy(), values.to_numpy(), side="right"))
    low, high = np.zeros(len(values), np.int64), np.full(len(values), len(ordered))
    while len(rows := np.flatnonzero(low < high)):
        middle = (low[rows] + high[rows]) // 2
        below = are_at_most(ordered.take(pa.array(middle)), values.take(pa.array(rows)))
        low[rows[below]] = middle[below] + 1
        high[rows[~below]] = middle[~below]
    return low


def _coalesce(low: Ints, high: Ints, terms: MarkTerms) -> tuple[Ints, Ints, MarkTerms]:
    """Return closed intervals of whole numbers, disjoint, ascending and coalesced, with their terms; see `Spans`."""
    if not len(low):
        return low, high, terms
    order = np.argsort(low, kind="stable")
    low, reach, terms = low[order], np.maximum.accumulate(high[order]), terms.take(order)
    if np.any(low[1:] <= reach[:-1]) and np.any(terms.since != ALWAYS):
        low, reach, terms = _cut(low, high[order], terms)
    one = ((low[1:] <= reach[:-1]) | (low[1:] - 1 == reach[:-1])) & terms.may_join_next()
    starts = np.flatnonzero(np.append(True, ~one))
    return low[starts], reach[np.append(starts[1:], len(low)) - 1], terms.combine(starts)


def _cut(low: Ints, high: Ints, terms: MarkTerms) -> tuple[Ints, Ints, MarkTerms]:
    """Cut closed intervals wherever one begins or ends, and return the distinct pieces."""
    cuts = np.unique(np.concatenate([low, high[high < _LAST] + 1]))
    begin, end = np.searchsorted(cuts, low), np.searchsorted(cuts, high, side="right")
    depth = np.cumsum(np.bincount(begin, minlength=len(cuts) + 1) - np.bincount(end, minlength=len(cuts) + 1))
    covered = depth[:-1] > 0
    since, first, last = (_find_least(part, begin, end, len(cuts)) for part in (terms.since, terms.first, ~terms.last))
    return cuts[covered], np.append(cuts[1:] - 1, _LAST)[covered], MarkTerms(since, first, ~last).take(covered)


def _find_least(values: Ints, begin: Ints, end: Ints, size: int) -> Ints:
    """Return for each position the least value of the intervals [begin, end) that contain it.

    An interval is the union of two whose length is a power of two, each of which consists of two half as long.
    """
    least = np.full(size, _LAST)
    level = np.frexp((end - begin).astype(np.float64))[1] - 1
    for power in range(int(level.max()), -1, -1):
        here = np.flatnonzero(level == power)
        for start in (begin[here], end[here] - (1 << power)):
            np.minimum.at(least, start, values[here])
        if half := (1 << power) // 2:
            least[half:] = np.minimum(least[half:], least[:-half])
    return least


def find_furthest(values: pa.Array, falling: bool) -> Plain:
    """Return the furthest value of a column as `to_plain` converts it; None if all are NULL or NaN."""
    present = values.drop_null()
    if pa.types.is_floating(present.type):
        present = present.filter(pc.invert(pc.is_nan(present)))
    if not len(present):
        return None
    return to_plain(pc.min(present) if falling else pc.max(present))


def pick_further(one: Plain, two: Plain, kind: pa.DataType, falling: bool) -> Plain:
    """Return the further of two frontiers, either of which may be None."""
    values = [pa.repeat(from_plain(value, kind), 1) for value in (one, two) if value is not None]
    return find_furthest(pa.concat_arrays(values), falling) if values else None


def to_plain(value: pa.Scalar) -> Plain:
    """Return a value of an orderable type as JSON can hold it, without loss."""
    kind = value.type
    if pa.types.is_floating(kind):
        return float(value.as_py()).hex()
    if pa.types.is_decimal(kind):
        return str(value.as_py())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes(value.as_py()).hex()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str(value.as_py())
    if pa.types.is_date32(kind):
        return int(value.cast(pa.int32()).as_py())
    return int(value.cast(pa.int64()).as_py())


def from_plain(value: int | str, kind: pa.DataType) -> pa.Scalar:
    """Return the value that `to_plain` converted."""
    if pa.types.is_floating(kind):
        return pa.scalar(float.fromhex(str(value)), kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(value), kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar(bytes.fromhex(str(value)), kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.scalar(value, kind)
    if pa.types.is_date32(kind):
        return pa.scalar(int(value), pa.int32()).cast(kind)
    return pa.scalar(int(value), pa.int64()).cast(kind)


def compute_threshold(constraint: SortOrder, frontier: Plain, kind: pa.DataType) -> pa.Scalar | None:
    """Return the value beyond which rows are denied: the frontier less the slack, or plus it if values fall.

    None before the first value, or if no value of the column's type can lie beyond it.
    """
    if frontier is None:
        return None
    if not constraint.slack:
        return from_plain(frontier, kind)
    if pa.types.is_floating(kind):
        at, slack = float.fromhex(str(frontier)), float(constraint.slack)
        return pa.scalar(at + slack if constraint.falling else at - slack, pa.float64())
    try:
        if pa.types.is_decimal(kind):
            return pa.scalar(_subtract_slack(constraint, Decimal(frontier), kind.scale), kind)
        return from_plain(int(frontier) + (1 if constraint.falling else -1) * int(constraint.slack), kind)
    except (pa.ArrowInvalid, OverflowError):  # beyond all values of the type
        return None


def _subtract_slack(constraint: SortOrder, frontier: Decimal, scale: int) -> Decimal:
    """Return a frontier less the slack, rounded towards the frontier to the scale of the column."""
    with localcontext(prec=200):  # [!] by default Python rounds to 28 digits, and Spark's decimals have up to 38
        moved = frontier + Decimal(constraint.slack) * (1 if constraint.falling else -1)
        return moved.quantize(Decimal(1).scaleb(-scale), ROUND_FLOOR if constraint.falling else ROUND_CEILING)


def lie_beyond(values: pa.Array, constraint: SortOrder, limit: pa.Scalar) -> Mask:
    """Tell which values lie strictly beyond a threshold; NULL never does."""
    if not constraint.falling:
        return to_mask(pc.less(values, limit))
    above = to_mask(pc.greater(values, limit))
    return above | to_mask(pc.is_nan(values)) if pa.types.is_floating(values.type) else above


def convert_slack(slack: Any, kind: pa.DataType) -> Any:
    """Return a slack in the unit of a column's values; None if it does not apply to values of that type.

    Args:
        slack: A number, or a timedelta.
        kind: The type of the column.
    """
    if isinstance(slack, timedelta):
        if pa.types.is_timestamp(kind):
            return slack // timedelta(microseconds=1)
        whole = not slack % timedelta(days=1)
        return slack // timedelta(days=1) if pa.types.is_date(kind) and whole else None
    if isinstance(slack, bool) or not isinstance(slack, int | float | Decimal):
        return None
    if pa.types.is_integer(kind):
        return int(slack) if slack == int(slack) else None
    if pa.types.is_floating(kind):
        return float(slack)
    return Decimal(str(slack)) if pa.types.is_decimal(kind) else (0 if slack == 0 else None)
