"""Guarding DuckDB against untrusted conditions: only single expressions of known functions are run.

The conditions of a checkpoint are texts that anybody may have written. No table, subquery, setting or statement gets
through, whatever the text looks like: the check is on DuckDB's own syntax tree, not on the text.
"""

# [!] Annotations as text, as in `duck.py`.
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb

from watersmeet.errors import AFRESH, StateError
from watersmeet.formatting import shorten
from watersmeet.predicate.macros import MACROS

LONGEST = 1_000_000
"""Characters of the longest text that is parsed."""
CLASSES = frozenset({
    "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA", "OPERATOR", "BETWEEN",
    "TYPE",
})  # fmt: skip
"""The kinds of expressions that conditions consist of: no subquery, window, star, parameter or default among them."""
FUNCTIONS = frozenset({
    *(head.partition("(")[0] for head in MACROS),
    # -- operators
    "+", "-", "*", "/", "//", "%", "add", "subtract", "multiply", "divide", "||", "&", "|", "~", "<<", ">>", "~~",
    "!~~", "^@", "like_escape",
    # -- text
    "array_to_string", "ascii", "chr", "concat_ws", "contains", "encode", "ends_with", "hex", "instr", "left",
    "length", "levenshtein", "lower", "lpad", "ltrim", "octet_length", "regexp_extract", "regexp_full_match",
    "regexp_matches", "replace", "right", "rpad", "rtrim", "starts_with", "string_split", "strlen", "substring",
    "translate", "trim", "upper", "from_hex",
    # -- numbers
    "abs", "acos", "asin", "atan", "atan2", "bit_count", "ceil", "cos", "error", "floor", "isinf", "isnan", "pi", "pow",
    "round", "sign", "sin", "sqrt", "trunc", "xor",
    # -- times
    "date_part", "datediff", "day", "dayofweek", "dayofyear", "epoch_us", "hour", "isodow", "last_day", "make_date",
    "make_timestamp", "make_timestamptz", "minute", "month", "quarter", "second", "to_days", "to_hours",
    "to_microseconds", "to_months", "to_seconds", "weekofyear", "year",
    # -- arrays, structs and choices
    "coalesce", "greatest", "least", "len", "list_append", "list_contains", "list_count", "list_distinct",
    "list_filter", "list_max", "list_min", "list_position", "list_reverse", "list_value", "nullif", "struct_extract",
    "struct_extract_at",
})  # fmt: skip
"""The functions that conditions call: they read nothing but their arguments."""


@dataclass(slots=True)
class Guard:
    """Checks expressions before a connection runs them."""

    _allowed: set[str] = field(default_factory=set)

    def admit(self, connection: duckdb.DuckDBPyConnection, expressions: Iterable[str]) -> None:
        """Check expressions, and remember those that pass.

        Args:
            connection: The connection that is to run them; it parses them now.
            expressions: The expressions.

        Raises:
            StateError: If one is not an expression, or calls a function that conditions don't.
        """
        for text in {*expressions} - self._allowed:
            problem = "which is too long" if len(text) > LONGEST else _problem(_select(connection, text))
            if problem is not None:
                raise StateError(
                    f"The checkpoint holds the condition {shorten(text)}, {problem}: Watersmeet has not written it, "
                    f"and it is not run; restore the file or {AFRESH}."
                )
            self._allowed.add(text)


def _select(connection: duckdb.DuckDBPyConnection, text: str) -> dict[str, Any]:
    """Return the parts of a SELECT of a text; empty if it can't be parsed, or is more than one statement.

    [!] It is parsed with and without a line break behind it: a text that ends in a comment, such as `1) --`, would hide
    what follows on its line, and what comes after a line break, in another text's string, would be run.
    """
    select, ended = (_parse(connection, f"SELECT ({text}{end})") for end in ("", "\n"))
    return select if select == ended else {}


def _parse(connection: duckdb.DuckDBPyConnection, statement: str) -> dict[str, Any]:
    """Return the parts of a statement; empty if it can't be parsed, or is several."""
    try:
        rows = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
        parsed = json.loads(rows[0][0])
    except (duckdb.Error, RecursionError):  # code points that stand for no text; a tree that is too deep
        return {}
    whole = not parsed["error"] and len(parsed["statements"]) == 1
    return dict(parsed["statements"][0]["node"]) if whole else {}


def _problem(select: Mapping[str, Any]) -> str | None:
    """Return why a SELECT is not a single expression of the known kind; None if it is."""
    rest = {name: part for name, part in select.items() if name != "select_list"}
    # [!] Whatever else a SELECT may have: a text may bring FROM along.
    bare = rest.pop("from_table", {}).get("type") == "EMPTY" and rest == _BARE
    if not bare or len(select["select_list"]) != 1:
        return "which is no expression"
    return next(_problems(select["select_list"]), None)


_BARE: dict[str, Any] = {
    "type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "where_clause": None, "group_expressions": [],
    "group_sets": [], "aggregate_handling": "STANDARD_HANDLING", "having": None, "sample": None, "qualify": None,
}  # fmt: skip
"""The other parts of a SELECT of one expression."""


def _problems(tree: Any) -> Iterator[str]:
    """Yield the parts that conditions don't contain, and calls of unknown functions, each as the end of a sentence."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
        elif isinstance(node, dict):
            nodes += node.values()
            if node.get("class", "CONSTANT") not in CLASSES:
                yield f"which has a part that is not a value: {str(node['class']).lower()}"
            name = node.get("function_name", "+")
            if name not in FUNCTIONS or node.get("schema"):
                yield f"which calls {shorten(name)}"
