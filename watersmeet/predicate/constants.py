"""Conditions that give a column one value in every result: `column = constant`, and nothing else.

[!] Only where each value that Spark takes for equal is the one value, as promises compare values: of exactly the
column's type, or whole numbers both. Anything else fixes nothing: a decimal of another scale, a text beside a number.
"""

from decimal import Decimal
from itertools import permutations

import pyarrow as pa
from sqlglot import exp

from watersmeet.predicate.expr import Expr, fits
from watersmeet.predicate.model import FixedColumn
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import INTEGRAL, Kind

_LITERALS: dict[Kind, type] = {
    "boolean": bool, "string": str, "decimal": Decimal, "float": float, "double": float,
    "date": int, "timestamp": int, "timestamp_ntz": int,
}  # fmt: skip
"""The types whose constants are known to be values, and what these are in Python."""


def fixed_column_of(node: SqlNode, translator: Translator, text: str) -> FixedColumn | None:
    """Return the column that a condition fixes, and its value; None if it does anything else, or more.

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
    """Tell whether a constant is the one value that Spark takes for equal to a column."""
    if constant.columns or not constant.is_literal or constant.literal is None:
        return False
    if constant.type.kind in INTEGRAL and column.type.kind in INTEGRAL:
        return fits(constant.range, column.type)
    known = _LITERALS.get(constant.type.kind, ())
    return constant.type == column.type and isinstance(constant.literal, known)


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
