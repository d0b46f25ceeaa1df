"""Spark's arithmetic and rounding: the width of integers, the digits of decimals, and division by zero."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from watersmeet.predicate.casts import cast, coerce, wrap_around
from watersmeet.predicate.datetimes import shift
from watersmeet.predicate.expr import NULL, Expr, Refusal, combine, error_sql, fits, strict_expr
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.types import (
    DOUBLE,
    FRACTIONAL,
    INT,
    INTEGRAL,
    LONG,
    MAX_PRECISION,
    NUMERIC,
    VOID,
    Type,
    common_type,
    decimal_of,
    wider_decimal,
)  # fmt: skip

Span = tuple[int, int]
NARROW_DIGITS = 18

SPANS: dict[str, Callable[[Span, Span], Span]] = {
    "+": lambda one, two: (one[0] + two[0], one[1] + two[1]),
    "-": lambda one, two: (one[0] - two[1], one[1] - two[0]),
    "*": lambda one, two: (min(products(one, two)), max(products(one, two))),
}

# By these names DuckDB's optimizer leaves them alone; it turns `x + 1 > 0` into `x > -1`, which never overflows.
CHECKED = {"+": "add", "-": "subtract", "*": "multiply"}


def products(one: Span, two: Span) -> list[int]:
    """The products of the ends of two spans, whose extremes are those of the span of products."""
    return [x * y for x in one for y in two]


def arithmetic(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """Return `left sign right` for one of + - * / % div, in the type that Spark gives it.

    Strings and NULLs count as numbers; dates, times and intervals are added and subtracted by the calendar.

    Raises:
        Refusal: If it isn't defined for these types, or can't be translated.
    """
    shifted = shift(sign, left, right, dialect) if sign in "+-" else None
    if shifted is not None:
        return shifted
    left, right = _numbers(left, right, dialect)
    kinds = {left.type.kind, right.type.kind}
    if sign == "/" and "decimal" not in kinds:
        left, right = cast(left, DOUBLE, dialect), cast(right, DOUBLE, dialect)
    elif sign == "div" and kinds <= INTEGRAL.keys():
        left, right = cast(left, LONG, dialect), cast(right, LONG, dialect)
    if "decimal" in kinds and kinds <= NUMERIC and not kinds & FRACTIONAL:
        return _decimal_operation(sign, left, right, dialect)
    type_ = common_type(left.type, right.type, ansi=dialect.ansi)
    if type_ is None or type_.kind not in NUMERIC:
        raise Refusal(f"{sign} is not defined for {left.type} and {right.type}.")
    left, right = cast(left, type_, dialect), cast(right, type_, dialect)
    if sign in SPANS:
        return _integer_operation(sign, left, right, dialect) if type_.kind in INTEGRAL else _compute(sign, left, right)
    return _divide(sign, left, right, dialect)


def _numbers(left: Expr, right: Expr, dialect: Dialect) -> tuple[Expr, Expr]:
    """Return the operands with strings and NULLs converted to numbers, as Spark does first.

    Two NULLs, and two strings, become doubles; a pair without a number otherwise stays as it is. Raises Refusal for two
    strings outside of ANSI mode.
    """
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


def _compute(sign: str, left: Expr, right: Expr) -> Expr:
    return strict_expr(f"({left.sql} {sign} {right.sql})", left.type, (left, right))


def _integer_operation(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """Return a sum, difference or product of integers of one type.

    Beyond the type's width it raises in ANSI mode, as in DuckDB, and wraps around otherwise. Where the spans of the
    operands rule that out, it needs no check, and its own span is known.
    """
    span = SPANS[sign](left.range, right.range)
    if fits(span, left.type):
        return replace(_compute(sign, left, right), span=span)
    if dialect.ansi:
        return strict_expr(f"{CHECKED[sign]}({left.sql}, {right.sql})", left.type, (left, right), raises=True)
    wide = f"(CAST({left.sql} AS HUGEINT) {sign} CAST({right.sql} AS HUGEINT))"
    return strict_expr(wrap_around(wide, left.type), left.type, (left, right))


DIVISIONS: dict[str, str] = {"/": "({0} / {1})", "%": "({0} % {1})", "div": "({0} // {1})"}


def _divide(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """Return `left sign right` of values of one type, for / % div; by zero it raises or is NULL.

    A division of integers by -1 is rewritten: DuckDB raises for some where Spark doesn't.
    """
    sql, raises = DIVISIONS[sign].format(left.sql, right.sql), False
    if left.type.kind in INTEGRAL and not (right.is_literal and right.literal != -1):
        raises = sign == "div" and dialect.ansi
        by_minus_one = (
            f"({left.sql} & 0)" if sign == "%" else _integer_operation("-", _zero(left.type), left, dialect).sql
        )
        sql = f"(CASE WHEN {right.sql} = -1 THEN {by_minus_one} ELSE {sql} END)"
    return _check_divisor(sql, left.type, left, right, dialect, raises=raises)


def _check_divisor(sql: str, type_: Type, left: Expr, right: Expr, dialect: Dialect, *, raises: bool = False) -> Expr:
    """Return a quotient that raises in ANSI mode where the divisor is zero, and is NULL there otherwise.

    Spark evaluates the divisor first, and a NULL dividend hides a zero.

    Args:
        sql: The quotient, which is not evaluated for a divisor of zero.
        type_: Its type.
        left: The dividend.
        right: The divisor.
        dialect: The session's settings.
        raises: Whether the quotient may raise for other divisors.
    """
    if right.is_literal and right.literal not in (None, 0):
        return strict_expr(sql, type_, (right, left), raises=raises)
    if not dialect.ansi:
        return strict_expr(f"(CASE WHEN {right.sql} = 0 THEN NULL ELSE {sql} END)", type_, (right, left), raises=raises)
    zero = error_sql("[DIVIDE_BY_ZERO] Division by zero.", type_)
    nulls = f"WHEN {right.is_null} THEN NULL WHEN {left.is_null} THEN NULL"
    return strict_expr(
        f"(CASE {nulls} WHEN {right.sql} = 0 THEN {zero} ELSE {sql} END)", type_, (right, left), raises=True
    )


def _zero(type_: Type) -> Expr:
    return Expr(f"CAST(0 AS {type_.duckdb})", type_, literal=0, span=(0, 0))


def pmod(left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """`pmod(left, right)`: a negative remainder is taken again with the divisor added; refuses decimals."""
    rest = arithmetic("%", left, right, dialect)
    if rest.type.kind == "decimal" or left.type.kind == "decimal" or right.type.kind == "decimal":
        raise Refusal("pmod of decimals can't be translated; use %.")
    divisor = cast(_numbers(left, right, dialect)[1], rest.type, dialect)
    total = f"({rest.sql} + {divisor.sql})"
    if rest.type.kind in INTEGRAL:
        wide = LONG if rest.type == LONG else INT
        total = wrap_around(f"(CAST({rest.sql} AS HUGEINT) + CAST({divisor.sql} AS HUGEINT))", wide)
    sql = f"(CASE WHEN {rest.sql} < 0 THEN CAST({total} % {divisor.sql} AS {rest.type.duckdb}) ELSE {rest.sql} END)"
    return combine(sql, rest.type, (rest, divisor))


def _decimal_operation(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """Return `left sign right` of decimals and integers, with the precision and scale of Spark's result.

    Raises:
        Refusal: If it takes more than 38 digits, or the sign is `div`.
    """
    left, right = _as_decimal(left, dialect), _as_decimal(right, dialect)
    one, two = left.type, right.type
    type_ = _decimal_result_type(sign, one, two)
    if sign in "+-":
        sides = (cast(left, type_, dialect).sql, cast(right, type_, dialect).sql)
        return strict_expr(f"CAST({sides[0]} {sign} {sides[1]} AS {type_.duckdb})", type_, (left, right))
    if sign == "*":
        # DuckDB multiplies what fits into 18 digits within 18 digits, and raises beyond.
        wide = f"CAST({left.sql} AS {Type('decimal', max(one.precision, NARROW_DIGITS + 1), one.scale).duckdb})"
        factor = wide if type_.precision > NARROW_DIGITS else left.sql
        return strict_expr(f"CAST({factor} * {right.sql} AS {type_.duckdb})", type_, (left, right))
    return DECIMAL_DIVISIONS[sign](left, right, type_, dialect)


def _decimal_rest(left: Expr, right: Expr, type_: Type, dialect: Dialect) -> Expr:
    """`left % right` of decimals, as `type_`; raises Refusal if both don't fit one decimal type."""
    wide = wider_decimal(left.type, right.type)
    if wide is None:
        raise Refusal(f"{left.type} % {right.type} needs more than 38 digits; cast one side.")
    sides = (cast(left, wide, dialect).sql, cast(right, wide, dialect).sql)
    return _check_divisor(f"CAST({sides[0]} % {sides[1]} AS {type_.duckdb})", type_, left, right, dialect)


