"""The examples in Spark's own documentation of its functions, as it stands in the registry of a session."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

GROUPS = {
    "agg_funcs": "an aggregate",
    "window_funcs": "a window function",
    "generator_funcs": "a generator",
    "table_funcs": "a table function",
}
"""Groups of functions that are no scalars: `where` looks at one combination of rows."""
NAMES = {
    "rand": "chance", "randn": "chance", "random": "chance", "uniform": "chance", "randstr": "chance",
    "uuid": "chance", "shuffle": "chance", "monotonically_increasing_id": "depends on the partition",
    "spark_partition_id": "depends on the partition", "now": "clock", "current_timestamp": "clock",
    "current_date": "clock", "curdate": "clock", "current_time": "clock", "localtime": "clock",
    "localtimestamp": "clock", "current_user": "environment", "user": "environment", "session_user": "environment",
    "current_catalog": "environment", "current_database": "environment", "current_schema": "environment",
    "current_path": "environment", "input_file_name": "files", "input_file_block_start": "files",
    "input_file_block_length": "files", "reflect": "reflection", "java_method": "reflection",
    "try_reflect": "reflection", "window": "a window of aggregation", "window_time": "a window of aggregation",
    "session_window": "a window of aggregation", "json_tuple": "a generator", "schema_of_variant_agg": "an aggregate",
    "vector_avg": "an aggregate", "vector_sum": "an aggregate",
}  # fmt: skip
"""Functions that `where` refuses, with the reason."""
OF_THE_SESSION = frozenset({"version", "current_timezone"})
"""Constant as long as the session is: to refuse them is as right as to answer."""
NANOS, ESCAPED = "spark.sql.timestampNanosTypes.enabled", "spark.sql.parser.escapedStringLiterals"
CLOCK = re.compile(
    r"\b(?:current_(?:timestamp|date|time)|now|curdate|localtime(?:stamp)?|unix_timestamp)\s*(?:\(\s*\)|(?![\w(.]))",
    re.I,
)
"""An example of a function of time often asks for the time itself."""


@dataclass(frozen=True, slots=True)
class Example:
    """One documented expression.

    Attributes:
        function: Whose documentation it stands in.
        text: The expression.
        refused: Why `where` refuses it; None if it must be answered.
        escaped: Whether it is to be read with spark.sql.parser.escapedStringLiterals.
    """

    function: str
    text: str
    refused: str | None
    escaped: bool = False


@dataclass(frozen=True, slots=True)
class Unusable:
    """A documented statement that is no expression over a row."""

    function: str
    text: str
    reason: str


def examples(spark: SparkSession) -> list[Example | Unusable]:
    """Every documented example, in order of the functions' names."""
    state = spark._jsparkSession.sessionState()
    registry, parser = state.functionRegistry(), state.sqlParser()
    identifiers, names = registry.listFunction().iterator(), []
    while identifiers.hasNext():
        names.append(identifiers.next())
    examples: list[Example | Unusable] = []
    for identifier in sorted(names, key=lambda name: str(name.funcName())):
        info = registry.lookupFunction(identifier).get()
        reason = NAMES.get(identifier.funcName()) or GROUPS.get(info.getGroup())
        examples += _documented(parser, identifier.funcName(), info.getExamples(), reason)
    return examples


def _documented(parser: Any, function: str, text: str, reason: str | None) -> Iterator[Example | Unusable]:
    """Yield the examples of one function; its SET statements hold for those behind them."""
    settings: dict[str, str] = {}
    for statement in statements(text):
        setting = re.match(r"(?i)set\s+([\w.]+)\s*=\s*(\w+)$", statement)
        if setting:
            settings[setting.group(1)] = setting.group(2)
        elif settings.get(NANOS) == "true":
            yield Unusable(function, statement, f"needs {NANOS}, which is off by default")
        else:
            yield from _read(parser, function, statement, reason, settings.get(ESCAPED) == "true")


def statements(documented: str) -> Iterator[str]:
    """Yield the statements of an "Examples" section, each from its `>` to its semicolon."""
    for match in re.finditer(r"^\s*>\s*(.+?);\s*$", documented or "", re.M | re.S):
        yield match.group(1).strip()


