"""Access paths of great-circle distances: two places differ in latitude by no more than their distance.

These formulas are recognised: the haversine, `asin(sqrt(h))` or `atan2(sqrt(h), sqrt(1 - h))` with
h = sin²(Δφ / 2) + cos φ · cos φ' · sin²(Δλ / 2), and the spherical law of cosines,
`acos(sin φ · sin φ' + cos φ · cos φ' · cos Δλ)`: in any order, with squares, angles and constant factors written in any
way. Longitudes don't matter: whatever they are, sin² is not negative, and no cosine is above 1.

[!] That holds for latitudes alone. Beyond the poles a cosine is negative, and places of different latitudes may be the
same: the bound names each latitude as an operation that must stay within its limit, so that the probe doesn't use the
bound where a value lies beyond. A column that holds the sine of a latitude has no such limit.

A formula is read as sums and products, however it is written. The error of a computed distance follows from its
formula. The argument of `asin`² or `acos` may be off by some 1e-15, which turns an angle of 0 into 5e-8; all other
errors are relative. The angle is widened by more than both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, pi

from sqlglot import exp

from watersmeet.predicate.bounds import SIDES, upper_end
from watersmeet.predicate.model import Bound, Column, Operand, Operation
from watersmeet.predicate.source import EvaluatedConstant, ForeignExpression, ResolvedColumn, SqlNode
from watersmeet.predicate.terms import NAMES, VECTORS
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import NUMERIC

FACTORS = {"radians": pi / 180, "degrees": 180 / pi, "double": 1.0}
"""Functions that multiply by a constant."""

Linear = dict[str, float]
"""A sum of values times factors: the factor of each value, by the value's key."""
WIDER, MARGIN = 1 + 1e-6, 4e-7
"""The angle is widened by this factor, which covers differences of floats, and then by this much, in radians."""
FARTHEST = 2.0
"""Beyond this angle, in radians, errors grow and little would be skipped: there is no bound."""
POLE = pi / 2
ROUNDED = 1 + 2.0**-50
"""How far off the pole may be in degrees; the cosine there stays within the error that is allowed for."""
NOT: dict[type[SqlNode], type[SqlNode]] = {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT}
"""What NOT makes of a comparison."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of values with a constant."""

    constant: float
    factors: tuple[SqlNode, ...]


class FormulaReader:
    """Reads the formulas of one conjunct."""

    def __init__(self, translator: Translator) -> None:
        self.translator, self.expr = translator, translator.try_expr

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
        """The only argument of a call of this function; None if the node isn't one, or has several."""
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
        expr, one, two = (
            self.expr(node),
            self.expr(node.this.unnest()),
            self.expr(node.expression.unnest()),
        )
        if expr is not None and expr.type.kind == "double":
            return True
        bare = isinstance(node.this.unnest(), exp.Column) and isinstance(node.expression.unnest(), exp.Column)
        if not bare or expr is None or one is None or two is None:
            return False
        return expr.type.kind == "float" or expr.type.scale >= max(one.type.scale, two.type.scale)


@dataclass(frozen=True, slots=True)
class Latitude:
    """A latitude that a stored column holds.

    Attributes:
        column: The column.
        scale: What it is multiplied by to give radians; None if it holds the sine.
        limit: How large its values may be in absolute terms.
    """

    column: Column
    scale: float | None
    limit: float = inf

    @property
    def radians(self) -> str:
        """The latitude in radians, as DuckDB computes it."""
        if self.scale is None:
            return f"asin(greatest({_double_sql(-1.0)}, least({_double_sql(1.0)}, {self.column.name})))"
        return f"({_as_double(self.column)} * {_double_sql(self.scale)})"

    def at(self, radians: str) -> str:
        """The column's value at a latitude."""
        if self.scale is None:
            return f"sin(greatest({_double_sql(-POLE)}, least({_double_sql(POLE)}, {radians})))"
        return f"({radians} / {_double_sql(self.scale)})"

    @property
    def guard(self) -> tuple[Operation, ...]:
        """The operations that must stay within a limit."""
        if self.scale is None:
            return ()
        return (Operation("is", (Operand(_as_double(self.column), (self.column,)),), self.limit),)


