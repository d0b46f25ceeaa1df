"""Spark's functions of two texts, vectorised over pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Floats, Ints, Mask
from watersmeet.probe.evaluators.balls import Ball

Units = NDArray[Any]
Function = Callable[["_Texts", "_Texts", Ints, Ints], Floats]

LONGEST = 64
"""Longer texts, in units, are left to Spark: the work grows with the product of the lengths."""
BLOCK = 1 << 14
"""Pairs at a time."""


def jaro_winkler(left: pa.Array, right: pa.Array, left_at: Ints, right_at: Ints) -> Ball:
    """`jaro_winkler_similarity` of pairs of texts, to the last bit: over UTF-16 units, as Java has them.

    Unlike elsewhere, a common prefix counts however low the similarity is, and half transpositions count. It is unknown
    if a text has more than LONGEST units.
    """
    one, two = _Texts(left, "utf-16-le", np.dtype("<u2")), _Texts(right, "utf-16-le", np.dtype("<u2"))
    return _answers(one, two, left_at, right_at, _similarity)


def levenshtein(left: pa.Array, right: pa.Array, left_at: Ints, right_at: Ints, limit: int | None = None) -> Ball:
    """`levenshtein` of pairs of texts, over code points; beyond the limit it is -1.

    It is unknown if a text has more than LONGEST of them.
    """
    one, two = _Texts(left, "utf-32-le", np.dtype("<u4")), _Texts(right, "utf-32-le", np.dtype("<u4"))
    ball = _answers(one, two, left_at, right_at, _distance)
    return ball if limit is None else replace(ball, value=np.where(ball.value > limit, -1.0, ball.value))


def _answers(one: _Texts, two: _Texts, left_at: Ints, right_at: Ints, function: Function) -> Ball:
    """Return a function of pairs of texts, computed in blocks of similar lengths.

    It is NULL if one of the texts is, and unknown if one is longer than LONGEST.
    """
    value = np.zeros(len(left_at))
    null = one.null[left_at] | two.null[right_at]
    long = (one.sizes[left_at] > LONGEST) | (two.sizes[right_at] > LONGEST)
    open_pairs = np.flatnonzero(~(null | long))
    sizes = one.sizes[left_at[open_pairs]] * (LONGEST + 1) + two.sizes[right_at[open_pairs]]
    open_pairs = open_pairs[np.argsort(sizes.astype(np.int16), kind="stable")]
    for start in range(0, len(open_pairs), BLOCK):
        block = open_pairs[start : start + BLOCK]
        value[block] = function(one, two, left_at[block], right_at[block])
    return Ball(value, np.where(long & ~null, np.inf, 0.0), ~null)


class _Texts:
    """Texts as rows of units, with their sizes; long ones are cut off, NULL is empty."""

    def __init__(self, values: pa.Array, encoding: str, unit: np.dtype[Any]) -> None:
        self.null: Mask = values.is_null().to_numpy(zero_copy_only=False)
        encoded = [(text or "").encode(encoding) for text in values.to_pylist()]
        self.sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) // unit.itemsize
        width = int(min(self.sizes.max(initial=0), LONGEST))
        room = width * unit.itemsize
        padded = b"".join(text[:room].ljust(room, b"\0") for text in encoded)
        self.units: Units = _narrow(np.frombuffer(padded, dtype=unit).reshape(len(encoded), width))

    def take(self, at: Ints) -> tuple[Units, Ints]:
        """The units of some of the texts, one row per position, and their sizes."""
        sizes = self.sizes[at]
        return np.ascontiguousarray(self.units[:, : sizes.max(initial=0)][at].T), sizes


def _narrow(units: Units) -> Units:
    """The units as bytes if they fit: more of them are compared at a time."""
    return units.astype(np.uint8) if units.max(initial=0) < 256 else units


def _distance(left: _Texts, right: _Texts, left_at: Ints, right_at: Ints) -> Floats:
    """Return the Levenshtein distances of pairs of texts.

    The usual dynamic programming table is computed row by row, each cell for all pairs at once.
    """
    one, one_size = left.take(left_at)
    two, two_size = right.take(right_at)
    pairs = np.arange(len(left_at))
    row = np.repeat(np.arange(len(two) + 1, dtype=np.uint8)[:, None], len(pairs), axis=1)
    distances = np.where(one_size == 0, two_size, 0)
    cell, other = np.empty(len(pairs), dtype=np.uint8), np.empty(len(pairs), dtype=np.uint8)
    for i, unit in enumerate(one, start=1):
        before = row[0].copy()
        row[0] = i
        for j in range(1, len(two) + 1):
            np.add(before, unit != two[j - 1], out=cell)
            before[:] = row[j]
            np.minimum(row[j], row[j - 1], out=other)
            other += 1
            np.minimum(cell, other, out=row[j])
        ends = np.flatnonzero(one_size == i)
        distances[ends] = row[two_size[ends], ends]
    return distances.astype(np.float64)


def _similarity(left: _Texts, right: _Texts, left_at: Ints, right_at: Ints) -> Floats:
    """Return the Jaro-Winkler similarity of pairs of texts; that of two empty texts is 1."""
    one, one_size = left.take(left_at)
    two, two_size = right.take(right_at)
    kind = np.promote_types(one.dtype, two.dtype)  # ranks are counted above the widest unit of either
    one, two = one.astype(kind, copy=False), two.astype(kind, copy=False)
    window = _MatchWindow(np.maximum(np.maximum(one_size, two_size) // 2 - 1, 0), len(one), len(two))
    one_matches, two_matches = _matches(one, two, one_size, two_size, window)
    matches = one_matches.sum(axis=0, dtype=np.int64)
    transposed = matches - _count_in_place(one, two, one_matches, two_matches, window)
    with np.errstate(all="ignore"):
        count = matches.astype(np.float64)
        jaro = (count / one_size + count / two_size + (count - transposed / 2.0) / count) / 3.0
    value = jaro + _prefix(one, two, one_size, two_size) * 0.1 * (1.0 - jaro)
    return np.where((one_size == 0) & (two_size == 0), 1.0, np.where(matches == 0, 0.0, value))


class _MatchWindow:
    """Which positions of two texts are near enough to be compared."""

    def __init__(self, reach: Ints, ones: int, twos: int) -> None:
        self.reach, self.ones, self.twos = reach, ones, twos
        self.least, self.most = int(reach.min(initial=LONGEST)), int(reach.max(initial=0))

    def near(self, i: int) -> range:
        """The positions of the second text within reach of one of the first, for some pair."""
        return range(max(0, i - self.most), min(i + self.most + 1, self.twos))

    def restrict(self, match: Mask, i: int, j: int) -> None:
        """Clear the pairs for which the positions are not within reach."""
        if abs(i - j) > self.least:
            match &= self.reach >= abs(i - j)


def _matches(one: Units, two: Units, one_size: Ints, two_size: Ints, window: _MatchWindow) -> tuple[Mask, Mask]:
    """Which units have a partner: each takes the first equal one that is free and within reach."""
    one_free, two_free = _unit_mask(one, one_size), _unit_mask(two, two_size)
    match = np.empty(len(one_size), dtype=bool)
    for i in range(len(one)):
        for j in window.near(i):
            np.equal(one[i], two[j], out=match)
            match &= one_free[i]
            match &= two_free[j]
            window.restrict(match, i, j)
            one_free[i] ^= match
            two_free[j] ^= match
    return _unit_mask(one, one_size) & ~one_free, _unit_mask(two, two_size) & ~two_free


def _unit_mask(units: Units, sizes: Ints) -> Mask:
    return np.arange(len(units))[:, None] < sizes


def _count_in_place(one: Units, two: Units, one_matches: Mask, two_matches: Mask, window: _MatchWindow) -> Ints:
    """How many matched units equal the matched unit of the same rank on the other side, which is within reach too."""
    count = np.zeros(one.shape[1], dtype=np.uint8)
    ones, twos = _rank(one, one_matches, 0), _rank(two, two_matches, 1)
    match = np.empty(len(count), dtype=bool)
    for i in range(len(one)):
        for j in window.near(i):
            count += np.equal(ones[i], twos[j], out=match)
    return count.astype(np.int64)


def _rank(units: Units, matches: Mask, other: int) -> Units:
    """Return each matched unit with its rank in its text as one number.

    Args:
        units: The units, a row per position.
        matches: Which of them are matched.
        other: What stands for unmatched ones; it must differ between the two sides, so that they equal nothing there.
    """
    wide = np.uint16 if units.itemsize == 1 else np.uint32
    units_of_rank = np.empty(units.shape, dtype=wide)
    rank: Units = np.zeros(units.shape[1], dtype=wide)
    for place, (unit, is_match) in enumerate(zip(units, matches, strict=True)):
        rank = rank + is_match
        units_of_rank[place] = (rank * 256**units.itemsize + unit) * is_match + other * ~is_match
    return units_of_rank


def _prefix(one: Units, two: Units, one_size: Ints, two_size: Ints) -> Ints:
    """The length of the common prefix, 4 at most."""
    length, is_same = np.zeros(len(one_size), dtype=np.int64), np.ones(len(one_size), dtype=bool)
    for i in range(min(4, len(one), len(two))):
        is_same &= (one[i] == two[i]) & (one_size > i) & (two_size > i)
        length += is_same
    return length
