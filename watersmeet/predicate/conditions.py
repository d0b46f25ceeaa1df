"""Nodes that give TRUE, FALSE or NULL: comparisons, AND, OR, NOT, IS, IN, LIKE, and calls of Python predicates.

Patterns of LIKE and RLIKE are restricted to what DuckDB's engine and Java's read alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from watersmeet.predicate.casts import cast, coerce
from watersmeet.predicate.expr import Expr, Refusal, combine, error_sql, null_test, quote, strict_expr
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.types import BOOLEAN, INTEGRAL, ORDERED, STRING, VOID, Type, common_type, integer_range

if TYPE_CHECKING:
    from watersmeet.predicate.translate import Translator


LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
END = rf"(?:\r\n|[{LINE_ENDS}])?\z"

_REGEX_PIECE = re.compile(
    r"""(?P<dot>\.) | (?P<end>\$) | (?P<quantifier>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)
      | (?P<set>\[\^?(?:\\[dwtnr.\\\-\]\[^/]|[^\\\[\]&\^])+\])
      | (?P<escape>\\[dDwWtnr.\\*+?()\[\]{}|^$/\-]) | (?P<group>\((?:\?:)?|\)|\|) | (?P<start>\^)
      | (?P<plain>[^\\\[\]{}()*+?.$^|])""",
    re.VERBOSE,
)


def compare(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """`left sign right`, both cast to the type Spark compares them in; raises Refusal if there is none.

    NULL gives NULL, but is a value for `IS [NOT] DISTINCT FROM`.
    """
    type_ = common_type(left.type, right.type, ansi=dialect.ansi)
    if any(is_beyond_long(one, two) for one, two in ((left, right), (right, left))):
        raise Refusal("The number is beyond the range of the integer it is compared with.")
    if type_ is None or type_.kind not in ORDERED | {"void"}:
        raise Refusal(f"{left.type} and {right.type} can't be compared; cast one of them.")
    left, right = cast(left, type_, dialect), cast(right, type_, dialect)
    sql = f"({left.sql} {sign} {right.sql})"
    return combine(sql, BOOLEAN, (left, right)) if "DISTINCT" in sign else strict_expr(sql, BOOLEAN, (left, right))


def is_beyond_long(one: Expr, two: Expr) -> bool:
    """Whether the literal alone decides the comparison in Spark, even for a NULL."""
    low, high = integer_range("long")
    return one.type.kind in INTEGRAL and isinstance(two.literal, Decimal) and not low <= two.literal <= high


def logic(word: str, parts: Sequence[Expr]) -> Expr:
    """AND or OR; left to right where a part raises, as Spark stops at the first part that decides."""
    plain = "(" + f" {word} ".join(part.sql for part in parts) + ")"
    if not any(part.raises for part in parts[1:]):
        return combine(plain, BOOLEAN, parts)
    decisive = {"AND": "FALSE", "OR": "TRUE"}[word]
    guards = "".join(f"WHEN {part.sql} IS NOT DISTINCT FROM {decisive} THEN {decisive} " for part in parts[:-1])
    return combine(f"(CASE {guards}ELSE {plain} END)", BOOLEAN, parts)


def shared_type(values: Sequence[Expr], dialect: Dialect) -> Type:
    """The type in which Spark returns one of several values; void if all are NULL. Raises Refusal if there is none."""
    type_ = VOID
    for value in values:
        wider = common_type(type_, value.type, ansi=dialect.ansi)
        if wider is None:
            kinds = ", ".join(dict.fromkeys(str(value.type) for value in values))
            raise Refusal(f"The values must be of one type, not {kinds}; cast them.")
        type_ = wider
    return type_


def cast_alike(values: Sequence[Expr], dialect: Dialect) -> list[Expr]:
    """The values cast to their shared type."""
    type_ = shared_type(values, dialect)
    return [cast(value, type_, dialect) for value in values]


def as_condition(expr: Expr, dialect: Dialect) -> Expr:
    """The expression as a condition; raises Refusal if it is neither boolean nor NULL."""
    if expr.type.kind not in {"boolean", "void"}:
        raise Refusal(f"A condition is expected here, not a value of type {expr.type}.")
    return cast(expr, BOOLEAN, dialect)


def choose(branches: Sequence[tuple[Expr, Expr]], otherwise: Expr | None, dialect: Dialect) -> Expr:
    """`CASE WHEN condition THEN value ... ELSE otherwise END`; only the branch taken is evaluated, as in Spark.

    Args:
        branches: Each condition with its value.
        otherwise: The value if no condition is TRUE; None for NULL.
        dialect: The session's settings.

    Raises:
        Refusal: If the values have no type in common, or a condition isn't boolean.
    """
    last = otherwise or Expr("NULL", VOID, literal=None)
    non_null = all(value.never_null for value in [*(value for _, value in branches), last])
    *values, last = cast_alike([*(value for _, value in branches), last], dialect)
    conditions = [as_condition(test, dialect) for test, _ in branches]
    parts = "".join(f"WHEN {test.sql} THEN {value.sql} " for test, value in zip(conditions, values, strict=True))
    return combine(f"(CASE {parts}ELSE {last.sql} END)", last.type, [*conditions, *values, last], non_null=non_null)


def if_then(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`if(condition, value, otherwise)`."""
    return choose([(arguments[0], arguments[1])], arguments[2], dialect)


