"""PySpark's columns as conditions and SELECT lists: a tree as Spark's parser would make it, and a text for it.

The tree is not parsed from that text: literals, casts and functions are PySpark's own nodes. The text is for people,
and for the positions of parts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.errors import DefinitionError
from watersmeet.spark.run.frames import quote_name
from watersmeet.spark.sql.catalyst import NodeBuilder, ParsedNode, error_sentence, items, kind_of, without_error_log
from watersmeet.spark.sql.condition_names import ATTRIBUTE, FUNCTION, VARIABLE

BINARY = ("<", "<=", ">", ">=", "=", "<=>", "+", "-", "*", "/", "%", "&", "|", "^", "and", "or", "like")
UNARY = {
    "!": "NOT x",
    "not": "NOT x",
    "negative": "- x",
    "~": "~ x",
    "isnull": "x IS NULL",
    "isnotnull": "x IS NOT NULL",
}
SIGNS = {
    "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=", "EqualTo": "=",
    "EqualNullSafe": "<=>", "Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/", "Remainder": "%",
    "BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^", "And": "AND", "Or": "OR", "Like": "LIKE",
}  # fmt: skip
BEFORE = {"Not": "NOT ", "UnaryMinus": "-", "BitwiseNot": "~"}
BEHIND = {"IsNull": " IS NULL", "IsNotNull": " IS NOT NULL"}


def call_column(predicate: str, arguments: Sequence[Any]) -> SparkColumn:
    """Return the call of a Python predicate as a column for `where`; values that are not columns become literals."""
    columns = [one if isinstance(one, SparkColumn) else F.lit(one) for one in arguments]
    return F.call_function(predicate, *columns)


class ColumnWriter:
    """Writes the text of columns over some streams, and returns their trees.

    Args:
        spark: The session.
        frames: The streams' frames by their names, None for one that is a join: columns may be bound to them.
    """

    def __init__(self, spark: SparkSession, frames: Mapping[str, DataFrame | None]) -> None:
        self._spark, self._builder, self._frames = spark, NodeBuilder(spark), frames
        self._parser = spark._jsparkSession.sessionState().sqlParser()
        self._templates: dict[str, Any] = {}
        self._text: list[str] = []
        self._length = 0

    def condition(self, column: SparkColumn) -> tuple[ParsedNode, str]:
        """Write a condition, without an alias; return its tree and all text so far."""
        return self._add(column, alias=False), self.text

    def select_list(self, columns: Sequence[SparkColumn]) -> list[ParsedNode]:
        """Append a SELECT list to `text`; return its items with their spans there. Raises as `_add` does."""
        parts: list[ParsedNode] = []
        for column in columns:
            self._write(", " if parts else "")
            parts.append(self._add(column, alias=True))
        return parts

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    # -- the tree

    def _add(self, column: SparkColumn, alias: bool) -> ParsedNode:
        """Append a column's text to `text`; return its tree, as Spark's parser would make it, with its span there.

        Args:
            column: The column.
            alias: Whether an alias that the column has is kept.

        Raises:
            DefinitionError: If Spark can't read it, it is nested too deeply or of Spark Connect, or not exactly one
                stream has a column of a frame.
        """
        if not hasattr(column, "_jc"):
            raise DefinitionError("A column of Spark Connect can't be read; use one of a classic session.")
        try:
            with without_error_log():
                node = self._node(self._spark._jsparkSession.expression(column._jc), {})
            return self._write_node(node.child() if kind_of(node) == "Alias" and not alias else node)
        except (PySparkException, Py4JError) as error:
            if "StackOverflowError" in str(error):
                raise DefinitionError("The column is nested too deeply.") from None
            raise DefinitionError(
                f"Spark can't read the column {str(column)[:200]}: {error_sentence(error)}."
            ) from None
        except RecursionError:
            raise DefinitionError("The column is nested too deeply.") from None

    def _node(self, handle: Any, bound: Mapping[str, str]) -> Any:
        """Return a node as the parser would make it, with names in place of columns of frames.

        Args:
            handle: The node.
            bound: The names of the variables of the lambdas around it: PySpark numbers them anew in each process.
        """
        kind = kind_of(handle)
        path = self._path(handle)
        if path is not None:
            return self._builder.attribute(*path)
        if kind == "LambdaFunction":
            names = [str(items(variable.nameParts())[0]) for variable in items(handle.arguments())]
            bound = {**bound, **{name: f"x{len(bound) + at}" for at, name in enumerate(names, start=1)}}
        if kind == VARIABLE:
            first, *rest = (str(name) for name in items(handle.nameParts()))
            return self._builder.variable(bound.get(first, first), *rest)
        children = items(handle.children())
        nodes = [self._node(child, bound) for child in children]
        template = self._template(handle, len(nodes)) if kind == FUNCTION else None
        same = template is None and all(new is child for new, child in zip(nodes, children, strict=True))
        return handle if same else (template or handle).withNewChildren(self._builder.sequence(nodes))

    def _template(self, handle: Any, count: int) -> Any:
        """Return the parser's operator for a call that PySpark spells as a function, such as `<`; None for other calls.

        The caller replaces its children, which are names. Each operator is parsed once, and kept.
        """
        name = str(items(handle.nameParts())[-1]).lower()
        if name in BINARY and count == 2:
            text = f"x {name} y"
        elif name in UNARY and count == 1:
            text = UNARY[name]
        elif name == "in" and count > 1:
            text = f"x IN ({', '.join(['y'] * (count - 1))})"
        else:
            return None
        if text not in self._templates:
            self._templates[text] = self._parser.parseExpression(text)
        return self._templates[text]

    def _path(self, handle: Any) -> list[str] | None:
        """Return the path of a column bound to a frame, or of a field in one, its stream first; else None."""
        kind = kind_of(handle)
        if kind == "AttributeReference":
            return [self._owner(handle), str(handle.name())]
        if kind == "Alias" and kind_of(handle.child()) == "GetStructField":  # frame["column.field"]
            return self._path(handle.child())
        if kind == "GetStructField":
            path = self._path(handle.child())
            return None if path is None else [*path, str(handle.extractFieldName())]
        return None

    def _owner(self, attribute: Any) -> str:
        """Return the stream that has a column of a frame.

        Raises:
            DefinitionError: If none has it, or several.
        """
        column = attribute.exprId()
        streams = [
            name
            for name, frame in self._frames.items()
            if frame is not None
            and any(out.exprId().equals(column) for out in items(frame._jdf.queryExecution().analyzed().output()))
        ]
        if len(streams) == 1:
            return streams[0]
        name, example = str(attribute.name()), [*streams, *self._frames][0]
        owners = f"several streams have: {', '.join(streams)}" if streams else "none of the streams has"
        raise DefinitionError(
            f"The column '{name}' is one of a DataFrame that {owners}; write it with its stream's name, such as "
            f"F.col('{example}.{name}')."
        )

    # -- the text

    def _write(self, text: str) -> None:
        self._text.append(text)
        self._length += len(text)

    def _write_node(self, handle: Any) -> ParsedNode:
        """Append the text of an expression; return it as a node whose origin is its span there."""
        start, kind = self._length, kind_of(handle)
        children = items(handle.children())
        if kind in (ATTRIBUTE, VARIABLE):
            self._write(".".join(_quote(str(name)) for name in items(handle.nameParts())))
        elif not children:
            self._write(str(handle.sql()))
        parts: list[ParsedNode] = []
        if kind in SIGNS or kind in BEFORE or kind in BEHIND:
            parts = self._write_operator(kind, children)
        elif children:
            parts = self._write_call(handle, kind, children)
        return ParsedNode(handle, kind, tuple(parts), (start, self._length))

    def _write_operator(self, kind: str, children: Sequence[Any]) -> list[ParsedNode]:
        """Append an operator between, before or behind its operands to the text; return these."""
        self._write(BEFORE.get(kind, ""))
        parts = [self._write_operand(kind, children[0])]
        if kind in SIGNS:
            self._write(f" {SIGNS[kind]} ")
            parts.append(self._write_operand(kind, children[1]))
        self._write(BEHIND.get(kind, ""))
        return parts

    def _write_operand(self, outer: str, handle: Any) -> ParsedNode:
        """Append an operand to the text, in parentheses if it is an operator itself; return it."""
        kind = kind_of(handle)
        parentheses = kind in SIGNS or kind in BEFORE or kind in BEHIND
        if outer in ("And", "Or"):
            parentheses = outer == "And" and kind == "Or"
        self._write("(" if parentheses else "")
        part = self._write_node(handle)
        self._write(")" if parentheses else "")
        return part

    def _write_call(self, handle: Any, kind: str, children: Sequence[Any]) -> list[ParsedNode]:
        """Append a call, a cast, an alias, a lambda function, IN or an index to the text; return its parts."""
        if kind in ("In", "UnresolvedExtractValue"):
            first = self._write_operand(kind, children[0])
            self._write(" IN (" if kind == "In" else "[")
            parts = [first, *self._write_list(children[1:])]
            self._write(")" if kind == "In" else "]")
            return parts
        if kind == "LambdaFunction":
            variables = self._write_list(children[1:])
            self._write(" -> ")
            return [self._write_node(children[0]), *variables]
        name = ".".join(map(str, items(handle.nameParts()))) if kind == FUNCTION else _function_name(handle, kind)
        self._write(f"{name}(")
        parts = self._write_list(children)
        self._write(f" AS {handle.dataType().sql()})" if kind == "Cast" else ")")
        if kind == "Alias":
            self._write(f" AS {_quote(str(handle.name()))}")
        return parts

    def _write_list(self, children: Sequence[Any]) -> list[ParsedNode]:
        """Append expressions with commas between them to the text; return them."""
        parts: list[ParsedNode] = []
        for child in children:
            self._write(", " if parts else "")
            parts.append(self._write_node(child))
        return parts


def _function_name(handle: Any, kind: str) -> str:
    """Return the name of the function as which an expression is written; an alias has only its parentheses."""
    if kind == "Cast":
        return "try_cast" if str(handle.evalMode()) == "TRY" else "cast"
    if kind == "Alias":
        return ""
    if kind == "PythonUDF":
        return str(handle.name())
    return str(handle.prettyName())


def _quote(name: str) -> str:
    return name if name.isidentifier() else quote_name(name)
