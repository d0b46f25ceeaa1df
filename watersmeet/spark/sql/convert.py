"""From Spark's tree to the nodes that the translator knows; whatever it doesn't know stays Spark's."""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from sqlglot import exp

from watersmeet.errors import SqlError
from watersmeet.predicate.expr import NULL, Expr, quote
from watersmeet.predicate.model import PythonPredicate
from watersmeet.predicate.source import ColumnPath, Constant, ForeignExpression, ResolvedColumn, SqlNode
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
from watersmeet.spark.sql.catalyst import Part

BINARY_NODES: dict[str, type[SqlNode]] = {
    "And": exp.And, "Or": exp.Or, "EqualTo": exp.EQ, "LessThan": exp.LT, "LessThanOrEqual": exp.LTE,
    "GreaterThan": exp.GT, "GreaterThanOrEqual": exp.GTE, "EqualNullSafe": exp.NullSafeEQ, "Add": exp.Add,
    "Subtract": exp.Sub, "Multiply": exp.Mul, "Divide": exp.Div, "IntegralDivide": exp.IntDiv, "Remainder": exp.Mod,
    "BitwiseAnd": exp.BitwiseAnd, "BitwiseOr": exp.BitwiseOr, "BitwiseXor": exp.BitwiseXor,
}  # fmt: skip
UNARY_NODES: dict[str, type[SqlNode]] = {"UnaryMinus": exp.Neg, "BitwiseNot": exp.BitwiseNot, "Not": exp.Not}


class Text:
    """The text of a `where`, and where in it each part stands."""

    def __init__(self, text: str) -> None:
        self.text = text

    def of(self, part: Part) -> str:
        """The part as it was written, with its parentheses."""
        start, end = self._closed(*part.span)
        return self.text[start:end]

    def span(self, node: SqlNode) -> tuple[int, int]:
        """Where a node stands."""
        return node.meta["start"], node.meta["end"]

    def closed_span(self, node: SqlNode) -> tuple[int, int]:
        """Where a node stands, with its parentheses."""
        return self._closed(*self.span(node))

    def arguments(self, call: exp.Anonymous) -> list[str]:
        """The arguments of a call as they were written."""
        found: list[str] = call.meta["arguments"]
        return found

    def placed(self, span: tuple[int, int] | None) -> tuple[int, int]:
        """Where Spark says that something stands; the whole text if it doesn't."""
        return span or (0, len(self.text))

    def error(self, problem: str, node: SqlNode | Part | None) -> SqlError:
        """The error that underlines a part, or the whole text."""
        span = node.span if isinstance(node, Part) else (0, len(self.text)) if node is None else self.span(node)
        return SqlError(problem, self.text, *self._closed(*span))

    def _closed(self, start: int, end: int) -> tuple[int, int]:
        """The span widened to the parentheses that it opens or closes half."""
        while (missing := _unbalanced(self.text[start:end]))[0] and (found := self.text.rfind("(", 0, start)) >= 0:
            start = found
        while missing[1] and (found := self.text.find(")", end)) >= 0:
            end = found + 1
            missing = _unbalanced(self.text[start:end])
        return start, end


class Unplaced(Text):
    """The text of a condition that was not written as one: where Spark says things stand in it means nothing."""

    def placed(self, span: tuple[int, int] | None) -> tuple[int, int]:
        """The whole text."""
        return 0, len(self.text)


def _unbalanced(text: str) -> tuple[int, int]:
    """How many parentheses a text closes without opening them, and opens without closing them."""
    closed = opened = 0
    for letter in text:
        if letter == "(":
            opened += 1
        elif letter == ")":
            closed, opened = closed + (opened == 0), max(0, opened - 1)
    return closed, opened


class Calls(Protocol):
    """Knows the calls of Python predicates."""

    def predicate(self, part: Part) -> PythonPredicate | None:
        """Return the Python predicate that a part calls, if it does."""