def nvl2(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`nvl2(test, value if not NULL, otherwise)`."""
    return choose([(null_test(arguments[0], negated=True), arguments[1])], arguments[2], dialect)


def nullif(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`nullif(value, other)`: NULL if they are equal, else the value in its own type; refused for unordered types."""
    value = arguments[0]
    one, two = cast_alike(arguments, dialect)
    if one.type.kind not in ORDERED | {"void"}:
        raise Refusal(f"{one.type} can't be compared.")
    return combine(f"(CASE WHEN {one.sql} = {two.sql} THEN NULL ELSE {value.sql} END)", value.type, (one, two))


def coalesce(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """The first value that is not NULL; raises Refusal if the values have no type in common."""
    values = cast_alike(arguments, dialect)
    non_null = any(value.never_null for value in arguments)
    return combine(f"coalesce({', '.join(value.sql for value in values)})", values[0].type, values, non_null=non_null)


def extreme(name: str) -> Callable[[Sequence[Expr], Dialect], Expr]:
    """Return what translates `greatest` or `least`, of arguments cast to one type that has an order.

    NULLs are ignored, NaN is the greatest.

    Args:
        name: The function, which DuckDB calls the same.
    """

    def build(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
        values = cast_alike(arguments, dialect)
        if values[0].type.kind not in ORDERED | {"void"}:
            raise Refusal(f"{values[0].type} has no order.")
        non_null = any(value.never_null for value in arguments)
        return combine(f"{name}({', '.join(value.sql for value in values)})", values[0].type, values, non_null=non_null)

    return build


def like(value: Expr, pattern: Expr, escape: str = "\\", *, fold: bool = False) -> Expr:
    """`value LIKE pattern ESCAPE escape`; with `fold`, ILIKE, whose pattern must be a literal.

    A pattern that Spark can't read is refused if it is a literal; one that isn't raises for the row.

    Raises:
        Refusal: Also for an escape that isn't one character of ASCII, and for ILIKE with letters beyond ASCII.
    """
    if len(escape) != 1 or not escape.isascii() or escape in "%_":
        raise Refusal("ESCAPE is followed by a single character of ASCII other than % and _.")
    if not pattern.is_literal and not fold:
        return _like_column(value, pattern, escape)
    text = _literal(pattern, "ILIKE" if fold else "LIKE")
    _check_escapes(text, escape)
    if fold:
        if not text.isascii():
            raise Refusal("ILIKE with letters beyond ASCII can't be translated.")
        sql = f"(lower({value.sql}) LIKE {quote(text.lower())} ESCAPE {quote(escape)})"
        return strict_expr(sql, BOOLEAN, (value,), unsure=f"ws_strange_lower({value.sql})")
    return strict_expr(f"({value.sql} LIKE {quote(text)} ESCAPE {quote(escape)})", BOOLEAN, (value,))


def _like_column(value: Expr, pattern: Expr, escape: str) -> Expr:
    """LIKE with a pattern that isn't a literal; it raises where Spark can't read the pattern."""
    unreadable = error_sql(f"[INVALID_FORMAT] In a LIKE pattern {escape} may only precede %, _ or itself.", BOOLEAN)
    sql = (
        f"(CASE WHEN {value.sql} IS NULL OR {pattern.sql} IS NULL THEN NULL "
        f"WHEN {_is_readable(pattern, escape)} THEN {value.sql} LIKE {pattern.sql} ESCAPE {quote(escape)} "
        f"ELSE {unreadable} END)"
    )
    return strict_expr(sql, BOOLEAN, (value, pattern), raises=True)


def _is_readable(pattern: Expr, escape: str) -> str:
    """DuckDB's condition that the escape character stands only where it may."""
    code = _code(escape)
    return f"regexp_full_match({pattern.sql}, '(?:[^{code}]|{code}[%_{code}])*')"


def _code(escape: str) -> str:
    """A character as a regular expression, inside or outside brackets."""
    return rf"\x{{{ord(escape):x}}}"


def prefix_of(pattern: Expr, escape: str) -> Expr:
    """The prefix of all texts that are LIKE a pattern; empty for a pattern that raises."""
    if pattern.is_literal:
        text = re.split(f"[%_{re.escape(escape)}]", pattern.literal, maxsplit=1)[0]
        return Expr(quote(text), STRING, literal=text)
    plain = f"regexp_extract({pattern.sql}, '^[^%_{_code(escape)}]*')"
    return strict_expr(f"(CASE WHEN NOT {_is_readable(pattern, escape)} THEN '' ELSE {plain} END)", STRING, (pattern,))


def _check_escapes(text: str, escape: str) -> None:
    unescaped = text.replace(escape * 2, "").replace(f"{escape}%", "").replace(f"{escape}_", "")
    if escape in unescaped:
        raise Refusal(f"In a LIKE pattern {escape} may only precede %, _ or itself.")


def rlike(value: Expr, pattern: Expr) -> Expr:
    """`value RLIKE pattern`; raises Refusal unless it is a literal of constructs on which Java and RE2 agree."""
    text = _literal(pattern, "RLIKE")
    return strict_expr(f"regexp_matches({value.sql}, {quote(to_re2(text))})", BOOLEAN, (value,))


def to_re2(text: str) -> str:
    """Translate a Java regular expression to RE2; raises Refusal for constructs on which the two may disagree."""
    pieces, place, before = [], 0, ""
    while place < len(text):
        match = _REGEX_PIECE.match(text, place)
        kind = match.lastgroup if match else None
        if match is None or (kind == "quantifier" and before in {"", "quantifier", "start", "end"}):
            raise Refusal(f"RLIKE can't be translated from {text[place:]!r} on; use LIKE or a Python predicate.")
        pieces.append({"dot": f"[^{LINE_ENDS}]", "end": END}.get(str(kind), match.group()))
        place, before = match.end(), "" if match.group() in {"(", "(?:", "|"} else str(kind)
    try:
        re.compile(text)
    except re.error as error:
        raise Refusal(f"RLIKE: {error}.") from None
    return "".join(pieces)


def _literal(pattern: Expr, word: str) -> str:
    if not isinstance(pattern.literal, str):
        raise Refusal(f"The pattern of {word} must be a string literal.")
    return pattern.literal


Handler = Callable[["Translator", Any], Expr]


def flatten(node: SqlNode, kind: type[SqlNode]) -> list[SqlNode]:
    """The operands of a chain of ANDs (or ORs), in written order, inside parentheses too."""
    bare = node.unnest()
    if not isinstance(bare, kind):
        return [node]
    return [*flatten(bare.this, kind), *flatten(bare.args["expression"], kind)]


def _refuse_chain(node: SqlNode) -> None:
    """Refuse comparisons of comparisons: Spark reads `a = b < c` from the left, sqlglot otherwise."""
    for child in (node.this, node.args.get("expression"), node.args.get("low"), node.args.get("high")):
        if isinstance(child, tuple(CONDITIONS)) and not isinstance(child, exp.Escape):
            raise Refusal("A comparison of a comparison needs parentheses.")


def _comparison(sign: str) -> Handler:
    """Return the handler of a comparison, which refuses chains such as `a < b < c`."""

    def handle(self: Translator, node: exp.Binary) -> Expr:
        _refuse_chain(node)
        return compare(sign, self.expr(node.this), self.expr(node.expression), self.dialect)

    return handle


def _between(self: Translator, node: exp.Between) -> Expr:
    """`x BETWEEN a AND b` as `x >= a AND x <= b`; refuses SYMMETRIC and chained comparisons."""
    _refuse_chain(node)
    if node.args.get("symmetric") is not None:
        raise Refusal("BETWEEN SYMMETRIC can't be translated; write the two comparisons.")
    value = self.expr(node.this)
    low = compare(">=", value, self.expr(node.args["low"]), self.dialect)
    return logic("AND", (low, compare("<=", value, self.expr(node.args["high"]), self.dialect)))


def _logic(word: str, kind: type[SqlNode]) -> Handler:
    def handle(self: Translator, node: SqlNode) -> Expr:
        return logic(word, [self.boolean(part) for part in flatten(node, kind)])

    return handle


def _not(self: Translator, node: exp.Not) -> Expr:
    inner = self.boolean(node.this)
    return strict_expr(f"(NOT {inner.sql})", BOOLEAN, (inner,))


def _is(self: Translator, node: exp.Is) -> Expr:
    """`x IS NULL`, `x IS TRUE` or `x IS FALSE`; refuses chained comparisons."""
    _refuse_chain(node)
    target = node.expression
    if isinstance(target, exp.Boolean):
        inner = self.boolean(node.this)
        return combine(f"({inner.sql} IS NOT DISTINCT FROM {'TRUE' if target.this else 'FALSE'})", BOOLEAN, (inner,))
    if not isinstance(target, exp.Null):
        raise Refusal("IS is followed by NULL, TRUE, FALSE or UNKNOWN.")
    return null_test(self.expr(node.this))


def _in(self: Translator, node: exp.In) -> Expr:
    """`x IN (a, b)` as `x = a OR x = b`; refuses subqueries and chained comparisons.

    Also refused is a constant in a list of both constants and columns.
    """
    _refuse_chain(node)
    if node.args.get("query") is not None or not node.expressions:
        raise Refusal("IN is followed by a list of values; a subquery can't be translated.")
    value, *items = cast_alike([self.expr(child) for child in (node.this, *node.expressions)], self.dialect)
    if not value.columns and len({bool(item.columns) for item in items}) > 1:
        # DuckDB would decide by the constants alone and not evaluate the columns, which may raise.
        raise Refusal("A constant IN a list of both constants and columns can't be translated; write it out.")
    return logic("OR", [compare("=", value, item, self.dialect) for item in items])


def _text(self: Translator, node: SqlNode) -> Expr:
    return coerce(self.expr(node), STRING, self.dialect)


def _like(self: Translator, node: exp.Like | exp.ILike, escape: str = "\\") -> Expr:
    _refuse_chain(node)
    condition = like(_text(self, node.this), _text(self, node.expression), escape, fold=isinstance(node, exp.ILike))
    return strict_expr(f"(NOT {condition.sql})", BOOLEAN, (condition,)) if node.args.get("negate") else condition


def _escape(self: Translator, node: exp.Escape) -> Expr:
    escape = self.expr(node.expression).literal
    if not isinstance(node.this, exp.Like | exp.ILike) or not isinstance(escape, str):
        raise Refusal("ESCAPE follows LIKE or ILIKE, and is followed by a character in quotes.")
    return _like(self, node.this, escape)


def _rlike(self: Translator, node: exp.RegexpLike) -> Expr:
    _refuse_chain(node)
    return rlike(_text(self, node.this), self.expr(node.expression))


CONDITIONS: dict[type[SqlNode], Handler] = {
    exp.EQ: _comparison("="),
    exp.NEQ: _comparison("<>"),
    exp.LT: _comparison("<"),
    exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"),
    exp.GTE: _comparison(">="),
    exp.NullSafeEQ: _comparison("IS NOT DISTINCT FROM"),
    exp.NullSafeNEQ: _comparison("IS DISTINCT FROM"),
    exp.Between: _between,
    exp.And: _logic("AND", exp.And),
    exp.Or: _logic("OR", exp.Or),
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.RegexpLike: _rlike,
}
