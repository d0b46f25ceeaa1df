"""Spark's names of types, from Arrow's, which checkpoints hold."""

import re

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
    """Return Spark's name of an Arrow type; Arrow's own if Spark has no such type.

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
        return _nested(match[1], _parts(match[2]))
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


def _nested(kind: str, parts: list[str]) -> str:
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
