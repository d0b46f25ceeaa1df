"""What `where` must not hold: whatever reaches out of the query, or would answer otherwise when asked again."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from pyspark.errors import AnalysisException

from watersmeet.errors import SqlError
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.model import PythonPredicate
from watersmeet.predicate.scope import Scope
from watersmeet.spark.catalyst import Part, origin_of, said
from watersmeet.spark.convert import Text

SUBQUERIES = frozenset({"Exists", "ScalarSubquery", "InSubquery", "ListQuery", "LateralSubquery",
                        "FunctionTableSubqueryArgumentExpression"})  # fmt: skip
PARAMETERS = frozenset({"NamedParameter", "PosParameter"})
WINDOWS = frozenset({"WindowExpression", "UnresolvedWindowExpression"})
OUTSIDE = frozenset({"CallMethodViaReflection", "TryReflect", "CurrentUser", "CurrentDatabase", "CurrentCatalog",
                     "SessionUser", "SparkVersion", "InputFileName", "InputFileBlockStart", "InputFileBlockLength",
                     "VariableReference", "UnresolvedVariable"})  # fmt: skip
CLOCK = frozenset({"CurrentDate", "CurrentTimestamp", "CurrentTime", "Now", "LocalTimestamp", "CurrentBatchTimestamp",
                   "CurDateExpressionBuilder"})  # fmt: skip
NAMES = frozenset({"current_date", "current_timestamp", "current_time", "localtimestamp", "current_user", "user",
                   "session_user", "grouping__id"})  # fmt: skip
PLANS = {
    "Aggregate": "An aggregate looks at many rows; `where` looks at one combination of rows.",
    "Generate": "A function that makes several rows of one is not for `where`.",
    "Window": "`where` looks at one combination of rows: window functions are not for it.",
}


def refuse(part: Part) -> None:
    """Refuse a part that no condition may hold, before its names are looked up."""
    if part.kind in SUBQUERIES:
        raise Refusal("`where` can't hold a subquery; join the other table as a stream.")
    if part.kind in PARAMETERS:
        raise Refusal("Parameters are not filled in; put the value into the text.")
    if part.kind in WINDOWS:
        raise Refusal(PLANS["Window"])


def refuse_name(names: Sequence[str], scope: Scope) -> None:
    """Refuse a name that Spark would take for a function if no column is called so."""
    if len(names) == 1 and names[0].lower() in NAMES and not scope.knows(names[0]):
        raise Refusal(f"{names[0]} would answer differently from run to run; `where` must be deterministic.")


def check(text: Text, plan: Any) -> None:
    """Refuse an analysed condition that reaches out of the query or isn't deterministic.

    Args:
        text: The text.
        plan: The analysed plan that selects its conjuncts.
    """
    kind = plan.getClass().getSimpleName()
    inner = plan.children().apply(0).getClass().getSimpleName() if plan.children().size() else ""
    for found in (kind, inner):
        if found in PLANS:
            raise text.error(PLANS[found], None)
    shown = plan.expressions()
    for at in range(shown.size()):
        for node in _walk(shown.apply(at)):
            _check_node(text, node)


def _check_node(text: Text, node: Any) -> None:
    kind = node.getClass().getSimpleName().rstrip("$")
    problem = None
    if kind in OUTSIDE:
        problem = f"{node.prettyName()} reaches out of the query, which `where` can't."
    elif kind in CLOCK or not (node.deterministic() or _undecided(node)):
        problem = f"{node.prettyName()} would answer differently from run to run; `where` must be deterministic."
    if problem is not None:
        span = origin_of(node.origin())
        raise SqlError(problem, text.text, *(span or (0, len(text.text))))


def _undecided(node: Any) -> bool:
    """Tell whether a node is not deterministic only because something inside it isn't: that is to be named."""
    children = node.children()
    return any(not children.apply(at).deterministic() for at in range(children.size()))


def _walk(node: Any) -> Iterator[Any]:
    yield node
    children = node.children()
    for at in range(children.size()):
        yield from _walk(children.apply(at))


def analysis_error(text: Text, error: AnalysisException, predicates: Sequence[PythonPredicate]) -> SqlError:
    """Return what Spark's analyser says of a condition, with the place underlined."""
    problem = said(error)
    if error.getCondition() == "UNRESOLVED_ROUTINE":
        name = (error.getMessageParameters() or {}).get("routineName", "").strip("`")
        near = get_close_matches(name.lower(), [predicate.name for predicate in predicates], n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        problem = f"There is no function {name}; {hint}a Python predicate must be listed in predicates=[...]"
    contexts = error.getQueryContext() or []
    places = [(c.startIndex(), c.stopIndex() + 1) for c in contexts if c.startIndex() >= 0] if contexts else []
    return SqlError(f"{problem}.", text.text, *(places[0] if places else (0, len(text.text))))
