"""What `where` must not contain: anything that reaches outside the query, or that is nondeterministic."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from watersmeet.errors import SqlError
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.model import PythonPredicate
from watersmeet.predicate.scope import Scope
from watersmeet.spark.sql.catalyst import (
    ParsedNode,
    error_sentence,
    error_spans,
    expressions,
    items,
    kind_of,
    origin_of,
    walk,
    without_error_log,
)
from watersmeet.spark.sql.source_text import ConditionText

SUBQUERIES = frozenset({"Exists", "ScalarSubquery", "InSubquery", "ListQuery", "LateralSubquery",
                        "FunctionTableSubqueryArgumentExpression"})  # fmt: skip
PARAMETERS = frozenset({"NamedParameter", "PosParameter"})
WINDOWS = frozenset({"WindowExpression", "UnresolvedWindowExpression"})
OUTSIDE = frozenset({"CallMethodViaReflection", "TryReflect", "CurrentUser", "CurrentDatabase", "CurrentCatalog",
                     "SessionUser", "SparkVersion", "InputFileName", "InputFileBlockStart", "InputFileBlockLength",
                     "VariableReference", "UnresolvedVariable"})  # fmt: skip
SETTINGS = frozenset({"CurrentTimeZone"})
"""Nodes that look like the environment, but read a setting that belongs to the query."""
TIMES = frozenset({"Cast", "ParseToTimestamp", "ParseToDate"})
CLOCK = frozenset({"CurrentDate", "CurrentTimestamp", "CurrentTime", "Now", "LocalTimestamp", "CurrentBatchTimestamp",
                   "CurDateExpressionBuilder"})  # fmt: skip
NAMES = frozenset({"current_date", "current_timestamp", "current_time", "localtimestamp", "current_user", "user",
                   "session_user", "grouping__id"})  # fmt: skip
MOMENTS = ("date", "timestamp", "timestamp_ntz")
SPECIAL = r"\s*(now|today|tomorrow|yesterday)\b"
"""Texts that Spark reads as moments by the clock when it casts a constant to a date or timestamp."""
NOT_OF_ROWS = {
    "agg_funcs": "look at many rows",
    "generator_funcs": "turn one row into several",
    "window_funcs": "look at other rows",
    "table_funcs": "make tables",
}
"""Groups of functions that don't compute a value of one row."""
CHANCE = {"MonotonicallyIncreasingID", "SparkPartitionID", "Uuid", "Rand", "Randn", "RandStr", "Uniform", "Shuffle"}
SUBQUERY = "`where` can't contain a subquery; join the other table as a stream."
NONDETERMINISTIC = "{} would answer differently from run to run; `where` must be deterministic."
OTHERWISE = "This isn't computed row by row; compute it before the join."
PLANS = {
    "Aggregate": "An aggregate looks at many rows; `where` looks at one combination of rows.",
    "Generate": "`where` can't use a function that turns one row into several.",
    "Window": "`where` looks at one combination of rows, so it can't use window functions.",
}


def why_not(group: str, kind: str) -> str:
    """Return why `where` can't contain a function; empty if it can.

    Args:
        group: The group that Spark lists the function in.
        kind: The class of its node.
    """
    if group in NOT_OF_ROWS:
        return NOT_OF_ROWS[group]
    if kind in CHANCE:
        return "are random"
    if kind in CLOCK or kind in ("CurDate", "LocalTime"):
        return "read the clock"
    if kind in OUTSIDE or (kind.startswith("Current") and kind != "CurrentTimeZone"):
        return "reach outside the query"
    return "cut time into windows" if kind in ("TimeWindow", "SessionWindow", "WindowTime") else ""


def refuse_variables(text: str) -> None:
    """Refuse `${...}`, which Spark's parser fills in from its settings and the environment.

    Raises:
        SqlError: If the text contains one.
    """
    match = re.search(r"\$\{[^}]*\}", text)
    if match:
        raise SqlError("Variables are not filled in; put the value into the text.", text, *match.span())


def refuse(part: ParsedNode, text: str) -> None:
    """Refuse a part that no condition may contain, before its names are looked up.

    Args:
        part: The part.
        text: Its text.

    Raises:
        Refusal: If it is such a part.
    """
    if part.kind in SUBQUERIES:
        raise Refusal(SUBQUERY)
    if is_by_clock(part, text):
        raise Refusal(NONDETERMINISTIC.format(text))
    if part.kind == "ExpressionWithUnresolvedIdentifier":
        raise Refusal("Write the name itself in place of IDENTIFIER.")
    if part.kind in PARAMETERS:
        raise Refusal("Parameters are not filled in; put the value into the text.")
    if part.kind in WINDOWS:
        raise Refusal(PLANS["Window"])