def _decimal_quotient(left: Expr, right: Expr, type_: Type, dialect: Dialect) -> Expr:
    """Return `left / right` of decimals, as `type_`, rounded half up; raises Refusal if it takes too many digits.

    Both sides are divided as integers, the dividend with all digits of the result.
    """
    if type_.precision + type_.scale > MAX_PRECISION:
        raise Refusal(f"{left.type} / {right.type} needs too many digits; cast one side to double.")
    shift = 10 ** (type_.scale - left.type.scale + right.type.scale)
    above = f"({_without_point(left)} * {shift})"
    below = _without_point(right)
    digits = f"((2 * abs({above}) + abs({below})) // (2 * abs({below})))"
    signed = f"(CASE WHEN ({above} < 0) = ({below} < 0) THEN {digits} ELSE -{digits} END)"
    unit = f"CAST('0.{'1'.rjust(type_.scale, '0')}' AS DECIMAL({type_.scale},{type_.scale}))"
    sql = f"CAST(CAST({signed} AS DECIMAL({type_.precision},0)) * {unit} AS {type_.duckdb})"
    return _check_divisor(sql, type_, left, right, dialect)


def _without_point(expr: Expr) -> str:
    """A decimal without its point, as HUGEINT: multiplied by ten to the power of its scale."""
    scale = expr.type.scale
    digits = min(MAX_PRECISION, expr.type.precision + scale)
    return (
        f"CAST(CAST({expr.sql} AS DECIMAL({digits},{scale})) * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS HUGEINT)"
    )


