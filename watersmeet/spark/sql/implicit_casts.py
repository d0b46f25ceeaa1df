"""Warnings about texts that Spark casts implicitly in `where`, which is rarely intended."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.errors import DefinitionWarning
from watersmeet.predicate.model import Dialect
from watersmeet.spark.sql.catalyst import ParsedNode, kind_of, origin_of, walk
from watersmeet.spark.sql.condition_names import FUNCTION

CASTS = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "date", "timestamp",
                   "binary"})  # fmt: skip
"""Functions that are casts."""
UNNAMED = frozenset({"CommonExpressionRef", "NamedLambdaVariable"})
"""Nodes that stand for another part of the condition under a generated name."""


def warn_of_casts(spark: SparkSession, clauses: Sequence[tuple[str, ParsedNode, Any]], dialect: Dialect) -> None:
    """Warn of conjuncts in which Spark implicitly casts texts to numbers, times or booleans.

    Args:
        spark: The session.
        clauses: The conjuncts: each as written, as Spark parsed it, and as Spark analysed it.
        dialect: The session's settings, which decide whether a text that can't be cast raises or is NULL.
    """
    for text, part, analysed in clauses:
        calls = {inner.origin for inner in part.walk() if inner.kind == FUNCTION and inner.names[-1].lower() in CASTS}
        cast = next((node for node in walk(analysed) if _is_implicit(spark, node, calls)), None)
        invalid = next((node for node in walk(analysed) if _is_invalid(spark, node)), None)
        if invalid is not None:
            kind, literal = str(invalid.dataType().simpleString()), str(invalid.child().sql())
            then = "stops the query" if dialect.ansi else "is NULL, which matches nothing"
            _warn(
                f"`{text}`: Spark casts {literal} to {kind}, which it is not, and that {then}; write a {kind}, or cast "
                "the other side to string."
            )
        if cast is not None:
            kind, value = str(cast.dataType().simpleString()), _format_node(cast.children().apply(0))
            then = "stops the query" if dialect.ansi else "becomes NULL, which matches nothing"
            _warn(
                f"`{text}`: Spark casts {value} to {kind}, and a text that is no {kind} {then}; cast the other side to "
                f"string, or write try_cast({value} AS {kind})."
            )


def _format_node(node: Any) -> str:
    is_named = all(kind_of(inner) not in UNNAMED for inner in walk(node))
    return str(node.sql()).replace("`", "") if is_named else "..."


def _is_implicit(spark: SparkSession, node: Any, calls: "set[tuple[int, int] | None]") -> bool:
    """Return whether a node casts texts, other than constants, because of Spark's rules of comparison.

    `double(a.word)` is an explicit cast, written as a call.
    """
    if kind_of(node) != "Cast" or node.foldable() or origin_of(node.origin()) in calls - {None}:
        return False
    return _casts_text(spark, node)


def _is_invalid(spark: SparkSession, node: Any) -> bool:
    """Tell whether a node implicitly casts a text literal to a type that can't represent it."""
    if kind_of(node) != "Cast" or kind_of(node.child()) != "Literal" or not _casts_text(spark, node):
        return False
    jvm: Any = spark._jvm
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(node)
    return node.child().value() is not None and attempt.eval(None) is None


def _casts_text(spark: SparkSession, node: Any) -> bool:
    """Return whether an implicit cast turns texts into something else."""
    jvm: Any = spark._jvm
    is_explicit = node.getTagValue(jvm.org.apache.spark.sql.catalyst.expressions.Cast.USER_SPECIFIED_CAST()).isDefined()
    return not is_explicit and _is_text(node.child()) and not _is_text(node)


def _is_text(node: Any) -> bool:
    """Return whether a node's values are texts, of any collation or length."""
    return str(node.dataType().typeName()).startswith(("string", "char", "varchar"))


def _warn(sentence: str) -> None:
    """Issue a DefinitionWarning that names the line which called this package."""
    frame, depth = sys._getframe(), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("watersmeet."):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(sentence, DefinitionWarning, stacklevel=depth)
