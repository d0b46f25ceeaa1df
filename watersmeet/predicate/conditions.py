"""Nodes that give TRUE, FALSE or NULL: comparisons, AND, OR, NOT, IS, IN, LIKE, and calls of Python predicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from watersmeet.predicate.casts import coerce
from watersmeet.predicate.conditionals import cast_alike, compare, logic
from watersmeet.predicate.expr import Expr, Refusal, combine, null_test, strict_expr
from watersmeet.predicate.patterns import like, rlike
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.types import BOOLEAN, STRING

if TYPE_CHECKING:
    from watersmeet.predicate.translate import Translator

Handler = Callable[["Translator", Any], Expr]


def flatten(node: SqlNode, kind: type[SqlNode]) -> list[SqlNode]:
    """The operands of a chain of ANDs (or ORs), in written order, inside parentheses too."""
    bare = node.unnest()
    if not isinstance(bare, kind):
        return [node]
    return [*flatten(bare.this, kind), *flatten(bare.args["expression"], kind)]


def _refuse_chain(node: SqlNode) -> None:
    """Refuse comparisons of comparisons: Spark reads `a = b < c` from the left, sqlglot otherwise."""
    for child in (node.this, node.args.get("expression"), node.args.get("low"), node.args.get("high")):
        if isinstance(child, tuple(CONDITIONS)) and not isinstance(child, exp.Escape):
            raise Refusal("A comparison of a comparison needs parentheses.")


def _comparison(sign: str) -> Handler:
    def handle(self: Translator, node: exp.Binary) -> Expr:
        _refuse_chain(node)
        return compare(sign, self.expr(node.this), self.expr(node.expression), self.dialect)

    return handle


def _between(self: Translator, node: exp.Between) -> Expr:
    _refuse_chain(node)
    if node.args.get("symmetric") is not None:
        raise Refusal("BETWEEN SYMMETRIC can't be translated; write the two comparisons.")
    value = self.expr(node.this)
    low = compare(">=", value, self.expr(node.args["low"]), self.dialect)
    return logic("AND", (low, compare("<=", value, self.expr(node.args["high"]), self.dialect)))


def _logic(word: str, kind: type[SqlNode]) -> Handler:
    def handle(self: Translator, node: SqlNode) -> Expr:
        return logic(word, [self.boolean(part) for part in flatten(node, kind)])

    return handle


def _not(self: Translator, node: exp.Not) -> Expr:
    inner = self.boolean(node.this)
    return strict_expr(f"(NOT {inner.sql})", BOOLEAN, (inner,))


def _is(self: Translator, node: exp.Is) -> Expr:
    _refuse_chain(node)
    target = node.expression
    if isinstance(target, exp.Boolean):
        inner = self.boolean(node.this)
        return combine(f"({inner.sql} IS NOT DISTINCT FROM {'TRUE' if target.this else 'FALSE'})", BOOLEAN, (inner,))
    if not isinstance(target, exp.Null):
        raise Refusal("IS is followed by NULL, TRUE, FALSE or UNKNOWN.")
    return null_test(self.expr(node.this))


def _in(self: Translator, node: exp.In) -> Expr:
    _refuse_chain(node)
    if node.args.get("query") is not None or not node.expressions:
        raise Refusal("IN is followed by a list of values; a subquery can't be translated.")
    value, *items = cast_alike([self.expr(child) for child in (node.this, *node.expressions)], self.dialect)
    if not value.columns and len({bool(item.columns) for item in items}) > 1:
        # DuckDB would decide by the constants alone and not evaluate the columns, which may raise.
        raise Refusal("A constant IN a list of both constants and columns can't be translated; write it out.")
    return logic("OR", [compare("=", value, item, self.dialect) for item in items])


def _text(self: Translator, node: SqlNode) -> Expr:
    return coerce(self.expr(node), STRING, self.dialect)


def _like(self: Translator, node: exp.Like | exp.ILike, escape: str = "\\") -> Expr:
    _refuse_chain(node)
    condition = like(_text(self, node.this), _text(self, node.expression), escape, fold=isinstance(node, exp.ILike))
    return strict_expr(f"(NOT {condition.sql})", BOOLEAN, (condition,)) if node.args.get("negate") else condition


def _escape(self: Translator, node: exp.Escape) -> Expr:
    escape = self.expr(node.expression).literal
    if not isinstance(node.this, exp.Like | exp.ILike) or not isinstance(escape, str):
        raise Refusal("ESCAPE follows LIKE or ILIKE, and is followed by a character in quotes.")
    return _like(self, node.this, escape)


def _rlike(self: Translator, node: exp.RegexpLike) -> Expr:
    _refuse_chain(node)
    return rlike(_text(self, node.this), self.expr(node.expression))


CONDITIONS: dict[type[SqlNode], Handler] = {
    exp.EQ: _comparison("="),
    exp.NEQ: _comparison("<>"),
    exp.LT: _comparison("<"),
    exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"),
    exp.GTE: _comparison(">="),
    exp.NullSafeEQ: _comparison("IS NOT DISTINCT FROM"),
    exp.NullSafeNEQ: _comparison("IS DISTINCT FROM"),
    exp.Between: _between,
    exp.And: _logic("AND", exp.And),
    exp.Or: _logic("OR", exp.Or),
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.RegexpLike: _rlike,
}
