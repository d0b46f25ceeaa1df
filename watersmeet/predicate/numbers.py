"""Values as numbers: what zone maps, the sorted index and hash buckets compare."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

TEXT_BYTES = 6
"""How many bytes of a text make its number: as many as a double holds exactly."""


def numbers(values: pa.Array) -> NDArray[np.float64]:
    """Return a column as float64, NULL as NaN: dates in days, timestamps in microseconds, text by its first bytes.

    The conversion is monotone but not always exact, so what is found by it is a superset.
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
    """Tell whether a column's values can be taken as numbers."""
    plain = pa.types.is_primitive(kind) and not pa.types.is_time(kind)
    return bool(plain or pa.types.is_decimal(kind) or is_text(kind))


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column holds text, of which only the first bytes count as its number."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text_numbers(values: pa.Array) -> NDArray[np.float64]:
    """Return the first TEXT_BYTES of each text as a big-endian number, as if zeros followed its end."""
    if not len(values):
        return np.zeros(0)  # of an empty column Arrow may leave out the buffers
    _, ends, data = values.buffers()
    width = np.int64 if pa.types.is_large_string(values.type) else np.int32
    edges = np.frombuffer(ends, width)[values.offset :][: len(values) + 1].astype(np.int64)
    octets = np.frombuffer(data, np.uint8) if data else np.zeros(1, np.uint8)
    found = np.zeros(len(values))
    for place in (edges[:-1] + at for at in range(TEXT_BYTES)):
        found = found * 256 + np.where(place < edges[1:], octets[np.minimum(place, len(octets) - 1)], 0)
    return np.where(pc.is_valid(values).to_numpy(zero_copy_only=False), found, np.nan)
