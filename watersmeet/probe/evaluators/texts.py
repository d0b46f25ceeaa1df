"""Spark's functions of two texts, many pairs at a time."""

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
"""Texts of more units than this are left to Spark: the work grows with the product of the lengths."""
BLOCK = 1 << 14
"""Pairs at a time."""


def jaro_winkler(left: pa.Array, right: pa.Array, left_at: Ints, right_at: Ints) -> Ball:
    """`jaro_winkler_similarity` of pairs of texts, to the last bit: over UTF-16 units, as Java has them.

    Unlike elsewhere a common beginning counts however low the similarity is, and half transpositions count.
    """
    one, two = _Texts(left, "utf-16-le", np.dtype("<u2")), _Texts(right, "utf-16-le", np.dtype("<u2"))
    return _answers(one, two, left_at, right_at, _similarity)


def levenshtein(left: pa.Array, right: pa.Array, left_at: Ints, right_at: Ints, limit: int | None = None) -> Ball:
    """`levenshtein` of pairs of texts, over code points; beyond the limit it is -1."""
    one, two = _Texts(left, "utf-32-le", np.dtype("<u4")), _Texts(right, "utf-32-le", np.dtype("<u4"))
    made = _answers(one, two, left_at, right_at, _distance)
    return made if limit is None else replace(made, value=np.where(made.value > limit, -1.0, made.value))


def _answers(one: _Texts, two: _Texts, left_at: Ints, right_at: Ints, function: Function) -> Ball:
    """A function for the pairs of texts that are not too long; those of about a size at a time."""
    value = np.zeros(len(left_at))
    null = one.null[left_at] | two.null[right_at]
    long = (one.sizes[left_at] > LONGEST) | (two.sizes[right_at] > LONGEST)
    asked = np.flatnonzero(~(null | long))
    sizes = one.sizes[left_at[asked]] * (LONGEST + 1) + two.sizes[right_at[asked]]
    asked = asked[np.argsort(sizes.astype(np.int16), kind="stable")]
    for start in range(0, len(asked), BLOCK):
        some = asked[start : start + BLOCK]
        value[some] = function(one, two, left_at[some], right_at[some])
    return Ball(value, np.where(long & ~null, np.inf, 0.0), ~null)


class _Texts:
    """Texts as rows of units, with their sizes; long ones are cut, NULL is empty."""

    def __init__(self, values: pa.Array, encoding: str, unit: np.dtype[Any]) -> None:
        self.null: Mask = values.is_null().to_numpy(zero_copy_only=False)
        encoded = [(text or "").encode(encoding) for text in values.to_pylist()]
        self.sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) // unit.itemsize
        width = int(min(self.sizes.max(initial=0), LONGEST))
        room = width * unit.itemsize
        cut = b"".join(text[:room].ljust(room, b"\0") for text in encoded)
        self.units: Units = _narrow(np.frombuffer(cut, dtype=unit).reshape(len(encoded), width))

    def some(self, at: Ints) -> tuple[Units, Ints]:
        """The units of some of the texts, position by position, and their sizes."""
        sizes = self.sizes[at]
        return np.ascontiguousarray(self.units[:, : sizes.max(initial=0)][at].T), sizes


def _narrow(units: Units) -> Units:
    """The units as bytes where they are: more of them are compared at a time."""
    return units.astype(np.uint8) if units.max(initial=0) < 256 else units


def _distance(left: _Texts, right: _Texts, left_at: Ints, right_at: Ints) -> Floats:
    """The usual table, row by row, each cell for all pairs at once."""
    one, one_size = left.some(left_at)
    two, two_size = right.some(right_at)
    pairs = np.arange(len(left_at))
    row = np.repeat(np.arange(len(two) + 1, dtype=np.uint8)[:, None], len(pairs), axis=1)
    found = np.where(one_size == 0, two_size, 0)
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
        found[ends] = row[two_size[ends], ends]
    return found.astype(np.float64)


