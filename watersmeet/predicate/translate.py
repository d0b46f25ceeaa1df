"""From sqlglot's tree to a typed DuckDB expression; a node that is not in the table is refused."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from watersmeet.predicate.arithmetic import arithmetic, negated
from watersmeet.predicate.casts import cast
from watersmeet.predicate.expr import NULL, Expr, Refusal, merged, strict
from watersmeet.predicate.functions import call_function
from watersmeet.predicate.literals import number, string
from watersmeet.predicate.model import Argument, Call, Dialect, PythonPredicate
from watersmeet.predicate.scope import Scope, field_of
from watersmeet.predicate.source import Source
from watersmeet.predicate.types import BOOLEAN, ORDERED, Type, common_type

Handler = Callable[["Translator", Any], Expr]


class Translator:
    """Translates the nodes of one `where`; remembers the Python predicates it met, and each node's expression."""

    def __init__(self, source: Source, scope: Scope, predicates: Sequence[PythonPredicate], dialect: Dialect) -> None:
        self.source, self.scope, self.dialect = source, scope, dialect
        self.predicates = predicates
        self.calls: list[Call] = []
        self.call_columns: dict[str, Expr] = {}

    def expr(self, node: exp.Expression) -> Expr:
        """The node's expression; a refusal underlines the innermost node that caused it."""
        try:
            if type(node) not in HANDLERS:
                raise Refusal(refusal_of(node))
            return HANDLERS[type(node)](self, node)
        except Refusal as refusal:
            raise Refusal(refusal.problem, refusal.node or node) from None

    def boolean(self, node: exp.Expression) -> Expr:
        """The node's expression, which must be a condition."""
        made = self.expr(node)
        if made.type.kind not in {"boolean", "void"}:
            raise Refusal(f"A condition is expected here, not a value of type {made.type}.", node)
        return cast(made, BOOLEAN, self.dialect)


def refusal_of(node: exp.Expression) -> str:
    """Why a node is not in the table."""
    for kinds, problem in REFUSED:
        if isinstance(node, kinds):
            return problem
    return f"{type(node).__name__} can't be carried over from Spark's SQL."


REFUSED: tuple[tuple[tuple[type, ...], str], ...] = (
    ((exp.Query, exp.Subquery, exp.Exists), "`where` can't hold a subquery; join the other table as a stream."),
    ((exp.Window,), "`where` looks at one combination of rows: window functions are not for it."),
    ((exp.Lambda,), "Lambdas can't be carried over; use a Python predicate, listed in predicates=[...]."),
    (
        (exp.CurrentDate, exp.CurrentTimestamp),
        "The answer would change from run to run; `where` must be deterministic.",
    ),
    ((exp.Placeholder, exp.Parameter), "Parameters are not filled in; put the value into the text."),
    ((exp.Command, exp.DDL, exp.DML, exp.Drop, exp.Block), "`where` is a condition, not a statement."),
)


def _column(self: Translator, node: exp.Column) -> Expr:
    return self.scope.resolve([part.name for part in node.parts])


def _dot(self: Translator, node: exp.Dot) -> Expr:
    if not isinstance(node.expression, exp.Identifier):
        raise Refusal("A field's name is expected after the dot.")
    return field_of(self.expr(node.this), node.expression.name)


def _number(self: Translator, node: exp.Literal) -> Expr:
    start, end = self.source.span(node)
    return string(self.source.text[start:end]) if node.is_string else number(node.this)


def _negative(self: Translator, node: exp.Neg) -> Expr:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return number(f"-{node.this.this}")
    return negated(self.expr(node.this), self.dialect)


def _arithmetic(sign: str) -> Handler:
    def handle(self: Translator, node: exp.Binary) -> Expr:
        return arithmetic(sign, self.expr(node.this), self.expr(node.expression), self.dialect)

    return handle


def _unchained(node: exp.Expression) -> None:
    """Spark reads `a = b < c` and `a = b IS NULL` from the left, sqlglot otherwise: insist on parentheses."""
    for child in (node.this, node.args.get("expression")):
        if isinstance(child, CONDITIONS):
            raise Refusal("A comparison of a comparison needs parentheses.")


def compare(sign: str, left: Expr, right: Expr, dialect: Dialect) -> Expr:
    """`left sign right`, both in the type Spark compares them in."""
    type_ = common_type(left.type, right.type, ansi=dialect.ansi)
    if type_ is None or type_.kind not in ORDERED | {"void"}:
        raise Refusal(f"{left.type} and {right.type} can't be compared; cast one of them.")
    left, right = cast(left, type_, dialect), cast(right, type_, dialect)
    sql = f"({left.sql} {sign} {right.sql})"
    return merged(sql, BOOLEAN, (left, right)) if "DISTINCT" in sign else strict(sql, BOOLEAN, (left, right))


def _comparison(sign: str) -> Handler:
    def handle(self: Translator, node: exp.Binary) -> Expr:
        _unchained(node)
        return compare(sign, self.expr(node.this), self.expr(node.expression), self.dialect)

    return handle


