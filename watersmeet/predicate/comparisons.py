"""Comparisons of two values, and AND and OR of conditions."""

from collections.abc import Sequence
from decimal import Decimal

from watersmeet.predicate.casts import cast
from watersmeet.predicate.expr import Expr, Refusal, combine, strict_expr
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.types import BOOLEAN, INTEGRAL, ORDERED, common_type, integer_range


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
    """Whether Spark decides the comparison by the literal alone, even for a NULL."""
    low, high = integer_range("long")
    return one.type.kind in INTEGRAL and isinstance(two.literal, Decimal) and not low <= two.literal <= high


def logic(word: str, parts: Sequence[Expr]) -> Expr:
    """AND or OR; from left to right where a part raises, since Spark stops at the first that decides."""
    plain = "(" + f" {word} ".join(part.sql for part in parts) + ")"
    if not any(part.raises for part in parts[1:]):
        return combine(plain, BOOLEAN, parts)
    decided = {"AND": "FALSE", "OR": "TRUE"}[word]
    guards = "".join(f"WHEN {part.sql} IS NOT DISTINCT FROM {decided} THEN {decided} " for part in parts[:-1])
    return combine(f"(CASE {guards}ELSE {plain} END)", BOOLEAN, parts)
