"""Converts Spark's tree to the nodes that the translator to DuckDB knows; all others are left to Spark."""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from sqlglot import exp

from watersmeet.predicate.expr import NULL, Expr, quote
from watersmeet.predicate.model import PythonPredicate
from watersmeet.predicate.source import ColumnPath, EvaluatedConstant, ForeignExpression, ResolvedColumn, SqlNode
from watersmeet.predicate.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DAY_TIME,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    YEAR_MONTH,
    Type,
)
from watersmeet.spark.sql.catalyst import ConditionText, ParsedNode

BINARY_NODES: dict[str, type[SqlNode]] = {
    "And": exp.And, "Or": exp.Or, "EqualTo": exp.EQ, "LessThan": exp.LT, "LessThanOrEqual": exp.LTE,
    "GreaterThan": exp.GT, "GreaterThanOrEqual": exp.GTE, "EqualNullSafe": exp.NullSafeEQ, "Add": exp.Add,
    "Subtract": exp.Sub, "Multiply": exp.Mul, "Divide": exp.Div, "IntegralDivide": exp.IntDiv, "Remainder": exp.Mod,
    "BitwiseAnd": exp.BitwiseAnd, "BitwiseOr": exp.BitwiseOr, "BitwiseXor": exp.BitwiseXor,
}  # fmt: skip
UNARY_NODES: dict[str, type[SqlNode]] = {"UnaryMinus": exp.Neg, "BitwiseNot": exp.BitwiseNot, "Not": exp.Not}


class PredicateCalls(Protocol):
    """Recognizes calls of Python predicates."""

    def predicate(self, part: ParsedNode) -> PythonPredicate | None:
        """Return the Python predicate that a part calls, if any."""


class Converter:
    """Converts parts of one `where`.

    Args:
        spark: The session.
        text: The text.
        expr_of: Returns the expression of a part that is computed beforehand, or None.
        calls: Recognizes calls of Python predicates.
        is_guarded: Tells whether Spark limits the size of a part's value; such parts are left to Spark.
    """

    def __init__(
        self,
        spark: SparkSession,
        text: ConditionText,
        expr_of: Callable[[ParsedNode], Expr | None],
        calls: PredicateCalls,
        is_guarded: Callable[[ParsedNode], bool] = lambda part: False,
    ) -> None:
        self._spark, self._text, self._expr_of, self._calls, self._is_guarded = spark, text, expr_of, calls, is_guarded

    def convert(self, part: ParsedNode) -> SqlNode:
        """Return a part as a node of sqlglot with its span; a ForeignExpression if only Spark can evaluate it."""
        expr = self._expr_of(part)
        node = self._convert(part) if expr is None else _expr_node(expr, partial(self._convert, part))
        node.meta["start"], node.meta["end"] = part.span
        return node

    def _convert(self, part: ParsedNode) -> SqlNode:
        """Return a part that isn't computed elsewhere as a node; a ForeignExpression if it is guarded or unknown."""
        children = [self.convert(child) for child in part.children]
        if part.kind != "UnresolvedFunction" and self._is_guarded(part):
            return ForeignExpression(this=part.kind, expressions=children)
        if part.kind in BINARY_NODES:
            return BINARY_NODES[part.kind](this=children[0], expression=children[1])
        if part.kind in UNARY_NODES:
            return _negate(UNARY_NODES[part.kind], children[0])
        conversion = _CONVERSIONS.get(part.kind)
        node = conversion(self, part, children) if conversion else None
        return node or ForeignExpression(this=part.kind, expressions=children)

    def _name(self, part: ParsedNode, children: list[SqlNode]) -> SqlNode:
        return ColumnPath(this=part.names[-1], path=part.names)

    def _literal(self, part: ParsedNode, children: list[SqlNode]) -> SqlNode | None:
        expr = literal(part.handle)
        return None if expr is None else _expr_node(expr)

    def _function(self, part: ParsedNode, children: list[SqlNode]) -> SqlNode | None:
        """Return a call of a Python predicate, or of a function of Spark's that the translator may know.

        Functions of the user's and calls whose size is limited are left to Spark; None for DISTINCT, FILTER and names
        with dots, which are, too.
        """
        if len(part.names) != 1 or part.handle.isDistinct() or part.handle.filter().isDefined():
            return None
        name = part.names[0]
        if self._calls.predicate(part) is None:
            if self._is_guarded(part) or not is_built_in(self._spark, name):
                return ForeignExpression(this=f"The function {name}", expressions=children)
            if name.lower() == "between" and len(children) == 3:
                return exp.Between(this=children[0], low=children[1], high=children[2])
        call = exp.Anonymous(this=name, expressions=children)
        call.meta["arguments"] = [self._text.of(child) for child in part.children]
        return call

    def _cast(self, part: ParsedNode, children: list[SqlNode]) -> SqlNode | None:
        """Return a cast; None if its type has a collation, parts, or a length."""
        target = part.handle.dataType().simpleString()
        if "collate" in target.lower() or "<" in target or ("(" in target and not target.startswith("decimal")):
            return None
        to = exp.DataType.build(target, dialect="spark")
        is_try = str(part.handle.evalMode()) == "TRY"
        return exp.TryCast(this=children[0], to=to, safe=True) if is_try else exp.Cast(this=children[0], to=to)

    def _like(self, part: ParsedNode, children: list[SqlNode]) -> SqlNode:
        like = exp.Like(this=children[0], expression=children[1])
        escape = str(part.handle.escapeChar())
        return like if escape == "\\" else exp.Escape(this=like, expression=_expr_node(_text_literal(escape)))

    def _case(self, part: ParsedNode, children: list[SqlNode]) -> SqlNode:
        pairs = zip(children[0::2], children[1::2], strict=False)
        branches = [exp.If(this=test, true=value) for test, value in pairs]
        return exp.Case(ifs=branches, default=children[-1] if len(children) % 2 else None)


