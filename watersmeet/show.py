"""Values as people read them, in samples of rows and in errors."""

from typing import Any

import pyarrow as pa


def plain(values: pa.Array, at: int) -> Any:
    """Return one of some values as a Python object, or, where Python has no such time, with times as numbers.

    >>> plain(pa.array([2**62], pa.timestamp("us", "UTC")), 0)
    4611686018427387904
    """
    try:
        return values[at].as_py()
    except (ValueError, OverflowError):  # a date or timestamp beyond year 9999, or before year 1
        return values.slice(at, 1).cast(_raw(values.type))[0].as_py()


def _raw(kind: pa.DataType) -> pa.DataType:
    """Return a type with the numbers behind dates and timestamps in their place."""
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_raw(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_raw(kind.key_type), _raw(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(kind.field(at).name, _raw(kind.field(at).type)) for at in range(kind.num_fields)])
    return kind
