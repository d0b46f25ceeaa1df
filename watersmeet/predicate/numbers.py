"""Values as numbers, which zone maps, the sorted index and hash buckets compare."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

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
    """Return the first TEXT_BYTES of each text as a big-endian number, padded with zeros."""
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
