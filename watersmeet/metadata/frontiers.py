"""Frontiers of sort orders: the furthest value so far, and which values lie beyond it by more than the slack.

Values are ordered as in Spark, where NaN is the highest. NaN never moves a frontier, and a falling order denies it.
NULL neither moves a frontier nor is denied.
"""

from datetime import timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.arrays import Mask
from watersmeet.metadata.constraints import SortOrder

Plain = int | str | None
"""A frontier as JSON can hold it; None before the first value."""


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
        return _to_mask(pc.less(values, limit))
    above = _to_mask(pc.greater(values, limit))
    return above | _to_mask(pc.is_nan(values)) if pa.types.is_floating(values.type) else above


def _to_mask(values: Any) -> Mask:
    mask: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask


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
