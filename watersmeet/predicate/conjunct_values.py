"""The values that a conjunct compares, for people: those on both sides rather than the columns inside them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.model import Call, Column, ComparedValue, ComparedValues, Relation
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.terms import Comparison, Leaf, Term, inputs_of
from watersmeet.predicate.translate import Translator

RELATIONS: dict[type[SqlNode], Relation] = {
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=", exp.NEQ: "<>", exp.NullSafeEQ: "<=>",
}  # fmt: skip
NEGATED: dict[Relation, Relation] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
INNER = (exp.And, exp.Or, exp.Not)
"""Conditions made of conditions."""
CONDITIONS = (*RELATIONS, exp.Between, exp.In, exp.Is, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)
"""Conditions made of values."""


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
        try:
            expr = self.translator.expr(bare)
        except Refusal:
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
