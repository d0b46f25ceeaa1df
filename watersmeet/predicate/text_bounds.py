"""Access paths over text: a text is looked up by the number of its first bytes.

The number (`predicate.numbers`) rises with texts in byte order, by which Spark compares them; texts that begin alike
share it. Nothing is rounded, so bounds need no margin.
"""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from watersmeet.predicate.bounds import SIDES
from watersmeet.predicate.expr import Expr, strict_expr
from watersmeet.predicate.model import Bound, Column
from watersmeet.predicate.patterns import prefix_of
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import DOUBLE, STRING

Limit = tuple[Expr, Expr | None, Expr | None]
"""A text, and the numbers between which its own must lie, each None if unlimited."""


def text_bounds_of(node: SqlNode, translator: Translator) -> tuple[Bound, ...]:
    """The access paths of a conjunct over text, one for each column that it limits."""
    bounds = (_bound(*limit) for limit in _limits(node.unnest(), translator))
    return tuple(bound for bound in bounds if bound is not None)


def _bound(text: Expr, low: Expr | None, high: Expr | None) -> Bound | None:
    column = next((column for column in text.columns if text.sql == column.name), None)
    read = frozenset[Column]().union(*(end.columns for end in (low, high) if end is not None))
    if column is None or column.stream in {other.stream for other in read}:
        return None
    return Bound(column, low.sql if low else None, high.sql if high else None, tuple(sorted(read)))


def _limits(node: SqlNode, translator: Translator) -> Iterator[Limit]:
    if isinstance(node, exp.Between):
        for value, low, high in _texts(translator, node.this, node.args["low"], node.args["high"]):
            yield value, _first(low), _first(high)
            yield low, None, _first(value)
            yield high, _first(value), None
    elif type(node) in SIDES:
        has_low, has_high = SIDES[type(node)]
        for left, right in _texts(translator, node.this, node.args["expression"]):
            yield left, _first(right) if has_low else None, _first(right) if has_high else None
            yield right, _first(left) if has_high else None, _first(left) if has_low else None
    else:
        for value, prefix in _prefixes(node, translator):
            if prefix.literal != "":
                yield value, _first(prefix), _last(prefix)


def _prefixes(node: SqlNode, translator: Translator) -> Sequence[tuple[Expr, ...]]:
    """The text of a LIKE or startswith, and the prefix that it must have."""
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


def _first(text: Expr) -> Expr:
    """The number of a text, the least of all texts that begin with it."""
    return strict_expr(f"ws_text({text.sql})", DOUBLE, (text,))


def _last(text: Expr) -> Expr:
    """The greatest number of the texts that begin with this one."""
    return strict_expr(f"ws_text_last({text.sql})", DOUBLE, (text,))
