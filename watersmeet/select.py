"""The SELECT list: plain columns are the engine's own work, anything more is computed by Spark over the results."""

from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from watersmeet.errors import SqlError
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.model import Column
from watersmeet.predicate.scope import Scope, same
from watersmeet.query import RESULT_TIME, Output, Query

PREFIX = "SELECT "


@dataclass(frozen=True, slots=True)
class Selected:
    """A parsed SELECT list.

    Attributes:
        plain: The output columns, if the list names columns only; else None.
        columns: Every column the list reads.
        expressions: The items, as Spark takes them.
    """

    plain: tuple[Output, ...] | None
    columns: tuple[Column, ...]
    expressions: tuple[str, ...]


def parse_select(text: str, query: Query) -> Selected:
    """Parse a SELECT list over a join's streams.

    Raises:
        SqlError: If it can't be parsed, names what does not exist, or names two output columns alike.
    """
    items = _items(text)
    reader = _Reader(text, query)
    outputs = [output for item in items for output in reader.outputs(item)]
    plain = None if None in outputs else tuple(output for output in outputs if output is not None)
    names = [output.name.lower() for output in plain or ()]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise SqlError(f"Two output columns are called {twice}; name one with AS.", text, 0, len(text))
    columns = {column for item in items for column in reader.columns(item)}
    return Selected(plain, tuple(sorted(columns)), tuple(item.sql("spark") for item in items))


def _items(text: str) -> list[exp.Expr]:
    try:
        tree = sqlglot.parse_one(PREFIX + text, read="spark")
    except ParseError as error:
        found = error.errors[0]
        end = max(1, int(found["col"] or 1) - len(PREFIX)) if found.get("line") in (None, 1) else len(text)
        raise SqlError("select: this is not a SELECT list.", text, max(0, end - 1), end) from None
    except SqlglotError as error:
        raise SqlError(f"select: {error}", text, 0, len(text)) from None
    if not isinstance(tree, exp.Select) or set(_clauses(tree)) - {"expressions"}:
        raise SqlError("select: only a list of output columns; what to join goes into where.", text, 0, len(text))
    if not tree.expressions:
        raise SqlError("select: the list is empty; leave select out for one struct column per stream.", text, 0, 1)
    if text.split()[-1].upper() == "AS":  # sqlglot lets it pass
        raise SqlError("select: a name is missing after AS.", text, len(text.rstrip()) - 2, len(text.rstrip()))
    return list(tree.expressions)


def _clauses(tree: exp.Select) -> list[str]:
    return [name for name, value in tree.args.items() if value]


class _Reader:
    def __init__(self, text: str, query: Query) -> None:
        self._text, self._query = text, query
        self._scope = Scope([(stream.name, stream.schema) for stream in query.streams])

    def outputs(self, item: exp.Expr) -> list[Output | None]:
        """Return the plain columns an item stands for; [None] if it has to be computed."""
        inner = item.this if isinstance(item, exp.Alias) else item
        if isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
            return list(self._star(inner))
        if isinstance(inner, exp.Star):
            raise self._error("`*` would give columns of several streams one name; write a.*, or name them.", inner)
        if not isinstance(inner, exp.Column | exp.Dot):
            return [None]
        column, whole = self._column(inner)
        return [Output(item.alias_or_name, column) if whole else None]

    def columns(self, item: exp.Expr) -> list[Column]:
        """Return the columns an item reads."""
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            return [output.column for output in self._star(item)]
        return [self._column(column)[0] for column in item.find_all(exp.Column)]

    def _star(self, star: exp.Column) -> list[Output]:
        for position, stream in enumerate(self._query.streams):
            if same(stream.name, star.table):
                return [Output(field.name, Column(position, at)) for at, field in enumerate(stream.schema)]
        raise self._error(f"There is no stream {star.table}.", star)

    def _column(self, node: exp.Expr) -> tuple[Column, bool]:
        """Return the column a reference reads, and whether it is that column rather than a field inside it."""
        path = [part.name for part in node.parts] if isinstance(node, exp.Column | exp.Dot) else [node.name]
        if path == ["_time"]:
            return RESULT_TIME, True
        named_stream = len(path) > 1 and any(same(stream.name, path[0]) for stream in self._query.streams)
        try:
            column = self._scope.column(path)
        except Refusal as refusal:
            raise self._error(refusal.problem, node) from None
        return column, len(path) == (2 if named_stream else 1)

    def _error(self, problem: str, node: exp.Expr) -> SqlError:
        places = [part._meta for part in node.walk() if part._meta and "start" in part._meta]
        if not places:
            return SqlError(f"select: {problem}", self._text, 0, len(self._text))
        start = min(place["start"] for place in places) - len(PREFIX)
        end = max(place["end"] for place in places) + 1 - len(PREFIX)
        return SqlError(f"select: {problem}", self._text, max(0, start), end)
