"""Nodes that give a value: columns, literals, arithmetic, casts, CASE, functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from watersmeet.predicate.arithmetic import arithmetic, bit_operation, invert_bits, negate
from watersmeet.predicate.casts import cast, try_cast
from watersmeet.predicate.conditions import choose, compare, if_then
from watersmeet.predicate.datetimes import interval
from watersmeet.predicate.expr import NULL, Expr, Refusal, guard, quote
from watersmeet.predicate.functions import call_function, item
from watersmeet.predicate.model import Argument, Call, PythonPredicate
from watersmeet.predicate.scope import field_of
from watersmeet.predicate.source import ColumnPath, EvaluatedConstant, ResolvedColumn, SqlNode
from watersmeet.predicate.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    MAX_PRECISION,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Type,
    integer_range,
)

if TYPE_CHECKING:
    from watersmeet.predicate.translate import Translator

Handler = Callable[["Translator", Any], Expr]

CAST_TARGETS: dict[exp.DType, Type] = {
    exp.DType.BOOLEAN: BOOLEAN, exp.DType.TINYINT: BYTE, exp.DType.SMALLINT: SHORT, exp.DType.INT: INT,
    exp.DType.BIGINT: LONG, exp.DType.FLOAT: FLOAT, exp.DType.DOUBLE: DOUBLE, exp.DType.TEXT: STRING,
    exp.DType.BINARY: BINARY, exp.DType.VARBINARY: BINARY, exp.DType.DATE: DATE, exp.DType.TIMESTAMP: TIMESTAMP,
    exp.DType.TIMESTAMPTZ: TIMESTAMP, exp.DType.TIMESTAMPLTZ: TIMESTAMP, exp.DType.TIMESTAMPNTZ: TIMESTAMP_NTZ,
}  # fmt: skip


def _column(self: Translator, node: exp.Column) -> Expr:
    return self.scope.resolve([part.name for part in node.parts])


def _dot(self: Translator, node: exp.Dot) -> Expr:
    if not isinstance(node.expression, exp.Identifier):
        raise Refusal("A field's name is expected after the dot.")
    return field_of(self.expr(node.this), node.expression.name)


def _literal(self: Translator, node: exp.Literal) -> Expr:
    if not node.is_string:
        return number(node.this)
    start, end = self.source.span(node)
    return string(self.source.text[start:end])


def _raw_string(self: Translator, node: exp.RawString) -> Expr:
    return Expr(quote(node.this), STRING, literal=node.this)


def _hex(self: Translator, node: exp.HexString) -> Expr:
    digits = node.this.rjust(len(node.this) + len(node.this) % 2, "0")
    return Expr(f"from_hex({quote(bytes.fromhex(digits).hex())})", BINARY)


def _adjacent_strings(self: Translator, node: exp.Concat) -> Expr:
    """`'a' 'b'`: string literals side by side are one string."""
    parts = [self.expr(part).literal for part in node.expressions]
    if not all(isinstance(part, str) for part in parts):
        raise Refusal("Only string literals can be written side by side.")
    return Expr(quote("".join(parts)), STRING, literal="".join(parts))


def _negation(self: Translator, node: exp.Neg) -> Expr:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return number(f"-{node.this.this}")
    return negate(self.expr(node.this), self.dialect)


def _arithmetic(sign: str) -> Handler:
    def handle(self: Translator, node: exp.Binary) -> Expr:
        return arithmetic(sign, self.expr(node.this), self.expr(node.expression), self.dialect)

    return handle


def _bitwise(template: str) -> Handler:
    """Return the handler of a bitwise operator, which refuses other ones beside it without parentheses."""

    def handle(self: Translator, node: exp.Binary) -> Expr:
        for child in (node.this, node.expression):
            if type(child) in BITWISE and type(child) is not type(node):
                raise Refusal("Different bitwise operators in one expression need parentheses.")
        return bit_operation(template, self.expr(node.this), self.expr(node.expression), self.dialect)

    return handle


def _cast_target(node: exp.DataType) -> Type:
    """The type that a cast names; raises Refusal if it can't be translated."""
    if node.this in CAST_TARGETS and not node.expressions:
        return CAST_TARGETS[node.this]
    if node.this is exp.DType.DECIMAL:
        precision, scale, *_ = [*(int(part.name) for part in node.expressions), *([10] * (not node.expressions)), 0]
        type_ = Type("decimal", precision, scale)
        if not 0 <= type_.scale <= type_.precision <= 38:
            raise Refusal("A decimal has at most 38 digits, and no more after the point than in all.", node)
        return type_
    raise Refusal(f"A cast to {node.sql('spark').lower()} can't be translated.", node)


