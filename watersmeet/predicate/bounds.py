"""Access paths: the range of a column outside of which a conjunct can't be TRUE.

Ends are computed in DOUBLE, where nothing raises. Ends that may be rounded are widened by a margin that grows with the
operands, not with their sum: `abs(x - 1) <= 1` is TRUE for x = -1e-17 although 1 - 1 = 0. Where a sum overflows, so
does its margin, and the end excludes nothing.

Numbers are ordered as in Spark, with NaN above infinity: an upper end of NaN admits everything, a lower one only NaN.

[!] `a.n + b.n < 5` raises for the largest longs. The bound `b.n < 5 - a.n` would never look at such a row, and whether
the query stops would depend on the access path. So a bound names the operations that may overflow, and is used only
where the values at hand and the zone map of the column show that none does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from watersmeet.arguments import DAY
from watersmeet.predicate.conditions import prefix_of
from watersmeet.predicate.expr import Expr, strict_expr
from watersmeet.predicate.model import Bound, Column, Operand, Operation
from watersmeet.predicate.numeric import Number, NumericLeaf, NumericOperation, is_numeric, leaf_of
from watersmeet.predicate.source import EvaluatedConstant, SqlNode
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import DATETIME, DOUBLE, INTEGRAL, NUMERIC, STRING, Kind, common_type

SLACK = 1 - 1e-8
"""Narrows limits by the rounding error of what is compared with them."""
DATE_ENDS, TIME_ENDS = 2147483647, 9223372036854775807

# DuckDB takes the first and last dates and timestamps for infinities, which have no number.
_DAYS = "datediff('day', DATE '1970-01-01', {0})"
_FAR = "CASE WHEN {0} IS NOT NULL THEN CASE WHEN {0} > DATE '1970-01-01' THEN {1} ELSE -{1} END END"
AS_DOUBLE: dict[Kind, str] = {
    **dict.fromkeys(("byte", "short", "int", "long", "float", "double", "decimal"), "CAST({0} AS DOUBLE)"),
    "boolean": "CAST({0} AS DOUBLE)",
    "day_time": "CAST({0} AS DOUBLE)",
    "date": f"CAST(coalesce({_DAYS}, {_FAR.format('{0}', DATE_ENDS)}) AS DOUBLE)",
    "timestamp": f"CAST(coalesce(epoch_us({{0}}), {_FAR.format('{0}', TIME_ENDS)}) AS DOUBLE)",
    "timestamp_ntz": f"CAST(coalesce(epoch_us({{0}}), {_FAR.format('{0}', TIME_ENDS)}) AS DOUBLE)",
}
"""How each type is converted to a number: dates to days, timestamps and intervals to microseconds."""

_LIMITS: dict[Kind, float] = {
    **{kind: float(1 << (bits - 1)) * SLACK for kind, bits in INTEGRAL.items()},
    **dict.fromkeys(("day_time", "timestamp", "timestamp_ntz"), float(1 << 63) * SLACK),
    "date": float(1 << 31) * SLACK,
}
LONGEST_MONTH = 31 * DAY
MARGIN = 1e-14
FIXED_ZONES = {"UTC", "Etc/UTC", "GMT", "Z", "Etc/GMT", "UCT"}
PLAIN = (exp.Column, exp.Literal, exp.Neg, EvaluatedConstant)
_NUMBERS: frozenset[Kind] = frozenset({"byte", "short", "int", "long", "float", "double", "decimal"})
_SIGNS: dict[type[SqlNode], Literal["+", "-", "*"]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_GUARDED: dict[type[SqlNode], str] = {**_SIGNS, exp.Neg: "-"}
SIDES: dict[type[SqlNode], tuple[bool, bool]] = {
    exp.EQ: (True, True),
    exp.LT: (False, True),
    exp.LTE: (False, True),
    exp.GT: (True, False),
    exp.GTE: (True, False),
}

Limit = tuple[Expr, Expr | None, Expr | None]
"""A text, and the numbers between which its own must lie, each None if unlimited."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number computed in DOUBLE.

    Attributes:
        number: The number.
        size: The sum of the absolute values of its parts.
        columns: The columns it reads.
        exact: Whether it is the very value that the conjunct compares with, or the double next to it.
    """

    number: Number
    size: Number
    columns: frozenset[Column]
    exact: bool

    def combine(self, sign: Literal["+", "-", "*"], other: "Value") -> "Value":
        """`self sign other`."""
        return Value(
            NumericOperation(sign, (self.number, other.number)),
            NumericOperation("*" if sign == "*" else "+", (self.size, other.size)),
            self.columns | other.columns,
            exact=False,
        )

    def negate(self) -> "Value":
        """`-self`; not exact, since an end of -NaN doesn't mean that nothing lies below it."""
        return replace(self, number=NumericOperation("negate", (self.number,)), exact=False)

    def scale(self, factor: float) -> "Value":
        """`self * factor`, for another unit."""
        number, size = (NumericOperation("*", (part, _constant(factor))) for part in (self.number, self.size))
        return replace(self, number=number, size=size, exact=False)

    @property
    def margin(self) -> Number:
        """How far it may be from what it stands for, because it was rounded."""
        return NumericOperation("*", (_constant(MARGIN), self.size))


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval in which a subexpression must lie; `low` and `high` are None if unlimited."""

    low: Value | None
    high: Value | None

    def shift(self, sign: Literal["+", "-"], by: Value) -> "Interval":
        """The interval after adding or subtracting a value."""
        low, high = (end and end.combine(sign, by) for end in (self.low, self.high))
        return Interval(low, high)

    def scale(self, factor: float) -> "Interval":
        """The interval in another unit."""
        low, high = (end and end.scale(factor) for end in (self.low, self.high))
        return Interval(low, high)

    def without_exactness(self) -> "Interval":
        """The same interval, for a column whose numbers aren't exactly those that the conjunct compares."""
        low, high = (end and replace(end, exact=False) for end in (self.low, self.high))
        return Interval(low, high)

    def mirror(self) -> "Interval":
        """The interval of the negated subexpression."""
        return Interval(self.high and self.high.negate(), self.low and self.low.negate())

    def mirror_with_nan(self) -> "Interval":
        """The interval of a negated DOUBLE: it includes NaN unless `high` excludes it, as x - NaN > 5 is TRUE."""
        mirror = self.mirror()
        if self.high is None or mirror.high is None:
            return replace(mirror, high=None)
        number = NumericOperation("this if NaN, else", (self.high.number, mirror.high.number))
        columns = self.high.columns | mirror.high.columns
        return replace(mirror, high=replace(mirror.high, number=number, columns=columns))


