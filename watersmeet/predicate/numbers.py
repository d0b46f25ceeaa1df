"""Values as numbers, which zone maps, the sorted index and hash buckets compare."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Ints

TEXT_BYTES = 6
"""How many bytes of a text its number is made of: as many as a double holds exactly."""


def numbers(values: pa.Array) -> NDArray[np.float64]:
    """Return a column as float64, NULL as NaN: dates in days, timestamps in microseconds, text by its first bytes.

    The conversion is monotone but not always exact, so a lookup by numbers finds a superset.
    """
    kind = values.type
    if is_text(kind):
        return _text_numbers(values)
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_duration(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def has_numbers(kind: pa.DataType) -> bool:
    """Tell whether a column's values can be converted to numbers."""
    plain = pa.types.is_primitive(kind) and not pa.types.is_time(kind)
    return bool(plain or pa.types.is_decimal(kind) or is_text(kind))


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column holds text, whose number is made of its first bytes only."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text_numbers(values: pa.Array) -> NDArray[np.float64]:
    """Return the first TEXT_BYTES of each text as a big-endian number, padded with zeros; NULL as NaN."""
    if not len(values):
        return np.zeros(0)  # Arrow may omit the buffers of an empty column
    _, ends, data = values.buffers()
    width = np.int64 if pa.types.is_large_string(values.type) else np.int32
    edges = np.frombuffer(ends, width)[values.offset :][: len(values) + 1].astype(np.int64)
    octets = np.frombuffer(data, np.uint8) if data else np.zeros(1, np.uint8)
    total = np.zeros(len(values))
    for place in (edges[:-1] + at for at in range(TEXT_BYTES)):
        total = total * 256 + np.where(place < edges[1:], octets[np.minimum(place, len(octets) - 1)], 0)
    return np.where(pc.is_valid(values).to_numpy(zero_copy_only=False), total, np.nan)


LONG = 256
"""Texts of up to this many bytes are hashed many at once."""


def can_hash(left: pa.DataType, right: pa.DataType) -> bool:
    """Tell whether equal values of two columns have equal hashes."""
    if _is_number(left) and _is_number(right):
        # Outside of ANSI mode Spark compares an integer with a float as floats, where distinct integers are equal.
        return pa.float32() not in (left, right) or not (pa.types.is_integer(left) or pa.types.is_integer(right))
    return left == right and (_is_ordered(left) or _is_text(left))


def hashes(values: pa.Array) -> NDArray[np.uint64]:
    """Return a hash of each value, the same in every process; NULL, which equals nothing, is hashed too."""
    if _is_text(values.type):
        return _text_hashes(values)
    as_numbers = numbers(values)
    # One bit pattern for values that are equal in Spark: -0.0 is 0.0, and NaN is NaN.
    bits = (np.where(np.isnan(as_numbers), np.nan, as_numbers) + 0.0).view(np.uint64)
    return _mix(bits)


def bucket(values: pa.Array, of: int) -> Ints:
    """Return the bucket of each value, of `of` buckets."""
    return (hashes(values) % np.uint64(of)).astype(np.int64)


def _text_hashes(values: pa.Array) -> NDArray[np.uint64]:
    """Return hashes of the bytes and lengths of texts; long ones are hashed one by one."""
    if not len(values):
        return np.empty(0, np.uint64)  # Arrow may omit the buffers of an empty column
    _, ends, data = values.buffers()
    edges = np.frombuffer(ends, np.int32)[values.offset :][: len(values) + 1].astype(np.int64)
    start, size = edges[:-1], np.diff(edges)
    octets = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    codes = _mix(size.astype(np.uint64) + np.uint64(1))
    at, offset = np.flatnonzero(size <= LONG), 0
    words_at = _words(octets[edges[0] : edges[-1]])
    while len(at := at[size[at] > offset]):
        words = words_at[start[at] + offset - edges[0]] & _WITHIN[np.minimum(size[at] - offset, 8)]
        codes[at] = _mix(codes[at] * np.uint64(0x9E3779B97F4A7C15) ^ words)
        offset += 8
    for row in np.flatnonzero(size > LONG).tolist():
        text = octets[start[row] : start[row] + size[row]].tobytes()
        codes[row] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return codes


_WITHIN = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""By number of bytes, the mask of a word's first bytes."""


def _words(octets: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return for each byte the little-endian number of the eight bytes from it on, padded with zeros."""
    padded = np.append(octets, np.zeros(8, np.uint8))
    return np.ndarray(len(octets) + 1, np.dtype("<u8"), padded, strides=(1,))


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread the bits (the finaliser of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_ordered(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
