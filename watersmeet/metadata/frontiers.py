"""Frontiers of promised orders: the furthest value so far, and what lies beyond it by more than the slack.

Values are ordered as Spark orders them: NaN is the highest. It never moves a frontier, and a falling one denies it;
NULL is neither.
"""

from datetime import timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.arrays import Mask
from watersmeet.metadata.constraints import SortOrder

Plain = int | str | None


def furthest(values: pa.Array, falling: bool) -> Plain:
    """Return the furthest value of a column, as JSON can hold it; None if there is none."""
    known = values.drop_null()
    if pa.types.is_floating(known.type):
        known = known.filter(pc.invert(pc.is_nan(known)))
    if not len(known):
        return None
    return plain(pc.min(known) if falling else pc.max(known))


def further(one: Plain, two: Plain, kind: pa.DataType, falling: bool) -> Plain:
    """Return the further of two frontiers, either of which may be missing."""
    known = [pa.repeat(scalar(found, kind), 1) for found in (one, two) if found is not None]
    return furthest(pa.concat_arrays(known), falling) if known else None


def plain(value: pa.Scalar) -> Plain:
    """Return a value of an orderable type as JSON can hold it, to the last bit."""
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


def scalar(found: int | str, kind: pa.DataType) -> pa.Scalar:
    """Return the value that `plain` was given."""
    if pa.types.is_floating(kind):
        return pa.scalar(float.fromhex(str(found)), kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(found), kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar(bytes.fromhex(str(found)), kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.scalar(found, kind)
    if pa.types.is_date32(kind):
        return pa.scalar(int(found), pa.int32()).cast(kind)
    return pa.scalar(int(found), pa.int64()).cast(kind)


def threshold(promise: SortOrder, frontier: Plain, kind: pa.DataType) -> pa.Scalar | None:
    """Return the value beyond which rows are denied: the frontier less the slack; None if no value can lie there."""
    if frontier is None:
        return None
    if not promise.slack:
        return scalar(frontier, kind)
    if pa.types.is_floating(kind):
        at, slack = float.fromhex(str(frontier)), float(promise.slack)
        return pa.scalar(at + slack if promise.falling else at - slack, pa.float64())
    try:
        if pa.types.is_decimal(kind):
            return pa.scalar(_moved(promise, Decimal(frontier), kind.scale), kind)
        return scalar(int(frontier) + (1 if promise.falling else -1) * int(promise.slack), kind)
    except (pa.ArrowInvalid, OverflowError):  # beyond all values of the type
        return None


def _moved(promise: SortOrder, frontier: Decimal, scale: int) -> Decimal:
    """Return a frontier less the slack, towards it at the first value that has as many digits as the column's."""
    with localcontext(prec=200):  # [!] by default Python rounds to 28 digits, and Spark's decimals have up to 38
        moved = frontier + Decimal(promise.slack) * (1 if promise.falling else -1)
        return moved.quantize(Decimal(1).scaleb(-scale), ROUND_FLOOR if promise.falling else ROUND_CEILING)


def beyond(values: pa.Array, promise: SortOrder, limit: pa.Scalar) -> Mask:
    """Tell which values lie beyond a threshold, never at it; NULL does not."""
    if not promise.falling:
        return _true(pc.less(values, limit))
    found = _true(pc.greater(values, limit))
    return found | _true(pc.is_nan(values)) if pa.types.is_floating(values.type) else found


def _true(found: Any) -> Mask:
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask


def slack_of(given: Any, kind: pa.DataType) -> Any:
    """Return a slack in the unit of a column's values; None if it is none for such values.

    Args:
        given: A number, or a timedelta.
        kind: The type of the column.
    """
    if isinstance(given, timedelta):
        if pa.types.is_timestamp(kind):
            return given // timedelta(microseconds=1)
        whole = not given % timedelta(days=1)
        return given // timedelta(days=1) if pa.types.is_date(kind) and whole else None
    if isinstance(given, bool) or not isinstance(given, int | float | Decimal):
        return None
    if pa.types.is_integer(kind):
        return int(given) if given == int(given) else None
    if pa.types.is_floating(kind):
        return float(given)
    return Decimal(str(given)) if pa.types.is_decimal(kind) else (0 if given == 0 else None)