def _similarity(left: _Texts, right: _Texts, left_at: Ints, right_at: Ints) -> Floats:
    one, one_size = left.some(left_at)
    two, two_size = right.some(right_at)
    kind = np.promote_types(one.dtype, two.dtype)  # ranks are counted above the widest unit of either
    one, two = one.astype(kind, copy=False), two.astype(kind, copy=False)
    window = _Window(np.maximum(np.maximum(one_size, two_size) // 2 - 1, 0), len(one), len(two))
    one_found, two_found = _matches(one, two, one_size, two_size, window)
    matches = one_found.sum(axis=0, dtype=np.int64)
    moved = matches - _in_place(one, two, one_found, two_found, window)
    with np.errstate(all="ignore"):
        count = matches.astype(np.float64)
        jaro = (count / one_size + count / two_size + (count - moved / 2.0) / count) / 3.0
    value = jaro + _prefix(one, two, one_size, two_size) * 0.1 * (1.0 - jaro)
    return np.where((one_size == 0) & (two_size == 0), 1.0, np.where(matches == 0, 0.0, value))


class _Window:
    """Which places of two texts are near enough to be compared."""

    def __init__(self, reach: Ints, ones: int, twos: int) -> None:
        self.reach, self.ones, self.twos = reach, ones, twos
        self.least, self.most = int(reach.min(initial=LONGEST)), int(reach.max(initial=0))

    def near(self, i: int) -> range:
        """The places of the second text within reach of one of the first, for some pair."""
        return range(max(0, i - self.most), min(i + self.most + 1, self.twos))

    def cut(self, match: Mask, i: int, j: int) -> None:
        """Keep only the pairs for which the places are within reach."""
        if abs(i - j) > self.least:
            match &= self.reach >= abs(i - j)


def _matches(one: Units, two: Units, one_size: Ints, two_size: Ints, window: _Window) -> tuple[Mask, Mask]:
    """Which units have a partner: each takes the first that is equal, free and within reach."""
    one_free, two_free = _there(one, one_size), _there(two, two_size)
    match = np.empty(len(one_size), dtype=bool)
    for i in range(len(one)):
        for j in window.near(i):
            np.equal(one[i], two[j], out=match)
            match &= one_free[i]
            match &= two_free[j]
            window.cut(match, i, j)
            one_free[i] ^= match
            two_free[j] ^= match
    return _there(one, one_size) & ~one_free, _there(two, two_size) & ~two_free


def _there(units: Units, sizes: Ints) -> Mask:
    return np.arange(len(units))[:, None] < sizes


def _in_place(one: Units, two: Units, one_found: Mask, two_found: Mask, window: _Window) -> Ints:
    """How many units have a partner that is equal if both sides' are taken in order; those are within reach too."""
    count = np.zeros(one.shape[1], dtype=np.uint8)
    ones, twos = _ranked(one, one_found, 0), _ranked(two, two_found, 1)
    match = np.empty(len(count), dtype=bool)
    for i in range(len(one)):
        for j in window.near(i):
            count += np.equal(ones[i], twos[j], out=match)
    return count.astype(np.int64)


def _ranked(units: Units, found: Mask, other: int) -> Units:
    """Each unit that has a partner with its rank among those of its text; any other equals none of the other side."""
    wide = np.uint16 if units.itemsize == 1 else np.uint32
    ranked = np.empty(units.shape, dtype=wide)
    rank: Units = np.zeros(units.shape[1], dtype=wide)
    for place, (unit, here) in enumerate(zip(units, found, strict=True)):
        rank = rank + here
        ranked[place] = (rank * 256**units.itemsize + unit) * here + other * ~here
    return ranked


def _prefix(one: Units, two: Units, one_size: Ints, two_size: Ints) -> Ints:
    """The length of the common beginning, 4 at most."""
    length, alike = np.zeros(len(one_size), dtype=np.int64), np.ones(len(one_size), dtype=bool)
    for i in range(min(4, len(one), len(two))):
        alike &= (one[i] == two[i]) & (one_size > i) & (two_size > i)
        length += alike
    return length
