"""Hash buckets: values that SQL calls equal always fall into the same one."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.state.chunk import numbers

Ints = NDArray[np.int64]


def hashable(left: pa.DataType, right: pa.DataType) -> bool:
    """Tell whether equal values of two columns have equal hashes."""
    if _is_number(left) and _is_number(right):
        # Outside of ANSI mode Spark compares an integer with a float as floats, where distinct integers are equal.
        return pa.float32() not in (left, right) or not (pa.types.is_integer(left) or pa.types.is_integer(right))
    return left == right and (_is_ordered(left) or _is_text(left))


def hashes(values: pa.Array) -> NDArray[np.uint64]:
    """Return a hash of each value, the same in every process; NULL, which equals nothing, has one too."""
    if _is_text(values.type):
        from pandas.util import hash_array  # late: only hashed text needs pandas

        return np.asarray(hash_array(values.to_numpy(zero_copy_only=False).astype(object)), dtype=np.uint64)
    as_numbers = numbers(values)
    # One bit pattern for all that Spark calls equal: -0.0 is 0.0, and NaN is NaN.
    bits = np.where(np.isnan(as_numbers), np.nan, as_numbers + 0.0).view(np.uint64)
    return _mixed(bits)


def bucket(values: pa.Array, of: int) -> Ints:
    """Return which of some buckets each value falls into."""
    return (hashes(values) % np.uint64(of)).astype(np.int64)


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
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
