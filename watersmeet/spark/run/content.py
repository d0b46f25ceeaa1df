"""The hash of a row's content: it breaks ties of the arrival order, so distinct rows must not collide systematically.

[!] Spark's xxhash64 skips NULL, ignores the boundaries of arrays and structs, treats -0.0 as 0.0, and rejects maps and
variants. So it is also given what it would otherwise miss.
"""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T


def content_hash(values: Sequence[tuple[Column, T.DataType]]) -> Column:
    """Return a hash of columns, passed with their types."""
    return F.xxhash64(*hash_input(values))


def hash_input(values: Sequence[tuple[Column, T.DataType]]) -> list[Column]:
    """Return what to hash of columns, passed with their types: distinct rows differ in it."""
    return [part for value, kind in values for part in _parts(value, kind)]


def _parts(value: Column, kind: T.DataType) -> list[Column]:
    """Return what to hash of a value: distinct values differ in it."""
    null = value.isNull()
    if isinstance(kind, T.StructType) and len({field.name.lower() for field in kind}) == len(kind):
        return [null, *(part for field in kind for part in _parts(value.getField(field.name), field.dataType))]
    if isinstance(kind, T.ArrayType):
        return [null, F.size(value), *_elements(value, kind.elementType)]
    if isinstance(kind, T.MapType):
        entry = T.StructType([T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)])
        hashes = F.transform(F.map_entries(value), lambda each: content_hash([(each, entry)]))
        return [null, F.size(value), F.array_sort(hashes)]
    if isinstance(kind, T.VariantType):
        return [null, F.to_json(value), F.schema_of_variant(value)]
    return [null, *_scalar_parts(value, kind)]


def _scalar_parts(value: Column, kind: T.DataType) -> list[Column]:
    """Return what to hash of a value without parts: texts by their bytes, and -0.0 apart from 0.0."""
    if isinstance(kind, T.StringType) and not _is_binary(kind):
        return [value.cast("binary")]  # texts that are equal by a collation may still be different content
    if isinstance(kind, T.FloatType | T.DoubleType):
        return [value, F.when(value == 0, value.cast("string"))]
    return [value]


def _elements(value: Column, kind: T.DataType) -> list[Column]:
    """Return what to hash of an array: the array itself, which is fast, unless elements need more."""
    copy = _copy_array(value)
    each = F.transform(copy, lambda element: content_hash([(element, kind)]))
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType | T.VariantType):
        return [each]
    if isinstance(kind, T.StringType) and not _is_binary(kind):
        return [each]
    zero = isinstance(kind, T.FloatType | T.DoubleType)
    ambiguous = F.exists(copy, lambda element: element.isNull() | (element == 0) if zero else element.isNull())
    return [value, F.when(ambiguous, each)]


def _copy_array(array: Column) -> Column:
    """Return a copy of an array, for functions that look at each element.

    [!] Over an array of nothing but NULL that Spark has just read from Parquet, its own `transform`, `exists` and
    `aggregate` fail: they look values up in a dictionary without entries.
    """
    return F.slice(array, 1, 2**31 - 1)


def _is_binary(kind: T.StringType) -> bool:
    return kind.collation == "UTF8_BINARY"