def bounds_of(node: SqlNode, translator: Translator) -> tuple[Bound, ...]:
    """Return the access paths of a conjunct, one for each place at which it limits a column.

    There are none if the conjunct may raise for any reason but an overflow; what may overflow is named by the bounds.
    """
    finder = _BoundFinder(translator)
    bounds = [
        bound
        for part, interval in finder.limits(node.unnest())
        for column, limits in finder.isolate(part, interval)
        if (bound := _bound(column, limits)) is not None
    ]
    try:
        operations = operations_of(node.unnest(), translator) if bounds else ()
    except UnguardedError:
        return ()
    return tuple(guard for bound in bounds if (guard := guard_bound(bound, operations)) is not None)


def upper_end(node: SqlNode, translator: Translator) -> tuple[str, frozenset[Column]] | None:
    """Return a number in DOUBLE that a node never exceeds, and the columns it reads.

    None if the node isn't a number, or computing it may raise.
    """
    value = _BoundFinder(translator).value(node)
    return None if value is None else (_upper(value).sql, value.columns)


def _bound(column: Column, interval: Interval) -> Bound | None:
    """The bound on a column; None if it has no end, or reads the column's own stream."""
    ends = [end for end in (interval.low, interval.high) if end is not None]
    columns = frozenset[Column]().union(*(end.columns for end in ends))
    if not ends or column.stream in {other.stream for other in columns}:
        return None
    low = _lower(interval.low) if interval.low else None
    high = _upper(interval.high) if interval.high else None
    numeric = (low, high) if all(end is None or is_numeric(end) for end in (low, high)) else None
    low_sql, high_sql = (None if end is None else end.sql for end in (low, high))
    return Bound(column, low_sql, high_sql, tuple(sorted(columns)), numeric=numeric)


def _lower(value: Value) -> Number:
    """The lower end; one of NaN is replaced by -inf, as NaN - x > 5 is TRUE for every x."""
    if value.exact:
        return value.number
    return NumericOperation("-inf if NaN", (NumericOperation("-", (value.number, value.margin)),))


def _upper(value: Value) -> Number:
    return value.number if value.exact else NumericOperation("+", (value.number, value.margin))


def _constant(value: float) -> NumericLeaf:
    return NumericLeaf(f"CAST({value!r} AS DOUBLE)", constant=value)


