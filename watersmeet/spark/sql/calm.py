"""Which expressions can't raise in Spark, whatever the values: about all others it is remembered where they did."""

from collections.abc import Callable

from watersmeet.predicate.expr import Expr
from watersmeet.predicate.types import FRACTIONAL, INTEGRAL
from watersmeet.spark.sql.catalyst import Part

ARITHMETIC = frozenset({"Add", "Subtract", "Multiply", "UnaryMinus", "UnaryPositive"})
COMPARISONS = frozenset({"EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan",
                         "GreaterThanOrEqual", "In"})  # fmt: skip
PLAIN = frozenset({"UnresolvedAttribute", "Literal", "And", "Or", "Not", "IsNull", "IsNotNull", "Like", "CaseWhen"})
FUNCTIONS = frozenset({
    "lower", "upper", "lcase", "ucase", "trim", "ltrim", "rtrim", "btrim", "length", "len", "char_length", "reverse",
    "contains", "startswith", "endswith", "instr", "soundex", "coalesce", "nvl", "ifnull", "nvl2", "nullif", "if",
    "isnull", "isnotnull", "isnan", "between", "greatest", "least",
})  # fmt: skip


def is_calm(part: Part, expr: Callable[[Part], Expr]) -> bool:
    """Tell whether computing a part can't raise.

    Args:
        part: What Spark computes.
        expr: Returns a part as it would be computed here, which says of what type it is.
    """
    made = expr(part)
    return not (made.raises or made.fails) and all(_is_calm(inner, expr) for inner in part.walk())


def _is_calm(part: Part, expr: Callable[[Part], Expr]) -> bool:
    """Tell whether a part can't raise of itself."""
    if part.kind == "UnresolvedFunction":
        return len(part.names) == 1 and part.names[0].lower() in FUNCTIONS and _alike(part, expr)
    if part.kind in ARITHMETIC:
        return expr(part).type.kind in FRACTIONAL
    return part.kind in PLAIN or (part.kind in COMPARISONS and _alike(part, expr))


def _alike(part: Part, expr: Callable[[Part], Expr]) -> bool:
    """Tell whether nothing has to be cast but numbers that are no decimals: a far date is no timestamp."""
    kinds = {expr(child).type.kind for child in part.children} - {"void", "boolean"}
    return len(kinds) <= 1 or kinds <= {*INTEGRAL, *FRACTIONAL}