_CONVERSIONS: dict[str, Callable[[Converter, ParsedNode, list[SqlNode]], SqlNode | None]] = {
    "UnresolvedAttribute": Converter._name,
    "Literal": Converter._literal,
    "UnresolvedFunction": Converter._function,
    "Cast": Converter._cast,
    "Like": Converter._like,
    "CaseWhen": Converter._case,
    "In": lambda self, part, children: exp.In(this=children[0], expressions=children[1:]),
    "UnresolvedExtractValue": lambda self, part, children: exp.Bracket(this=children[0], expressions=[children[1]]),
    "IsNull": lambda self, part, children: exp.Is(this=children[0], expression=exp.Null()),
    "IsNotNull": lambda self, part, children: exp.Not(this=exp.Is(this=children[0], expression=exp.Null())),
    "UnaryPositive": lambda self, part, children: exp.Paren(this=children[0]),
    "Concat": lambda self, part, children: exp.Anonymous(this="concat", expressions=children),
}


def _negate(kind: type[SqlNode], child: SqlNode) -> SqlNode:
    """Apply a unary operator; NOT of an equality is an inequality."""
    if kind is exp.Not and type(child) is exp.EQ:
        return exp.NEQ(this=child.this, expression=child.expression)
    return kind(this=child)


def _expr_node(expr: Expr, meaning: Callable[[], SqlNode] | None = None) -> SqlNode:
    """Return a node for an expression that is computed beforehand; `meaning` returns what it is computed from."""
    node = (ResolvedColumn if expr.columns else EvaluatedConstant)(this="known")
    node.meta["expr"] = expr
    if meaning is not None and expr.columns:
        node.meta["meaning"] = meaning
    return node


def is_built_in(spark: SparkSession, name: str) -> bool:
    """Tell whether a function is Spark's own: users may register one of theirs under its name."""
    jvm: Any = spark._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    try:
        info = spark._jsparkSession.sessionState().catalog().lookupFunctionInfo(identifier)
    except AnalysisException:
        return False
    return str(info.getSource()) == "built-in"


def literal(handle: Any) -> Expr | None:
    """Return a literal of Spark's as an expression; None for a typed NULL, or a type unknown to the translator."""
    name, value = handle.dataType().typeName(), handle.value()
    if value is None:
        return NULL if name == "void" else None
    if name.startswith("decimal"):
        kind = Type("decimal", handle.dataType().precision(), handle.dataType().scale())
        text = format(Decimal(value.toString()), "f")
        return Expr(f"CAST({quote(text)} AS {kind.duckdb})", kind, literal=Decimal(text))
    to_expr = _LITERALS.get(name.split(" (")[0]) or (_interval_literal(name) if name.startswith("interval") else None)
    return to_expr(value) if to_expr else None


def _integer_literal(kind: Type) -> Callable[[Any], Expr]:
    """Return what turns Spark's integer literal (an int, or big-endian bytes) into an expression of a type."""

    def to_expr(value: Any) -> Expr:
        number = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value)
        return Expr(f"CAST({number} AS {kind.duckdb})", kind, literal=number, span=(number, number))

    return to_expr


def _interval_literal(name: str) -> Callable[[Any], Expr] | None:
    """Return what turns Spark's literal of an interval type into an expression; None if it mixes months and days."""
    if "year" in name or "month" in name:
        return lambda value: Expr(f"CAST({int(value)} AS INTEGER)", YEAR_MONTH, literal=int(value))
    if name == "interval":
        return None
    return lambda value: Expr(f"CAST({int(value)} AS BIGINT)", DAY_TIME, literal=int(value))


def _real_literal(kind: Type) -> Callable[[Any], Expr]:
    return lambda value: Expr(f"CAST({quote(repr(float(value)))} AS {kind.duckdb})", kind, literal=float(value))


def _text_literal(value: Any) -> Expr:
    text = value if isinstance(value, str) else str(value.toString())
    return Expr(quote(text), STRING, literal=text)


_LITERALS: dict[str, Callable[[Any], Expr]] = {
    "boolean": lambda value: Expr("TRUE" if value else "FALSE", BOOLEAN, literal=bool(value)),
    "byte": _integer_literal(BYTE), "tinyint": _integer_literal(BYTE),
    "short": _integer_literal(SHORT), "smallint": _integer_literal(SHORT),
    "integer": _integer_literal(INT), "int": _integer_literal(INT),
    "long": _integer_literal(LONG), "bigint": _integer_literal(LONG),
    "float": _real_literal(FLOAT), "double": _real_literal(DOUBLE), "string": _text_literal,
    "binary": lambda value: Expr(f"from_hex({quote(bytes(value).hex())})", BINARY),
    "date": lambda value: Expr(f"(DATE '1970-01-01' + CAST({value} AS INTEGER))", DATE, literal=value),
    "timestamp": lambda value: Expr(f"make_timestamptz(CAST({value} AS BIGINT))", TIMESTAMP, literal=value),
    "timestamp_ntz": lambda value: Expr(f"make_timestamp(CAST({value} AS BIGINT))", TIMESTAMP_NTZ, literal=value),
}  # fmt: skip