class _BoundFinder:
    """Finds the bounds in the tree of one conjunct."""

    def __init__(self, translator: Translator) -> None:
        self.translator, self.expr = translator, translator.try_expr

    def limits(self, node: SqlNode) -> Iterator[tuple[SqlNode, Interval]]:
        """Yield the sides of a comparison or BETWEEN, each with its interval; nothing for other conditions."""
        if isinstance(node, exp.Between):
            low, high = self._value_for(node.this, node.args["low"]), self._value_for(node.this, node.args["high"])
            yield node.this, Interval(low, high)
            value = self._value_for(node.args["low"], node.this)
            yield node.args["low"], Interval(None, value)
            yield node.args["high"], Interval(self._value_for(node.args["high"], node.this), None)
        elif type(node) in SIDES:
            yield from self._sides(node)

    def _sides(self, node: SqlNode) -> Iterator[tuple[SqlNode, Interval]]:
        """Both sides of a comparison, each with the interval in which the other side keeps it."""
        has_low, has_high = SIDES[type(node)]
        left, right = node.this, node.args["expression"]
        for one, other, lower, upper in ((left, right, has_low, has_high), (right, left, has_high, has_low)):
            value = self._value_for(one, other)
            yield one, Interval(value if lower else None, value if upper else None)

    def _value_for(self, subject: SqlNode, node: SqlNode) -> Value | None:
        """Return what a subexpression is compared with, as a number; None if it can't be one.

        Both must be numbers, or of one type; numbers of two types that Spark compares as floats are not taken.

        Args:
            subject: The subexpression.
            node: What it is compared with.
        """
        one, other = self.expr(subject), self.expr(node)
        if one is None or other is None:
            return None
        type_ = common_type(one.type, other.type, ansi=self.translator.dialect.ansi)
        numbers = {one.type.kind, other.type.kind} <= _NUMBERS and type_ is not None
        as_floats = numbers and type_ is not None and type_.kind == "float" and one.type != other.type
        return self.value(node) if (numbers and not as_floats) or one.type == other.type else None

    def value(self, node: SqlNode) -> Value | None:
        """The node as a number whose computation never raises; None if it isn't one."""
        node = node.unnest()
        expr = self.expr(node)
        if expr is None or expr.type.kind not in AS_DOUBLE:
            return None
        if type(node) in _SIGNS and self._adds_up(expr) and expr.type.kind in _NUMBERS:
            left, right = self.value(node.this), self.value(node.args["expression"])
            return left.combine(_SIGNS[type(node)], right) if left and right else None
        if expr.raises or expr.unsure or expr.rough:  # Spark may leave out the float
            return None
        leaf = leaf_of(expr) or NumericLeaf("")
        leaf = replace(leaf, sql=AS_DOUBLE[expr.type.kind].format(expr.sql))
        # Arrow and DuckDB disagree about the last bits of a decimal.
        exact = expr.type.kind != "decimal" and isinstance(node, PLAIN)
        return Value(leaf, NumericOperation("abs", (leaf,)), expr.columns, exact)

    def _adds_up(self, expr: Expr) -> bool:
        """Whether Spark computes it as with real numbers, but for rounding: no wrap-around, no 32-bit floats."""
        if expr.type.kind in INTEGRAL:
            return self.translator.dialect.ansi or expr.span is not None
        if expr.type.kind in {"day_time", "timestamp"}:
            return self.translator.dialect.time_zone in FIXED_ZONES
        return expr.type.kind in {"double", "decimal", "timestamp_ntz"}

    def isolate(self, node: SqlNode, interval: Interval) -> Iterator[tuple[Column, Interval]]:
        """Each column inside `node` with the interval in which it must lie for `node` to lie in `interval`."""
        node = node.unnest()
        expr = self.expr(node)
        if expr is None or (interval.low is None and interval.high is None):
            return
        if isinstance(node, exp.Column):
            yield from self._column(expr, interval)
        elif type(node) in _SIGNS and self._adds_up(expr):
            yield from self._operands(node, interval, has_nan=expr.type.kind == "double")
        elif isinstance(node, exp.Anonymous) and node.name.lower() == "abs" and interval.high and self._adds_up(expr):
            yield from self.isolate(node.expressions[0], Interval(interval.high.negate(), interval.high))

    def _column(self, expr: Expr, interval: Interval) -> Iterator[tuple[Column, Interval]]:
        column = next(iter(expr.columns))
        if expr.sql == column.name and expr.type.kind in AS_DOUBLE:
            yield column, interval.without_exactness() if expr.type.kind == "decimal" else interval

    def _operands(self, node: SqlNode, interval: Interval, *, has_nan: bool) -> Iterator[tuple[Column, Interval]]:
        """Yield the columns inside a sum or difference, each with its interval; nothing for a product.

        Args:
            node: The sum, difference or product.
            interval: Where its value must lie.
            has_nan: Whether its value may be NaN.
        """
        left, right = node.this, node.args["expression"]
        left_value, right_value = self.value(left), self.value(right)
        kinds = {expr.type.kind for expr in (self.expr(left), self.expr(right)) if expr is not None}
        if kinds == {"date"}:  # a number of days, while their difference counts microseconds
            interval = interval.scale(1 / DAY)
        elif "date" in kinds:
            return
        if isinstance(node, exp.Add):
            if right_value:
                yield from self.isolate(left, interval.shift("-", right_value))
            if left_value:
                yield from self.isolate(right, interval.shift("-", left_value))
        elif isinstance(node, exp.Sub):
            if right_value:
                yield from self.isolate(left, interval.shift("+", right_value))
            if left_value:
                mirror = interval.mirror_with_nan() if has_nan else interval.mirror()
                yield from self.isolate(right, mirror.shift("+", left_value))


