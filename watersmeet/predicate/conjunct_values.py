"""What a conjunct compares: values, as people want to see them, and bare columns, from which rules can be derived."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import permutations

import pyarrow as pa
from sqlglot import exp

from watersmeet.predicate.expr import Expr, fits
from watersmeet.predicate.model import Call, Column, ColumnOrder, ComparedValue, ComparedValues, FixedColumn, Relation
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.terms import Comparison, Leaf, Term, inputs_of
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import INTEGRAL, Kind

RELATIONS: dict[type[SqlNode], Relation] = {
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=", exp.NEQ: "<>", exp.NullSafeEQ: "<=>",
}  # fmt: skip
NEGATED: dict[Relation, Relation] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
INNER = (exp.And, exp.Or, exp.Not)
"""Conditions made of conditions."""
CONDITIONS = (*RELATIONS, exp.Between, exp.In, exp.Is, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)
"""Conditions made of values."""
_LESS, _MORE = (exp.LT, exp.LTE), (exp.GT, exp.GTE)
_LITERALS: dict[Kind, type] = {
    "boolean": bool, "string": str, "decimal": Decimal, "float": float, "double": float,
    "date": int, "timestamp": int, "timestamp_ntz": int,
}  # fmt: skip
"""The types whose constants are usable as values, and their Python types."""


def compared_values_of(
    node: SqlNode,
    translator: Translator,
    calls: Sequence[Call] = (),
    near: Sequence[Comparison] = (),
    foreign: tuple[Column, ...] = (),
) -> ComparedValues:
    """Return the values that a conjunct compares, as far as they can be computed.

    If it is no single comparison, they are the arguments of its calls; without calls, the values inside its conditions.

    Args:
        node: The conjunct.
        translator: Translates its values.
        calls: The Python predicates that it calls.
        near: The comparisons that it is, if the last bits of its values are Java's own.
        foreign: The columns that it reads, if Spark decides it: Spark then computes what can't be computed here.
    """
    reader = _ValueReader(translator)
    relation, sides = _relation_of(node.unnest())
    if near:
        terms = (near[0].left, near[0].right, *(comparison.right for comparison in near[1:]))
        values = [reader.near(side, term) for side, term in zip(sides, terms, strict=True)]
    else:
        values = [value for side in sides if (value := reader.exact(side) or reader.foreign(side, foreign)) is not None]
    if relation and len(values) == len(sides):
        return ComparedValues(relation, tuple(values))
    arguments = (argument for call in calls for argument in call.arguments)
    values = [ComparedValue(a.text, a.columns, a.sql, is_column=_is_column(a.sql, a.columns)) for a in arguments]
    values = values or [value for side in _operands(node) if (value := reader.exact(side)) is not None]
    return ComparedValues("", tuple(dict.fromkeys(value for value in values if value.columns)))


def _relation_of(node: SqlNode) -> tuple[Relation, list[SqlNode]]:
    """How a comparison relates its sides, and the sides; empty for any other condition."""
    if isinstance(node, exp.Not):
        relation, sides = _relation_of(node.this.unnest())
        return NEGATED.get(relation, ""), sides
    if isinstance(node, exp.Between):
        return "BETWEEN", [node.this, node.args["low"], node.args["high"]]
    relation = RELATIONS.get(type(node), "")
    return relation, [node.this, node.expression] if relation else []


def _operands(node: SqlNode) -> Iterator[SqlNode]:
    """Yield the values inside a condition and the conditions that it is made of, without NULL, TRUE and FALSE."""
    bare = node.unnest()
    if isinstance(bare, INNER):
        for part in bare.iter_expressions():
            yield from _operands(part)
    elif isinstance(bare, (*CONDITIONS, exp.Anonymous)):
        yield from (part for part in bare.iter_expressions() if not isinstance(part, exp.Null | exp.Boolean))


@dataclass(frozen=True, slots=True)
class _ValueReader:
    """Reads the values of one conjunct."""

    translator: Translator

    def exact(self, node: SqlNode) -> ComparedValue | None:
        """A value, if DuckDB computes it as Spark does; else None."""
        bare = node.unnest()
        expr = self.translator.try_expr(bare)
        if expr is None:
            return None
        columns, is_column = tuple(sorted(expr.columns)), _is_column(expr.sql, tuple(expr.columns))
        is_duration = expr.type.kind == "day_time"
        return ComparedValue(self._text(bare), columns, expr.sql, None, is_column, is_duration, expr.unsure)

    def foreign(self, node: SqlNode, columns: tuple[Column, ...]) -> ComparedValue | None:
        """A value that only Spark computes; None if Spark doesn't decide the conjunct."""
        return ComparedValue(self._text(node.unnest()), columns, None) if columns else None

    def near(self, node: SqlNode, term: Term) -> ComparedValue:
        """A value whose last bits are Java's own, unless it is exact after all."""
        exact = self.exact(node) if isinstance(term, Leaf) else None
        columns = sorted({column for part in inputs_of(term) for column in part.columns})
        return exact or ComparedValue(self._text(node.unnest()), tuple(columns), None, term)

    def _text(self, node: SqlNode) -> str:
        source = self.translator.source
        start, end = source.closed_span(node)
        whole = (start, end) == (0, len(source.text))  # the position of an interval isn't known
        return node.sql("spark") if whole else source.text[start:end]


def _is_column(sql: str, columns: Sequence[Column]) -> bool:
    return any(sql == column.name for column in columns)


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
    """Return the column of a condition that is nothing but `column = constant`, with its value; None for others.

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
