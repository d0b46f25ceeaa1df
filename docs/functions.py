"""Writes the page of functions anew from Spark's own registry: `.venv/bin/python docs/functions.py`."""
# ruff: noqa: E501 (paragraphs of the page are lines)

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.predicate.functions import ALIASES, FUNCTIONS, VARIADIC
from watersmeet.predicate.terms import BINARY, NAMES, TEXTS, UNARY, VECTORS
from watersmeet.spark.sql.purity import CLOCK, OUTSIDE

PAGE = Path(__file__).parent / "functions.md"
HEAD = """# Functions

`where` takes all of Spark SQL: every operator, and every deterministic function that returns one value per row, including those you register yourself. This page says who computes which. [functions.py](functions.py) generates it from the registry of Spark {version}.

- **Over one stream**, Spark itself computes every function when a tuple comes in, once per tuple, however many others it is compared with. Sorted lookups work on the result.
- **Between streams**, those marked *here* are computed where the streams meet. Those marked *nearly* are computed here too, but Spark decides combinations so close to the limit that the last bits, or letters beyond ASCII, might matter. All others are decided by Spark, which evaluates them for every combination that passes the other conditions. `explain()` says which they are, and what would be faster.
- **Looked up in an index** are `=`, `<`, `<=`, `>`, `>=`, `BETWEEN` and `abs(x - y) < c` on numbers and times, comparisons of texts, `LIKE` with a prefix, `startswith`, and [great-circle distances](writing-predicates.md#great-circle-distances). `explain()` shows by which column.

"""


NOT_OF_ROWS = {
    "agg_funcs": "look at many rows",
    "generator_funcs": "turn one row into several",
    "window_funcs": "look at other rows",
    "table_funcs": "make tables",
}
"""Groups of functions that don't compute a value of one row."""
CHANCE = {"MonotonicallyIncreasingID", "SparkPartitionID", "Uuid", "Rand", "Randn", "RandStr", "Uniform", "Shuffle"}


def main() -> None:
    """Write the page."""
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    PAGE.write_text(page(spark))


def page(spark: SparkSession) -> str:
    """Return the text of the page."""
    groups: dict[str, list[str]] = defaultdict(list)
    refused: dict[str, list[str]] = defaultdict(list)
    for name, group, kind in registered(spark):
        reason = why_not(group, kind)
        if reason:
            refused[reason].append(name)
        else:
            groups[group.removesuffix("_funcs").replace("_", " ") or "operators"].append(marked(name))
    rows = [f"| {group} | {', '.join(sorted(names))} |" for group, names in sorted(groups.items())]
    left = [f"| {reason} | {', '.join(f'`{name}`' for name in sorted(names))} |" for reason, names in refused.items()]
    return (
        HEAD.format(version=spark.version)
        + "| group | functions |\n| --- | --- |\n"
        + "\n".join(rows)
        + "\n\n## Refused\n\nA condition can't contain these, wherever they appear:\n\n| because they | functions |\n| --- | --- |\n"
        + "\n".join(sorted(left))
        + "\n\nSubqueries, parameters, `${variables}` and texts such as `TIMESTAMP 'now'` are refused as well.\n"
    )


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


def registered(spark: SparkSession) -> Iterator[tuple[str, str, str]]:
    """Yield name, group and class of Spark's functions; operators that have a name of their own have no class."""
    jvm: Any = spark._jvm
    catalog = spark._jsparkSession.sessionState().catalog()
    for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect():
        name = str(row[0])
        if name in ("!=", "<>", "||", "case"):
            yield name, "operators", ""
            continue
        info = catalog.lookupFunctionInfo(jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name))
        kind = str(info.getClassName()).rsplit(".", 1)[-1].removesuffix("ExpressionBuilder")
        yield name, str(info.getGroup()) if name[0].isalpha() else "operators", kind


def marked(name: str) -> str:
    """Return a function's name with who computes it between streams."""
    plain = ALIASES.get(name, name)
    if not name[0].isalpha() or name in ("and", "or", "not", "between", "case", "cast", "in", "div", "mod"):
        return f"`{name.replace('|', chr(92) + '|')}` (*here*)"
    if NAMES.get(name, name) in UNARY | BINARY | VECTORS | TEXTS and plain not in FUNCTIONS:
        return f"`{name}` (*nearly*)"
    return f"`{name}` (*here*)" if plain in FUNCTIONS or plain in VARIADIC else f"`{name}`"


if __name__ == "__main__":
    main()
