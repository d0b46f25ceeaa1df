"""Names: which column of which stream a name stands for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa

from watersmeet.predicate.expr import Expr, Refusal
from watersmeet.predicate.model import Column
from watersmeet.predicate.types import Type, from_arrow

OURS = "_ws_"
"""The prefix of our own names where they stand beside the users'; no stream's name may begin with it."""
TABLE_TIME = f"{OURS}time"
"""The time of a table's rows, unknown to users; no column may be called so."""


@dataclass(frozen=True, slots=True)
class StreamColumns:
    """A stream's name and its columns' names and types."""

    name: str
    columns: tuple[tuple[str, Type], ...]


class Scope:
    """The streams a `where` may name.

    Args:
        streams: Their names and columns.
        foreign: Columns that only Spark can compare, such as text with a collation, each with its type for people.
        ours: Whether the names are our own, not the user's: then the time of a table's rows has a name, too.
    """

    def __init__(
        self, streams: Sequence[tuple[str, pa.Schema]], foreign: Mapping[Column, str] | None = None, ours: bool = False
    ) -> None:
        self._ours = ours
        unsupported = {column: Type("unsupported", name=kind) for column, kind in (foreign or {}).items()}
        self.streams = [
            StreamColumns(
                name,
                tuple(
                    (field.name, unsupported.get(Column(position, at)) or from_arrow(field.type))
                    for at, field in enumerate(schema)
                ),
            )
            for position, (name, schema) in enumerate(streams)
        ]

    def has_column(self, name: str) -> bool:
        """Whether a stream has a column of that name."""
        return any(self._matches(name, column) for stream in self.streams for column, _ in stream.columns)

    def _matches(self, name: str, column: str) -> bool:
        """Whether a name stands for a column."""
        return same_name(name, column) and (self._ours or column != TABLE_TIME)

    def resolve(self, path: Sequence[str]) -> Expr:
        """The expression for `stream.column.field...` or, where only one stream has it, `column.field...`.

        Raises:
            Refusal: If there is no such column or field, if it is ambiguous, or if its type can't be used.
        """
        has_stream = len(path) > 1 and any(same_name(stream.name, path[0]) for stream in self.streams)
        return self._column_or_field(self.column(path), path[2 if has_stream else 1 :])

    def column(self, path: Sequence[str]) -> Column:
        """The column that `stream.column...` or a bare `column...` begins with, whatever its type.

        Raises:
            Refusal: If there is no such column, or it is ambiguous.
        """
        streams = [index for index, stream in enumerate(self.streams) if same_name(stream.name, path[0])]
        return self._column_of(streams[0], path[1]) if streams and len(path) > 1 else self._unqualified_column(path)

    def _column_of(self, stream: int, name: str) -> Column:
        """Return a stream's column by its name; raises Refusal if there is none, or more than one."""
        names = [column for column, _ in self.streams[stream].columns]
        fields = [field for field, column in enumerate(names) if self._matches(name, column)]
        if len(fields) > 1:
            equal = len({names[field] for field in fields}) == 1
            how = (
                f"{len(fields)} columns have that name; rename all but one"
                if equal
                else "its columns differ only in case"
            )
            raise Refusal(f"{self.streams[stream].name}.{name} is ambiguous: {how}.")
        if not fields:
            what = "Table" if TABLE_TIME in names else "Stream"
            raise Refusal(f"{what} {self.streams[stream].name} has no column {name}; it has {list_names(name, names)}.")
        return Column(stream, fields[0])

    def _unqualified_column(self, path: Sequence[str]) -> Column:
        """Return the column that a name without a stream means; raises Refusal if no stream has it, or several do."""
        columns = [
            Column(index, field)
            for index, stream in enumerate(self.streams)
            for field, (name, _) in enumerate(stream.columns)
            if self._matches(path[0], name)
        ]
        if len(columns) == 1:
            return columns[0]
        if columns:
            candidates = " or ".join(f"{self.streams[column.stream].name}.{path[0]}" for column in columns)
            raise Refusal(f"{path[0]} is ambiguous; write {candidates}.")
        raise Refusal(self._why_unknown(path))

    def _why_unknown(self, path: Sequence[str]) -> str:
        """Return what a path names that doesn't exist, and what to choose from."""
        if len(path) > 1:
            streams = [stream.name for stream in self.streams]
            return f"There is no stream {path[0]}; choose from {list_names(path[0], streams)}."
        names = [f"{stream.name}.{column}" for stream in self.streams for column, _ in stream.columns]
        return f"There is no column {path[0]}; choose from {list_names(path[0], names)}."

    def _column_or_field(self, column: Column, names: Sequence[str]) -> Expr:
        """Return a column, or the field inside it to which names lead; raises Refusal if its type can't be used."""
        expr = Expr(column.name, self.streams[column.stream].columns[column.field][1], frozenset({column}))
        for name in names:
            expr = field_of(expr, name)
        if expr.type.kind == "unsupported":
            raise Refusal(f"A column of type {expr.type} can't be used in `where`.")
        return expr


def field_of(expr: Expr, name: str) -> Expr:
    """A field of a struct, by position, since user names never reach DuckDB.

    Raises:
        Refusal: If the value isn't a struct, or doesn't have exactly one such field.
    """
    names = [field for field, _ in expr.type.fields]
    places = [index for index, field in enumerate(names) if same_name(field, name)]
    if expr.type.kind != "struct":
        raise Refusal(f"{name} would be a field of a struct, but the value before it is {expr.type}.")
    if len(places) != 1:
        state = "is ambiguous" if places else "is not there"
        raise Refusal(f"The field {name} {state}; the struct has {list_names(name, names)}.")
    sql = f"struct_extract_at({expr.sql}, {places[0] + 1})"
    return Expr(sql, expr.type.fields[places[0]][1], expr.columns, expr.raises, unsure=expr.unsure, fails=expr.fails)


def same_name(one: str, two: str) -> bool:
    """Whether two names are the same to Spark, which ignores case."""
    return one.lower() == two.lower()


def list_names(name: str, names: Sequence[str]) -> str:
    """A list of up to 12 names, those that resemble `name` first; names of our own are left out."""
    tails = {candidate: candidate.rsplit(".", 1)[-1].lower() for candidate in names}
    tails = {candidate: tail for candidate, tail in tails.items() if not tail.startswith(OURS)}
    close = get_close_matches(name.lower(), list(tails.values()), n=3)
    ordered = sorted(tails, key=lambda candidate: close.index(tails[candidate]) if tails[candidate] in close else 9)
    return ", ".join(ordered[:12]) + (", ..." if len(ordered) > 12 else "")
