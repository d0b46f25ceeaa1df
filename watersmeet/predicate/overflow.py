"""Which operations of a conjunct may overflow: an access path may skip rows only where none does.

`a.n + b.n < 5` raises for the largest longs. The bound `b.n < 5 - a.n` would never look at such a row, and whether the
query stops would depend on the access path. So a bound names the operations that may raise, and is used only where the
values at hand and the zone map of the column show that none does.
"""

from collections.abc import Iterator

from sqlglot import exp

from watersmeet.arguments import DAY
from watersmeet.predicate.expr import Expr
from watersmeet.predicate.model import Bound, Operand, Operation
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import DATETIME, INTEGRAL, NUMERIC, Kind

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
_SIGNS: dict[type[SqlNode], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Neg: "-"}
LONGEST_MONTH = 31 * DAY


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
    return Bound(bound.column, bound.low, bound.high, bound.columns, operations)


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
    return _SIGNS.get(type(node))


def _children(node: SqlNode) -> list[SqlNode]:
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    return [node.this, *([node.args["expression"]] if node.args.get("expression") is not None else [])]
