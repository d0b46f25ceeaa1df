"""What `where` must not contain: anything that reaches outside the query, or that is nondeterministic.

Text from people may contain only the expressions and the functions of Spark's on an allow-list. That is checked on the
tree from Spark's own parser, so both read the text alike.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from watersmeet.errors import SqlError
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.model import PythonPredicate
from watersmeet.predicate.scope import Scope
from watersmeet.spark.sql.catalyst import (
    ConditionText,
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
from watersmeet.spark.sql.convert import is_built_in
from watersmeet.spark.sql.value_bounds import FREE, GROWERS, can_grow_in_cast, is_flat, is_variable_width
from watersmeet.spark.sql.value_limits import BOUNDED, UNNAMED, is_constant, maker_of, sizing_of, type_of

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
SUBQUERY = "`where` can't contain a subquery; join the other table as a stream."
NONDETERMINISTIC = "{} would answer differently from run to run; `where` must be deterministic."
OTHERWISE = "This isn't computed row by row; compute it before the join."
PLANS = {
    "Aggregate": "An aggregate looks at many rows; `where` looks at one combination of rows.",
    "Generate": "`where` can't use a function that turns one row into several.",
    "Window": "`where` looks at one combination of rows, so it can't use window functions.",
}
DEPTH = 100
"""How deeply expressions may be nested."""
OPTIONS = {"to_json": 1, "to_csv": 1, "from_json": 2, "from_csv": 2}
"""Functions that take options, which may contain texts of any length, after this many arguments."""
LAMBDAS = frozenset({"ArrayTransform", "ZipWith", "TransformKeys", "TransformValues", "MapZipWith"})
"""Functions that collect the values of a lambda."""
KINDS = frozenset({
    "Alias", "UnresolvedAlias", "UnresolvedAttribute", "UnresolvedExtractValue", "UnresolvedFunction",
    "UnresolvedNamedLambdaVariable", "UnresolvedStar", "UnresolvedStarExceptOrReplace", "LambdaFunction", "Literal",
    "NamePlaceholder", "NamedArgumentExpression", "And", "Or", "Not", "EqualTo", "EqualNullSafe", "LessThan",
    "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "In", "IsNull", "IsNotNull", "Like", "ILike", "RLike",
    "LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny", "Between", "Add", "Subtract", "Multiply", "Divide",
    "IntegralDivide", "Remainder", "UnaryMinus", "UnaryPositive", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot",
    "ShiftLeft", "ShiftRight", "ShiftRightUnsigned", "Concat", "Cast", "CaseWhen", "If", "Coalesce",
    "CreateNamedStruct", "CreateArray", "CreateMap", "Substring", "Overlay", "StringTrim", "StringTrimLeft",
    "StringTrimRight", "StringTrimBoth", "StringLocate", "StringInstr", "TimestampAdd", "TimestampDiff", "Extract",
    "Collate", "UnresolvedCollation", "SemiStructuredExtract", "MultiplyYMInterval", "MultiplyDTInterval",
})  # fmt: skip
"""The nodes that the tree of such a text may contain."""
CALLS = frozenset({"PythonUDF", "ScalaUDF", "ScalaUDAF", "HiveSimpleUDF", "HiveGenericUDF", "ApplyFunctionExpression",
                   "Invoke", "V2Aggregator", "SQLFunctionExpression"})  # fmt: skip


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
    """Return a node's name, or a text such as `now` that it casts, if it depends on chance or the clock; else None."""
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


def check_tree(
    spark: SparkSession,
    trees: Iterable[ParsedNode],
    error: Callable[[str, ParsedNode], SqlError],
    own: Callable[[ParsedNode], bool],
) -> None:
    """Check text from people, before Spark looks any name up.

    Args:
        spark: The session.
        trees: The text as Spark parsed it, piece by piece.
        error: Makes an error that underlines a part.
        own: Tells whether a part calls a function that the program offers.

    Raises:
        SqlError: If it contains anything that is not on the list, or is nested too deeply.
    """

    def visit(part: ParsedNode, depth: int, bound: bool) -> None:
        """Raise the error for the first part that isn't allowed; `bound` says that it is inside a lambda."""
        problem = _problem(spark, part, bound) if not own(part) else None
        if problem is not None or depth > DEPTH:
            raise error(problem or "This is nested too deeply.", part)
        for child in part.children:
            visit(child, depth + 1, bound or part.kind == "LambdaFunction")

    for tree in trees:
        visit(tree, 0, False)


def _problem(spark: SparkSession, part: ParsedNode, bound: bool) -> str | None:
    """Return what is wrong with a part itself, if anything; `bound` if it is inside a lambda."""
    if part.kind in SUBQUERIES:
        return "A subquery is not allowed here."
    if part.kind not in KINDS:
        return f"{part.kind} is not allowed here."
    if part.kind != "UnresolvedFunction":
        return None
    if len(part.names) > 1:
        return f"{'.'.join(part.names)}: only Spark's own functions are allowed here, by their bare names."
    name = part.names[0].lower()
    if not is_allowed(spark, name):
        return f"The function {name} is not allowed here."
    if len(part.children) > OPTIONS.get(name, len(part.children)):
        return f"{name} takes no options here."
    if name in GROWERS and any(child.kind in UNNAMED for child in part.children):
        return f"The arguments of {name} must be written out here, one by one and by position."
    if bound and not all(map(is_constant, sizing_of(part, maker_of(part)))):
        return f"{name} needs a constant size inside a lambda."
    return None


def is_allowed(spark: SparkSession, name: str) -> bool:
    """Tell whether a name is that of one of Spark's own functions that do nothing but compute."""
    if name.lower() not in BOUNDED | FREE:
        return False
    jvm: Any = spark._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    return bool(registry.lookupFunction(identifier).isDefined()) and is_built_in(spark, name)


def check_plan(plan: Any, error: Callable[[str, Any], SqlError]) -> None:
    """Check the plan that Spark's analyser made of text from people.

    Args:
        plan: The plan.
        error: Makes an error that underlines a node.

    Raises:
        SqlError: If it calls functions other than Spark's own, is nondeterministic, or makes values whose size can't be
            limited.
    """
    for node in expressions(plan):
        try:
            problem = _problem_of(node)
        except PySparkException:
            problem = "PySpark doesn't know the type of a value here, so that its size can't be limited."
        if problem is not None:
            raise error(problem, node)


def _problem_of(node: Any) -> str | None:
    """Return what is wrong with a node of the analysed plan itself, if anything; types may raise PySparkException."""
    kind = kind_of(node)
    if kind in CALLS | OUTSIDE | SUBQUERIES:
        return f"{node.prettyName()} is not allowed here."
    if (call := nondeterministic_call(node)) is not None:
        return f"{call} would answer differently from run to run, which is not allowed here."
    if kind == "ArrayAggregate" and is_variable_width(type_of(node.children().apply(1))):
        return "aggregate may only accumulate numbers, times and booleans here."
    if kind in LAMBDAS:
        value = type_of(items(node.children())[-1])
        if is_variable_width(value) or not is_flat(value):
            return f"The lambda of {node.prettyName()} may only return numbers, times and booleans here."
    if kind != "Cast":
        return None
    before, after = type_of(node.child()), type_of(node)
    if isinstance(after, T.CharType):
        return "CHAR is not allowed here, whose values are as long as its number says; write STRING."
    if not is_flat(before) and is_flat(after):
        return "Arrays, maps and structs can't be cast to text here; write to_json or array_join."
    if not is_flat(after) and can_grow_in_cast(before, after):
        return "Numbers and times can't be cast to text within arrays, maps and structs here, nor variants to these."
    return None
