"""Text from people: an allow-list of expressions and of Spark's own functions that it may contain.

The check is made on the tree from Spark's own parser, so both read the text alike.
"""

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from watersmeet.errors import SqlError
from watersmeet.spark.run.widths import is_variable_width
from watersmeet.spark.sql.catalyst import ParsedNode, expressions, items, kind_of
from watersmeet.spark.sql.convert import is_built_in
from watersmeet.spark.sql.purity import OUTSIDE, SUBQUERIES, nondeterministic_call
from watersmeet.spark.sql.value_bounds import FREE, GROWERS, can_grow_in_cast, is_flat
from watersmeet.spark.sql.value_limits import BOUNDED, UNNAMED, is_constant, maker_of, sizing_of, type_of

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
