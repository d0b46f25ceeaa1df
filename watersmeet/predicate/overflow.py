"""What in a conjunct may overflow: an access path may leave out a row only where nothing does.

`a.n + b.n < 5` raises for the largest of longs. A bound that says `b.n < 5 - a.n` would never look at such a row, and
whether the query stops would depend on the access path. So a bound names the operations that may raise; the kernel
uses it where the values at hand, and the zone map of the column that is looked up, show that none of them does.
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
"""Limits are a little narrower than they are, for the rounding of what is compared with them."""
DATE_ENDS, TIME_ENDS = 2147483647, 9223372036854775807

# DuckDB takes the last dates and timestamps for infinities, of which it knows no number.
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
"""A value as a number, by its type: dates are days, timestamps and intervals microseconds."""

_LIMITS: dict[Kind, float] = {
    **{kind: float(1 << (bits - 1)) * SLACK for kind, bits in INTEGRAL.items()},
    **dict.fromkeys(("day_time", "timestamp", "timestamp_ntz"), float(1 << 63) * SLACK),
    "date": float(1 << 31) * SLACK,
}
_SIGNS: dict[type[SqlNode], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Neg: "-"}
LONGEST_MONTH = 31 * DAY


class UnguardedError(Exception):
    """A conjunct that may raise for other reasons than overflow: no row can be left out unseen."""


def operations_of(node: SqlNode, translator: Translator) -> tuple[Operation, ...]:
    """The operations of a comparison that may overflow.

    Raises:
        Unsure: If anything else in it may raise.
    """
    search = _OperationFinder(translator)
    names = ("this", "low", "high") if isinstance(node, exp.Between) else ("this", "expression")
    sides = [node.args[name] for name in names]
    kinds = {search.expr(side).type.kind for side in sides}
    if translator.expr(node).raises and not kinds <= NUMERIC and len(kinds) > 1:
        raise UnguardedError  # text is turned into a number first
    return tuple(operation for side in sides for operation in search.roots(side))


def guard_bound(bound: Bound, operations: tuple[Operation, ...]) -> Bound | None:
    """The bound with what may overflow; None if that depends on more of its stream than the column it looks up."""
    for operand in (operand for operation in operations for operand in operation.operands):
        mine = bound.column.stream in {column.stream for column in operand.columns}
        if mine and not is_bare(operand, bound):
            return None
    return Bound(bound.column, bound.low, bound.high, bound.columns, operations)


def is_bare(operand: Operand, bound: Bound) -> bool:
    """Whether an operand is the very column that a bound looks up."""
    bare = {form.format(bound.column.name) for form in AS_DOUBLE.values()}
    return operand.columns == (bound.column,) and operand.sql in bare


class _OperationFinder:
    """Finds the operations in the tree of one conjunct."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def expr(self, node: SqlNode) -> Expr:
        return self.translator.expr(node)

    def roots(self, node: SqlNode) -> Iterator[Operation]:
        """The outermost operations that may overflow."""
        node = node.unnest()
        made = self.expr(node)
        if self._overflows(node, made):
            yield self._operation(node, made)
        elif made.raises and made.type.kind in NUMERIC and _sign(node) is not None:
            for child in _children(node):
                yield from self.roots(child)
        elif made.raises:
            raise UnguardedError

    def _overflows(self, node: SqlNode, made: Expr) -> bool:
        """Whether the node is an operation beyond whose width there is an error; of timestamps it is never flagged."""
        if _sign(node) is None or made.type.kind not in _LIMITS or made.is_literal:
            return False
        return made.raises or made.type.kind not in INTEGRAL

    def _operation(self, node: SqlNode, made: Expr) -> Operation:
        sign, kind = _sign(node), made.type.kind
        parts = tuple(self._part(child, kind) for child in _children(node))
        if sign is None or (kind == "date" and made.raises):
            raise UnguardedError
        if len(parts) == 1 and sign == "-":
            parts = (Operand("CAST(0 AS DOUBLE)", ()), *parts)
        dates = all(self.expr(child.unnest()).type.kind == "date" for child in _children(node))
        return Operation(sign, parts, _LIMITS[kind], float(DAY) if dates and kind == "day_time" else 1.0)

    def _part(self, node: SqlNode, kind: Kind) -> Operand | Operation:
        """An operand of an operation that gives a value of this kind, in the unit of that kind."""
        node = node.unnest()
        made = self.expr(node)
        if self._overflows(node, made):
            return self._operation(node, made)
        columns = tuple(sorted(made.columns))
        unit = f" / CAST({DAY} AS DOUBLE)" if kind == "date" else ""
        if made.type.kind == "year_month":
            return Operand(f"(CAST({made.sql} AS DOUBLE) * {LONGEST_MONTH}{unit})", columns)
        if made.raises or made.type.kind not in _LIMITS:
            raise UnguardedError
        number = AS_DOUBLE[made.type.kind].format(made.sql)
        if made.type.kind in DATETIME:  # DuckDB can't add to the first of them, even if the sum is none of these
            return Operation("is", (Operand(number, columns),), _LIMITS[made.type.kind])
        return Operand(f"({number}{unit})" if unit and made.type.kind == "day_time" else number, columns)


def _sign(node: SqlNode) -> str | None:
    if isinstance(node, exp.Anonymous):
        return "abs" if node.name.lower() == "abs" else None
    return _SIGNS.get(type(node))


def _children(node: SqlNode) -> list[SqlNode]:
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    return [node.this, *([node.args["expression"]] if node.args.get("expression") is not None else [])]