def text_bounds_of(node: SqlNode, translator: Translator) -> tuple[Bound, ...]:
    """The access paths of a conjunct over text, one for each column that it limits."""
    bounds = (_text_bound(*limit) for limit in _limits(node.unnest(), translator))
    return tuple(bound for bound in bounds if bound is not None)


def _text_bound(text: Expr, low: Expr | None, high: Expr | None) -> Bound | None:
    """The bound on a column of texts; None if `text` isn't just a column, or an end reads the column's own stream."""
    column = next((column for column in text.columns if text.sql == column.name), None)
    read = frozenset[Column]().union(*(end.columns for end in (low, high) if end is not None))
    if column is None or column.stream in {other.stream for other in read}:
        return None
    return Bound(column, low.sql if low else None, high.sql if high else None, tuple(sorted(read)))


def _limits(node: SqlNode, translator: Translator) -> Iterator[Limit]:
    """Yield the texts that a comparison, BETWEEN, LIKE or startswith limits, with the numbers that limit them."""
    if isinstance(node, exp.Between):
        for value, low, high in _texts(translator, node.this, node.args["low"], node.args["high"]):
            yield value, _first_number(low), _first_number(high)
            yield low, None, _first_number(value)
            yield high, _first_number(value), None
    elif type(node) in SIDES:
        has_low, has_high = SIDES[type(node)]
        for left, right in _texts(translator, node.this, node.args["expression"]):
            yield left, _first_number(right) if has_low else None, _first_number(right) if has_high else None
            yield right, _first_number(left) if has_high else None, _first_number(left) if has_low else None
    else:
        for value, prefix in _prefixes(node, translator):
            if prefix.literal != "":
                yield value, _first_number(prefix), _last_number(prefix)


def _prefixes(node: SqlNode, translator: Translator) -> Sequence[tuple[Expr, ...]]:
    """Return the text of a LIKE or startswith with the prefix that it must have, as a list of at most one pair.

    Empty for any other condition, NOT LIKE included, and if one of the two may raise or can't be trusted.
    """
    escape = "\\"
    if isinstance(node, exp.Escape):
        node, escape = node.this, translator.expr(node.args["expression"]).literal
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if (isinstance(node, exp.Like) and not node.args.get("negate")) or name == "like":
        sides = node.expressions or (node.this, node.args["expression"])
        return [(value, prefix_of(pattern, escape)) for value, pattern in _texts(translator, *sides)]
    return _texts(translator, *node.expressions) if name == "startswith" else ()


def _texts(translator: Translator, *nodes: SqlNode) -> Sequence[tuple[Expr, ...]]:
    """The nodes' expressions; empty unless each is text, can't raise and can be trusted."""
    exprs = tuple(translator.expr(node) for node in nodes)
    return [exprs] if all(expr.type == STRING and not expr.raises and not expr.unsure for expr in exprs) else []


def _first_number(text: Expr) -> Expr:
    """The number of a text, the least of all texts that begin with it."""
    return strict_expr(f"ws_text({text.sql})", DOUBLE, (text,))


def _last_number(text: Expr) -> Expr:
    """The greatest number of the texts that begin with this one."""
    return strict_expr(f"ws_text_last({text.sql})", DOUBLE, (text,))


class UnguardedError(Exception):
    """A conjunct may raise for other reasons than overflow, so that no row can be skipped."""