class Converter:
    """Converts parts of one `where`.

    Args:
        spark: The session.
        text: The text.
        known: Returns the expression that is known for a part already, or None.
        calls: Tells which parts call Python predicates.
        guarded: Tells whether Spark tests what a part makes, which then is left to it.
    """

    def __init__(
        self,
        spark: SparkSession,
        text: Text,
        known: Callable[[Part], Expr | None],
        calls: Calls,
        guarded: Callable[[Part], bool] = lambda part: False,
    ) -> None:
        self._spark, self._text, self._known, self._calls, self._guarded = spark, text, known, calls, guarded

    def node(self, part: Part) -> SqlNode:
        """Return a part as a node."""
        found = self._known(part)
        made = self._made(part) if found is None else expressed(found, partial(self._made, part))
        made.meta["start"], made.meta["end"] = part.span
        return made

    def _made(self, part: Part) -> SqlNode:
        children = [self.node(child) for child in part.children]
        if part.kind != "UnresolvedFunction" and self._guarded(part):
            return ForeignExpression(this=part.kind, expressions=children)
        if part.kind in BINARY_NODES:
            return BINARY_NODES[part.kind](this=children[0], expression=children[1])
        if part.kind in UNARY_NODES:
            return _negated(UNARY_NODES[part.kind], children[0])
        maker = _MAKERS.get(part.kind)
        made = maker(self, part, children) if maker else None
        return made or ForeignExpression(this=part.kind, expressions=children)

    def attribute(self, part: Part, children: list[SqlNode]) -> SqlNode:
        """A name."""
        return ColumnPath(this=part.names[-1], path=part.names)

    def literal(self, part: Part, children: list[SqlNode]) -> SqlNode | None:
        """A constant."""
        made = literal(part.handle)
        return None if made is None else expressed(made)

    def function(self, part: Part, children: list[SqlNode]) -> SqlNode | None:
        """A call of a function of Spark's or of a Python predicate."""
        if len(part.names) != 1 or part.handle.isDistinct() or part.handle.filter().isDefined():
            return None
        name = part.names[0]
        if self._calls.predicate(part) is None:
            if self._guarded(part) or not is_built_in(self._spark, name):
                return ForeignExpression(this=f"The function {name}", expressions=children)
            if name.lower() == "between" and len(children) == 3:
                return exp.Between(this=children[0], low=children[1], high=children[2])
        made = exp.Anonymous(this=name, expressions=children)
        made.meta["arguments"] = [self._text.of(child) for child in part.children]
        return made

    def cast(self, part: Part, children: list[SqlNode]) -> SqlNode | None:
        """A cast, or try_cast."""
        target = part.handle.dataType().simpleString()
        if "collate" in target.lower() or "<" in target or ("(" in target and not target.startswith("decimal")):
            return None
        to = exp.DataType.build(target, dialect="spark")
        tried = str(part.handle.evalMode()) == "TRY"
        return exp.TryCast(this=children[0], to=to, safe=True) if tried else exp.Cast(this=children[0], to=to)

    def like(self, part: Part, children: list[SqlNode]) -> SqlNode:
        """LIKE, with its escape character."""
        made = exp.Like(this=children[0], expression=children[1])
        escape = str(part.handle.escapeChar())
        if escape == "\\":
            return made
        return exp.Escape(this=made, expression=expressed(_text(escape)))

    def choice(self, part: Part, children: list[SqlNode]) -> SqlNode:
        """CASE."""
        pairs = zip(children[0::2], children[1::2], strict=False)
        branches = [exp.If(this=test, true=value) for test, value in pairs]
        return exp.Case(ifs=branches, default=children[-1] if len(children) % 2 else None)

    def member(self, part: Part, children: list[SqlNode]) -> SqlNode:
        """IN."""
        return exp.In(this=children[0], expressions=children[1:])

    def item(self, part: Part, children: list[SqlNode]) -> SqlNode:
        """A field of a struct or an element of an array."""
        return exp.Bracket(this=children[0], expressions=[children[1]])


_MAKERS: dict[str, Callable[[Converter, Part, list[SqlNode]], SqlNode | None]] = {
    "UnresolvedAttribute": Converter.attribute,
    "Literal": Converter.literal,
    "UnresolvedFunction": Converter.function,
    "Cast": Converter.cast,
    "Like": Converter.like,
    "CaseWhen": Converter.choice,
    "In": Converter.member,
    "UnresolvedExtractValue": Converter.item,
    "IsNull": lambda self, part, children: exp.Is(this=children[0], expression=exp.Null()),
    "IsNotNull": lambda self, part, children: exp.Not(this=exp.Is(this=children[0], expression=exp.Null())),
    "UnaryPositive": lambda self, part, children: exp.Paren(this=children[0]),
    "Concat": lambda self, part, children: exp.Anonymous(this="concat", expressions=children),
}


