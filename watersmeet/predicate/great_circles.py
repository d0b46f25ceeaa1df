"""Access paths of great-circle distances: two places are no farther apart in latitude than on the great circle.

Recognised are the haversine, `asin(sqrt(h))` or `atan2(sqrt(h), sqrt(1 - h))` with h = sin²(Δφ / 2) + cos φ · cos φ' ·
sin²(Δλ / 2), and the spherical law of cosines, `acos(sin φ · sin φ' + cos φ · cos φ' · cos Δλ)`: in any order, with
squares, angles and constant factors written in any way. Longitudes don't matter here: whatever they are, sin² is not
negative, and no cosine is above 1.

[!] That holds for latitudes alone. Beyond the poles a cosine is negative, and places of different latitudes may be one:
the bound names this as an operation that must stay within its limit, so that the kernel looks nothing up where a value
lies beyond. A column that holds the sine of a latitude has no such limit.

How much computed distances are off follows from how they are computed. The argument of `asin`² or `acos` may be off by
some 1e-15, which makes 5e-8 of an angle of 0; all else is relative. The angle is widened by more than either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, pi

from sqlglot import exp

from watersmeet.predicate.bounds import SIDES, upper_end
from watersmeet.predicate.expr import Expr, Refusal
from watersmeet.predicate.model import Bound, Column, Operand, Operation
from watersmeet.predicate.source import Constant, Foreign, Known, SqlNode
from watersmeet.predicate.terms import NAMES, VECTORS
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import NUMERIC

WIDER, MARGIN = 1 + 1e-6, 4e-7
"""The angle is widened by this factor, which covers differences of floats, and then by this much, in radians."""
FARTHEST = 2.0
"""Beyond this angle, in radians, errors grow and little is left out: there is no bound."""
POLE = pi / 2
ROUNDED = 1 + 2.0**-50
"""What the pole in degrees may be off by; the cosine there is not less than the error that is allowed for."""
NOT: dict[type[SqlNode], type[SqlNode]] = {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT}
"""What NOT makes of a comparison."""

Linear = dict[str, float]
"""A sum of values, each known by its key, times a factor."""


@dataclass(frozen=True, slots=True)
class Latitude:
    """A latitude as a stored column tells it.

    Attributes:
        column: The column.
        scale: What it is multiplied by to give radians; None if it holds the sine.
        limit: How large its values may be.
    """

    column: Column
    scale: float | None
    limit: float = inf

    @property
    def radians(self) -> str:
        """The latitude in radians, as DuckDB computes it."""
        if self.scale is None:
            return f"asin(greatest({_real(-1.0)}, least({_real(1.0)}, {self.column.name})))"
        return f"({_as_double(self.column)} * {_real(self.scale)})"

    def at(self, radians: str) -> str:
        """The column's value at a latitude."""
        if self.scale is None:
            return f"sin(greatest({_real(-POLE)}, least({_real(POLE)}, {radians})))"
        return f"({radians} / {_real(self.scale)})"

    @property
    def guard(self) -> tuple[Operation, ...]:
        """What must stay within a limit."""
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
        """The bounds that follow from a limit: DuckDB's expression, and the columns that it reads."""
        angle = f"({limit} * {_real(self.angle * WIDER)} + {_real(MARGIN)})"
        guard = tuple(operation for latitude in self.latitudes for operation in latitude.guard)
        for here, there in (self.latitudes, self.latitudes[::-1]):
            columns = read | {there.column}
            if here.column.stream not in {column.stream for column in columns}:
                ends = [here.at(f"({there.radians} {sign} {angle})") for sign in "-+"]
                low, high = (
                    f"(CASE WHEN {angle} <= {_real(FARTHEST)} THEN {end} ELSE CAST('{other}' AS DOUBLE) END)"
                    for end, other in zip(ends, ("-inf", "nan"), strict=True)
                )
                yield Bound(here.column, low, high, tuple(sorted(columns)), guard, conditional=bool(guard))


def great_circle_bounds_of(node: SqlNode, translator: Translator) -> tuple[Bound, ...]:
    """The bounds that a limit of a great-circle distance offers, one for each stream's latitude."""
    reader = _Reader(translator)
    if not reader.is_calm(node):
        return ()
    found = list[Bound]()
    for distance, limit in _limits(node.unnest()):
        circle, end = reader.circle(distance), upper_end(limit, translator)
        found += circle.bounds(*end) if circle is not None and end is not None else ()
    return tuple(found)