def _between(self: Translator, node: exp.Between) -> Expr:
    _unchained(node)
    if node.args.get("symmetric") is not None:
        raise Refusal("BETWEEN SYMMETRIC can't be carried over; write the two comparisons.")
    value = self.expr(node.this)
    low = compare(">=", value, self.expr(node.args["low"]), self.dialect)
    return logic("AND", (low, compare("<=", value, self.expr(node.args["high"]), self.dialect)))


def logic(word: str, parts: Sequence[Expr]) -> Expr:
    """AND or OR; from left to right where a part raises, since Spark stops at the first that decides."""
    plain = "(" + f" {word} ".join(part.sql for part in parts) + ")"
    if not any(part.raises for part in parts[1:]):
        return merged(plain, BOOLEAN, parts)
    decided = {"AND": "FALSE", "OR": "TRUE"}[word]
    guards = "".join(f"WHEN {part.sql} IS NOT DISTINCT FROM {decided} THEN {decided} " for part in parts[:-1])
    return merged(f"(CASE {guards}ELSE {plain} END)", BOOLEAN, parts)


def _logic(word: str, kind: type[exp.Connector]) -> Handler:
    def handle(self: Translator, node: exp.Connector) -> Expr:
        return logic(word, [self.boolean(part) for part in flat(node, kind)])

    return handle


def flat(node: exp.Expression, kind: type[exp.Expression]) -> list[exp.Expression]:
    """The operands of a chain of ANDs (or ORs), in written order, parentheses looked through."""
    bare = node.unnest()
    if not isinstance(bare, kind):
        return [node]
    return [*flat(bare.this, kind), *flat(bare.args["expression"], kind)]


def _not(self: Translator, node: exp.Not) -> Expr:
    inner = self.boolean(node.this)
    return strict(f"(NOT {inner.sql})", BOOLEAN, (inner,))


def _is(self: Translator, node: exp.Is) -> Expr:
    _unchained(node)
    target = node.expression
    if isinstance(target, exp.Boolean):
        inner = self.boolean(node.this)
        return merged(f"({inner.sql} IS NOT DISTINCT FROM {'TRUE' if target.this else 'FALSE'})", BOOLEAN, (inner,))
    if not isinstance(target, exp.Null):
        raise Refusal("IS is followed by NULL, TRUE, FALSE or UNKNOWN.")
    inner = self.expr(node.this)
    return merged(f"({inner.sql} IS NULL)", BOOLEAN, (inner,))


def _in(self: Translator, node: exp.In) -> Expr:
    _unchained(node)
    if node.args.get("query") is not None or node.args.get("unnest") is not None:
        raise Refusal(refusal_of(exp.Subquery()))
    items = [self.expr(item) for item in node.expressions]
    value = self.expr(node.this)
    type_: Type | None = value.type
    for item in items:
        type_ = type_ and common_type(type_, item.type, ansi=self.dialect.ansi)
    if type_ is None or type_.kind not in ORDERED:
        raise Refusal(f"The values of IN must be comparable with {value.type}; cast them.")
    return logic(
        "OR",
        [
            compare("=", cast(value, type_, self.dialect), cast(item, type_, self.dialect), self.dialect)
            for item in items
        ],
    )


def _call(self: Translator, node: exp.Anonymous) -> Expr:
    predicate = _find_predicate(self.predicates, node.name)
    if predicate is None:
        return call_function(node.name, [self.expr(child) for child in node.expressions], self.dialect, self.predicates)
    arguments = [_argument(self, child) for child in node.expressions]
    call = Call(f"p{len(self.calls)}", predicate.name, tuple(argument for argument, _ in arguments))
    self.calls.append(call)
    return merged(call.name, BOOLEAN, [expr for _, expr in arguments])


def _find_predicate(predicates: Sequence[PythonPredicate], name: str) -> PythonPredicate | None:
    exact = [predicate for predicate in predicates if predicate.name == name]
    close = [predicate for predicate in predicates if predicate.name.lower() == name.lower()]
    if not exact and len(close) > 1:
        raise Refusal(f"{name} could be {' or '.join(predicate.name for predicate in close)}; write it as it is named.")
    return next(iter(exact or close), None)


def _argument(self: Translator, node: exp.Expression) -> tuple[Argument, Expr]:
    made = self.expr(node)
    if len({column.stream for column in made.columns}) > 1:
        raise Refusal("An argument of a Python predicate reads one stream; split this one into two arguments.", node)
    start, end = self.source.span(node)
    return Argument(made.sql, tuple(sorted(made.columns)), self.source.text[start:end]), made


HANDLERS: dict[type[exp.Expression], Handler] = {
    exp.Column: _column,
    exp.Dot: _dot,
    exp.Literal: _number,
    exp.Boolean: lambda self, node: Expr("TRUE" if node.this else "FALSE", BOOLEAN, literal=bool(node.this)),
    exp.Null: lambda self, node: NULL,
    exp.Paren: lambda self, node: self.expr(node.this),
    exp.Neg: _negative,
    exp.Add: _arithmetic("+"),
    exp.Sub: _arithmetic("-"),
    exp.Mul: _arithmetic("*"),
    exp.Div: _arithmetic("/"),
    exp.IntDiv: _arithmetic("div"),
    exp.Mod: _arithmetic("%"),
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
    exp.Anonymous: _call,
}

CONDITIONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Between, exp.Is, exp.In, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.Not, exp.And, exp.Or,
)  # fmt: skip
