"""Spark's types: made from Arrow's, named for DuckDB, and which type Spark compares two of them in."""

import re
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

_NAMES = {
    "null": "void", "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "float": "float", "double": "double", "string": "string", "large_string": "string", "binary": "binary",
    "large_binary": "binary", "date32[day]": "date", "timestamp[us]": "timestamp_ntz",
    "duration[us]": "interval day to second", "time64[ns]": "time", "time64[us]": "time",
}  # fmt: skip
_OPENING, _CLOSING = "<[(", ">])"
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_NESTED = re.compile(r"(list|large_list|struct|map)<(.*)>", re.DOTALL)


def spark_name(kind: pa.DataType | str) -> str:
    """Return Spark's name of an Arrow type; Arrow's own if Spark has no type for it.

    Args:
        kind: The type, or its name in Arrow.

    >>> spark_name(pa.timestamp("us", "UTC")), spark_name("list<element: int64>")
    ('timestamp', 'array<bigint>')
    """
    text = str(kind).removesuffix(" not null")
    if text.startswith("timestamp[us, tz="):
        return "timestamp"
    if match := _DECIMAL.fullmatch(text):
        return f"decimal({match[1]},{match[2]})"
    if match := _NESTED.fullmatch(text):
        return _spark_name_of_nested(match[1], _parts(match[2]))
    return _NAMES.get(text, text)


def spark_column(text: str) -> str:
    """Return the description of a column in a checkpoint, its name and then its type, with Spark's name of the type.

    >>> spark_column("placed at timestamp[us, tz=UTC]")
    'placed at timestamp'
    """
    depth = 0
    for at in range(len(text) - 1, -1, -1):  # the name may hold spaces and brackets; those of the type are in pairs
        depth += (text[at] in _CLOSING) - (text[at] in _OPENING)
        if text[at] == " " and depth == 0:
            return f"{text[:at]} {spark_name(text[at + 1 :])}"
    return text


def _spark_name_of_nested(kind: str, parts: list[str]) -> str:
    """Return Spark's name of an array, struct or map from the parts of Arrow's, such as `item: int64`."""
    if kind == "map":
        return f"map<{','.join(map(spark_name, parts))}>"
    fields = [part.partition(": ")[::2] for part in parts]
    if kind == "struct":
        return f"struct<{','.join(f'{name}:{spark_name(of)}' for name, of in fields)}>"
    return f"array<{spark_name(fields[0][1])}>"


def _parts(text: str) -> list[str]:
    """Split a text at its commas outside of brackets."""
    parts, depth, start = list[str](), 0, 0
    for at, letter in enumerate(text):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()] if text else []


Kind = Literal[
    "void", "boolean", "byte", "short", "int", "long", "float", "double", "decimal", "string", "binary",
    "date", "timestamp", "timestamp_ntz", "day_time", "year_month", "array", "struct", "unsupported",
]  # fmt: skip

MAX_PRECISION = 38


