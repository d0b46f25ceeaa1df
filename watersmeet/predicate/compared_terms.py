"""What a conjunct compares, as people ask for it: the values on both sides rather than the columns deep inside them."""

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
    left: tuple[Column, ...] = (),
) -> ComparedValues:
    """Return what a conjunct compares, as far as it can be computed.

    Args:
        node: The conjunct.
        translator: Carries its values over.
        calls: The Python predicates that it calls.
        near: The comparisons that it is, if the last bits of its values are Java's own.
        left: The columns that it reads, if it is left to Spark, which then computes what can't be here.
    """
    reader = _ValueReader(translator)
    relation, sides = _relation_of(node.unnest())
    if near:
        terms = (near[0].left, near[0].right, *(comparison.right for comparison in near[1:]))
        values = [reader.near(side, term) for side, term in zip(sides, terms, strict=True)]
    else:
        values = [value for side in sides if (value := reader.exact(side) or reader.foreign(side, left)) is not None]
    if relation and len(values) == len(sides):
        return ComparedValues(relation, tuple(values))
    arguments = (argument for call in calls for argument in call.arguments)
    given = [ComparedValue(a.text, a.columns, a.sql, is_column=_is_column(a.sql, a.columns)) for a in arguments]
    found = given or [value for side in _operands(node) if (value := reader.exact(side)) is not None]
    return ComparedValues("", tuple(dict.fromkeys(value for value in found if value.columns)))


def _relation_of(node: SqlNode) -> tuple[Relation, list[SqlNode]]:
    """How a comparison relates its sides, and these; nothing of any other condition."""
    if isinstance(node, exp.Not):
        relation, sides = _relation_of(node.this.unnest())
        return NEGATED.get(relation, ""), sides
    if isinstance(node, exp.Between):
        return "BETWEEN", [node.this, node.args["low"], node.args["high"]]
    relation = RELATIONS.get(type(node), "")
    return relation, [node.this, node.expression] if relation else []


def _operands(node: SqlNode) -> Iterator[SqlNode]:
    """The values that a condition is made of."""
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
        """A value that DuckDB computes as Spark does; None if it doesn't."""
        bare = node.unnest()
        try:
            made = self.translator.expr(bare)
        except Refusal:
            return None
        columns, is_column = tuple(sorted(made.columns)), _is_column(made.sql, tuple(made.columns))
        is_duration = made.type.kind == "day_time"
        return ComparedValue(self._text(bare), columns, made.sql, None, is_column, is_duration, made.unsure)

    def foreign(self, node: SqlNode, left: tuple[Column, ...]) -> ComparedValue | None:
        """A value that only Spark computes; None if the conjunct isn't left to it."""
        return ComparedValue(self._text(node.unnest()), left, None) if left else None

    def near(self, node: SqlNode, term: Term) -> ComparedValue:
        """A value that is known but for its last bits; one that is exact all the same is shown as it is."""
        known = self.exact(node) if isinstance(term, Leaf) else None
        columns = sorted({column for part in inputs_of(term) for column in part.columns})
        return known or ComparedValue(self._text(node.unnest()), tuple(columns), None, term)

    def _text(self, node: SqlNode) -> str:
        source = self.translator.source
        start, end = source.written(node)
        whole = (start, end) == (0, len(source.text))  # an interval, of which it isn't known where it stands
        return node.sql("spark") if whole else source.text[start:end]


def _is_column(sql: str, columns: Sequence[Column]) -> bool:
    return any(sql == column.name for column in columns)