@dataclass(frozen=True, slots=True)
class Circle:
    """A distance on a great circle.

    Attributes:
        latitudes: The latitudes of its two places.
        angle: The angle, in radians, that makes a distance of 1.
    """

    latitudes: tuple[Latitude, Latitude]
    angle: float

    def bounds(self, limit: str, read: frozenset[Column]) -> Iterator[Bound]:
        """Yield a bound on each latitude whose stream the other end doesn't read.

        Where the angle is beyond FARTHEST, they admit everything.

        Args:
            limit: The greatest distance, DuckDB's expression.
            read: The columns that it reads.
        """
        angle = f"({limit} * {_double_sql(self.angle * WIDER)} + {_double_sql(MARGIN)})"
        guard = tuple(operation for latitude in self.latitudes for operation in latitude.guard)
        for here, there in (self.latitudes, self.latitudes[::-1]):
            columns = read | {there.column}
            if here.column.stream not in {column.stream for column in columns}:
                ends = [here.at(f"({there.radians} {sign} {angle})") for sign in "-+"]
                low, high = (
                    f"(CASE WHEN {angle} <= {_double_sql(FARTHEST)} THEN {end} ELSE CAST('{other}' AS DOUBLE) END)"
                    for end, other in zip(ends, ("-inf", "nan"), strict=True)
                )
                yield Bound(here.column, low, high, tuple(sorted(columns)), guard, conditional=bool(guard))


def great_circle_bounds_of(node: SqlNode, translator: Translator) -> tuple[Bound, ...]:
    """The access paths of a limited great-circle distance, one for each stream's latitude.

    Empty if the conjunct limits no such distance, or a part of it may raise.
    """
    reader = _GreatCircleReader(translator)
    if not reader.cannot_raise(node):
        return ()
    bounds = list[Bound]()
    for distance, limit in _limits(node.unnest()):
        circle, end = reader.circle(distance), upper_end(limit, translator)
        bounds += circle.bounds(*end) if circle is not None and end is not None else ()
    return tuple(bounds)


def _limits(node: SqlNode) -> Iterator[tuple[SqlNode, SqlNode]]:
    """The values that a condition limits from above, each with its limit."""
    kind = type(node)
    if isinstance(node, exp.Not) and type(node.this.unnest()) in NOT:
        node = node.this.unnest()
        kind = NOT[type(node)]
    if isinstance(node, exp.Between):
        yield node.this, node.args["high"]
    elif kind in SIDES:
        has_low, has_high = SIDES[kind]
        left, right = node.this, node.args["expression"]
        yield from [(left, right)] * has_high + [(right, left)] * has_low


