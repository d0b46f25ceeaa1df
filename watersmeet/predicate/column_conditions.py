"""Conditions on bare columns: one equals another, is less than another, or has one value in every result."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import permutations

import pyarrow as pa
from sqlglot import exp

from watersmeet.predicate.expr import Expr, fits
from watersmeet.predicate.model import Column, ColumnOrder, FixedColumn
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import INTEGRAL, Kind

_LESS, _MORE = (exp.LT, exp.LTE), (exp.GT, exp.GTE)
_LITERALS: dict[Kind, type] = {
    "boolean": bool, "string": str, "decimal": Decimal, "float": float, "double": float,
    "date": int, "timestamp": int, "timestamp_ntz": int,
}  # fmt: skip
"""The types whose constants are usable as values, and their Python types."""


def equality_of(node: SqlNode, translator: Translator) -> tuple[Column, Column] | None:
    """Return the columns of a condition that is nothing but `column = column`."""
    return _columns(translator, node.this, node.expression) if isinstance(node, exp.EQ) else None


def orders_of(node: SqlNode, translator: Translator) -> Iterator[ColumnOrder]:
    """Yield the orders between bare columns that `<`, `<=`, `>`, `>=` or BETWEEN requires; each knows if it is strict.

    Sides that are more than a column, and other nodes, yield none. Translates the sides: their calls of predicates are
    added to the translator's.

    Raises:
        Refusal: While iterating, if a side can't be translated.
    """
    if isinstance(node, exp.Between):
        limits = ((node.args["low"], node.this), (node.this, node.args["high"]))
        pairs = [(less, more, False) for less, more in limits]
    elif type(node) in _LESS:
        pairs = [(node.this, node.expression, type(node) is exp.LT)]
    elif type(node) in _MORE:
        pairs = [(node.expression, node.this, type(node) is exp.GT)]
    else:
        return
    for less, more, strict in pairs:
        if (columns := _columns(translator, less, more)) is not None:
            yield ColumnOrder(*columns, strict)


def _columns(translator: Translator, *sides: SqlNode) -> tuple[Column, Column] | None:
    """Return the columns that two sides are; None if one is more than a column."""
    exprs = [translator.expr(side.unnest()) for side in sides]
    columns = [column for expr in exprs for column in expr.columns if expr.sql == column.name]
    return (columns[0], columns[1]) if len(columns) == 2 else None


def fixed_column_of(node: SqlNode, translator: Translator, text: str) -> FixedColumn | None:
    """Return the column of a condition that is nothing but `column = constant`, with its value.

    [!] Only where no value but this one is equal to Spark, as constraints compare values: the types are the same, or
    both are whole numbers. A decimal of another scale or a text beside a number fixes nothing.

    Raises:
        Refusal: If one of the sides can't be translated.
    """
    if type(node) is not exp.EQ:
        return None
    sides = [translator.expr(side.unnest()) for side in (node.this, node.expression)]
    for one, other in permutations(sides):
        bare = [column for column in one.columns if one.sql == column.name]
        if bare and _is_value(one, other):
            return FixedColumn(bare[0], other.literal, text)
    return None


def _is_value(column: Expr, constant: Expr) -> bool:
    """Tell whether a constant is the one value that Spark takes to be equal to a column."""
    if constant.columns or not constant.is_literal or constant.literal is None:
        return False
    if constant.type.kind in INTEGRAL and column.type.kind in INTEGRAL:
        return fits(constant.range, column.type)
    return constant.type == column.type and isinstance(constant.literal, _LITERALS.get(constant.type.kind, ()))


def value_of(fixed: FixedColumn, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a fixed column.

    Args:
        fixed: The column and its value; dates and timestamps as Spark counts them, in days and microseconds.
        kind: The column's type.
    """
    if pa.types.is_date32(kind):
        return pa.scalar(fixed.value, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.scalar(fixed.value, pa.int64()).cast(kind)
    return pa.scalar(fixed.value, kind)
