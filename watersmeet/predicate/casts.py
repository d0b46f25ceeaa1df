"""Casts, written and implied: what Spark makes of a value of one type as another."""

from dataclasses import replace

from watersmeet.predicate.expr import Expr, Refusal, strict
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.types import FRACTIONAL, INTEGRAL, NUMERIC, Type, decimal_of

EXACT_DOUBLE_DIGITS = 15


def coerce(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """The cast Spark implies for an argument; refused where Spark, or this translation, has none."""
    kind = expr.type.kind
    if kind in NUMERIC and to.kind in {"double", "int", "long"} and (to.kind == "double" or kind in INTEGRAL):
        return cast(expr, to, dialect)
    if expr.type == to or kind == "void" or (kind == "string" and dialect.ansi):
        return cast(expr, to, dialect)
    if (kind, to.kind) in {("date", "timestamp"), ("date", "timestamp_ntz")}:
        return cast(expr, to, dialect)
    raise Refusal(f"{to} is expected here, not {expr.type}; write the cast you mean.")


def cast(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """`cast(expr AS to)`."""
    if expr.type == to:
        return expr
    if expr.type.kind == "void" or (expr.is_literal and expr.literal is None):
        return Expr(f"CAST(NULL AS {to.duckdb})", to, literal=None)
    if expr.type.kind in INTEGRAL and to.kind in NUMERIC:
        return _from_integer(expr, to, dialect)
    if expr.type.kind == "decimal" and to.kind in FRACTIONAL:
        return _decimal_to_double(expr, to)
    if expr.type.kind == "decimal" and to.kind == "decimal" and _only_widens(expr.type, to):
        return strict(f"CAST({expr.sql} AS {to.duckdb})", to, (expr,))
    if (expr.type.kind, to.kind) == ("float", "double"):
        return strict(f"CAST({expr.sql} AS DOUBLE)", to, (expr,))
    raise Refusal(f"A cast from {expr.type} to {to} can't be carried over.")


def _from_integer(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    made = strict(f"CAST({expr.sql} AS {to.duckdb})", to, (expr,))
    if to.kind in INTEGRAL and INTEGRAL[to.kind] >= INTEGRAL[expr.type.kind]:
        return replace(made, span=expr.range, literal=expr.literal)
    if to.kind in FRACTIONAL:
        return replace(made, literal=expr.literal)
    if to.kind == "decimal":
        limit = 10 ** (to.precision - to.scale)
        if (-limit < expr.range[0] and expr.range[1] < limit) or _only_widens(decimal_of(expr.type), to):
            return made
    raise Refusal(f"A cast from {expr.type} to {to} can't be carried over.")


def _only_widens(one: Type, two: Type) -> bool:
    return two.scale >= one.scale and two.precision - two.scale >= one.precision - one.scale


def _decimal_to_double(expr: Expr, to: Type) -> Expr:
    """DuckDB divides by a power of ten, which rounds twice for long decimals; through text it rounds once."""
    exact = expr.type.precision <= EXACT_DOUBLE_DIGITS and to.kind == "double"
    source = expr.sql if exact else f"CAST({expr.sql} AS VARCHAR)"
    return strict(f"CAST({source} AS {to.duckdb})", to, (expr,))
