"""Formulas in the tree of a condition: read as products and sums, however they are written."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi

from sqlglot import exp

from watersmeet.predicate.expr import Expr, Refusal
from watersmeet.predicate.model import Column
from watersmeet.predicate.source import Constant, ForeignExpression, ResolvedColumn, SqlNode
from watersmeet.predicate.terms import NAMES
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import NUMERIC

FACTORS = {"radians": pi / 180, "degrees": 180 / pi, "double": 1.0}
"""Functions that multiply by a constant."""

Linear = dict[str, float]
"""A sum of values, each known by its key, times a factor."""


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

    def seen(self, node: SqlNode) -> SqlNode:
        """The node without parentheses; of a column that Spark computes, what it holds."""
        bare = node.unnest()
        meaning = bare.meta.get("meaning") if isinstance(bare, ResolvedColumn) else None
        return bare if meaning is None else self.seen(meaning())

    def column(self, node: SqlNode) -> Column | None:
        """The stored column that a node is, if it is of a type whose values are what they seem."""
        made = self.expr(node.unnest())
        if made is None or made.type.kind not in ("double", "float", "decimal"):
            return None
        return next((column for column in made.columns if made.sql == column.name), None)

    def arguments(self, node: SqlNode, function: str) -> list[SqlNode]:
        """The arguments of a function; none if a node is no call of it."""
        bare = self.seen(node)
        name = bare.name.lower() if isinstance(bare, exp.Anonymous) else ""
        return list(bare.expressions) if NAMES.get(name, name) == function else []

    def argument(self, node: SqlNode, function: str) -> SqlNode | None:
        """The only argument of a function."""
        found = self.arguments(node, function)
        return found[0] if len(found) == 1 else None

    def key(self, node: SqlNode) -> str:
        """A text that is the same for nodes that compute the same, and for no others.

        [!] What only Spark knows is not all in its node: a column that holds such a thing goes by its own name.
        """
        bare, meaning = node.unnest(), self.seen(node)
        if meaning is not bare and all(map(self._is_known, meaning.walk())):
            return self.key(meaning)
        if isinstance(bare, exp.Column | exp.Literal | Constant):
            made = self.expr(bare)
            return bare.sql("spark") if made is None else made.sql
        own = [str(part).lower() for part in bare.args.values() if not isinstance(part, SqlNode | list)]
        return f"{type(bare).__name__}{own}({', '.join(map(self.key, bare.iter_expressions()))})"

    def _is_known(self, part: SqlNode) -> bool:
        return not isinstance(part, ForeignExpression) and not (
            isinstance(part, exp.Column) and self.expr(part) is None
        )

    def number(self, node: SqlNode) -> float | None:
        """The value of a constant."""
        bare = node.unnest()
        made = self.expr(bare)
        if made is None or made.columns or made.raises or made.type.kind not in NUMERIC:
            return None
        if made.is_literal:
            return None if made.literal is None else float(made.literal)
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

    def scaled(self, node: SqlNode) -> tuple[float, SqlNode] | None:
        """A node as a constant times another node; None where it is computed too roughly to tell."""
        bare = self.seen(node)
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
        made = self.expr(bare)
        if made is not None and made.type.kind != "double":
            return None
        further = self.scaled(inner)
        return None if further is None else (times * further[0], further[1])

    def summands(self, node: SqlNode) -> Iterator[SqlNode]:
        """The parts of a sum."""
        bare = self.seen(node)
        if isinstance(bare, exp.Add):
            yield from self.summands(bare.this)
            yield from self.summands(bare.expression)
        else:
            yield node

    def product(self, node: SqlNode) -> Product | None:
        """A node as a product; a square is two factors."""
        scaled = self.scaled(node)
        if scaled is None:
            return None
        times, rest = scaled
        bare, power = self.seen(rest), self.arguments(rest, "pow")
        if len(power) == 2 and self.number(power[1]) == 2:
            parts = [power[0], power[0]]
        elif isinstance(bare, exp.Mul):
            parts = [bare.this, bare.expression]
        else:
            return Product(times, (rest,))
        found = [product for part in parts if (product := self.product(part)) is not None]
        if len(found) != 2:
            return None
        one, two = found
        return Product(times * one.constant * two.constant, (*one.factors, *two.factors))

    def linear(self, node: SqlNode) -> Linear | None:
        """A node as a sum of values times factors."""
        scaled = self.scaled(node)
        if scaled is None:
            return None
        times, rest = scaled
        bare = self.seen(rest)
        if not isinstance(bare, exp.Add | exp.Sub):
            return {self.key(rest): times}
        one, two = self.linear(bare.this), self.linear(bare.expression)
        if one is None or two is None or not self._is_close(bare):
            return None
        sign = 1.0 if isinstance(bare, exp.Add) else -1.0
        return {key: times * (one.get(key, 0.0) + sign * two.get(key, 0.0)) for key in (*one, *two)}

    def _is_close(self, node: exp.Add | exp.Sub) -> bool:
        """Whether a sum is off by little in relation to itself, or by the last bits of doubles in its parts."""
        made, one, two = self.expr(node), self.expr(node.this.unnest()), self.expr(node.expression.unnest())
        if made is not None and made.type.kind == "double":
            return True
        bare = isinstance(node.this.unnest(), exp.Column) and isinstance(node.expression.unnest(), exp.Column)
        if not bare or made is None or one is None or two is None:
            return False
        return made.type.kind == "float" or made.type.scale >= max(one.type.scale, two.type.scale)