@dataclass(frozen=True, slots=True)
class Type:
    """A Spark SQL type; `precision` and `scale` are a decimal's, `fields` a struct's, `element` an array's."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    element: "Type | None" = None
    fields: "tuple[tuple[str, Type], ...]" = ()
    name: str = ""

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return self.name or {"long": "bigint", "short": "smallint", "byte": "tinyint"}.get(self.kind, self.kind)

    @property
    def is_usable(self) -> bool:
        """Whether `where` can compute with its values, not only take fields out of them."""
        return (
            self.element.is_usable if self.element is not None else self.kind == "decimal" or self.kind in DUCKDB_NAMES
        )

    @property
    def duckdb(self) -> str:
        """The DuckDB type that holds it."""
        if self.kind == "decimal":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.element is not None:
            return f"{self.element.duckdb}[]"
        return DUCKDB_NAMES[self.kind]


VOID, BOOLEAN, STRING, BINARY = Type("void"), Type("boolean"), Type("string"), Type("binary")
BYTE, SHORT, INT, LONG = Type("byte"), Type("short"), Type("int"), Type("long")
FLOAT, DOUBLE = Type("float"), Type("double")
DATE, TIMESTAMP, TIMESTAMP_NTZ = Type("date"), Type("timestamp"), Type("timestamp_ntz")
DAY_TIME, YEAR_MONTH = Type("day_time", name="interval"), Type("year_month", name="interval")

DUCKDB_NAMES: dict[Kind, str] = {
    "void": "BOOLEAN", "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "int": "INTEGER",
    "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "binary": "BLOB", "date": "DATE",
    "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP", "day_time": "BIGINT", "year_month": "INTEGER",
}  # fmt: skip

INTEGRAL: dict[Kind, int] = {"byte": 8, "short": 16, "int": 32, "long": 64}
FRACTIONAL: frozenset[Kind] = frozenset({"float", "double"})
NUMERIC: frozenset[Kind] = frozenset({*INTEGRAL, *FRACTIONAL, "decimal"})
DATETIME: frozenset[Kind] = frozenset({"date", "timestamp", "timestamp_ntz"})
ORDERED: frozenset[Kind] = NUMERIC | DATETIME | {"boolean", "string", "binary", "day_time", "year_month"}

_WIDTHS: tuple[Kind, ...] = ("byte", "short", "int", "long", "float", "double")
_DIGITS: dict[Kind, int] = {"byte": 3, "short": 5, "int": 10, "long": 20}
_DATETIME_ORDER: tuple[Kind, ...] = ("date", "timestamp_ntz", "timestamp")

_FROM_ARROW: dict[pa.DataType, Type] = {
    pa.bool_(): BOOLEAN, pa.int8(): BYTE, pa.int16(): SHORT, pa.int32(): INT, pa.int64(): LONG,
    pa.float32(): FLOAT, pa.float64(): DOUBLE, pa.string(): STRING, pa.large_string(): STRING,
    pa.binary(): BINARY, pa.large_binary(): BINARY, pa.date32(): DATE, pa.null(): VOID,
}  # fmt: skip


def from_arrow(arrow: pa.DataType) -> Type:
    """The Spark type of an Arrow column; one that `where` can't use keeps its name for errors."""
    if arrow in _FROM_ARROW:
        return _FROM_ARROW[arrow]
    if pa.types.is_timestamp(arrow) and arrow.unit == "us":
        return TIMESTAMP if arrow.tz else TIMESTAMP_NTZ
    if pa.types.is_decimal128(arrow) and arrow.scale >= 0:
        return Type("decimal", arrow.precision, arrow.scale)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return Type("array", element=from_arrow(arrow.value_type), name=f"array<{from_arrow(arrow.value_type)}>")
    if pa.types.is_struct(arrow):
        return Type("struct", fields=tuple((field.name, from_arrow(field.type)) for field in arrow))
    return Type("unsupported", name=spark_name(arrow))


def integer_range(kind: Kind) -> tuple[int, int]:
    """The smallest and the largest value of an integral type."""
    half = 1 << (INTEGRAL[kind] - 1)
    return -half, half - 1


def decimal_of(number: Type) -> Type:
    """The decimal that holds every value of an integral type; a decimal itself."""
    return number if number.kind == "decimal" else Type("decimal", _DIGITS[number.kind], 0)


def wider_decimal(one: Type, two: Type) -> Type | None:
    """The decimal in which both can be compared, or None if it would need more than 38 digits."""
    scale = max(one.scale, two.scale)
    precision = max(one.precision - one.scale, two.precision - two.scale) + scale
    return Type("decimal", precision, scale) if precision <= MAX_PRECISION else None


def common_type(one: Type, two: Type, *, ansi: bool) -> Type | None:
    """The type in which Spark compares the two; None where Spark or this translation refuses."""
    if one == two or two.kind == "void":
        return one
    if one.kind == "void":
        return two
    kinds = {one.kind, two.kind}
    if kinds <= NUMERIC:
        return _common_number(one, two, ansi=ansi)
    if kinds <= DATETIME:
        return max(one, two, key=lambda type_: _DATETIME_ORDER.index(type_.kind))
    if "string" in kinds and ansi:
        return _common_with_string(two if one.kind == "string" else one)
    return None


def _common_number(one: Type, two: Type, *, ansi: bool) -> Type | None:
    """The type to which Spark casts both of two kinds of number; None if there is none."""
    kinds = {one.kind, two.kind}
    if "decimal" in kinds:
        return DOUBLE if kinds & FRACTIONAL else wider_decimal(decimal_of(one), decimal_of(two))
    wider = max(one, two, key=lambda type_: _WIDTHS.index(type_.kind))
    return DOUBLE if ansi and wider.kind == "float" else wider


def _common_with_string(other: Type) -> Type | None:
    """The type to which Spark casts both a string and another type; None if there is none."""
    if other.kind in INTEGRAL:
        return LONG
    if other.kind in NUMERIC:
        return DOUBLE
    return other if other.kind in DATETIME | {"boolean", "binary"} else None
