"""Text from people: what it may hold is an allow-list of expressions and of Spark's own functions.

The check is made on the tree that Spark's parser gives, so that nothing is read otherwise here than there.
"""

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.errors import SqlError
from watersmeet.spark.catalyst import Part, expressions, kind_of
from watersmeet.spark.convert import is_built_in
from watersmeet.spark.purity import OUTSIDE, SUBQUERIES, why_not
from watersmeet.spark.sizes import is_constant, maker_of, type_of
from watersmeet.spark.widths import is_open

DEPTH = 100
"""How deeply expressions may be nested."""
GROUPS = frozenset({
    "array_funcs", "bitwise_funcs", "collection_funcs", "conditional_funcs", "conversion_funcs", "csv_funcs",
    "datetime_funcs", "hash_funcs", "json_funcs", "lambda_funcs", "map_funcs", "math_funcs", "predicate_funcs",
    "st_funcs", "string_funcs", "struct_funcs", "url_funcs", "variant_funcs", "vector_funcs", "",
})  # fmt: skip
"""Groups of Spark's functions that compute and nothing else. Avro, Protobuf and XML are not among them: they read
schemas from files that options or the text itself name; nor are sketches, whose bytes could be anything."""
MISC = frozenset({"aes_decrypt", "aes_encrypt", "assert_true", "bitmap_bit_position", "bitmap_bucket_number",
                  "bitmap_count", "hmac", "raise_error", "try_aes_decrypt", "typeof"})  # fmt: skip
"""Those of the group of all others."""
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
    maker = maker_of(part)
    sizing = [part.children[at] for at in maker.sizing if at < len(part.children)] if maker else []
    if bound and not all(map(is_constant, sizing)):
        return f"{name} needs a constant size inside a lambda."
    return None


def is_allowed(spark: SparkSession, name: str) -> bool:
    """Tell whether a name stands for one of Spark's own functions that compute and nothing else."""
    jvm: Any = spark._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    found = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().lookupFunction(identifier)
    if found.isEmpty() or not is_built_in(spark, name):
        return False
    info = found.get()
    group, kind = str(info.getGroup()), str(info.getClassName()).rsplit(".", 1)[-1].removesuffix("ExpressionBuilder")
    return not why_not(group, kind) and (group in GROUPS or name in MISC)


def check_plan(plan: Any, error: Callable[[str], SqlError]) -> None:
    """Check what Spark's analyser made of text from people.

    Raises:
        SqlError: If it calls what isn't Spark's own, or gathers values that may grow with each step.
    """
    for node in expressions(plan):
        kind = kind_of(node)
        if kind in CALLS | OUTSIDE | SUBQUERIES:
            raise error(f"{node.prettyName()} is not allowed here.")
        if kind == "ArrayAggregate" and is_open(type_of(node.children().apply(1))):
            raise error("aggregate may only accumulate numbers, times and booleans here.")
