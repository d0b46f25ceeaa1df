"""Upper bounds for the sizes of functions' values: text from people may call only functions with a bound here.

A function of Spark's that is in none of the tables is not allowed: those of new versions have to be reviewed first.
Spark computes how many bytes values take where they are, before they are sent or copied.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

FIXED = 8
"""The assumed width of a value of fixed width."""
_OPEN = (T.StringType, T.CharType, T.VarcharType, T.BinaryType)
_FIXED = (T.NumericType, T.BooleanType, T.DatetimeType, T.DateType, T.DayTimeIntervalType, T.YearMonthIntervalType,
          T.NullType, T.CalendarIntervalType)  # fmt: skip
Arguments = Sequence[tuple[Column, T.DataType]]
"""The arguments of a call, each with its type."""
Bound = Callable[[Arguments], Column]
"""Returns how many bytes a value takes at most; never NULL."""
SCALAR = 64
"""How many bytes a number, a time or a boolean takes as text, including separators."""
LETTER = 40
"""How many bytes a letter of a pattern for times or numbers may produce: the name of a zone, of two letters."""
BROKEN = 3
"""How many bytes an invalid byte may become, as when bytes are cast to text: a replacement character."""
ESCAPED = 6
"""How many bytes a byte of text takes in JSON: backslash, u and four digits."""
DIGITS = 420
"""How many bytes a number takes with all its digits."""


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


def text_size(arguments: Arguments, at: int) -> Column:
    """Return how many bytes an argument has as text, 0 if there is none; never NULL."""
    if at >= len(arguments):
        return F.lit(0.0)
    value, kind = arguments[at]
    text = as_bytes(value, kind) if is_flat(kind) else value.cast("string")
    return F.coalesce(F.octet_length(text).cast("double"), F.lit(0.0))


def _sum(columns: Sequence[Column]) -> Column:
    return reduce(Column.__add__, columns, F.lit(0.0))


def _texts(arguments: Arguments) -> Column:
    return _sum([text_size(arguments, at) for at in range(len(arguments))])


def _times(factor: float, arguments: Arguments) -> Column:
    """Return the size bound of a value that takes at most `factor` bytes for each byte of its arguments."""
    return _texts(arguments) * factor + SCALAR


def _widths(arguments: Arguments) -> Column:
    """Return the size bound of a value that holds all arguments."""
    return _sum([width(*argument).cast("double") for argument in arguments])


def _map_entries(arguments: Arguments) -> Column:
    return _widths(arguments) + _count(arguments[0][0]) * FIXED


def _count(value: Column) -> Column:
    return F.coalesce(F.size(value).cast("double"), F.lit(0.0))


def _replace(arguments: Arguments) -> Column:
    # [!] A match may be shorter than the text searched for, by a third at most, where a collation takes both for equal.
    source, search, replacement = (text_size(arguments, at) for at in range(3))
    return source + source / F.greatest(F.lit(1.0), search / 3) * replacement


def _looks_around(arguments: Arguments) -> Column:
    """Tell whether groups of a pattern may be outside of its match: then each match may be as long as the text."""
    return F.coalesce(F.contains(arguments[1][0].cast("string"), F.lit("(?")), F.lit(False))


def _regexp_replace(arguments: Arguments) -> Column:
    source, replacement = BROKEN * text_size(arguments, 0), BROKEN * text_size(arguments, 2)
    around = F.when(_looks_around(arguments), source * (source + 1)).otherwise(source)
    return source + (source + 1) * replacement + around * F.floor(replacement / 2)


def _pieces(arguments: Arguments) -> Column:
    """Return the size bound of a text cut into pieces, of one letter or none at worst."""
    return (text_size(arguments, 0) + 1) * (2 * FIXED + 1)


def _matches(arguments: Arguments) -> Column:
    source = BROKEN * text_size(arguments, 0)
    return _pieces(arguments) + F.when(_looks_around(arguments), source * (source + 1)).otherwise(0.0)


def _array_join(arguments: Arguments) -> Column:
    count = _count(arguments[0][0])
    return width(*arguments[0]) + count * (text_size(arguments, 1) + text_size(arguments, 2) + SCALAR)


def _concat_ws(arguments: Arguments) -> Column:
    lists = [value for value, kind in arguments[1:] if isinstance(kind, T.ArrayType)]
    count = _sum([_count(value) for value in lists]) + len(arguments)
    return _concat(arguments) + count * text_size(arguments, 0)


def _concat(arguments: Arguments) -> Column:
    nested = [argument for argument in arguments if isinstance(argument[1], T.ArrayType)]
    return _widths(nested) + _texts([argument for argument in arguments if not isinstance(argument[1], T.ArrayType)])


def format_size(digits: Bound, arguments: Arguments) -> Column:
    """Return the most bytes that `printf(format, ...)` may make, as a column that is never NULL.

    Each `%` may be the largest argument, or a number of `DIGITS` bytes.

    Args:
        digits: Returns the sum of the numbers in a format's placeholders, such as widths.
        arguments: The format, and its arguments.
    """
    form = arguments[0][0].cast("string")
    places = F.coalesce(F.octet_length(form) - F.octet_length(F.replace(form, F.lit("%"), F.lit(""))), F.lit(0))
    widths = [_text_width(*argument) for argument in arguments[1:]]
    largest = F.greatest(F.lit(float(DIGITS)), *widths) if widths else F.lit(float(DIGITS))
    return BROKEN * text_size(arguments, 0) + F.coalesce(digits(arguments), F.lit(0.0)) + places * largest


def _text_width(value: Column, kind: T.DataType) -> Column:
    """Return the most bytes that a value takes as text, in any format."""
    return BROKEN * text_size([(value, kind)], 0) if is_flat(kind) else width(value, kind) * (SCALAR + names_in(kind))


def is_flat(kind: T.DataType) -> bool:
    """Tell whether values of a type are not arrays, maps or structs."""
    return not isinstance(kind, T.ArrayType | T.MapType | T.StructType)


def names_in(kind: T.DataType) -> int:
    """Return the total length of the names of all fields in a type, in bytes."""
    match kind:
        case T.ArrayType(elementType=element):
            return names_in(element)
        case T.MapType(keyType=key, valueType=value):
            return names_in(key) + names_in(value)
        case T.StructType():
            return sum(len(field.name.encode()) + names_in(field.dataType) for field in kind)
    return 0


def leaves(kind: T.DataType) -> int:
    """Return how many values a value of a type consists of if each array in it has one element; structs count, too."""
    match kind:
        case T.ArrayType(elementType=element):
            return leaves(element)
        case T.MapType(keyType=key, valueType=value):
            return leaves(key) + leaves(value)
        case T.StructType():
            return 1 + sum(leaves(field.dataType) for field in kind)
    return 1


def can_grow_in_cast(kind: T.DataType, to: T.DataType) -> bool:
    """Tell whether a cast makes texts of numbers, times or booleans, at any depth, or nested values of a variant.

    Args:
        kind: The type that is cast.
        to: The type that it is cast to.
    """
    match kind, to:
        case T.ArrayType(elementType=element), T.ArrayType(elementType=other):
            return can_grow_in_cast(element, other)
        case T.MapType(keyType=key, valueType=value), T.MapType(keyType=other, valueType=to_value):
            return can_grow_in_cast(key, other) or can_grow_in_cast(value, to_value)
        case T.StructType(), T.StructType():
            return any(can_grow_in_cast(one.dataType, other.dataType) for one, other in zip(kind, to, strict=False))
    return (is_variable_width(to) and not is_variable_width(kind)) or (
        isinstance(kind, T.VariantType) and not is_flat(to)
    )


def has_elements(kind: T.DataType) -> bool:
    """Tell whether a value of a type may hold any number of others."""
    if isinstance(kind, T.StructType):
        return any(has_elements(field.dataType) for field in kind)
    return isinstance(kind, T.ArrayType | T.MapType)


def _to_json(arguments: Arguments) -> Column:
    value, kind = arguments[0]
    inside = F.coalesce(width(value, kind).cast("double"), F.lit(0.0))
    around = float(ESCAPED * names_in(kind) + SCALAR * leaves(kind))
    return ESCAPED * inside + around * (1 + inside / FIXED if has_elements(kind) else 1)


def parsed_size(arguments: Arguments, kind: T.DataType) -> Column:
    """Return the size bound of a value of a type that is parsed from a text."""
    text, fixed = text_size(arguments, 0), float(2 * FIXED * leaves(kind))
    return text + fixed * (1 + text if has_elements(kind) else 1)


def _arrays_zip(arguments: Arguments) -> Column:
    longest = reduce(F.greatest, [_count(value) for value, _ in arguments], F.lit(0.0))
    return _widths(arguments) + longest * (FIXED * len(arguments))


def _by_pattern(pattern: int, arguments: Arguments) -> Column:
    """Return the size bound of a value formatted by a pattern."""
    return 2 * text_size(arguments, 0) + LETTER * text_size(arguments, pattern) + DIGITS


def _pad(arguments: Arguments) -> Column:
    length = F.greatest(F.lit(0.0), F.coalesce(arguments[1][0].cast("double"), F.lit(0.0)))
    return text_size(arguments, 0) + length * (4.0 if len(arguments) > 2 else 1.0)  # a letter has up to four bytes


GROWERS: dict[str, Bound] = {
    **dict.fromkeys(("hex", "base64", "to_base32", "quote"), partial(_times, 2 * BROKEN)),
    **dict.fromkeys(("upper", "ucase", "lower", "lcase", "initcap"), partial(_times, 3)),
    "url_encode": partial(_times, 3 * BROKEN),
    **dict.fromkeys(("regexp_extract", "regexp_substr", "split_part", "url_decode", "try_url_decode"),
                    partial(_times, BROKEN)),
    **dict.fromkeys(("decode", "make_valid_utf8"), partial(_times, 3)),
    **dict.fromkeys(("mask", "translate", "encode"), partial(_times, 4)),
    **dict.fromkeys(("parse_json", "try_parse_json", "get_json_object"), partial(_times, ESCAPED)),
    **dict.fromkeys(("schema_of_json", "schema_of_csv"), partial(_times, 16)),
    **dict.fromkeys(("overlay", "aes_encrypt"), partial(_times, 1)),
    **dict.fromkeys(("split", "sentences", "json_object_keys", "str_to_map"), _pieces),
    **dict.fromkeys(("date_format", "from_unixtime", "to_char", "to_varchar"), partial(_by_pattern, 1)),
    "concat": _concat,
    "concat_ws": _concat_ws,
    "array_join": _array_join,
    "replace": _replace,
    "regexp_replace": _regexp_replace,
    "regexp_extract_all": _matches,
    "arrays_zip": _arrays_zip,
    "map_entries": _map_entries,
    "to_json": _to_json,
    "to_csv": _to_json,
    "lpad": _pad,
    "rpad": _pad,
}  # fmt: skip
"""Functions whose values may be larger than the largest of their arguments, with their bounds."""
READERS = frozenset({"from_json", "from_csv", "variant_get", "try_variant_get"})
"""Those whose bounds depend on the type of the value."""
HOLDERS = frozenset({"array", "struct", "named_struct", "map", "map_concat", "map_from_arrays", "map_from_entries",
                     "map_zip_with", "array_append", "array_prepend", "array_union"})  # fmt: skip
"""Those whose values hold their arguments, not copied until they are used: measured once they exist."""
FORMATS = frozenset({"format_string", "printf"})
OPERATORS = {"Concat": "concat", "Overlay": "overlay", "CreateArray": "array", "CreateMap": "map",
             "CreateNamedStruct": "named_struct"}  # fmt: skip
"""Operators that are functions under another name."""
FREE = frozenset({
    "!", "%", "&", "*", "+", "-", "/", "<", "<<", "<=", "<=>", "=", "==", ">", ">=", ">>", ">>>", "^", "abs",
    "acos", "acosh", "add_months", "aes_decrypt", "aggregate", "and", "array_compact", "array_contains",
    "array_distinct", "array_except", "array_intersect", "array_max", "array_min", "array_position", "array_remove",
    "array_size", "array_sort", "arrays_overlap", "ascii", "asin", "asinh", "assert_true", "atan", "atan2", "atanh",
    "between", "bigint", "bin", "binary", "bit_count", "bit_get", "bit_length", "bitmap_bit_position",
    "bitmap_bucket_number", "bitmap_count", "boolean", "bround", "btrim", "cardinality", "cast", "cbrt", "ceil",
    "ceiling", "char", "char_length", "character_length", "chr", "coalesce", "collate", "collation", "contains",
    "conv", "convert_timezone", "cos", "cosh", "cot", "crc32", "csc", "current_timezone", "date", "date_add",
    "date_diff", "date_from_unix_date", "date_part", "date_sub", "date_trunc", "dateadd", "datediff", "datepart",
    "day", "dayname", "dayofmonth", "dayofweek", "dayofyear", "decimal", "degrees", "div", "double", "e",
    "element_at", "elt", "endswith", "equal_null", "exists", "exp", "expm1", "extract", "factorial", "filter",
    "find_in_set", "flatten", "float", "floor", "forall", "from_base32", "from_utc_timestamp", "get", "getbit",
    "greatest", "hash", "hmac", "hour", "hypot", "if", "ifnull", "ilike", "in", "instr", "int", "is_valid_utf8",
    "is_valid_variant", "is_variant_null", "isnan", "isnotnull", "isnull", "jaro_winkler_similarity",
    "json_array_length", "last_day", "least", "left", "len", "length", "levenshtein", "like", "ln", "locate", "log",
    "log10", "log1p", "log2", "ltrim", "luhn_check", "make_date", "make_dt_interval", "make_interval", "make_time",
    "make_timestamp", "make_timestamp_ltz", "make_timestamp_ntz", "make_ym_interval", "map_contains_key",
    "map_filter", "map_keys", "map_values", "md5", "minute", "mod", "month", "monthname",
    "months_between", "nanvl", "negative", "next_day", "not", "nullif", "nullifzero", "nvl", "nvl2", "octet_length",
    "or", "parse_url", "pi", "pmod", "position", "positive", "pow", "power", "quarter", "radians", "raise_error",
    "reduce", "regexp", "regexp_count", "regexp_instr", "regexp_like", "reverse",
    "right", "rint", "rlike", "round", "rtrim", "sec", "second", "sha", "sha1", "sha2", "shiftleft", "shiftright",
    "shiftrightunsigned", "sign", "signum", "sin", "sinh", "size", "slice", "smallint", "sort_array", "soundex",
    "sqrt", "st_asbinary", "st_geogfromwkb", "st_geomfromwkb", "st_setsrid", "st_srid", "startswith",
    "string", "substr", "substring", "substring_index", "tan", "tanh", "time", "time_bucket", "time_diff",
    "time_from_micros", "time_from_millis", "time_from_seconds", "time_to_micros", "time_to_millis",
    "time_to_seconds", "time_trunc", "timestamp", "timestamp_micros", "timestamp_millis", "timestamp_nanos",
    "timestamp_seconds", "tinyint", "to_binary", "to_date", "to_number", "to_time", "to_timestamp",
    "to_timestamp_ltz", "to_timestamp_ntz", "to_unix_timestamp", "to_utc_timestamp", "transform", "transform_keys",
    "transform_values", "trim", "trunc", "try_add", "try_aes_decrypt", "try_divide", "try_element_at",
    "try_make_interval", "try_make_timestamp", "try_make_timestamp_ltz", "try_make_timestamp_ntz", "try_mod",
    "try_multiply", "try_parse_url", "try_subtract", "try_to_binary", "try_to_date", "try_to_number", "try_to_time",
    "try_to_timestamp", "try_validate_utf8", "typeof", "unbase64", "unhex",
    "unix_date", "unix_micros", "unix_millis", "unix_nanos", "unix_seconds", "unix_timestamp",
    "validate_utf8", "variant_delete", "variant_strip_nulls", "vector_cosine_similarity",
    "vector_inner_product", "vector_l2_distance", "vector_norm", "vector_normalize", "weekday", "weekofyear",
    "when", "width_bucket", "xxhash64", "year", "zeroifnull", "zip_with", "|", "~",
})  # fmt: skip
"""Functions whose values are no larger than the largest of their arguments, or than a number; tests try them all."""
