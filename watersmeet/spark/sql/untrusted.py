"""Text from people: what it may hold is an allow-list of expressions and of Spark's own functions.

The check is made on the tree that Spark's parser gives, so that nothing is read otherwise here than there.
"""

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from watersmeet.errors import SqlError
from watersmeet.spark.run.widths import is_open
from watersmeet.spark.sql.catalyst import Part, expressions, items, kind_of
from watersmeet.spark.sql.convert import is_built_in
from watersmeet.spark.sql.growing import KNOWN, UNNAMED
from watersmeet.spark.sql.growth import FREE, GROWERS, is_flat, opens
from watersmeet.spark.sql.purity import OUTSIDE, SUBQUERIES, changing
from watersmeet.spark.sql.sizes import is_constant, maker_of, type_of

DEPTH = 100
"""How deeply expressions may be nested."""
OPTIONS = {"to_json": 1, "to_csv": 1, "from_json": 2, "from_csv": 2}
"""Functions that take options, which may hold texts of any length, after so many arguments."""
LAMBDAS = frozenset({"ArrayTransform", "ZipWith", "TransformKeys", "TransformValues", "MapZipWith"})
"""Functions that gather what a lambda returns."""
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
"""What Spark's parser may make of such a text."""
CALLS = frozenset({"PythonUDF", "ScalaUDF", "ScalaUDAF", "HiveSimpleUDF", "HiveGenericUDF", "ApplyFunctionExpression",
                   "Invoke", "V2Aggregator", "SQLFunctionExpression"})  # fmt: skip
Error = Callable[[str, Part], SqlError]


def check(spark: SparkSession, trees: Iterable[Part], error: Error, own: Callable[[Part], bool]) -> None:
    """Check text from people, before Spark looks any name up.

    Args:
        spark: The session.
        trees: The text as Spark parsed it, piece by piece.
        error: Makes an error that underlines a part.
        own: Tells whether a part calls a function that the program offers.

    Raises:
        SqlError: If it holds what is not on the list.
    """

    def visit(part: Part, depth: int, bound: bool) -> None:
        problem = _problem(spark, part, bound) if not own(part) else None
        if problem is not None or depth > DEPTH:
            raise error(problem or "This is nested too deeply.", part)
        for child in part.children:
            visit(child, depth + 1, bound or part.kind == "LambdaFunction")

    for tree in trees:
        visit(tree, 0, False)


def _problem(spark: SparkSession, part: Part, bound: bool) -> str | None:
    """Return what is wrong with a part itself, if anything is."""
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
    maker = maker_of(part)
    sizing = [part.children[at] for at in maker.sizing if at < len(part.children)] if maker else []
    if bound and not all(map(is_constant, sizing)):
        return f"{name} needs a constant size inside a lambda."
    return None


def is_allowed(spark: SparkSession, name: str) -> bool:
    """Tell whether a name stands for one of Spark's own functions that compute and nothing else."""
    if name.lower() not in KNOWN | FREE:
        return False
    jvm: Any = spark._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    return bool(registry.lookupFunction(identifier).isDefined()) and is_built_in(spark, name)


def check_plan(plan: Any, error: Callable[[str, Any], SqlError]) -> None:
    """Check what Spark's analyser made of text from people.

    Args:
        plan: The plan.
        error: Makes an error that underlines a node.

    Raises:
        SqlError: If it calls what isn't Spark's own, answers by chance or by the clock, or makes values whose size
            can't be limited.
    """
    for node in expressions(plan):
        try:
            problem = _problem_of(node)
        except PySparkException:
            problem = "PySpark doesn't know the type of a value here, so that its size can't be limited."
        if problem is not None:
            raise error(problem, node)


def _problem_of(node: Any) -> str | None:
    """Return what is wrong with a node of the analysed plan itself, if anything is."""
    kind = kind_of(node)
    if kind in CALLS | OUTSIDE | SUBQUERIES:
        return f"{node.prettyName()} is not allowed here."
    if (called := changing(node)) is not None:
        return f"{called} would answer differently from run to run, which is not allowed here."
    if kind == "ArrayAggregate" and is_open(type_of(node.children().apply(1))):
        return "aggregate may only accumulate numbers, times and booleans here."
    if kind in LAMBDAS:
        made = type_of(items(node.children())[-1])
        if is_open(made) or not is_flat(made):
            return f"The lambda of {node.prettyName()} may only return numbers, times and booleans here."
    if kind == "Cast" and isinstance(type_of(node), T.CharType):
        return "CHAR is not allowed here, whose values are as long as its number says; write STRING."
    if kind == "Cast" and not is_flat(type_of(node.child())) and is_flat(type_of(node)):
        return "Arrays, maps and structs can't be cast to text here; write to_json or array_join."
    if kind == "Cast" and not is_flat(type_of(node)) and opens(type_of(node.child()), type_of(node)):
        return "Numbers and times can't be cast to text within arrays, maps and structs here, nor variants to these."
    return None
