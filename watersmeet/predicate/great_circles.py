"""Access paths of great-circle distances: two places differ in latitude by no more than their distance.

These formulas are recognised: the haversine, `asin(sqrt(h))` or `atan2(sqrt(h), sqrt(1 - h))` with
h = sin²(Δφ / 2) + cos φ · cos φ' · sin²(Δλ / 2), and the spherical law of cosines,
`acos(sin φ · sin φ' + cos φ · cos φ' · cos Δλ)`: in any order, with squares, angles and constant factors written in any
way. Longitudes don't matter: whatever they are, sin² is not negative, and no cosine is above 1.

[!] That holds for latitudes alone. Beyond the poles a cosine is negative, and places of different latitudes may be the
same: the bound names each latitude as an operation that must stay within its limit, so that the probe doesn't use the
bound where a value lies beyond. A column that holds the sine of a latitude has no such limit.

The error of a computed distance follows from its formula. The argument of `asin`² or `acos` may be off by some 1e-15,
which turns an angle of 0 into 5e-8; all other errors are relative. The angle is widened by more than both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, pi

from sqlglot import exp

from watersmeet.predicate.bounds import SIDES, upper_end
from watersmeet.predicate.formulas import FormulaReader, Linear, Product
from watersmeet.predicate.model import Bound, Column, Operand, Operation
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.terms import VECTORS
from watersmeet.predicate.translate import Translator

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
        """The angle whose sine is squared, if a product is nothing else."""
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
        """The latitudes, if they are two of two streams."""
        both = list(dict.fromkeys(latitude for latitude in latitudes if latitude is not None))
        if len(both) != 2 or None in latitudes or both[0].column.stream == both[1].column.stream:
            return None
        return both[0], both[1]


def _as_double(column: Column) -> str:
    return f"CAST({column.name} AS DOUBLE)"


def _double_sql(value: float) -> str:
    return f"CAST({value!r} AS DOUBLE)"
