"""floor, ceil and round."""

from collections.abc import Sequence

from watersmeet.predicate.casts import cast, coerce
from watersmeet.predicate.expr import Expr, Refusal, error_sql, strict_expr
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.types import DOUBLE, FRACTIONAL, INTEGRAL, LONG, MAX_PRECISION, Type


def floor(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`floor(x)`: a bigint, or a decimal without fraction."""
    return _round_to_whole("floor", arguments[0], dialect)


def ceiling(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`ceil(x)`: likewise."""
    return _round_to_whole("ceil", arguments[0], dialect)


def _round_to_whole(name: str, value: Expr, dialect: Dialect) -> Expr:
    if value.type.kind in INTEGRAL:
        return cast(value, LONG, dialect)
    if value.type.kind == "decimal":
        type_ = Type("decimal", min(MAX_PRECISION, value.type.precision - value.type.scale + 1), 0)
        return strict_expr(f"CAST({name}({value.sql}) AS {type_.duckdb})", type_, (value,))
    value = coerce(value, DOUBLE, dialect)
    if not dialect.ansi:
        return strict_expr(f"ws_whole({name}({value.sql}))", LONG, (value,))
    whole = f"{name}({value.sql})"
    outside = f"{whole} >= 9223372036854775808 AND NOT isnan({whole}) OR {whole} < -9223372036854775808"
    error = error_sql("[ARITHMETIC_OVERFLOW] overflow", LONG)
    return strict_expr(f"(CASE WHEN {outside} THEN {error} ELSE ws_whole({whole}) END)", LONG, (value,), raises=True)


def round_value(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`round(x[, digits])`, half away from zero."""
    value = coerce(arguments[0], DOUBLE, dialect) if arguments[0].type.kind == "string" else arguments[0]
    digits = arguments[1].literal if len(arguments) > 1 else 0
    if not isinstance(digits, int) or digits < 0:
        raise Refusal("round takes a literal number of digits, at least 0.")
    if value.type.kind in INTEGRAL:
        return value
    if value.type.kind == "decimal":
        return _round_decimal(value, digits)
    if value.type.kind not in FRACTIONAL or digits > 0:
        raise Refusal("round to a fraction can be translated for decimals only; cast the value to a decimal.")
    return strict_expr(f"round({value.sql})", value.type, (value,))


def _round_decimal(value: Expr, digits: int) -> Expr:
    scale = min(value.type.scale, digits)
    precision = value.type.precision - value.type.scale + 1 + scale
    if precision > MAX_PRECISION:
        raise Refusal(f"round of {value.type} needs more than 38 digits; cast it to a smaller decimal.")
    type_ = Type("decimal", precision, scale)
    return strict_expr(f"CAST({value.sql} AS {type_.duckdb})", type_, (value,))
