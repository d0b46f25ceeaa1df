"""Access paths: the range of a column outside of which a conjunct can't be TRUE.

A bound is computed in DOUBLE, where nothing raises; whatever may round is widened by a margin that grows with the
operands, not with their sum: `abs(x - 1) <= 1` is TRUE for x = -1e-17 although 1 - 1 = 0. Where a sum overflows, so
does its margin, and the end says nothing.

Numbers are ordered as Spark orders them: NaN is above infinity, so an upper end that is NaN lets everything through,
and a lower one only NaN.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.arguments import DAY
from watersmeet.predicate.expr import Expr, Refusal
from watersmeet.predicate.model import Bound, Column
from watersmeet.predicate.overflow import AS_DOUBLE, UnguardedError, guard_bound, operations_of
from watersmeet.predicate.source import Constant, SqlNode
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import INTEGRAL, Kind, common_type

MARGIN = "1e-14"
FIXED_ZONES = {"UTC", "Etc/UTC", "GMT", "Z", "Etc/GMT", "UCT"}


@dataclass(frozen=True, slots=True)
class Value:
    """A number computed in DOUBLE: its expression, the sum of its parts' absolute values, and what it reads.

    An `exact` one is the very value that the conjunct compares with, or the double next to it.
    """

    sql: str
    size: str
    columns: frozenset[Column]
    exact: bool

    def joined(self, sign: str, other: "Value") -> "Value":
        """`self sign other`, for + - *."""
        size = "*" if sign == "*" else "+"
        return Value(
            f"({self.sql} {sign} {other.sql})",
            f"({self.size} {size} {other.size})",
            self.columns | other.columns,
            exact=False,
        )

    def negated(self) -> "Value":
        """`-self`; as an end it is computed, not compared with: of -NaN it is not known that nothing lies below."""
        return replace(self, sql=f"(-{self.sql})", exact=False)

    def scaled(self, factor: str) -> "Value":
        """`self * factor`, for another unit."""
        return replace(self, sql=f"({self.sql} * {factor})", size=f"({self.size} * {factor})", exact=False)


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known of a subexpression: it lies between `low` and `high`, each None if unlimited."""

    low: Value | None
    high: Value | None

    def moved(self, sign: str, by: Value) -> "Interval":
        """The interval shifted by adding or subtracting a value."""
        low, high = (end and end.joined(sign, by) for end in (self.low, self.high))
        return Interval(low, high)

    def scaled(self, factor: str) -> "Interval":
        """The interval in another unit."""
        low, high = (end and end.scaled(factor) for end in (self.low, self.high))
        return Interval(low, high)

    def rounded(self) -> "Interval":
        """The same interval for a column whose numbers aren't exactly those that the conjunct compares."""
        low, high = (end and replace(end, exact=False) for end in (self.low, self.high))
        return Interval(low, high)

    def mirrored(self) -> "Interval":
        """The interval of the negated subexpression."""
        return Interval(self.high and self.high.negated(), self.low and self.low.negated())

    def mirrored_with_nan(self) -> "Interval":
        """Likewise for DOUBLE, where a NaN lies in the interval unless `high` keeps it out: x - NaN > 5 is TRUE."""
        mirrored = self.mirrored()
        if self.high is None or mirrored.high is None:
            return replace(mirrored, high=None)
        sql = f"(CASE WHEN isnan({self.high.sql}) THEN {self.high.sql} ELSE {mirrored.high.sql} END)"
        columns = self.high.columns | mirrored.high.columns
        return replace(mirrored, high=replace(mirrored.high, sql=sql, columns=columns))


def bounds_of(node: SqlNode, translator: Translator) -> tuple[Bound, ...]:
    """The bounds a conjunct offers, one for each column it can look up."""
    search = _BoundFinder(translator)
    found = [
        _bound(column, interval)
        for part, interval in search.limits(node.unnest())
        for column, interval in search.isolated(part, interval)
    ]
    bounds = [bound for bound in found if bound is not None]
    try:
        operations = operations_of(node.unnest(), translator) if bounds else ()
    except UnguardedError:
        return ()
    return tuple(made for made in (guard_bound(bound, operations) for bound in bounds) if made is not None)


def upper_end(node: SqlNode, translator: Translator) -> tuple[str, frozenset[Column]] | None:
    """A number in DOUBLE that a node is never above, and the columns it reads; None if there is none."""
    value = _BoundFinder(translator).value(node)
    return None if value is None else (_upper(value), value.columns)


def _bound(column: Column, interval: Interval) -> Bound | None:
    ends = [end for end in (interval.low, interval.high) if end is not None]
    columns = frozenset[Column]().union(*(end.columns for end in ends))
    if not ends or column.stream in {other.stream for other in columns}:
        return None
    low = _lower(interval.low) if interval.low else None
    high = _upper(interval.high) if interval.high else None
    return Bound(column, low, high, tuple(sorted(columns)))


def _lower(value: Value) -> str:
    """The lower end; a NaN says nothing (NaN - x > 5 is TRUE for every x), an upper end is NaN only above all."""
    if value.exact:
        return value.sql
    widened = f"{value.sql} - {MARGIN} * {value.size}"
    return f"(CASE WHEN isnan({widened}) THEN CAST('-inf' AS DOUBLE) ELSE {widened} END)"


def _upper(value: Value) -> str:
    return value.sql if value.exact else f"({value.sql} + {MARGIN} * {value.size})"