def _read(
    parser: Any, function: str, statement: str, reason: str | None, escaped: bool
) -> Iterator[Example | Unusable]:
    head = re.match(r"(?i)select\s+", statement)
    body = statement[head.end() :] if head else ""
    items = [_unnamed(item) for item in split(body)]
    if not body:
        yield Unusable(function, statement, "is no SELECT")
    elif all(_is_expression(parser, item) for item in items):
        for item in items:
            yield Example(function, item, reason or ("clock" if CLOCK.search(item) else None), escaped)
    elif reason is None and (rewritten := _over_aggregates(body)) is not None and _is_expression(parser, rewritten):
        yield Example(function, rewritten, None, escaped)
    else:
        yield Unusable(function, statement, reason or "is more than a list of expressions")


_AGGREGATE = re.compile(r"\b(\w+_agg(_\w+)?|approx_top_k_accumulate)\(")


def _over_aggregates(body: str) -> str | None:
    """An example whose arguments are aggregates (`hll_sketch_estimate(hll_sketch_agg(col)) FROM ...`) as an expression
    over scalar subqueries; None if it isn't one."""
    text, _, source = body.partition(" FROM ")
    if not source or "GROUP" in source or not _AGGREGATE.search(text):
        return None
    rewritten, at = "", 0
    for match in _AGGREGATE.finditer(text):
        if match.start() >= at:
            end = _closing(text, match.end())
            rewritten += text[at : match.start()] + f"(SELECT {text[match.start() : end]} FROM {source})"
            at = end
    return rewritten + text[at:]


def _closing(text: str, start: int) -> int:
    """The index behind the parenthesis that closes the one before `start`."""
    depth = 1
    for match in _TOKEN.finditer(text, start):
        depth += (match.group() == "(") - (match.group() == ")")
        if depth == 0:
            return match.end()
    return len(text)


def _unnamed(item: str) -> str:
    return re.sub(r"(?i)\s+as\s+\w+$", "", item.strip())


def _is_expression(parser: Any, text: str) -> bool:
    try:
        parser.parseExpression(f"({text})")
    except Exception:
        return False
    return True


_TOKEN = re.compile(
    r"""(?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")|(?P<name>`[^`]*`|[A-Za-z_]\w*)"""
    r"""|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYFD])?(?!\w))|(?P<other>\s+|.)""",
    re.S | re.I,
)
_TYPED = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ltz", "time", "x"})


def split(text: str) -> list[str]:
    """The text cut at its top-level commas."""
    parts, depth = [""], 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token in "([") - (token in ")]") if len(token) == 1 else 0
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return parts


@dataclass(frozen=True, slots=True)
class Pieces:
    """An expression cut at its literals: `texts` stand before, between and behind them."""

    texts: tuple[str, ...]
    literals: tuple[str, ...]

    def must_move(self, at: int) -> bool:
        """Whether a literal can't stand in `where` itself."""
        return self.literals[at].startswith("(SELECT ")

    def render(self, name: Callable[[int], str | None]) -> str:
        """The expression with each literal replaced by its name, or left where the name is None."""
        literals = [name(at) or literal for at, literal in enumerate(self.literals)]
        return "".join(part for pair in zip(self.texts, [*literals, ""], strict=True) for part in pair)


def pieces(text: str) -> Pieces:
    """Find the literals of an expression: texts, numbers, dates and times, booleans; nothing behind INTERVAL.

    A scalar subquery counts as a literal.
    """
    texts, literals, before, typed, at = [""], [], "", "", 0
    for match in _TOKEN.finditer(text):
        token, kind = match.group(), match.lastgroup
        if match.start() < at:
            continue
        if text.startswith("(SELECT ", match.start()):
            at = _closing(text, match.end())
            literals.append(text[match.start() : at])
            texts.append("")
            continue
        if kind == "other" and token.isspace() and typed:
            typed += token
            continue
        is_literal = (kind in {"text", "number"} and before != "interval") or token.lower() in {"true", "false"}
        if typed and kind != "text":
            texts[-1] += typed
            typed = ""
        if kind == "name" and token.lower() in _TYPED:
            typed, before = token, token.lower()
        elif is_literal:
            literals.append(typed + token)
            texts.append("")
            typed = ""
        else:
            texts[-1] += token
        before = before if kind == "other" and token.isspace() else token.lower()
    texts[-1] += typed
    return Pieces(tuple(texts), tuple(literals))