def is_by_clock(part: ParsedNode, text: str) -> bool:
    """Tell whether a part is a constant such as TIMESTAMP 'now', which Spark's parser has read off the clock.

    [!] The word may be written with escapes, after comments: everything but digits is taken for it.
    """
    if part.kind != "Literal" or part.handle.dataType().typeName() not in MOMENTS:
        return False
    content = re.search(r"(['\"])([^'\"]*)\1\s*$", text)
    return content is None or re.match(r"\s*([+-]?\d|epoch\b)", content[2], re.IGNORECASE) is None


def refuse_name(names: Sequence[str], scope: Scope) -> None:
    """Refuse a name that Spark takes for a function if no column has it."""
    if len(names) == 1 and names[0].lower() in NAMES and not scope.has_column(names[0]):
        raise Refusal(NONDETERMINISTIC.format(names[0]))


def check(text: ConditionText, plan: Any) -> None:
    """Refuse an analysed condition that reaches outside the query or is nondeterministic.

    Args:
        text: The text.
        plan: The analysed plan whose columns are its conjuncts.

    Raises:
        SqlError: If it does, or is not computed row by row.
    """
    for operator in walk(plan):  # a function in SQL has operators of its own
        kind = kind_of(operator)
        if kind != "Project" and operator.children().size():
            raise text.error(PLANS.get(kind, OTHERWISE), None)
    for node in expressions(plan):
        _check_node(text, node)


def _check_node(text: ConditionText, node: Any) -> None:
    """Raise SqlError, which underlines the node, if it reaches outside the query or is nondeterministic."""
    kind, call = kind_of(node), nondeterministic_call(node)
    problem = None
    if kind in SUBQUERIES:
        problem = SUBQUERY
    elif kind in OUTSIDE or (kind.startswith("Current") and kind not in SETTINGS | CLOCK):
        problem = f"{node.prettyName()} reaches outside the query, which `where` must not do."
    elif kind == "XmlToStructs" and "rowvalidationxsdpath" in str(node.options().toString()).lower():
        problem = f"{node.prettyName()} reads the file that rowValidationXSDPath names, which `where` must not do."
    elif call is not None:
        problem = NONDETERMINISTIC.format(call)
    if problem is not None:
        raise SqlError(problem, text.text, *text.spark_span(origin_of(node.origin())))


def nondeterministic_call(node: Any) -> str | None:
    """Return the name of a node that itself depends on chance or the clock, or the text such as `now` that it casts."""
    kind = kind_of(node)
    if kind in CLOCK or not (node.deterministic() or _has_nondeterministic_child(node)) or _is_random(node, kind):
        return str(node.prettyName())
    return f"'{_constant(node.children().apply(0))}'" if kind in TIMES and _is_special(node) else None


def _is_random(node: Any, kind: str) -> bool:
    """Tell whether a node encrypts with a random initial vector, which Spark doesn't count as nondeterministic."""
    if kind != "AesEncrypt":
        return False
    _, _, mode, _, vector, *_ = items(node.children())
    return str(_constant(mode)).upper() != "ECB" and not _constant(vector)


def _is_special(node: Any) -> bool:
    """Tell whether a node turns a constant text into a moment by the clock."""
    is_moment = node.dataType().typeName() in MOMENTS
    text = node.children().apply(0)
    value = _constant(text) if is_moment and text.dataType().typeName() == "string" else None
    return isinstance(value, str) and re.match(SPECIAL, value, re.IGNORECASE) is not None


def _constant(node: Any) -> Any:
    """Evaluate a Catalyst expression without columns (foldable), in the JVM; return its value, Java objects as strings.

    None if it isn't foldable, is NULL, or can't be evaluated; the error is swallowed and not logged.
    """
    if not node.foldable():
        return None
    try:
        with without_error_log():
            value = node.eval(None)
    except (Py4JError, PySparkException):  # it raises, or is only rewritten later
        return None
    return value.toString() if hasattr(value, "toString") else value


def _has_nondeterministic_child(node: Any) -> bool:
    """Tell whether a child of a node is nondeterministic: then errors are about that."""
    return any(not child.deterministic() for child in items(node.children()))


def analysis_error(text: ConditionText, error: AnalysisException, predicates: Sequence[PythonPredicate]) -> SqlError:
    """Return an error of Spark's analyser as ours, the position underlined; for some it says what to write instead."""
    problem = error_sentence(error)
    if error.getCondition() == "UNRESOLVED_ROUTINE":
        name = (error.getMessageParameters() or {}).get("routineName", "").strip("`")
        similar = get_close_matches(name.lower(), [predicate.name for predicate in predicates], n=3)
        hint = f"did you mean {' or '.join(similar)}? " if similar else ""
        problem = f"There is no function {name}; {hint}a Python predicate must be listed in predicates=[...]"
    if "time/session window expressions" in problem:
        problem = (
            "window(..) can't be compared between streams; give both window=wm.tumbling('10 minutes') instead, or "
            "compare floor(unix_seconds(ts) / 600)"
        )
    spans = error_spans(error)
    return SqlError(f"{problem}.", text.text, *text.spark_span(spans[0] if spans else None))