class _BoundFinder:
    """Finds limits in the tree of one conjunct."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def limits(self, node: SqlNode) -> Iterator[tuple[SqlNode, Interval]]:
        """The subexpressions that the conjunct limits directly."""
        if isinstance(node, exp.Between):
            low, high = self._value_for(node.this, node.args["low"]), self._value_for(node.this, node.args["high"])
            yield node.this, Interval(low, high)
            value = self._value_for(node.args["low"], node.this)
            yield node.args["low"], Interval(None, value)
            yield node.args["high"], Interval(value, None)
        elif type(node) in SIDES:
            yield from self._sides(node)

    def _sides(self, node: SqlNode) -> Iterator[tuple[SqlNode, Interval]]:
        has_low, has_high = SIDES[type(node)]
        left, right = node.this, node.args["expression"]
        for one, other, lower, upper in ((left, right, has_low, has_high), (right, left, has_high, has_low)):
            value = self._value_for(one, other)
            yield one, Interval(value if lower else None, value if upper else None)

    def _value_for(self, limited: SqlNode, node: SqlNode) -> Value | None:
        """The limit as a number, if Spark compares the two as the numbers they are."""
        one, other = self._expr(limited), self._expr(node)
        if one is None or other is None:
            return None
        type_ = common_type(one.type, other.type, ansi=self.translator.dialect.ansi)
        numbers = {one.type.kind, other.type.kind} <= _NUMBERS and type_ is not None
        as_floats = numbers and type_ is not None and type_.kind == "float" and one.type != other.type
        return self.value(node) if (numbers and not as_floats) or one.type == other.type else None

    def _expr(self, node: SqlNode) -> Expr | None:
        try:
            return self.translator.expr(node)
        except Refusal:
            return None

    def value(self, node: SqlNode) -> Value | None:
        """The node as a number that never raises, or None."""
        node = node.unnest()
        made = self._expr(node)
        if made is None or made.type.kind not in AS_DOUBLE:
            return None
        if type(node) in _SIGNS and self._adds_up(made) and made.type.kind in _NUMBERS:
            left, right = self.value(node.this), self.value(node.args["expression"])
            return left.joined(_SIGNS[type(node)], right) if left and right else None
        if made.raises or made.unsure or made.rough:  # a float that Spark may leave out
            return None
        sql = AS_DOUBLE[made.type.kind].format(made.sql)
        # Arrow and DuckDB disagree about the last bits of a decimal.
        exact = made.type.kind != "decimal" and isinstance(node, PLAIN)
        return Value(sql, f"abs({sql})", made.columns, exact)

    def _adds_up(self, made: Expr) -> bool:
        """Whether Spark's arithmetic is that of real numbers but for rounding: no wrapping round, no 32-bit floats."""
        if made.type.kind in INTEGRAL:
            return self.translator.dialect.ansi or made.span is not None
        if made.type.kind in {"day_time", "timestamp"}:
            return self.translator.dialect.time_zone in FIXED_ZONES
        return made.type.kind in {"double", "decimal", "timestamp_ntz"}

    def isolated(self, node: SqlNode, interval: Interval) -> Iterator[tuple[Column, Interval]]:
        """The columns inside `node`, each with the interval it must lie in for `node` to lie in `interval`."""
        node = node.unnest()
        made = self._expr(node)
        if made is None or (interval.low is None and interval.high is None):
            return
        if isinstance(node, exp.Column):
            yield from self._column(made, interval)
        elif type(node) in _SIGNS and self._adds_up(made):
            yield from self._operands(node, interval, has_nan=made.type.kind == "double")
        elif isinstance(node, exp.Anonymous) and node.name.lower() == "abs" and interval.high and self._adds_up(made):
            yield from self.isolated(node.expressions[0], Interval(interval.high.negated(), interval.high))

    def _column(self, made: Expr, interval: Interval) -> Iterator[tuple[Column, Interval]]:
        column = next(iter(made.columns))
        if made.sql == column.name and made.type.kind in AS_DOUBLE:
            yield column, interval.rounded() if made.type.kind == "decimal" else interval

    def _operands(self, node: SqlNode, interval: Interval, *, has_nan: bool) -> Iterator[tuple[Column, Interval]]:
        left, right = node.this, node.args["expression"]
        left_value, right_value = self.value(left), self.value(right)
        kinds = {made.type.kind for made in (self._expr(left), self._expr(right)) if made is not None}
        if kinds == {"date"}:  # a number of days, while their difference counts microseconds
            interval = interval.scaled(f"CAST({1 / DAY!r} AS DOUBLE)")
        elif "date" in kinds:
            return
        if isinstance(node, exp.Add):
            if right_value:
                yield from self.isolated(left, interval.moved("-", right_value))
            if left_value:
                yield from self.isolated(right, interval.moved("-", left_value))
        elif isinstance(node, exp.Sub):
            if right_value:
                yield from self.isolated(left, interval.moved("+", right_value))
            if left_value:
                mirrored = interval.mirrored_with_nan() if has_nan else interval.mirrored()
                yield from self.isolated(right, mirrored.moved("+", left_value))


PLAIN = (exp.Column, exp.Literal, exp.Neg, Constant)
_NUMBERS: frozenset[Kind] = frozenset({"byte", "short", "int", "long", "float", "double", "decimal"})
_SIGNS: dict[type[SqlNode], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
SIDES: dict[type[SqlNode], tuple[bool, bool]] = {
    exp.EQ: (True, True),
    exp.LT: (False, True),
    exp.LTE: (False, True),
    exp.GT: (True, False),
    exp.GTE: (True, False),
}
