"""Columns of PySpark's as conditions and SELECT lists: the tree that Spark's parser makes of text, and a text for it.

Nothing goes through text: literals, casts and functions are the nodes that PySpark made. The text is for people, and to
say where each part stands.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.errors import DefinitionError
from watersmeet.spark.run.frames import quoted
from watersmeet.spark.sql.catalyst import Builder, Part, items, kind_of, quiet, said
from watersmeet.spark.sql.names import ATTRIBUTE, FUNCTION, VARIABLE

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


def called(predicate: str, arguments: Sequence[Any]) -> SparkColumn:
    """Return the call of a Python predicate as a column that `where` takes; values that are no columns are literals."""
    columns = [one if isinstance(one, SparkColumn) else F.lit(one) for one in arguments]
    return F.call_function(predicate, *columns)


class Written:
    """Writes columns over some streams.

    Args:
        spark: The session.
        frames: The streams' frames by their names, None for one that is a join: columns may be bound to them.
    """

    def __init__(self, spark: SparkSession, frames: Mapping[str, DataFrame | None]) -> None:
        self._spark, self._builder, self._frames = spark, Builder(spark), frames
        self._parser = spark._jsparkSession.sessionState().sqlParser()
        self._templates: dict[str, Any] = {}
        self._text: list[str] = []
        self._length = 0

    def condition(self, column: SparkColumn) -> tuple[Part, str]:
        """Return a condition as Spark's parser would, and as people read it; a name that it was given is left out."""
        return self._read(column, named=False), self.text

    def listed(self, columns: Sequence[SparkColumn]) -> list[Part]:
        """Return the items of a SELECT list, written one after another."""
        made: list[Part] = []
        for column in columns:
            self._write(", " if made else "")
            made.append(self._read(column, named=True))
        return made

    @property
    def text(self) -> str:
        """What was written so far."""
        return "".join(self._text)

    # -- the tree

    def _read(self, column: SparkColumn, named: bool) -> Part:
        """Return a column, written; with the name that it was given, if wanted.

        Raises:
            DefinitionError: If Spark can't make one of it.
        """
        if not hasattr(column, "_jc"):
            raise DefinitionError("A column of Spark Connect can't be read; use one of a classic session.")
        try:
            with quiet():
                node = self._node(self._spark._jsparkSession.expression(column._jc), {})
            return self._written(node.child() if kind_of(node) == "Alias" and not named else node)
        except (PySparkException, Py4JError) as error:
            if "StackOverflowError" in str(error):
                raise DefinitionError("The column is nested too deeply.") from None
            raise DefinitionError(f"Spark can't read the column {str(column)[:200]}: {said(error)}.") from None
        except RecursionError:
            raise DefinitionError("The column is nested too deeply.") from None

    def _node(self, handle: Any, bound: Mapping[str, str]) -> Any:
        """Return a node as the parser makes it, with names in place of columns of frames.

        Args:
            handle: The node.
            bound: What the variables of the lambdas round it are called: PySpark numbers them anew in each process.
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
        made = [self._node(child, bound) for child in children]
        template = self._template(handle, len(made)) if kind == FUNCTION else None
        same = template is None and all(new is child for new, child in zip(made, children, strict=True))
        return handle if same else (template or handle).withNewChildren(self._builder.sequence(made))

    def _template(self, handle: Any, count: int) -> Any:
        """Return the operator that the parser makes of what PySpark writes as a call, with any children; or None."""
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
        """Return the name of a column that is bound to a frame, or of a field in it; None for anything else."""
        kind = kind_of(handle)
        if kind == "AttributeReference":
            return [self._owner(handle), str(handle.name())]
        if kind == "Alias" and kind_of(handle.child()) == "GetStructField":  # frame["column.field"]
            return self._path(handle.child())
        if kind == "GetStructField":
            within = self._path(handle.child())
            return None if within is None else [*within, str(handle.extractFieldName())]
        return None

    def _owner(self, attribute: Any) -> str:
        """Return the stream that has a column of a frame.

        Raises:
            DefinitionError: If none has it, or several.
        """
        wanted = attribute.exprId()
        found = [
            name
            for name, frame in self._frames.items()
            if frame is not None
            and any(out.exprId().equals(wanted) for out in items(frame._jdf.queryExecution().analyzed().output()))
        ]
        if len(found) == 1:
            return found[0]
        name, listed = str(attribute.name()), [f"{stream}.{attribute.name()}" for stream in found or self._frames]
        what = f"several streams have: {', '.join(found)}" if found else "none of the streams has"
        raise DefinitionError(
            f"The column '{name}' is one of a DataFrame that {what}; write it with its stream's name, such as "
            f"F.col('{listed[0]}')."
        )

    # -- the text

    def _write(self, text: str) -> None:
        self._text.append(text)
        self._length += len(text)

    def _written(self, handle: Any) -> Part:
        start, kind = self._length, kind_of(handle)
        children = items(handle.children())
        if kind in (ATTRIBUTE, VARIABLE):
            self._write(".".join(_name(str(name)) for name in items(handle.nameParts())))
        elif not children:
            self._write(str(handle.sql()))
        parts = self._operator(kind, children) if kind in SIGNS or kind in BEFORE or kind in BEHIND else None
        if parts is None and children:
            parts = self._call(handle, kind, children)
        return Part(handle, kind, tuple(parts or ()), (start, self._length))

    def _operator(self, kind: str, children: Sequence[Any]) -> list[Part]:
        self._write(BEFORE.get(kind, ""))
        made = [self._within(kind, children[0])]
        if kind in SIGNS:
            self._write(f" {SIGNS[kind]} ")
            made.append(self._within(kind, children[1]))
        self._write(BEHIND.get(kind, ""))
        return made

    def _within(self, outer: str, handle: Any) -> Part:
        kind = kind_of(handle)
        loose = kind in SIGNS or kind in BEFORE or kind in BEHIND
        if outer in ("And", "Or"):
            loose = outer == "And" and kind == "Or"
        self._write("(" if loose else "")
        made = self._written(handle)
        self._write(")" if loose else "")
        return made

    def _call(self, handle: Any, kind: str, children: Sequence[Any]) -> list[Part]:
        if kind in ("In", "UnresolvedExtractValue"):
            first = self._within(kind, children[0])
            self._write(" IN (" if kind == "In" else "[")
            made = [first, *self._several(children[1:])]
            self._write(")" if kind == "In" else "]")
            return made
        if kind == "LambdaFunction":
            variables = self._several(children[1:])
            self._write(" -> ")
            return [self._written(children[0]), *variables]
        named = kind == FUNCTION
        self._write(f"{'.'.join(str(n) for n in items(handle.nameParts())) if named else _word(handle, kind)}(")
        made = self._several(children)
        self._write(f" AS {handle.dataType().sql()})" if kind == "Cast" else ")")
        if kind == "Alias":
            self._write(f" AS {_name(str(handle.name()))}")
        return made

    def _several(self, children: Sequence[Any]) -> list[Part]:
        made: list[Part] = []
        for child in children:
            self._write(", " if made else "")
            made.append(self._written(child))
        return made


def _word(handle: Any, kind: str) -> str:
    if kind == "Cast":
        return "try_cast" if str(handle.evalMode()) == "TRY" else "cast"
    if kind == "Alias":
        return ""
    if kind == "PythonUDF":
        return str(handle.name())
    return str(handle.prettyName())


def _name(name: str) -> str:
    return name if name.isidentifier() else quoted(name)
