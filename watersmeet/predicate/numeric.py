"""Comparisons of numbers that NumPy answers exactly as Spark does, for blocks of pairs.

Sums, differences and products of doubles are the same everywhere, to the last bit, and integers of one kind, dates and
timestamps compare as integers. Whatever may overflow, round otherwise or raise is left to DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from watersmeet.predicate.expr import Expr
from watersmeet.predicate.model import Column
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.types import INTEGRAL, Kind, common_type

if TYPE_CHECKING:
    from watersmeet.predicate.translate import Translator

Sign = Literal["+", "-", "*", "abs", "negate", "this if NaN, else", "-inf if NaN"]
Relation = Literal["<", "<=", "="]


@dataclass(frozen=True, slots=True)
class NumericLeaf:
    """A number that is not computed from others.

    Attributes:
        sql: Its DuckDB expression, of type DOUBLE.
        column: If it is nothing but a column, that column; dates count as days, timestamps as microseconds.
        constant: If it is known, its value.
    """

    sql: str
    column: Column | None = None
    constant: float | int | None = None


@dataclass(frozen=True, slots=True)
class NumericOperation:
    """An operation on doubles.

    Attributes:
        sign: Which; `this if NaN, else` is its first operand if that is NaN, otherwise its second.
        parts: Its one or two operands.
    """

    sign: Sign
    parts: tuple[Number, ...]

    @property
    def sql(self) -> str:
        """Its DuckDB expression."""
        return _FORMS[self.sign].format(*(part.sql for part in self.parts))


Number = NumericLeaf | NumericOperation
_FORMS: dict[Sign, str] = {
    "+": "({0} + {1})",
    "-": "({0} - {1})",
    "*": "({0} * {1})",
    "abs": "abs({0})",
    "negate": "(-{0})",
    "this if NaN, else": "(CASE WHEN isnan({0}) THEN {0} ELSE {1} END)",
    "-inf if NaN": "(CASE WHEN isnan({0}) THEN CAST('-inf' AS DOUBLE) ELSE {0} END)",
}


def leaves(number: Number) -> Iterator[NumericLeaf]:
    """Yield the leaves of a number."""
    if isinstance(number, NumericLeaf):
        yield number
    else:
        for part in number.parts:
            yield from leaves(part)


def is_numeric(number: Number) -> bool:
    """Tell whether NumPy can compute a number: it has no leaves but columns and constants."""
    return all(leaf.column is not None or leaf.constant is not None for leaf in leaves(number))


@dataclass(frozen=True, slots=True)
class NumericComparison:
    """A comparison of two numbers, in Spark's order: NaN equals itself and exceeds everything else.

    Attributes:
        relation: How the first must relate to the second.
        left: The first.
        right: The second.
        exact: Whether both are integers; otherwise they are compared as doubles.
    """

    relation: Relation
    left: Number
    right: Number
    exact: bool


def numeric_comparisons_of(node: SqlNode, translator: Translator) -> tuple[NumericComparison, ...]:
    """Return the comparisons of which a conjunct consists, if it can't raise; none if NumPy might differ from Spark."""
    node = node.unnest()
    if isinstance(node, exp.Between):
        relation: Relation = "<="
        sides = [(node.args["low"], node.this), (node.this, node.args["high"])]
    elif type(node) in RELATIONS:
        relation, mirrored = RELATIONS[type(node)]
        left, right = node.this, node.args["expression"]
        sides = [(right, left) if mirrored else (left, right)]
    else:
        return ()
    comparisons = [_comparison(relation, left, right, translator) for left, right in sides]
    return tuple(one for one in comparisons if one is not None) if None not in comparisons else ()


RELATIONS: dict[type[SqlNode], tuple[Relation, bool]] = {
    exp.LT: ("<", False),
    exp.LTE: ("<=", False),
    exp.GT: ("<", True),
    exp.GTE: ("<=", True),
    exp.EQ: ("=", False),
}
"""The relation of each comparison, and whether it is that of the second side to the first."""
_SIGNS: dict[type[SqlNode], Sign] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Neg: "negate"}
_AS_DOUBLE: frozenset[Kind] = frozenset({"double", "float", *INTEGRAL})
_INSTANTS: frozenset[Kind] = frozenset({"date", "timestamp", "timestamp_ntz"})


def _comparison(relation: Relation, left: SqlNode, right: SqlNode, translator: Translator) -> NumericComparison | None:
    """Return the comparison of two nodes; None if NumPy might differ from Spark."""
    one, two = _expr(left, translator), _expr(right, translator)
    type_ = None if one is None or two is None else common_type(one.type, two.type, ansi=translator.dialect.ansi)
    if one is None or two is None or type_ is None:
        return None
    if type_.kind == "double":
        first, second = _double(left, translator), _double(right, translator)
    elif type_.kind in INTEGRAL or (type_.kind in _INSTANTS and one.type == two.type):
        first, second = leaf_of(one), leaf_of(two)
    else:
        return None
    if first is None or second is None:
        return None
    return NumericComparison(relation, first, second, exact=type_.kind != "double")


def _double(node: SqlNode, translator: Translator) -> Number | None:
    """Return a node as a number whose value as a double is that of Spark; None if there may be none."""
    node = node.unnest()
    expr = _expr(node, translator)
    if expr is None:
        return None
    if expr.is_literal or isinstance(node, exp.Column):
        return leaf_of(expr) if expr.type.kind in _AS_DOUBLE | {"decimal"} else None
    if expr.type.kind != "double":
        return None
    if isinstance(node, exp.Anonymous) and node.name.lower() == "abs":
        sign: Sign = "abs"
        operands = list(node.expressions)
    elif type(node) in _SIGNS:
        sign, operands = _SIGNS[type(node)], [node.this, node.args.get("expression")]
    else:
        return None
    parts = [_double(operand, translator) for operand in operands if operand is not None]
    return NumericOperation(sign, tuple(part for part in parts if part is not None)) if None not in parts else None


def leaf_of(expr: Expr) -> NumericLeaf | None:
    """Return an expression as a constant or a bare column that NumPy reads as Spark does; None if it is neither."""
    literal = expr.literal
    if expr.is_literal:
        is_number = isinstance(literal, int | float | Decimal) and not isinstance(literal, bool)
        if not is_number or expr.type.kind == "float":  # a float's text stands for another double
            return None
        return NumericLeaf(expr.sql, constant=literal if isinstance(literal, int) else float(literal))
    column = next((column for column in expr.columns if expr.sql == column.name), None)
    return NumericLeaf(expr.sql, column) if column is not None and expr.type.kind in _AS_DOUBLE | _INSTANTS else None


def _expr(node: SqlNode, translator: Translator) -> Expr | None:
    expr = translator.try_expr(node)
    return None if expr is None or expr.raises or expr.unsure or expr.rough else expr