def operations_of(node: SqlNode, translator: Translator) -> tuple[Operation, ...]:
    """The outermost operations of a comparison that may overflow; empty if none can.

    Raises:
        UnguardedError: If it may raise for any other reason.
    """
    finder = _OperationFinder(translator)
    names = ("this", "low", "high") if isinstance(node, exp.Between) else ("this", "expression")
    sides = [node.args[name] for name in names]
    kinds = {finder.expr(side).type.kind for side in sides}
    if translator.expr(node).raises and not kinds <= NUMERIC and len(kinds) > 1:
        raise UnguardedError  # text is turned into a number first
    return tuple(operation for side in sides for operation in finder.roots(side))


def guard_bound(bound: Bound, operations: tuple[Operation, ...]) -> Bound | None:
    """The bound with the operations that guard it; None if they read its stream's other columns."""
    for operand in (operand for operation in operations for operand in operation.operands):
        mine = bound.column.stream in {column.stream for column in operand.columns}
        if mine and not is_bare(operand, bound):
            return None
    return replace(bound, operations=operations)


def is_bare(operand: Operand, bound: Bound) -> bool:
    """Whether an operand is the column that a bound looks up, and nothing else."""
    bare = {form.format(bound.column.name) for form in AS_DOUBLE.values()}
    return operand.columns == (bound.column,) and operand.sql in bare


class _OperationFinder:
    """Finds the operations in the tree of one conjunct."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def expr(self, node: SqlNode) -> Expr:
        return self.translator.expr(node)

    def roots(self, node: SqlNode) -> Iterator[Operation]:
        """Yield the outermost operations that may overflow; raises UnguardedError if the node may raise otherwise."""
        node = node.unnest()
        expr = self.expr(node)
        if self._overflows(node, expr):
            yield self._operation(node, expr)
        elif expr.raises and expr.type.kind in NUMERIC and _sign(node) is not None:
            for child in _children(node):
                yield from self.roots(child)
        elif expr.raises:
            raise UnguardedError

    def _overflows(self, node: SqlNode, expr: Expr) -> bool:
        """Whether the node is an operation that raises beyond its type's width; `raises` isn't set for timestamps."""
        if _sign(node) is None or expr.type.kind not in _LIMITS or expr.is_literal:
            return False
        return expr.raises or expr.type.kind not in INTEGRAL

    def _operation(self, node: SqlNode, expr: Expr) -> Operation:
        """The operation of a node, to be computed in doubles; raises UnguardedError if it can't be."""
        sign, kind = _sign(node), expr.type.kind
        parts = tuple(self._part(child, kind) for child in _children(node))
        if sign is None or (kind == "date" and expr.raises):
            raise UnguardedError
        if len(parts) == 1 and sign == "-":
            parts = (Operand("CAST(0 AS DOUBLE)", ()), *parts)
        dates = all(self.expr(child.unnest()).type.kind == "date" for child in _children(node))
        return Operation(sign, parts, _LIMITS[kind], float(DAY) if dates and kind == "day_time" else 1.0)

    def _part(self, node: SqlNode, kind: Kind) -> Operand | Operation:
        """Return an operand of an operation whose result is of this kind, in the unit of that kind.

        Months count as the longest ones. Raises UnguardedError if computing the operand may raise.
        """
        node = node.unnest()
        expr = self.expr(node)
        if self._overflows(node, expr):
            return self._operation(node, expr)
        columns = tuple(sorted(expr.columns))
        unit = f" / CAST({DAY} AS DOUBLE)" if kind == "date" else ""
        if expr.type.kind == "year_month":
            return Operand(f"(CAST({expr.sql} AS DOUBLE) * {LONGEST_MONTH}{unit})", columns)
        if expr.raises or expr.type.kind not in _LIMITS:
            raise UnguardedError
        number = AS_DOUBLE[expr.type.kind].format(expr.sql)
        if expr.type.kind in DATETIME:  # DuckDB can't add to the first and last of them
            return Operation("is", (Operand(number, columns),), _LIMITS[expr.type.kind])
        return Operand(f"({number}{unit})" if unit and expr.type.kind == "day_time" else number, columns)


def _sign(node: SqlNode) -> str | None:
    if isinstance(node, exp.Anonymous):
        return "abs" if node.name.lower() == "abs" else None
    return _GUARDED.get(type(node))


def _children(node: SqlNode) -> list[SqlNode]:
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    return [node.this, *([node.args["expression"]] if node.args.get("expression") is not None else [])]
