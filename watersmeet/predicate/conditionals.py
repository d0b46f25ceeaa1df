"""Comparisons, AND and OR, and what chooses among values: CASE, if, coalesce, nullif, greatest, least."""

from collections.abc import Callable, Sequence
from decimal import Decimal

from watersmeet.predicate.casts import cast
from watersmeet.predicate.expr import Expr, Refusal, combine, null_test, strict_expr
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.types import BOOLEAN, INTEGRAL, ORDERED, VOID, Type, common_type, integer_range


def compare(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """`left sign right`, both in the type Spark compares them in."""
    type_ = common_type(left.type, right.type, ansi=dialect.ansi)
    if any(is_beyond_long(one, two) for one, two in ((left, right), (right, left))):
        raise Refusal("The number is beyond the range of the integer it is compared with.")
    if type_ is None or type_.kind not in ORDERED | {"void"}:
        raise Refusal(f"{left.type} and {right.type} can't be compared; cast one of them.")
    left, right = cast(left, type_, dialect), cast(right, type_, dialect)
    sql = f"({left.sql} {sign} {right.sql})"
    return combine(sql, BOOLEAN, (left, right)) if "DISTINCT" in sign else strict_expr(sql, BOOLEAN, (left, right))


def is_beyond_long(one: Expr, two: Expr) -> bool:
    """Whether the literal alone decides the comparison in Spark, even for a NULL."""
    low, high = integer_range("long")
    return one.type.kind in INTEGRAL and isinstance(two.literal, Decimal) and not low <= two.literal <= high


def logic(word: str, parts: Sequence[Expr]) -> Expr:
    """AND or OR; left to right where a part raises, as Spark stops at the first part that decides."""
    plain = "(" + f" {word} ".join(part.sql for part in parts) + ")"
    if not any(part.raises for part in parts[1:]):
        return combine(plain, BOOLEAN, parts)
    decisive = {"AND": "FALSE", "OR": "TRUE"}[word]
    guards = "".join(f"WHEN {part.sql} IS NOT DISTINCT FROM {decisive} THEN {decisive} " for part in parts[:-1])
    return combine(f"(CASE {guards}ELSE {plain} END)", BOOLEAN, parts)


def shared_type(values: Sequence[Expr], dialect: Dialect) -> Type:
    """The type in which Spark returns one of several values."""
    type_ = VOID
    for value in values:
        wider = common_type(type_, value.type, ansi=dialect.ansi)
        if wider is None:
            kinds = ", ".join(dict.fromkeys(str(value.type) for value in values))
            raise Refusal(f"The values must be of one type, not {kinds}; cast them.")
        type_ = wider
    return type_


def cast_alike(values: Sequence[Expr], dialect: Dialect) -> list[Expr]:
    """The values cast to their shared type."""
    type_ = shared_type(values, dialect)
    return [cast(value, type_, dialect) for value in values]


def as_condition(expr: Expr, dialect: Dialect) -> Expr:
    """The expression, which must be boolean."""
    if expr.type.kind not in {"boolean", "void"}:
        raise Refusal(f"A condition is expected here, not a value of type {expr.type}.")
    return cast(expr, BOOLEAN, dialect)


def choose(branches: Sequence[tuple[Expr, Expr]], otherwise: Expr | None, dialect: Dialect) -> Expr:
    """`CASE WHEN condition THEN value ... ELSE otherwise END`; only the branch taken is evaluated, as in Spark."""
    last = otherwise or Expr("NULL", VOID, literal=None)
    non_null = all(value.never_null for value in [*(value for _, value in branches), last])
    *values, last = cast_alike([*(value for _, value in branches), last], dialect)
    conditions = [as_condition(test, dialect) for test, _ in branches]
    parts = "".join(f"WHEN {test.sql} THEN {value.sql} " for test, value in zip(conditions, values, strict=True))
    return combine(f"(CASE {parts}ELSE {last.sql} END)", last.type, [*conditions, *values, last], non_null=non_null)


def if_then(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`if(condition, value, otherwise)`."""
    return choose([(arguments[0], arguments[1])], arguments[2], dialect)


def nvl2(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`nvl2(test, value if not NULL, otherwise)`."""
    return choose([(null_test(arguments[0], negated=True), arguments[1])], arguments[2], dialect)


def nullif(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`nullif(value, other)`: NULL if they are equal."""
    value = arguments[0]
    one, two = cast_alike(arguments, dialect)
    if one.type.kind not in ORDERED | {"void"}:
        raise Refusal(f"{one.type} can't be compared.")
    return combine(f"(CASE WHEN {one.sql} = {two.sql} THEN NULL ELSE {value.sql} END)", value.type, (one, two))


def coalesce(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """The first value that is not NULL."""
    values = cast_alike(arguments, dialect)
    non_null = any(value.never_null for value in arguments)
    return combine(f"coalesce({', '.join(value.sql for value in values)})", values[0].type, values, non_null=non_null)


def extreme(name: str) -> Callable[[Sequence[Expr], Dialect], Expr]:
    """`greatest` or `least`: NULLs are ignored, NaN is the greatest."""

    def build(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
        values = cast_alike(arguments, dialect)
        if values[0].type.kind not in ORDERED | {"void"}:
            raise Refusal(f"{values[0].type} has no order.")
        non_null = any(value.never_null for value in arguments)
        return combine(f"{name}({', '.join(value.sql for value in values)})", values[0].type, values, non_null=non_null)

    return build
