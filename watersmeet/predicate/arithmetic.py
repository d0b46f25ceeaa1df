"""Spark's arithmetic: the width of integers, the digits of decimals, and division by zero."""

from collections.abc import Callable
from dataclasses import replace

from watersmeet.predicate.casts import cast, coerce
from watersmeet.predicate.expr import NULL, Expr, Refusal, fail, fits, strict
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.types import (
    DOUBLE,
    FRACTIONAL,
    INTEGRAL,
    LONG,
    MAX_PRECISION,
    NUMERIC,
    VOID,
    Type,
    common_type,
    decimal_of,
    integer_range,
)  # fmt: skip

Span = tuple[int, int]

SPANS: dict[str, Callable[[Span, Span], Span]] = {
    "+": lambda one, two: (one[0] + two[0], one[1] + two[1]),
    "-": lambda one, two: (one[0] - two[1], one[1] - two[0]),
    "*": lambda one, two: (min(products(one, two)), max(products(one, two))),
}


def products(one: Span, two: Span) -> list[int]:
    """The products of the ends of two spans; the extremes are among them."""
    return [x * y for x in one for y in two]


def arithmetic(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """`left sign right` for one of + - * / % div, with the operands still as the user wrote them."""
    left, right = _numbers(left, right, dialect)
    kinds = {left.type.kind, right.type.kind}
    if sign == "/" and "decimal" not in kinds:
        left, right = cast(left, DOUBLE, dialect), cast(right, DOUBLE, dialect)
    elif sign == "div" and kinds <= INTEGRAL.keys():
        left, right = cast(left, LONG, dialect), cast(right, LONG, dialect)
    if "decimal" in kinds and not kinds & FRACTIONAL:
        return _decimal(sign, left, right, dialect)
    type_ = common_type(left.type, right.type, ansi=dialect.ansi)
    if type_ is None or type_.kind not in NUMERIC:
        raise Refusal(f"{sign} is not defined for {left.type} and {right.type}.")
    left, right = cast(left, type_, dialect), cast(right, type_, dialect)
    if sign in SPANS:
        return _integer(sign, left, right, dialect) if type_.kind in INTEGRAL else _plain(sign, left, right)
    return _divided(DIVISIONS[sign], left, right, dialect)


def _numbers(left: Expr, right: Expr, dialect: Dialect) -> tuple[Expr, Expr]:
    """The operands with strings and NULLs turned into numbers, as Spark does before anything else."""
    if left.type.kind == right.type.kind == "void":
        return replace(NULL, type=DOUBLE), replace(NULL, type=DOUBLE)
    if left.type.kind == "string" and right.type.kind == "string":
        return coerce(left, DOUBLE, dialect), coerce(right, DOUBLE, dialect)
    for one, two in ((left, right), (right, left)):
        if one.type.kind in {"string", "void"} and two.type.kind in NUMERIC:
            type_ = two.type if one.type is VOID else common_type(one.type, two.type, ansi=dialect.ansi)
            if type_ is not None:
                return (cast(one, type_, dialect), two) if one is left else (two, cast(one, type_, dialect))
    return left, right


def _plain(sign: str, left: Expr, right: Expr) -> Expr:
    return strict(f"({left.sql} {sign} {right.sql})", left.type, (left, right))


def _integer(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """Integer arithmetic: beyond the type's width ANSI raises (as DuckDB does), the old mode wraps round."""
    span = SPANS[sign](left.range, right.range)
    if fits(span, left.type):
        return replace(_plain(sign, left, right), span=span)
    if dialect.ansi:
        return replace(_plain(sign, left, right), raises=True)
    wide = f"(CAST({left.sql} AS HUGEINT) {sign} CAST({right.sql} AS HUGEINT))"
    return strict(wrapped(wide, left.type), left.type, (left, right))


def wrapped(sql: str, type_: Type) -> str:
    """A HUGEINT cut to the type's width, as Java cuts it."""
    low, high = integer_range(type_.kind)
    size = high - low + 1
    return f"CAST((({sql} - {low}) % {size} + {size}) % {size} + {low} AS {type_.duckdb})"


DIVISIONS: dict[str, str] = {"/": "({0} / {1})", "%": "({0} % {1})", "div": "({0} // {1})"}


def _divided(template: str, left: Expr, right: Expr, dialect: Dialect, result: Type | None = None) -> Expr:
    """A division: Spark evaluates the divisor first, and a NULL dividend hides a divisor of zero."""
    type_ = result or left.type
    quotient = template.format(left.sql, right.sql)
    if right.is_literal and right.literal not in (None, 0):
        hazard = template == DIVISIONS["div"] and right.literal == -1
        return strict(quotient, type_, (right, left), raises=hazard and dialect.ansi)
    zero = fail("[DIVIDE_BY_ZERO] Division by zero.", type_) if dialect.ansi else "NULL"
    checked = f"(CASE WHEN {left.sql} IS NULL THEN NULL WHEN {right.sql} = 0 THEN {zero} ELSE {quotient} END)"
    return strict(checked, type_, (right, left), raises=dialect.ansi)


def _decimal(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    left, right = _as_decimal(left, dialect), _as_decimal(right, dialect)
    one, two = left.type, right.type
    type_ = _decimal_result(sign, one, two)
    if sign in "+-":
        sides = (cast(left, type_, dialect).sql, cast(right, type_, dialect).sql)
        return strict(f"CAST({sides[0]} {sign} {sides[1]} AS {type_.duckdb})", type_, (left, right))
    if sign == "*":
        return strict(f"CAST({left.sql} * {right.sql} AS {type_.duckdb})", type_, (left, right))
    raise Refusal(f"Decimal {sign} can't be carried over; cast one side to double.")


def _as_decimal(expr: Expr, dialect: Dialect) -> Expr:
    """An integer as the decimal Spark makes of it: a literal takes as few digits as it has."""
    if expr.type.kind == "decimal":
        return expr
    if expr.is_literal and expr.literal is not None:
        return cast(expr, Type("decimal", len(str(abs(expr.literal))), 0), dialect)
    return cast(expr, decimal_of(expr.type), dialect)


def _decimal_result(sign: str, one: Type, two: Type) -> Type:
    scale = max(one.scale, two.scale)
    whole = max(one.precision - one.scale, two.precision - two.scale)
    precision, scale = {
        "+": (whole + scale + 1, scale),
        "-": (whole + scale + 1, scale),
        "*": (one.precision + two.precision + 1, one.scale + two.scale),
    }.get(sign, (MAX_PRECISION + 1, 0))
    if precision > MAX_PRECISION:
        raise Refusal(f"{one} {sign} {two} needs more than 38 digits; cast one side to a smaller decimal or to double.")
    return Type("decimal", precision, scale)


def negated(expr: Expr, dialect: Dialect) -> Expr:
    """`-expr`."""
    if expr.type.kind in INTEGRAL:
        zero = Expr(f"CAST(0 AS {expr.type.duckdb})", expr.type, span=(0, 0), literal=0)
        return _integer("-", zero, expr, dialect)
    if expr.type.kind not in NUMERIC:
        raise Refusal(f"A minus stands before a number, not before {expr.type}.")
    return strict(f"(-{expr.sql})", expr.type, (expr,))


def absolute(expr: Expr, dialect: Dialect) -> Expr:
    """`abs(expr)`."""
    if expr.type.kind in INTEGRAL:
        low, high = expr.range
        span = (0, max(abs(low), abs(high)))
        if fits(span, expr.type):
            return replace(strict(f"abs({expr.sql})", expr.type, (expr,)), span=span)
        if not dialect.ansi:
            return strict(wrapped(f"abs(CAST({expr.sql} AS HUGEINT))", expr.type), expr.type, (expr,))
        return strict(f"abs({expr.sql})", expr.type, (expr,), raises=True)
    if expr.type.kind == "string":
        expr = coerce(expr, DOUBLE, dialect)
    if expr.type.kind not in NUMERIC | {"day_time"}:
        raise Refusal(f"abs takes a number, not {expr.type}.")
    return strict(f"abs({expr.sql})", expr.type, (expr,))
