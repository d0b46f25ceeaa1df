"""How many bytes values take, as Spark computes it where they are, before they are sent or copied."""

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

FIXED = 8
"""The assumed width of a value of fixed width."""
_OPEN = (T.StringType, T.CharType, T.VarcharType, T.BinaryType)
_FIXED = (T.NumericType, T.BooleanType, T.DatetimeType, T.DateType, T.DayTimeIntervalType, T.YearMonthIntervalType,
          T.NullType, T.CalendarIntervalType)  # fmt: skip


def is_variable_width(kind: T.DataType) -> bool:
    """Tell whether values of a type may be of any length."""
    if isinstance(kind, T.StructType):
        return any(is_variable_width(field.dataType) for field in kind)
    return not isinstance(kind, _FIXED)


def width(value: Column, kind: T.DataType) -> Column:
    """Return roughly how many bytes a value of a type takes; never NULL."""
    if not is_variable_width(kind):
        return F.lit(_fixed_width(kind)).cast("long")
    return F.lit(FIXED) + F.coalesce(_variable_width(value, kind), F.lit(0).cast("long"))


def _fixed_width(kind: T.DataType) -> int:
    """Return the width of the values of a type whose values all have the same."""
    return sum(_fixed_width(field.dataType) for field in kind) if isinstance(kind, T.StructType) else FIXED


def _variable_width(value: Column, kind: T.DataType) -> Column:
    """Return the bytes that a value of variable width takes beside its place in a row; NULL for NULL."""
    match kind:
        case T.ArrayType(elementType=element):
            return _elements(value, element)
        case T.MapType(keyType=key, valueType=element):
            return _elements(F.map_keys(value), key) + _elements(F.map_values(value), element)
        case T.StructType() if len({name.lower() for name in kind.names}) == len(kind):
            parts = [width(value.getField(field.name), field.dataType) for field in kind]
            return F.when(value.isNotNull(), reduce(Column.__add__, parts))
        case _:
            return F.octet_length(as_bytes(value, kind)).cast("long")


def as_bytes(value: Column, kind: T.DataType) -> Column:
    """Return a value as text or bytes."""
    if kind.typeName() in ("geometry", "geography"):  # Spark can't cast them
        return F.call_function("st_asbinary", value)
    return value if isinstance(kind, _OPEN) else value.cast("string")


def _elements(array: Column, kind: T.DataType) -> Column:
    if not is_variable_width(kind):
        return F.size(array).cast("long") * _fixed_width(kind)
    return F.aggregate(array, F.lit(0).cast("long"), lambda sum, element: sum + width(element, kind))