def _negated(kind: type[SqlNode], child: SqlNode) -> SqlNode:
    """NOT of an equality is an inequality."""
    if kind is exp.Not and type(child) is exp.EQ:
        return exp.NEQ(this=child.this, expression=child.expression)
    return kind(this=child)


def expressed(found: Expr, meaning: Callable[[], SqlNode] | None = None) -> SqlNode:
    """Return what is known already as a node; `meaning` returns what it is made of."""
    made = (ResolvedColumn if found.columns else Constant)(this="known")
    made.meta["expr"] = found
    if meaning is not None and found.columns:
        made.meta["meaning"] = meaning
    return made


def is_built_in(spark: SparkSession, name: str) -> bool:
    """Tell whether a function is Spark's own: users may register theirs under its name."""
    jvm: Any = spark._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    try:
        found = spark._jsparkSession.sessionState().catalog().lookupFunctionInfo(identifier)
    except AnalysisException:
        return False
    return str(found.getSource()) == "built-in"


def literal(handle: Any) -> Expr | None:
    """Return a literal of Spark's as an expression; None for one of a type that the translator doesn't know."""
    name, value = handle.dataType().typeName(), handle.value()
    if value is None:
        return NULL if name == "void" else None
    if name.startswith("decimal"):
        kind = Type("decimal", handle.dataType().precision(), handle.dataType().scale())
        text = format(Decimal(value.toString()), "f")
        return Expr(f"CAST({quote(text)} AS {kind.duckdb})", kind, literal=Decimal(text))
    maker = _LITERALS.get(name.split(" (")[0]) or (_interval(name) if name.startswith("interval") else None)
    return maker(value) if maker else None


def _integer(kind: Type) -> Callable[[Any], Expr]:
    def make(value: Any) -> Expr:
        number = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value)
        return Expr(f"CAST({number} AS {kind.duckdb})", kind, literal=number, span=(number, number))

    return make


def _interval(name: str) -> Callable[[Any], Expr] | None:
    if "year" in name or "month" in name:
        return lambda value: Expr(f"CAST({int(value)} AS INTEGER)", YEAR_MONTH, literal=int(value))
    if name == "interval":
        return None
    return lambda value: Expr(f"CAST({int(value)} AS BIGINT)", DAY_TIME, literal=int(value))


def _real(kind: Type) -> Callable[[Any], Expr]:
    def make(value: Any) -> Expr:
        return Expr(f"CAST({quote(repr(float(value)))} AS {kind.duckdb})", kind, literal=float(value))

    return make


def _text(value: Any) -> Expr:
    text = value if isinstance(value, str) else str(value.toString())
    return Expr(quote(text), STRING, literal=text)


_LITERALS: dict[str, Callable[[Any], Expr]] = {
    "boolean": lambda value: Expr("TRUE" if value else "FALSE", BOOLEAN, literal=bool(value)),
    "byte": _integer(BYTE), "tinyint": _integer(BYTE), "short": _integer(SHORT), "smallint": _integer(SHORT),
    "integer": _integer(INT), "int": _integer(INT), "long": _integer(LONG), "bigint": _integer(LONG),
    "float": _real(FLOAT), "double": _real(DOUBLE), "string": _text,
    "binary": lambda value: Expr(f"from_hex({quote(bytes(value).hex())})", BINARY),
    "date": lambda value: Expr(f"(DATE '1970-01-01' + CAST({value} AS INTEGER))", DATE, literal=value),
    "timestamp": lambda value: Expr(f"make_timestamptz(CAST({value} AS BIGINT))", TIMESTAMP, literal=value),
    "timestamp_ntz": lambda value: Expr(f"make_timestamp(CAST({value} AS BIGINT))", TIMESTAMP_NTZ, literal=value),
}  # fmt: skip
