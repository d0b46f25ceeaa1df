"""What `where` may hold, but hardly as it was meant: told as a warning when the join is defined."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.errors import DefinitionWarning
from watersmeet.predicate.model import Dialect
from watersmeet.spark.sql.catalyst import Part, kind_of, origin_of, walk
from watersmeet.spark.sql.names import FUNCTION

CASTS = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "date", "timestamp",
                   "binary"})  # fmt: skip
"""Functions that are casts."""
UNNAMED = frozenset({"CommonExpressionRef", "NamedLambdaVariable"})
"""What stands for another part of the condition, under a name that nobody gave it."""


def warn_of_casts(spark: SparkSession, clauses: Sequence[tuple[str, Part, Any]], dialect: Dialect) -> None:
    """Warn of conjuncts in which Spark makes numbers, times or booleans of texts without being asked to.

    Args:
        spark: The session.
        clauses: The conjuncts: each as it was written, as Spark parsed it, and as Spark analysed it.
        dialect: The session's settings: by them, a text that can't be cast raises or is NULL.
    """
    for text, part, analysed in clauses:
        calls = {inner.origin for inner in part.walk() if inner.kind == FUNCTION and inner.names[-1].lower() in CASTS}
        found = next((node for node in walk(analysed) if _is_unasked(spark, node, calls)), None)
        wrong = next((node for node in walk(analysed) if _is_wrong(spark, node)), None)
        if wrong is not None:
            kind, shown = str(wrong.dataType().simpleString()), str(wrong.child().sql())
            then = "stops the query" if dialect.ansi else "is NULL, which matches nothing"
            _warn(
                f"`{text}`: Spark casts {shown} to {kind}, which it is not, and that {then}; write a {kind}, or cast "
                "the other side to string."
            )
        if found is not None:
            kind, shown = str(found.dataType().simpleString()), _shown(found.children().apply(0))
            then = "stops the query" if dialect.ansi else "becomes NULL, which matches nothing"
            _warn(
                f"`{text}`: Spark casts {shown} to {kind}, and a text that is no {kind} {then}; cast the other side to "
                f"string, or write try_cast({shown} AS {kind})."
            )


def _shown(node: Any) -> str:
    named = all(kind_of(inner) not in UNNAMED for inner in walk(node))
    return str(node.sql()).replace("`", "") if named else "..."


def _is_unasked(spark: SparkSession, node: Any, calls: "set[tuple[int, int] | None]") -> bool:
    """Tell whether a node casts texts, other than constants, because Spark's rules of comparison say so.

    `double(a.word)` is a cast that someone asked for, though it is written as a call.
    """
    if kind_of(node) != "Cast" or node.foldable() or origin_of(node.origin()) in calls - {None}:
        return False
    return _casts_text(spark, node)


def _is_wrong(spark: SparkSession, node: Any) -> bool:
    """Tell whether a node casts a text literal, because Spark's rules of comparison say so, to what it is not."""
    if kind_of(node) != "Cast" or kind_of(node.child()) != "Literal" or not _casts_text(spark, node):
        return False
    jvm: Any = spark._jvm
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(node)
    return node.child().value() is not None and tried.eval(None) is None


def _casts_text(spark: SparkSession, node: Any) -> bool:
    """Tell whether a cast makes something else of texts, and nobody asked for it."""
    jvm: Any = spark._jvm
    asked = node.getTagValue(jvm.org.apache.spark.sql.catalyst.expressions.Cast.USER_SPECIFIED_CAST()).isDefined()
    return not asked and _is_text(node.child()) and not _is_text(node)


def _is_text(node: Any) -> bool:
    """Tell whether a node's values are texts, of any collation or length."""
    return str(node.dataType().typeName()).startswith(("string", "char", "varchar"))


def _warn(sentence: str) -> None:
    """Warn, as if the line that called this package had."""
    frame, depth = sys._getframe(), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("watersmeet."):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(sentence, DefinitionWarning, stacklevel=depth)
