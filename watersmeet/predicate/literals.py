"""Literals as Spark reads them."""

import re
from decimal import Decimal

from watersmeet.predicate.expr import Expr, Refusal, quote
from watersmeet.predicate.types import DOUBLE, INT, LONG, MAX_PRECISION, STRING, Type, integer_range

_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)


def number(text: str) -> Expr:
    """A number without a suffix: int or bigint if whole, decimal with a point, double with an exponent."""
    if "e" in text.lower():
        return Expr(f"CAST({quote(text)} AS DOUBLE)", DOUBLE, literal=float(text))
    if "." not in text:
        return integer(int(text))
    return decimal(Decimal(text))


def integer(value: int) -> Expr:
    """The smallest of int, bigint and decimal that holds the value."""
    for type_ in (INT, LONG):
        low, high = integer_range(type_.kind)
        if low <= value <= high:
            return Expr(f"CAST({value} AS {type_.duckdb})", type_, literal=value, span=(value, value))
    return decimal(Decimal(value))


def decimal(value: Decimal) -> Expr:
    """A decimal with as many digits as were written."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits), scale)
    if precision > MAX_PRECISION:
        raise Refusal("A decimal has at most 38 digits.")
    type_ = Type("decimal", precision, scale)
    return Expr(f"CAST({quote(format(value, 'f'))} AS {type_.duckdb})", type_, literal=value)


def string(written: str) -> Expr:
    """A string as it stands in the text, quotes and escapes included."""
    value = _ESCAPE.sub(_unescaped, written[1:-1])
    return Expr(quote(value), STRING, literal=value)


def _unescaped(found: re.Match[str]) -> str:
    four, eight, octal, single = found.groups()
    if four or eight:
        return chr(int(four or eight, 16))
    return chr(int(octal, 8)) if octal else _ESCAPES.get(single, single)
