"""`select` as a list of PySpark's columns: read as a SELECT list is, without going through text."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.errors import DefinitionError, SqlError
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.model import Column
from watersmeet.predicate.scope import TABLE_TIME, Scope, same_name
from watersmeet.query.query import RESULT_TIME, Output, Query
from watersmeet.spark.output.identity import ID
from watersmeet.spark.sql.catalyst import Builder, Part, items
from watersmeet.spark.sql.names import ATTRIBUTE, STARS
from watersmeet.spark.sql.rewritten import Rewritten
from watersmeet.spark.sql.select import Selected, Selection
from watersmeet.spark.sql.written import Written


def check_select(given: object) -> list[SparkColumn] | None:
    """Return a list of columns, texts among them as columns; None for a text, or nothing.

    Raises:
        DefinitionError: If it is something else.
    """
    if given is None or isinstance(given, str):
        return None
    several = [given] if isinstance(given, SparkColumn) else [*given] if isinstance(given, list | tuple) else []
    if not several or not all(isinstance(one, SparkColumn | str) for one in several):
        odd = next((one for one in several if not isinstance(one, SparkColumn | str)), given)
        raise DefinitionError(
            "select must be a string such as 'a.id, b.x AS other', or a list of columns such as [a.id, b.id]; "
            f"{odd!r} is neither."
        )
    return [F.expr(one) if isinstance(one, str) else one for one in several]


def read_columns(
    columns: Sequence[SparkColumn],
    query: Query,
    spark: SparkSession,
    frames: Mapping[str, DataFrame | None],
    ours: bool = False,
) -> Selected:
    """Read a list of columns over a join's streams.

    Args:
        columns: The columns.
        query: The join.
        spark: The session.
        frames: The streams' frames, to which a column may be bound; None for one that is a join.
        ours: Whether the list is ours, not the user's.

    Raises:
        SqlError: If it names what does not exist.
    """
    written = Written(spark, frames)
    return _Reader(query, spark, written.listed(columns), written.text, ours).read()


class _Reader:
    def __init__(self, query: Query, spark: SparkSession, listed: Sequence[Part], text: str, ours: bool) -> None:
        self._query, self._listed, self._text, self._builder = query, listed, text, Builder(spark)
        self._scope = Scope([(stream.name, stream.schema) for stream in query.streams], ours=ours)
        self._jvm: Any = spark._jvm
        self._nothing = spark._jsparkSession.sessionState().sqlParser().parsePlan("SELECT 1").child()
        self._columns: set[Column] = set()
        self._identity = False

    def read(self) -> Selected:
        """Return what became of it."""
        made = [pair for item in self._listed for pair in self._item(item)]
        outputs = [output for _, output in made]
        plain = None if None in outputs else tuple(output for output in outputs if output is not None)
        names = [output.name.lower() for output in plain or ()]
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None:
            raise self._error(f"Two output columns are called {twice}; name one with alias('...').", None)
        sources = {output.name.lower(): output.column for output in outputs if output is not None}
        project = self._jvm.org.apache.spark.sql.catalyst.plans.logical.Project
        plan = project(self._builder.sequence([node for node, _ in made]), self._nothing)
        columns = tuple(sorted(self._columns))
        return Selected(plain, Selection(Rewritten(self._text), plan, columns, self._identity, sources))

    def _item(self, item: Part) -> list[tuple[Any, Output | None]]:
        """Return the nodes that an item stands for, each with the plain column that it is, if it is one."""
        if item.kind in STARS:
            return self._star(item)
        inner = item.children[0] if item.kind == "Alias" else item
        node = self._builder.rebuilt(item, self._full)
        if item.kind not in ("Alias", ATTRIBUTE):
            none = self._jvm.scala.Option.empty()
            node = self._jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAlias(node, none)
        if inner.kind != ATTRIBUTE or _is_id(inner):
            return [(node, None)]
        column, whole = self._column(inner)
        name = str(item.handle.name()) if item.kind == "Alias" else inner.names[-1]
        return [(node, Output(name, column) if whole else None)]

    def _star(self, item: Part) -> list[tuple[Any, Output | None]]:
        target = item.handle.target()
        name = "" if target.isEmpty() else ".".join(str(part) for part in items(target.get()))
        for at, stream in enumerate(self._query.streams):
            if same_name(stream.name, name):
                names = enumerate(stream.schema.names)
                found = [Output(column, Column(at, field)) for field, column in names if column != TABLE_TIME]
                self._columns |= {output.column for output in found}
                return [(self._builder.attribute(stream.name, output.name), output) for output in found]
        raise self._error(f"There is no stream {name}; write F.col('{self._query.streams[0].name}.*').", item)

    def _full(self, part: Part) -> Any:
        """Return a column's name with its stream's before it; None for anything else."""
        if part.kind != ATTRIBUTE:
            return None
        if _is_id(part):
            self._identity = True
            return None
        column, _ = self._column(part)
        if column == RESULT_TIME:
            return None
        stream = self._query.streams[column.stream]
        rest = part.names[2 if self._named(part) else 1 :]
        return self._builder.attribute(stream.name, stream.schema.names[column.field], *rest)

    def _column(self, part: Part) -> tuple[Column, bool]:
        """Return the column that a name reads, and whether it is that column rather than a field inside it."""
        if [name.lower() for name in part.names] == ["_time"]:
            column = RESULT_TIME
        else:
            try:
                column = self._scope.column(part.names)
            except Refusal as refusal:
                raise self._error(refusal.problem, part) from None
        self._columns.add(column)
        return column, len(part.names) == (2 if self._named(part) else 1)

    def _named(self, part: Part) -> bool:
        return len(part.names) > 1 and any(same_name(stream.name, part.names[0]) for stream in self._query.streams)

    def _error(self, problem: str, part: Part | None) -> SqlError:
        return SqlError(f"select: {problem}", self._text, *(part.span if part else (0, len(self._text))))


def _is_id(part: Part) -> bool:
    """Tell whether a name is that of the results' `_id`."""
    return [name.lower() for name in part.names] == [ID]