def _limits(node: SqlNode) -> Iterator[tuple[SqlNode, SqlNode]]:
    """What a condition limits from above, each with its limit."""
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


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of values with a constant."""

    constant: float
    factors: tuple[SqlNode, ...]


class _Reader:
    """Reads distances in the tree of one conjunct."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def is_calm(self, node: SqlNode) -> bool:
        """Whether nothing in a comparison can raise: a row that is left out never does."""
        return all(self._is_calm(part) for part in node.walk())

    def _is_calm(self, part: SqlNode) -> bool:
        if isinstance(part, exp.Div) and not self.number(part.expression):
            return False
        if isinstance(part, exp.Anonymous) and part.name.lower() in VECTORS:
            return False
        made = self.expr(part)
        return made is None or not made.raises

    def circle(self, distance: SqlNode) -> Circle | None:
        """The great circle whose length a node is."""
        scaled = self.scaled(distance)
        if scaled is None or scaled[0] <= 0:
            return None
        factor, core = scaled
        if (square := self._haversine(core)) is not None:
            found, angle = self._by_haversine(square), 2 / factor
        elif (cosine := self.argument(core, "acos")) is not None:
            found, angle = self._by_cosines(cosine), 1 / factor
        else:
            return None
        return Circle(found, angle) if found is not None and isfinite(angle) else None

    def _haversine(self, core: SqlNode) -> SqlNode | None:
        """The h of half an angle, `asin(sqrt(h))` or `atan2(sqrt(h), sqrt(1 - h))`."""
        sine, tangent = self.argument(core, "asin"), self.arguments(core, "atan2")
        if sine is not None:
            return self.argument(sine, "sqrt")
        if len(tangent) != 2:
            return None
        one, rest = (self.argument(side, "sqrt") for side in tangent)
        rest = None if rest is None else self.seen(rest)
        if one is None or not isinstance(rest, exp.Sub) or self.number(rest.this) != 1:
            return None
        return one if self.key(one) == self.key(rest.expression) else None

    def _by_haversine(self, node: SqlNode) -> tuple[Latitude, Latitude] | None:
        """The latitudes of `sin²(Δφ / 2) + …` where what is added is not negative within limits of latitudes."""
        summands = [self.product(part) for part in self.summands(node)]
        halves = [half for product in summands if product and (half := self._half(product)) is not None]
        if len(halves) != 1 or len(summands) != 2:
            return None
        half, terms = halves[0], self.linear(halves[0]) or {}
        factor = max(terms.values(), default=0.0)
        if len(terms) != 2 or sum(terms.values()) != 0 or factor <= 0:
            return None
        steepest = dict.fromkeys(terms, 2 * factor)
        for product in summands:
            if product is None or (self._half(product) is None and not self._is_positive(product, steepest)):
                return None
        return self._pair([self._stored(leaf, 2 * factor, steepest) for leaf in half.find_all(exp.Column)])

    def _half(self, product: _Product) -> SqlNode | None:
        """The angle whose sine is squared, if a product is nothing else."""
        if product.constant != 1 or len(product.factors) != 2 or len({*map(self.key, product.factors)}) != 1:
            return None
        return self.argument(product.factors[0], "sin")

    def _is_positive(self, product: _Product, steepest: Linear) -> bool:
        """Whether a product can't be negative: squares, and cosines of the latitudes, whose factors are noted."""
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
        """The latitudes of `sin φ · sin φ' + cos φ · cos φ' · cos(…)`."""
        summands = [self.product(part) for part in self.summands(node)]
        products = [product for product in summands if product is not None and product.constant == 1]
        products.sort(key=lambda product: len(product.factors))
        if len(summands) != 2 or [len(product.factors) for product in products] != [2, 3]:
            return None
        sines = [(factor, self._angle(factor, "sin")) for factor in products[0].factors]
        cosines = [self._angle(factor, "cos") for factor in products[1].factors]
        left = [self.argument(factor, "cos") for factor in products[1].factors]
        for _, angle in sines:
            if angle is None or angle not in cosines:
                return None
            left.pop(cosines.index(angle))
            cosines.remove(angle)
        return self._pair([self._of_sine(factor, angle) for factor, angle in sines]) if left[0] is not None else None

    def _angle(self, factor: SqlNode, function: str) -> tuple[str, float] | None:
        """The only value, and what it is multiplied by, that a function is taken of."""
        argument = self.argument(factor, function)
        terms = None if argument is None else self.linear(argument)
        return next(iter(terms.items())) if terms is not None and len(terms) == 1 else None

    def _of_sine(self, factor: SqlNode, angle: tuple[str, float] | None) -> Latitude | None:
        column = self.column(factor)
        if column is not None:
            return Latitude(column, None)
        leaves = list(factor.find_all(exp.Column))
        return self._stored(leaves[0], angle[1], dict([angle])) if angle is not None and len(leaves) == 1 else None

    def _stored(self, leaf: SqlNode, scale: float, steepest: Linear) -> Latitude | None:
        """The latitude that a stored column tells.

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

    def _pair(self, found: Sequence[Latitude | None]) -> tuple[Latitude, Latitude] | None:
        """Two latitudes of two streams."""
        known = list(dict.fromkeys(latitude for latitude in found if latitude is not None))
        if len(known) != 2 or None in found or known[0].column.stream == known[1].column.stream:
            return None
        return known[0], known[1]

    # -- parts

    def expr(self, node: SqlNode) -> Expr | None:
        """The node's expression, if DuckDB has one."""
        try:
            return self.translator.expr(node)
        except Refusal:
            return None

    def seen(self, node: SqlNode) -> SqlNode:
        """The node without parentheses; of a column that Spark computes, what it holds."""
        bare = node.unnest()
        meaning = bare.meta.get("meaning") if isinstance(bare, Known) else None
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
        """A text that is the same for nodes that compute the same; unique for what isn't known."""
        bare = self.seen(node)
        if isinstance(bare, Foreign):
            return f"{id(bare)}"
        if isinstance(bare, exp.Column | exp.Literal | Constant):
            made = self.expr(bare)
            return f"{id(bare)}" if made is None else made.sql
        own = [str(part).lower() for part in bare.args.values() if not isinstance(part, SqlNode | list)]
        return f"{type(bare).__name__}{own}({', '.join(map(self.key, bare.iter_expressions()))})"

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
            for function, number in (("radians", pi / 180), ("degrees", 180 / pi), ("double", 1.0)):
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

    def product(self, node: SqlNode) -> _Product | None:
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
            return _Product(times, (rest,))
        found = [product for part in parts if (product := self.product(part)) is not None]
        if len(found) != 2:
            return None
        one, two = found
        return _Product(times * one.constant * two.constant, (*one.factors, *two.factors))

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


def _as_double(column: Column) -> str:
    return f"CAST({column.name} AS DOUBLE)"


def _real(value: float) -> str:
    return f"CAST({value!r} AS DOUBLE)"
