"""Values that are asked for: read in the types of their columns, and compared with what rows hold."""

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.probe.evaluators.duck import Duck


def is_comparable(kind: pa.DataType) -> bool:
    """Tell whether two values of a type can be compared: as in Spark, not if there is a map in it."""
    if pa.types.is_map(kind):
        return False
    return all(is_comparable(kind.field(at).type) for at in range(kind.num_fields))


def converted(value: Any, kind: pa.DataType, duck: Duck) -> pa.Scalar:
    """Return a value in a type; text may stand for any, in JSON for an array or a struct.

    Args:
        value: The value, as a program or a command line gives it.
        kind: The type.
        duck: Reads times: in the session's time zone.

    Raises:
        ValueError: If it is no such value; other errors may say so, too: TypeError, OverflowError, Arrow's.
    """
    if value is None:
        return pa.scalar(None, kind)
    if pa.types.is_nested(kind):
        return pa.scalar(_parts(json.loads(value) if isinstance(value, str) else value, kind, duck), kind)
    if pa.types.is_timestamp(kind) and isinstance(value, str | date):
        text = value.isoformat(" ") if isinstance(value, datetime) else str(value)
        sql = "TIMESTAMPTZ" if kind.tz is not None else "TIMESTAMP"
        return duck.cast(text, sql).cast(kind)
    if isinstance(value, float) and pa.types.is_integer(kind) and not value.is_integer():
        raise ValueError
    return pa.array([str(value) if pa.types.is_decimal(kind) else value]).cast(kind)[0]


def _parts(value: Any, kind: pa.DataType, duck: Duck) -> Any:
    """Return an array or a struct as Arrow takes it, its parts in their types."""
    if pa.types.is_struct(kind):
        fields = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
        given = value if isinstance(value, Mapping) else dict(zip(fields, value, strict=True))
        if {*given} != {*fields}:
            raise ValueError
        return {name: converted(given[name], of, duck).as_py() for name, of in fields.items()}
    if not isinstance(value, Sequence | np.ndarray):
        raise ValueError
    return [converted(part, kind.value_type, duck).as_py() for part in value]


def same(values: pa.Array | pa.ChunkedArray, wanted: pa.Scalar) -> NDArray[np.bool_]:
    """Return where values are one, as Spark compares them: NaN equals itself; here NULL does, too."""
    if not wanted.is_valid:
        found = pc.is_null(values)
    elif pa.types.is_nested(values.type):
        return _same_parts(values, wanted)
    elif pa.types.is_floating(values.type) and wanted.as_py() != wanted.as_py():
        found = pc.is_nan(values)
    else:
        found = pc.equal(values, wanted)
    return np.asarray(pc.fill_null(found, False), bool)


def _same_parts(values: pa.Array | pa.ChunkedArray, wanted: pa.Scalar) -> NDArray[np.bool_]:
    """Return where arrays or structs are one: part by part, each compared where those before it are the same."""
    struct = pa.types.is_struct(values.type)
    fitting = pc.is_valid(values) if struct else pc.equal(pc.list_value_length(values), len(wanted))
    left = np.flatnonzero(pc.fill_null(fitting, False))
    for at in range(len(wanted)):
        some = values.take(pa.array(left))
        left = left[same(pc.struct_field(some, [at]) if struct else pc.list_element(some, at), wanted[at])]
    return np.isin(np.arange(len(values)), left)