def _cast(self: Translator, node: exp.Cast) -> Expr:
    value, to = self.expr(node.this), _cast_target(node.to)
    return (try_cast if node.args.get("safe") else cast)(value, to, self.dialect)


def _case(self: Translator, node: exp.Case) -> Expr:
    """`CASE [subject] WHEN .. THEN .. [ELSE ..] END`; each branch compares the subject, if there is one."""
    subject = node.this and self.expr(node.this)
    branches = []
    for branch in node.args["ifs"]:
        test = self.expr(branch.this)
        test = compare("=", subject, test, self.dialect) if subject else test
        branches.append((test, self.expr(branch.args["true"])))
    default = node.args.get("default")
    return choose(branches, default and self.expr(default), self.dialect)


def _if(self: Translator, node: exp.If) -> Expr:
    parts = (node.this, node.args.get("true"), node.args.get("false"))
    return if_then([self.expr(part) if part else NULL for part in parts], self.dialect)


def _bracket(self: Translator, node: exp.Bracket) -> Expr:
    """`x[i]`: a field of a struct, by its name, or an element of an array; refuses anything else."""
    if len(node.expressions) != 1:
        raise Refusal("An array takes one index.")
    container, index = self.expr(node.this), self.expr(node.expressions[0])
    if container.type.kind == "struct" and isinstance(index.literal, str):
        return field_of(container, index.literal)
    return item(container, index, self.dialect)


def _interval(self: Translator, node: exp.Interval) -> Expr:
    if not isinstance(node.this, exp.Literal) or not isinstance(node.args.get("unit"), exp.Var):
        raise Refusal("An interval is a number and a unit, such as INTERVAL 5 SECONDS.")
    return interval(node.this.this, node.args["unit"].name)


def _extract(self: Translator, node: exp.Extract) -> Expr:
    """`extract(part FROM x)`, as a call of the part's own function; refuses parts that can't be translated."""
    part = node.name.lower()
    if part not in {"year", "quarter", "month", "day", "hour", "minute", "doy"}:
        raise Refusal(f"extract({part} FROM ...) can't be translated.")
    name = "dayofyear" if part == "doy" else part
    return call_function(name, [self.expr(node.expression)], self.dialect, self.predicates)


def _pipes(self: Translator, node: exp.DPipe) -> Expr:
    return call_function("concat", [self.expr(node.this), self.expr(node.expression)], self.dialect, ())


def _call(self: Translator, node: exp.Anonymous) -> Expr:
    """A function's call; one of a Python predicate is added to the translator's `calls`, and made while probing.

    Raises:
        Refusal: If there is no such function or predicate, or it doesn't take these arguments.
    """
    predicate = find_predicate(self.predicates, node.name)
    if predicate is None:
        return call_function(node.name, [self.expr(child) for child in node.expressions], self.dialect, self.predicates)
    if not node.expressions:
        raise Refusal(f"{predicate.name}() has no arguments; pass it the columns to look at.")
    if predicate.symmetric and len(node.expressions) != 2:
        raise Refusal(f"{predicate.name} is symmetric: it takes two arguments, not {len(node.expressions)}.")
    _check_count(predicate, len(node.expressions))
    texts = self.source.arguments(node)
    arguments = [_argument(self, child, text) for child, text in zip(node.expressions, texts, strict=True)]
    call = Call(f"p{self.source.span(node)[0]}", predicate.name, tuple(argument for argument, _ in arguments))
    self.calls.append(call)
    return guard(call.name, BOOLEAN, [expr for _, expr in arguments])


def _check_count(predicate: PythonPredicate, count: int) -> None:
    """Refuse a call with fewer or more arguments than the function takes, if it has a signature."""
    try:
        signature = inspect.signature(predicate.function)
    except (TypeError, ValueError):  # some functions that aren't written in Python have none
        return
    try:
        signature.bind(*[None] * count)
    except TypeError:
        arguments = f"{count} argument{'s' * (count > 1)}"
        raise Refusal(
            f"{predicate.name}({', '.join(signature.parameters)}) can't be called with {arguments}."
        ) from None


