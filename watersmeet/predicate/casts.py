"""Explicit and implicit casts, as Spark converts values from one type to another."""

from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from watersmeet.predicate.datetimes import read_date, read_instant, read_local
from watersmeet.predicate.expr import Expr, Refusal, error_sql, fits, quote, strict_expr
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.types import (
    DATETIME,
    FRACTIONAL,
    INTEGRAL,
    LONG,
    NUMERIC,
    Kind,
    Type,
    decimal_of,
    integer_range,
)  # fmt: skip

EXACT_DOUBLE_DIGITS = 15
IMPLIED_DATETIMES = {
    ("date", "timestamp"), ("date", "timestamp_ntz"), ("timestamp", "date"), ("timestamp_ntz", "date"),
    ("timestamp", "timestamp_ntz"), ("timestamp_ntz", "timestamp"),
}  # fmt: skip

Rule = Callable[[Expr, Type, Dialect], Expr]


def coerce(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """The cast that Spark applies to an argument; raises Refusal where Spark or this translation has none."""
    kind = expr.type.kind
    is_implied = (
        expr.type == to
        or kind == "void"
        or (kind in NUMERIC and to.kind == "double")
        or (kind in INTEGRAL and to.kind in INTEGRAL and INTEGRAL[kind] <= INTEGRAL[to.kind])
        or (kind == "string" and dialect.ansi)
        or (kind, to.kind) in IMPLIED_DATETIMES
    )
    if not is_implied:
        raise Refusal(f"{to} is expected here, not {expr.type}; write the cast you mean.")
    return cast(expr, to, dialect)


def cast(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """`cast(expr AS to)`, by the rule for both types; NULL stays NULL. Raises Refusal if there is no rule."""
    if expr.type == to:
        return expr
    if expr.type.kind == "void" or (expr.is_literal and expr.literal is None):
        return Expr(f"CAST(NULL AS {to.duckdb})", to, literal=None)
    rule = RULES.get((_group(expr.type), _group(to)))
    if rule is None:
        raise Refusal(f"A cast from {expr.type} to {to} can't be translated.")
    return rule(expr, to, dialect)


def try_cast(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """`try_cast(expr AS to)`: NULL where the cast would raise; what `expr` itself raises is still raised."""
    cast_expr = cast(expr, to, replace(dialect, ansi=True))
    if cast_expr.raises == expr.raises:
        return cast_expr
    attempt = TRY_TEMPLATES[_group(expr.type), _group(to)].format(expr.sql, to=to.duckdb)
    return strict_expr(attempt, to, (expr,))


def raise_on_null(attempt: str, to: Type, expr: Expr) -> Expr:
    """Return a conversion that raises where it gives NULL for a value.

    Args:
        attempt: The conversion, in DuckDB's SQL.
        to: Its type.
        expr: What it converts.
    """
    error = error_sql(f"[CAST_INVALID_INPUT] The value is not a {to}.", to)
    return strict_expr(
        f"(CASE WHEN {attempt} IS NULL AND {expr.sql} IS NOT NULL THEN {error} ELSE {attempt} END)",
        to,
        (expr,),
        raises=True,
    )


def _try_cast(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """A cast that may fail: an error in ANSI mode, NULL otherwise."""
    attempt = TRY_TEMPLATES[_group(expr.type), _group(to)].format(expr.sql, to=to.duckdb)
    return raise_on_null(attempt, to, expr) if dialect.ansi else strict_expr(attempt, to, (expr,))


def _cast_text(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """A cast of text: only plain notation is read here; Spark decides whether any other is a value or an error."""
    attempt = TRY_TEMPLATES["string", _group(to)].format(expr.sql, to=to.duckdb)
    return strict_expr(
        attempt, to, (expr,), unsure=f"({attempt} IS NULL AND {expr.sql} IS NOT NULL)", fails=dialect.ansi
    )


def _group(type_: Type) -> str:
    if type_.kind in INTEGRAL:
        return "integer"
    return "real" if type_.kind in FRACTIONAL else type_.kind


def _template(template: str, *, raises: bool = False, unsure: str | None = None) -> Rule:
    """Return a rule that fills in a template of DuckDB's SQL: {0} is the expression, {to} the type.

    Args:
        template: The template.
        raises: Whether the cast may raise.
        unsure: The template of a condition under which its value can't be trusted; None if it always can.
    """

    def rule(expr: Expr, to: Type, dialect: Dialect) -> Expr:
        doubt = unsure and unsure.format(expr.sql)
        return strict_expr(template.format(expr.sql, to=to.duckdb), to, (expr,), raises=raises, unsure=doubt)

    return rule


def _ansi_only(rule: Rule) -> Rule:
    """Return a rule that raises Refusal with spark.sql.ansi.enabled off, and otherwise does what `rule` does."""

    def guarded(expr: Expr, to: Type, dialect: Dialect) -> Expr:
        if not dialect.ansi:
            raise Refusal(f"A cast from {expr.type} to {to} can't be translated with spark.sql.ansi.enabled off.")
        return rule(expr, to, dialect)

    return guarded


def _integer_to_integer(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """A cast between integers: a value that doesn't fit raises in ANSI mode, and wraps around otherwise."""
    if fits(expr.range, to):
        return replace(_template("CAST({0} AS {to})")(expr, to, dialect), span=expr.range, literal=expr.literal)
    if dialect.ansi:
        return _try_cast(expr, to, dialect)
    return strict_expr(wrap_around(f"CAST({expr.sql} AS HUGEINT)", to), to, (expr,))


def wrap_around(sql: str, type_: Type) -> str:
    """A HUGEINT truncated to the type's width, as Java does."""
    low, high = integer_range(type_.kind)
    size = high - low + 1
    return f"CAST((({sql} - ({low})) % {size} + {size}) % {size} + ({low}) AS {type_.duckdb})"


def _integer_to_real(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    integer = expr if to.kind == "float" and expr.columns else None
    cast_expr = _template("CAST({0} AS {to})")(expr, to, dialect)
    return replace(cast_expr, literal=expr.literal, integer=integer, rough=integer is not None)


def _real_to_real(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """A cast between float and double; raises Refusal where Spark may compute it with more digits.

    [!] Where an integer is cast to float and then to double, Spark's optimizer leaves out the cast to float.
    """
    if to.kind == "double" and expr.integer is not None:
        return cast(expr.integer, to, dialect)
    if to.kind == "double" and expr.rough:
        raise Refusal("Spark's optimizer may leave out a float between an integer and a double.")
    return _template("CAST({0} AS DOUBLE)" if to.kind == "double" else "ws_as_float({0})")(expr, to, dialect)


def _integer_to_decimal(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    limit = 10 ** (to.precision - to.scale)
    if (-limit < expr.range[0] and expr.range[1] < limit) or _only_widens(decimal_of(expr.type), to):
        return _template("CAST({0} AS {to})")(expr, to, dialect)
    return _try_cast(expr, to, dialect)


def _decimal_to_decimal(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    rounds_up = expr.type.scale > to.scale
    room = to.precision - to.scale - (expr.type.precision - expr.type.scale)
    return _template("CAST({0} AS {to})")(expr, to, dialect) if room >= rounds_up else _try_cast(expr, to, dialect)


def _only_widens(one: Type, two: Type) -> bool:
    return two.scale >= one.scale and two.precision - two.scale >= one.precision - one.scale


def _decimal_to_real(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """[!] DuckDB divides by a power of ten, which rounds long decimals twice; a cast through text rounds once."""
    exact = expr.type.precision <= EXACT_DOUBLE_DIGITS and to.kind == "double"
    return _template("CAST({0} AS {to})" if exact else "CAST(CAST({0} AS VARCHAR) AS {to})")(expr, to, dialect)


def _decimal_to_integer(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    safe = expr.type.precision - expr.type.scale < decimal_of(to).precision - (to == LONG)
    return _template("CAST(trunc({0}) AS {to})")(expr, to, dialect) if safe else _try_cast(expr, to, dialect)


def _string_to_decimal(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """A cast from a string literal, which is rounded half up.

    Raises:
        Refusal: For a column, and for a literal that isn't a number or doesn't fit.
    """
    if not expr.is_literal:
        raise Refusal("A cast from a string column to decimal can't be translated; cast it to double.")
    try:
        value = Decimal(expr.literal.strip()).quantize(Decimal(1).scaleb(-to.scale), ROUND_HALF_UP)
    except InvalidOperation:
        raise Refusal(f"{expr.literal!r} is not a {to}.") from None
    if abs(value) >= 10 ** (to.precision - to.scale):
        raise Refusal(f"{expr.literal!r} does not fit into {to}.")
    return Expr(f"CAST({quote(format(value, 'f'))} AS {to.duckdb})", to, literal=value)


def _string_to_datetime(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    """A cast from a string to a date or time; raises Refusal for a column, unless it becomes a date."""
    if expr.is_literal:
        return READERS[to.kind](expr.literal, dialect)
    if to.kind != "date":
        raise Refusal(f"A cast from a string column to {to} can't be translated; keep it as a {to} column.")
    return _cast_text(expr, to, dialect)


READERS: dict[Kind, Callable[[str, Dialect], Expr]] = {
    "date": lambda text, dialect: read_date(text),
    "timestamp": read_instant,
    "timestamp_ntz": lambda text, dialect: read_local(text),
}


def _decimal_to_string(expr: Expr, to: Type, dialect: Dialect) -> Expr:
    if not dialect.ansi and expr.type.scale > 6:
        raise Refusal("A decimal this fine as text can't be translated with spark.sql.ansi.enabled off.")
    return _template("CAST({0} AS VARCHAR)")(expr, to, dialect)


TRY_TEMPLATES: dict[tuple[str, str], str] = {
    ("integer", "integer"): "TRY_CAST({0} AS {to})",
    ("integer", "decimal"): "TRY_CAST({0} AS {to})",
    ("real", "integer"): "TRY_CAST(ws_long(trunc(CAST({0} AS DOUBLE))) AS {to})",
    ("decimal", "decimal"): "TRY_CAST({0} AS {to})",
    ("decimal", "integer"): "TRY_CAST(trunc({0}) AS {to})",
    ("string", "integer"): "TRY_CAST(ws_integer_text({0}) AS {to})",
    ("string", "real"): "TRY_CAST(ws_number_text({0}) AS {to})",
    ("string", "boolean"): "ws_boolean({0})",
    ("string", "date"): "ws_date({0})",
}

RULES: dict[tuple[str, str], Rule] = {
    ("integer", "integer"): _integer_to_integer,
    ("integer", "real"): _integer_to_real,
    ("integer", "decimal"): _integer_to_decimal,
    ("integer", "string"): _template("CAST({0} AS VARCHAR)"),
    ("integer", "boolean"): _template("({0} <> 0)"),
    ("real", "real"): _real_to_real,
    ("real", "integer"): _ansi_only(_try_cast),
    ("real", "boolean"): _template("({0} <> 0)"),
    ("decimal", "decimal"): _decimal_to_decimal,
    ("decimal", "real"): _decimal_to_real,
    ("decimal", "integer"): _ansi_only(_decimal_to_integer),
    ("decimal", "string"): _decimal_to_string,
    ("decimal", "boolean"): _template("({0} <> 0)"),
    ("boolean", "integer"): _template("CAST({0} AS {to})"),
    ("boolean", "real"): _template("CAST({0} AS {to})"),
    ("boolean", "string"): _template("CAST({0} AS VARCHAR)"),
    ("string", "integer"): _cast_text,
    ("string", "real"): _cast_text,
    ("string", "decimal"): _ansi_only(_string_to_decimal),
    ("string", "boolean"): _cast_text,
    ("string", "binary"): _template("encode({0})"),
    **{("string", kind): _string_to_datetime for kind in DATETIME},
    ("date", "timestamp"): _template("ws_instant(CAST({0} AS TIMESTAMP))"),
    ("date", "timestamp_ntz"): _template("CAST({0} AS TIMESTAMP)"),
    ("date", "string"): _template("CAST({0} AS VARCHAR)", unsure="ws_strange_year({0})"),
    ("timestamp", "date"): _template("CAST({0} AS DATE)"),
    ("timestamp", "timestamp_ntz"): _template("CAST({0} AS TIMESTAMP)"),
    ("timestamp", "string"): _template(
        "CAST(CAST({0} AS TIMESTAMP) AS VARCHAR)", unsure="ws_strange_year(CAST({0} AS TIMESTAMP))"
    ),
    ("timestamp_ntz", "date"): _template("CAST({0} AS DATE)"),
    ("timestamp_ntz", "timestamp"): _template("ws_instant({0})"),
    ("timestamp_ntz", "string"): _template("CAST({0} AS VARCHAR)", unsure="ws_strange_year({0})"),
}
