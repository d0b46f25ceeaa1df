"""Formulas in the tree of a condition, read as sums and products however they are written."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi

from sqlglot import exp

from watersmeet.predicate.expr import Expr, Refusal
from watersmeet.predicate.model import Column
from watersmeet.predicate.source import EvaluatedConstant, ForeignExpression, ResolvedColumn, SqlNode
from watersmeet.predicate.terms import NAMES
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import NUMERIC

FACTORS = {"radians": pi / 180, "degrees": 180 / pi, "double": 1.0}
"""Functions that multiply by a constant."""

Linear = dict[str, float]
"""A sum of values times factors: the factor of each value, by the value's key."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of values with a constant."""

    constant: float
    factors: tuple[SqlNode, ...]


class FormulaReader:
    """Reads the formulas of one conjunct."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def expr(self, node: SqlNode) -> Expr | None:
        """The node's expression, if DuckDB has one."""
        try:
            return self.translator.expr(node)
        except Refusal:
            return None

    def resolve(self, node: SqlNode) -> SqlNode:
        """The node without parentheses; for a column that Spark computes, the node that it is computed from."""
        bare = node.unnest()
        meaning = bare.meta.get("meaning") if isinstance(bare, ResolvedColumn) else None
        return bare if meaning is None else self.resolve(meaning())

    def column(self, node: SqlNode) -> Column | None:
        """The stored column that a node is, if it holds fractional numbers; else None."""
        expr = self.expr(node.unnest())
        if expr is None or expr.type.kind not in ("double", "float", "decimal"):
            return None
        return next((column for column in expr.columns if expr.sql == column.name), None)

    def arguments(self, node: SqlNode, function: str) -> list[SqlNode]:
        """The arguments of a call of this function; empty if the node is not one."""
        bare = self.resolve(node)
        name = bare.name.lower() if isinstance(bare, exp.Anonymous) else ""
        return list(bare.expressions) if NAMES.get(name, name) == function else []

    def argument(self, node: SqlNode, function: str) -> SqlNode | None:
        """The only argument of a function."""
        arguments = self.arguments(node, function)
        return arguments[0] if len(arguments) == 1 else None

    def key(self, node: SqlNode) -> str:
        """A text that two nodes share only if they compute the same.

        [!] The node of an expression that only Spark can compute is incomplete: a column that holds one keeps its name.
        """
        bare, meaning = node.unnest(), self.resolve(node)
        if meaning is not bare and all(map(self._is_complete, meaning.walk())):
            return self.key(meaning)
        if isinstance(bare, exp.Column | exp.Literal | EvaluatedConstant):
            expr = self.expr(bare)
            return bare.sql("spark") if expr is None else expr.sql
        own = [str(part).lower() for part in bare.args.values() if not isinstance(part, SqlNode | list)]
        return f"{type(bare).__name__}{own}({', '.join(map(self.key, bare.iter_expressions()))})"

    def _is_complete(self, part: SqlNode) -> bool:
        return not isinstance(part, ForeignExpression) and not (
            isinstance(part, exp.Column) and self.expr(part) is None
        )

    def number(self, node: SqlNode) -> float | None:
        """The value of a constant made of literals and pi; None if it isn't one, is NULL, or may raise."""
        bare = node.unnest()
        expr = self.expr(bare)
        if expr is None or expr.columns or expr.raises or expr.type.kind not in NUMERIC:
            return None
        if expr.is_literal:
            return None if expr.literal is None else float(expr.literal)
        if isinstance(bare, exp.Anonymous) and bare.name.lower() == "pi":
            return pi
        parts = [self.number(part) for part in bare.iter_expressions()]
        match bare, parts:
            case exp.Neg(), [float(one)]:
                return -one
            case exp.Mul(), [float(one), float(two)]:
                return one * two
            case exp.Div(), [float(one), float(two)] if two:
                return one / two
        return None

    def split_factor(self, node: SqlNode) -> tuple[float, SqlNode] | None:
        """A node as a constant times another node: times 1 if it has no factor.

        None if a multiplication, or whatever brings the constant in, isn't computed in doubles.
        """
        bare = self.resolve(node)
        times, inner = 1.0, None
        if isinstance(bare, exp.Mul):
            for one, two in ((bare.this, bare.expression), (bare.expression, bare.this)):
                if inner is None and (number := self.number(one)) is not None:
                    times, inner = number, two
        elif isinstance(bare, exp.Div) and (number := self.number(bare.expression)):
            times, inner = 1 / number, bare.this
        elif isinstance(bare, exp.Neg):
            times, inner = -1.0, bare.this
        else:
            for function, number in FACTORS.items():
                if inner is None and (inner := self.argument(bare, function)) is not None:
                    times = number
            if isinstance(bare, exp.Cast) and bare.to.this == exp.DType.DOUBLE and not bare.args.get("safe"):
                inner = bare.this
        if inner is None:
            return 1.0, node
        expr = self.expr(bare)
        if expr is not None and expr.type.kind != "double":
            return None
        further = self.split_factor(inner)
        return None if further is None else (times * further[0], further[1])

    def summands(self, node: SqlNode) -> Iterator[SqlNode]:
        """The summands of a sum, those of sums inside it included; the node itself if it isn't a sum."""
        bare = self.resolve(node)
        if isinstance(bare, exp.Add):
            yield from self.summands(bare.this)
            yield from self.summands(bare.expression)
        else:
            yield node

    def product(self, node: SqlNode) -> Product | None:
        """A node as a product; a square is two factors. None where `split_factor` is, for it or for a factor."""
        split = self.split_factor(node)
        if split is None:
            return None
        times, rest = split
        bare, power = self.resolve(rest), self.arguments(rest, "pow")
        if len(power) == 2 and self.number(power[1]) == 2:
            parts = [power[0], power[0]]
        elif isinstance(bare, exp.Mul):
            parts = [bare.this, bare.expression]
        else:
            return Product(times, (rest,))
        products = [product for part in parts if (product := self.product(part)) is not None]
        if len(products) != 2:
            return None
        one, two = products
        return Product(times * one.constant * two.constant, (*one.factors, *two.factors))

    def linear(self, node: SqlNode) -> Linear | None:
        """A node as a sum of values times factors; None where its arithmetic is too inexact."""
        split = self.split_factor(node)
        if split is None:
            return None
        times, rest = split
        bare = self.resolve(rest)
        if not isinstance(bare, exp.Add | exp.Sub):
            return {self.key(rest): times}
        one, two = self.linear(bare.this), self.linear(bare.expression)
        if one is None or two is None or not self._is_close(bare):
            return None
        sign = 1.0 if isinstance(bare, exp.Add) else -1.0
        return {key: times * (one.get(key, 0.0) + sign * two.get(key, 0.0)) for key in (*one, *two)}

    def _is_close(self, node: exp.Add | exp.Sub) -> bool:
        """Whether a sum's error is small relative to itself, or within the last bits of the doubles that it adds."""
        expr, one, two = self.expr(node), self.expr(node.this.unnest()), self.expr(node.expression.unnest())
        if expr is not None and expr.type.kind == "double":
            return True
        bare = isinstance(node.this.unnest(), exp.Column) and isinstance(node.expression.unnest(), exp.Column)
        if not bare or expr is None or one is None or two is None:
            return False
        return expr.type.kind == "float" or expr.type.scale >= max(one.type.scale, two.type.scale)