def find_predicate(predicates: Sequence[PythonPredicate], name: str) -> PythonPredicate | None:
    """The predicate that a name calls, None if none does; case matters only where two differ in nothing else.

    Raises:
        Refusal: If two differ only in case, and neither is written like this.
    """
    exact = [predicate for predicate in predicates if predicate.name == name]
    close = [predicate for predicate in predicates if predicate.name.lower() == name.lower()]
    if not exact and len(close) > 1:
        raise Refusal(f"{name} could be {' or '.join(predicate.name for predicate in close)}; write it as it is named.")
    return next(iter(exact or close), None)


def _argument(self: Translator, node: SqlNode, text: str) -> tuple[Argument, Expr]:
    """An argument of a Python predicate, and its expression; refused if it reads two streams or can't be guarded."""
    expr = self.expr(node)
    if len({column.stream for column in expr.columns}) > 1:
        raise Refusal("An argument of a Python predicate reads one stream; split this one into two arguments.", node)
    if expr.raises and expr.or_null is None and node.find_ancestor(exp.Or, exp.Case, exp.If) is not None:
        raise Refusal("An argument that may raise can't be guarded by a condition: it is computed first.", node)
    if expr.or_null is None:
        return Argument(expr.sql, tuple(sorted(expr.columns)), text), expr
    return Argument(expr.or_null, tuple(column for column in expr.columns if column.name == expr.or_null), text), expr


BITWISE = {exp.BitwiseAnd: "({0} & {1})", exp.BitwiseOr: "({0} | {1})", exp.BitwiseXor: "xor({0}, {1})"}

VALUES: dict[type[SqlNode], Handler] = {
    exp.Column: _column,
    ColumnPath: _column,
    ResolvedColumn: lambda self, node: node.meta["expr"],
    EvaluatedConstant: lambda self, node: node.meta["expr"],
    exp.Dot: _dot,
    exp.Literal: _literal,
    exp.RawString: _raw_string,
    exp.HexString: _hex,
    exp.Concat: _adjacent_strings,
    exp.Boolean: lambda self, node: Expr("TRUE" if node.this else "FALSE", BOOLEAN, literal=bool(node.this)),
    exp.Null: lambda self, node: NULL,
    exp.Paren: lambda self, node: self.expr(node.this),
    exp.Neg: _negation,
    exp.Add: _arithmetic("+"),
    exp.Sub: _arithmetic("-"),
    exp.Mul: _arithmetic("*"),
    exp.Div: _arithmetic("/"),
    exp.IntDiv: _arithmetic("div"),
    exp.Mod: _arithmetic("%"),
    exp.BitwiseNot: lambda self, node: invert_bits(self.expr(node.this)),
    **{kind: _bitwise(template) for kind, template in BITWISE.items()},
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Case: _case,
    exp.If: _if,
    exp.Bracket: _bracket,
    exp.Interval: _interval,
    exp.Extract: _extract,
    exp.DPipe: _pipes,
    exp.Anonymous: _call,
}


# -- literals as Spark reads them


_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)


def number(text: str) -> Expr:
    """A number literal without a suffix: int or bigint if whole, decimal with a point, double with an exponent."""
    if "e" in text.lower():
        return Expr(f"CAST({quote(text)} AS DOUBLE)", DOUBLE, literal=float(text))
    if "." not in text:
        return integer(int(text))
    return decimal(Decimal(text))


def integer(value: int) -> Expr:
    """The smallest of int, bigint and decimal that holds the value; raises Refusal beyond 38 digits."""
    for type_ in (INT, LONG):
        low, high = integer_range(type_.kind)
        if low <= value <= high:
            return Expr(f"CAST({value} AS {type_.duckdb})", type_, literal=value, span=(value, value))
    return decimal(Decimal(value))


def decimal(value: Decimal) -> Expr:
    """A decimal of as many digits as its literal has; raises Refusal beyond 38."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits), scale)
    if precision > MAX_PRECISION:
        raise Refusal("A decimal has at most 38 digits.")
    type_ = Type("decimal", precision, scale)
    return Expr(f"CAST({quote(format(value, 'f'))} AS {type_.duckdb})", type_, literal=value)


def string(literal: str) -> Expr:
    """A string literal, quotes and escapes included."""
    value = _ESCAPE.sub(_unescape, literal[1:-1])
    return Expr(quote(value), STRING, literal=value)


def _unescape(match: re.Match[str]) -> str:
    four, eight, octal, single = match.groups()
    if four or eight:
        return chr(int(four or eight, 16))
    return chr(int(octal, 8)) if octal else _ESCAPES.get(single, single)