def _no_decimal_div(left: Expr, right: Expr, type_: Type, dialect: Dialect) -> Expr:
    raise Refusal("div of decimals can't be translated; use floor(x / y).")


DECIMAL_DIVISIONS: dict[str, Callable[[Expr, Expr, Type, Dialect], Expr]] = {
    "/": _decimal_quotient,
    "%": _decimal_rest,
    "div": _no_decimal_div,
}


def _as_decimal(expr: Expr, dialect: Dialect) -> Expr:
    """The decimal that Spark converts an integer to; that of a literal has just the digits needed."""
    if expr.type.kind == "decimal":
        return expr
    if expr.is_literal and expr.literal is not None:
        return cast(expr, Type("decimal", len(str(abs(expr.literal))), 0), dialect)
    return cast(expr, decimal_of(expr.type), dialect)


def _decimal_result_type(sign: str, one: Type, two: Type) -> Type:
    """Spark's type of an operation on two decimals; refused if that takes more than 38 digits."""
    scale = max(one.scale, two.scale)
    digits = (one.precision - one.scale, two.precision - two.scale)
    quotient = max(6, one.scale + two.precision + 1)
    precision, scale = {
        "+": (max(digits) + scale + 1, scale),
        "-": (max(digits) + scale + 1, scale),
        "*": (one.precision + two.precision + 1, one.scale + two.scale),
        "%": (min(digits) + scale, scale),
        "/": (digits[0] + two.scale + quotient, quotient),
        "div": (digits[0] + two.scale, 0),
    }[sign]
    if precision > MAX_PRECISION:
        raise Refusal(f"{one} {sign} {two} needs more than 38 digits; cast one side to a smaller decimal or to double.")
    return Type("decimal", precision, scale)


def negate(expr: Expr, dialect: Dialect) -> Expr:
    """`-expr`; the least integer overflows as in Spark. Raises Refusal for what is no number."""
    if expr.type.kind in INTEGRAL:
        return _integer_operation("-", _zero(expr.type), expr, dialect)
    if expr.type.kind not in NUMERIC:
        raise Refusal(f"A minus needs a number, not {expr.type}.")
    return strict_expr(f"(-{expr.sql})", expr.type, (expr,))