class _GreatCircleReader(FormulaReader):
    """Reads distances in the tree of one conjunct."""

    def cannot_raise(self, node: SqlNode) -> bool:
        """Whether no part of a comparison can raise: rows may only be skipped then."""
        return all(map(self._part_cannot_raise, node.walk()))

    def _part_cannot_raise(self, part: SqlNode) -> bool:
        """Whether a part can't raise by itself: it doesn't divide by what may be 0, nor compare vectors."""
        if isinstance(part, exp.Div) and not self.number(part.expression):
            return False
        if isinstance(part, exp.Anonymous) and part.name.lower() in VECTORS:
            return False
        expr = self.expr(part)
        return expr is None or not expr.raises

    def circle(self, distance: SqlNode) -> Circle | None:
        """The great circle whose length, times a positive constant, a node is; None if it isn't one."""
        split = self.split_factor(distance)
        if split is None or split[0] <= 0:
            return None
        factor, core = split
        if (square := self._haversine(core)) is not None:
            latitudes, angle = self._by_haversine(square), 2 / factor
        elif (cosine := self.argument(core, "acos")) is not None:
            latitudes, angle = self._by_cosines(cosine), 1 / factor
        else:
            return None
        return Circle(latitudes, angle) if latitudes is not None and isfinite(angle) else None

    def _haversine(self, core: SqlNode) -> SqlNode | None:
        """The h of half an angle, `asin(sqrt(h))` or `atan2(sqrt(h), sqrt(1 - h))`; else None."""
        sine, tangent = self.argument(core, "asin"), self.arguments(core, "atan2")
        if sine is not None:
            return self.argument(sine, "sqrt")
        if len(tangent) != 2:
            return None
        one, rest = (self.argument(side, "sqrt") for side in tangent)
        rest = None if rest is None else self.resolve(rest)
        if one is None or not isinstance(rest, exp.Sub) or self.number(rest.this) != 1:
            return None
        return one if self.key(one) == self.key(rest.expression) else None

    def _by_haversine(self, node: SqlNode) -> tuple[Latitude, Latitude] | None:
        """The latitudes of `sin²(Δφ / 2) + …`; None if it isn't such a sum.

        The rest must not be negative within the limits of latitudes.
        """
        summands = [self.product(part) for part in self.summands(node)]
        halves = [half for product in summands if product and (half := self._half_angle(product)) is not None]
        if len(halves) != 1 or len(summands) != 2:
            return None
        half, terms = halves[0], self.linear(halves[0]) or {}
        factor = max(terms.values(), default=0.0)
        if len(terms) != 2 or sum(terms.values()) != 0 or factor <= 0:
            return None
        steepest = dict.fromkeys(terms, 2 * factor)
        for product in summands:
            if product is None or (self._half_angle(product) is None and not self._is_positive(product, steepest)):
                return None
        return self._pair([self._latitude(leaf, 2 * factor, steepest) for leaf in half.find_all(exp.Column)])

    def _half_angle(self, product: Product) -> SqlNode | None:
        """The angle whose sine is squared, if a product is nothing else; else None."""
        if product.constant != 1 or len(product.factors) != 2 or len({*map(self.key, product.factors)}) != 1:
            return None
        return self.argument(product.factors[0], "sin")

    def _is_positive(self, product: Product, steepest: Linear) -> bool:
        """Whether a product of squares and cosines can't be negative; raises `steepest` to the cosines' factors."""
        count = Counter(map(self.key, product.factors))
        single = [factor for factor in product.factors if count[self.key(factor)] % 2]
        for factor in single:
            cosine = self.argument(factor, "cos")
            terms = (None if cosine is None else self.linear(cosine)) or {}
            if len(terms) != 1 or not terms.keys() <= steepest.keys():
                return False
            for key, scale in terms.items():
                steepest[key] = max(steepest[key], abs(scale))
        return product.constant >= 0

    def _by_cosines(self, node: SqlNode) -> tuple[Latitude, Latitude] | None:
        """The latitudes of `sin φ · sin φ' + cos φ · cos φ' · cos(…)`; None if it isn't such a sum."""
        summands = [self.product(part) for part in self.summands(node)]
        products = [product for product in summands if product is not None and product.constant == 1]
        products.sort(key=lambda product: len(product.factors))
        if len(summands) != 2 or [len(product.factors) for product in products] != [2, 3]:
            return None
        sines = [(factor, self._angle(factor, "sin")) for factor in products[0].factors]
        cosines = [self._angle(factor, "cos") for factor in products[1].factors]
        others = [self.argument(factor, "cos") for factor in products[1].factors]
        for _, angle in sines:
            if angle is None or angle not in cosines:
                return None
            others.pop(cosines.index(angle))
            cosines.remove(angle)
        return (
            self._pair([self._latitude_of_sine(factor, angle) for factor, angle in sines])
            if others[0] is not None
            else None
        )

    def _angle(self, factor: SqlNode, function: str) -> tuple[str, float] | None:
        """The only value, and what it is multiplied by, that a function is taken of; None if there isn't just one."""
        argument = self.argument(factor, function)
        terms = None if argument is None else self.linear(argument)
        return next(iter(terms.items())) if terms is not None and len(terms) == 1 else None

    def _latitude_of_sine(self, factor: SqlNode, angle: tuple[str, float] | None) -> Latitude | None:
        """The latitude in a sine: a column that holds the sine itself, or the only column of the angle; else None."""
        column = self.column(factor)
        if column is not None:
            return Latitude(column, None)
        leaves = list(factor.find_all(exp.Column))
        return self._latitude(leaves[0], angle[1], dict([angle])) if angle is not None and len(leaves) == 1 else None

    def _latitude(self, leaf: SqlNode, scale: float, steepest: Linear) -> Latitude | None:
        """The latitude that a stored column holds; None if the value isn't a positive multiple of a column.

        Args:
            leaf: The column.
            scale: What makes radians of the value that the column is, or is a multiple of.
            steepest: By value the largest factor with which a cosine is taken of it.
        """
        column, terms = self.column(leaf), self.linear(leaf)
        if column is None or terms is None or len(terms) != 1:
            return None
        ((key, times),) = terms.items()
        if times <= 0 or scale <= 0 or key not in steepest:
            return None
        return Latitude(column, scale / times, POLE / steepest[key] * times * ROUNDED)

    def _pair(self, latitudes: Sequence[Latitude | None]) -> tuple[Latitude, Latitude] | None:
        """The latitudes, if they are two of two streams; else None."""
        both = list(dict.fromkeys(latitude for latitude in latitudes if latitude is not None))
        if len(both) != 2 or None in latitudes or both[0].column.stream == both[1].column.stream:
            return None
        return both[0], both[1]


def _as_double(column: Column) -> str:
    return f"CAST({column.name} AS DOUBLE)"


def _double_sql(value: float) -> str:
    return f"CAST({value!r} AS DOUBLE)"
