"""Spark's functions of two texts, many pairs at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.kernel.balls import Ball, Mask, Reals

Ints = NDArray[np.int64]
Units = NDArray[np.uint16]
Bytes = NDArray[np.uint8]

LONGEST = 64
"""Texts of more UTF-16 units than this are left to Spark: the work grows with the product of the lengths."""
BLOCK = 1 << 14


def jaro_winkler(left: pa.Array, right: pa.Array, left_at: Ints, right_at: Ints) -> Ball:
    """`jaro_winkler_similarity` of pairs of texts, to the last bit: over UTF-16 units, as Java has them.

    Unlike elsewhere a common beginning counts however low the similarity is, and half transpositions count.
    """
    one, two = _Texts(left), _Texts(right)
    value = np.zeros(len(left_at))
    null = one.null[left_at] | two.null[right_at]
    long = (one.sizes[left_at] > LONGEST) | (two.sizes[right_at] > LONGEST)
    asked = np.flatnonzero(~(null | long))
    asked = asked[np.argsort(np.maximum(one.sizes[left_at[asked]], two.sizes[right_at[asked]]), kind="stable")]
    for start in range(0, len(asked), BLOCK):
        some = asked[start : start + BLOCK]
        value[some] = _similarity(one, two, left_at[some], right_at[some])
    return Ball(value, np.where(long & ~null, np.inf, 0.0), ~null)


class _Texts:
    """Texts as rows of UTF-16 units, with their sizes; long ones are cut, NULL is empty."""

    def __init__(self, values: pa.Array) -> None:
        self.null: Mask = values.is_null().to_numpy(zero_copy_only=False)
        encoded = [(text or "").encode("utf-16-le") for text in values.to_pylist()]
        self.sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) // 2
        width = int(min(self.sizes.max(initial=0), LONGEST))
        cut = b"".join(text[: 2 * width].ljust(2 * width, b"\0") for text in encoded)
        # Position by position, so that one position of many texts is a run in memory.
        self.units: Units = np.frombuffer(cut, dtype="<u2").reshape(len(encoded), width).T.copy()

    def some(self, at: Ints) -> tuple[Units, Ints]:
        """The units, position by position, and sizes of some of the texts."""
        sizes = self.sizes[at]
        return self.units[: sizes.max(initial=0), at], sizes


def _similarity(left: _Texts, right: _Texts, left_at: Ints, right_at: Ints) -> Reals:
    one, one_size = left.some(left_at)
    two, two_size = right.some(right_at)
    reach = np.maximum(np.maximum(one_size, two_size) // 2 - 1, 0)
    one_found, two_found = _matches(one, two, one_size, two_size, reach)
    matches = one_found.sum(axis=0, dtype=np.int64)
    moved = _out_of_place(one, two, one_found, two_found, matches)
    with np.errstate(all="ignore"):
        count = matches.astype(np.float64)
        jaro = (count / one_size + count / two_size + (count - moved / 2.0) / count) / 3.0
    value = jaro + _prefix(one, two, one_size, two_size) * 0.1 * (1.0 - jaro)
    return np.where((one_size == 0) & (two_size == 0), 1.0, np.where(matches == 0, 0.0, value))


def _matches(one: Units, two: Units, one_size: Ints, two_size: Ints, reach: Ints) -> tuple[Mask, Mask]:
    """Which units have a partner: each takes the first that is equal, free and within reach."""
    one_found, two_found = np.zeros(one.shape, dtype=bool), np.zeros(two.shape, dtype=bool)
    widest = int(reach.max(initial=0))
    near = [reach >= distance for distance in range(widest + 1)]
    there = [two_size > position for position in range(len(two))]
    for i in range(len(one)):
        free = one_size > i
        for j in range(max(0, i - widest), min(i + widest + 1, len(two))):
            match = (one[i] == two[j]) & free & near[abs(i - j)] & there[j] & ~two_found[j]
            two_found[j] |= match
            one_found[i] |= match
            free = free & ~match
    return one_found, two_found


def _out_of_place(one: Units, two: Units, one_found: Mask, two_found: Mask, matches: Ints) -> Ints:
    """How many of the partners, each side's in order, differ."""
    most, pairs = int(matches.max(initial=0)), len(matches)
    orders = []
    for units, found in ((one, one_found), (two, two_found)):
        order = np.zeros((pairs, most), dtype=np.uint16)
        place = np.cumsum(found, axis=0, dtype=np.int64) - 1
        at, pair = np.nonzero(found)
        order[pair, place[at, pair]] = units[at, pair]
        orders.append(order)
    return np.asarray((orders[0] != orders[1]).sum(axis=1, dtype=np.int64))


def _prefix(one: Units, two: Units, one_size: Ints, two_size: Ints) -> Ints:
    """The length of the common beginning, 4 at most."""
    length, alike = np.zeros(len(one_size), dtype=np.int64), np.ones(len(one_size), dtype=bool)
    for i in range(min(4, len(one), len(two))):
        alike &= (one[i] == two[i]) & (one_size > i) & (two_size > i)
        length += alike
    return length