def absolute_value(expr: Expr, dialect: Dialect) -> Expr:
    """`abs(expr)` of a number or an interval; the least integer overflows as in Spark, a string is cast to double.

    Raises:
        Refusal: For any other type.
    """
    if expr.type.kind in INTEGRAL:
        low, high = expr.range
        span = (0, max(abs(low), abs(high)))
        if fits(span, expr.type):
            return replace(strict_expr(f"abs({expr.sql})", expr.type, (expr,)), span=span)
        if not dialect.ansi:
            return strict_expr(wrap_around(f"abs(CAST({expr.sql} AS HUGEINT))", expr.type), expr.type, (expr,))
        return strict_expr(f"abs({expr.sql})", expr.type, (expr,), raises=True)
    if expr.type.kind == "string":
        expr = coerce(expr, DOUBLE, dialect)
    if expr.type.kind not in NUMERIC | {"day_time"}:
        raise Refusal(f"abs takes a number, not {expr.type}.")
    return strict_expr(f"abs({expr.sql})", expr.type, (expr,))


def bit_operation(template: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """`left & right`, `left | right` or `left ^ right`, in the wider type; raises Refusal unless both are integers.

    Args:
        template: DuckDB's operation, with {0} and {1} for the operands.
        left: The left operand.
        right: The right one.
        dialect: The session's settings.
    """
    if {left.type.kind, right.type.kind} - INTEGRAL.keys():
        raise Refusal(f"Bit operations take integers, not {left.type} and {right.type}.")
    type_ = left.type if INTEGRAL[left.type.kind] >= INTEGRAL[right.type.kind] else right.type
    left, right = cast(left, type_, dialect), cast(right, type_, dialect)
    return strict_expr(template.format(left.sql, right.sql), type_, (left, right))


def invert_bits(expr: Expr) -> Expr:
    """`~expr`."""
    if expr.type.kind not in INTEGRAL:
        raise Refusal(f"Bit operations take integers, not {expr.type}.")
    return strict_expr(f"(~{expr.sql})", expr.type, (expr,))


def floor(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`floor(x)`: a bigint, or a decimal without fraction."""
    return _round_to_whole("floor", arguments[0], dialect)


def ceiling(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`ceil(x)`: a bigint, or a decimal without fraction."""
    return _round_to_whole("ceil", arguments[0], dialect)


def _round_to_whole(name: str, value: Expr, dialect: Dialect) -> Expr:
    """`ceil(value)` or `floor(value)`: a decimal stays one, anything else becomes a bigint; NaN becomes 0.

    Beyond the range of bigint it raises in ANSI mode; otherwise it is the nearest bigint. Raises Refusal for a value
    that Spark doesn't convert to double.
    """
    if value.type.kind in INTEGRAL:
        return cast(value, LONG, dialect)
    if value.type.kind == "decimal":
        type_ = Type("decimal", min(MAX_PRECISION, value.type.precision - value.type.scale + 1), 0)
        return strict_expr(f"CAST({name}({value.sql}) AS {type_.duckdb})", type_, (value,))
    value = coerce(value, DOUBLE, dialect)
    if not dialect.ansi:
        return strict_expr(f"ws_whole({name}({value.sql}))", LONG, (value,))
    digits = f"{name}({value.sql})"
    outside = f"{digits} >= 9223372036854775808 AND NOT isnan({digits}) OR {digits} < -9223372036854775808"
    error = error_sql("[ARITHMETIC_OVERFLOW] overflow", LONG)
    return strict_expr(f"(CASE WHEN {outside} THEN {error} ELSE ws_whole({digits}) END)", LONG, (value,), raises=True)


def round_value(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`round(x[, digits])`, half away from zero; an integer stays as it is, a string is cast to double.

    Raises:
        Refusal: If the digits aren't a literal of at least 0, or a float or double is to keep any.
    """
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
    """`round(value, digits)` of a decimal, in the type of Spark's result; raises Refusal beyond 38 digits."""
    scale = min(value.type.scale, digits)
    precision = value.type.precision - value.type.scale + 1 + scale
    if precision > MAX_PRECISION:
        raise Refusal(f"round of {value.type} needs more than 38 digits; cast it to a smaller decimal.")
    type_ = Type("decimal", precision, scale)
    return strict_expr(f"CAST({value.sql} AS {type_.duckdb})", type_, (value,))
