"""The SELECT list, as Spark itself parses it: plain columns are the engine's own work, anything more is Spark's.

What Spark computes, it computes over the results with one struct column per stream. A list is put to it as the user
wrote it, except that names without a stream get theirs, and `a.*` becomes the columns it stands for.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from watersmeet.errors import SqlError
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.model import Column
from watersmeet.predicate.scope import OURS, TABLE_TIME, Scope, same_name
from watersmeet.query.query import RESULT_TIME, Output, Query
from watersmeet.spark.output.identity import ID
from watersmeet.spark.run.frames import quoted
from watersmeet.spark.sql import untrusted
from watersmeet.spark.sql.catalyst import Builder, Part, items, kind_of, origin_of, part_of, places_of, quiet, said
from watersmeet.spark.sql.growing import Growing
from watersmeet.spark.sql.names import ATTRIBUTE, STARS, VARIABLE
from watersmeet.spark.sql.purity import NAMES as NILADIC
from watersmeet.spark.sql.purity import is_by_clock, refuse_variables
from watersmeet.spark.sql.rewritten import Rewritten

PREFIX = "SELECT "
ROW_BY_ROW = {"Project", "Filter"}
"""What Spark's plan of a list may consist of; the Filter is that of window(...), which has none for a NULL time."""
REFUSED = {
    "Aggregate": "is an aggregate, which would be computed for each batch separately; "
    "select the columns it reads, and aggregate the join's output",
    "Window": "is a window function, which would be computed for each batch separately; "
    "select the columns it reads, and compute it over the join's output",
    "Generate": "turns one row into several; select the column itself, and explode it in the join's output",
}
KEPT = f"{OURS}kept"
"""The item of a list that says of each result whether it is one; no output column may be called so."""
OTHERWISE = "can't be computed row by row; select the columns it reads, and compute it over the join's output"


@dataclass(frozen=True)
class Selection:
    """A SELECT list that Spark computes over the results.

    Attributes:
        source: As the user wrote it, and as Spark takes it.
        plan: As Spark parsed it.
        columns: Every column it reads.
        identity: Whether it reads the results' `_id`.
        sources: The output columns that are nothing but a column, by their names in small letters.
        filters: Whether its last item, `KEPT`, is no output column but says which results there are.
    """

    source: Rewritten
    plan: Any
    columns: tuple[Column, ...]
    identity: bool
    sources: Mapping[str, Column]
    filters: bool = False

    @property
    def text(self) -> str:
        """The list as the user wrote it."""
        return self.source.text

    def over(self, frame: DataFrame, *beside: str) -> DataFrame:
        """Return the list computed over a frame of one struct column per stream, `_time` and `_id`.

        Args:
            frame: The frame.
            *beside: Other columns of it, which come first.
        """
        computed = self._computed(frame, *beside)
        return computed.where(KEPT).drop(KEPT) if self.filters else computed

    def _computed(self, frame: DataFrame, *beside: str) -> DataFrame:
        if not beside:
            return _over(self.plan, frame)
        builder, jvm = Builder(frame.sparkSession), frame.sparkSession._jvm
        project: Any = jvm.org.apache.spark.sql.catalyst.plans.logical.Project  # type: ignore[union-attr]
        shown = [*map(builder.attribute, beside), *items(self.plan.projectList())]
        return _over(project(builder.sequence(shown), self.plan.child()), frame)


@dataclass(frozen=True, slots=True)
class Selected:
    """A parsed SELECT list: the engine's own output columns if it names columns only, else what Spark computes."""

    plain: tuple[Output, ...] | None
    computed: Selection


def parse_select(text: str, query: Query, spark: SparkSession, people: bool = False) -> Selected:
    """Parse a SELECT list over a join's streams.

    Args:
        text: The list.
        query: The join.
        spark: The session.
        people: Whether the list comes from people, who may not do what the program may.

    Raises:
        SqlError: If it can't be parsed, names what does not exist, asks for more than one result at a time, or is
            no list.
    """
    listed = _listed(_parse(text, spark), text)
    reader = _Reader(text, query, spark, people)
    if not people:
        return reader.read(listed)
    _check_untrusted(spark, listed, reader.error)
    for part in (part for item in listed for part in item.walk()):
        span = _span(part)
        if is_by_clock(part, "" if span is None else text[slice(*span)]):
            raise reader.error("A moment by the clock is not allowed here; write the moment itself.", part)
    made = reader.read(listed)
    # Once more, as Spark takes it: no name that was written out may have made anything else of it.
    _check_untrusted(
        spark, _listed(made.computed.plan, text), lambda problem, part: _error(made.computed, problem, part)
    )
    return made


def _check_untrusted(spark: SparkSession, listed: Sequence[Part], error: Callable[[str, Part], SqlError]) -> None:
    untrusted.check(spark, listed, error, lambda part: False)


def _listed(plan: Any, text: str) -> list[Part]:
    """Return the items of a list.

    Raises:
        SqlError: If they are nested too deeply to be looked at.
    """
    try:
        return [part_of(item) for item in items(plan.projectList())]
    except RecursionError:
        raise SqlError("select: This is nested too deeply.", text, 0, len(text)) from None


def check_untrusted(selected: Selection, frame: DataFrame) -> Selection:
    """Check a list of people's as `check` does; return it with what it makes limited in size.

    Raises:
        SqlError: If it is refused, or makes a value that is too large.
    """
    spark, listed = frame.sparkSession, _listed(selected.plan, selected.text)
    growing = Growing(spark, listed, lambda problem, part: _error(selected, problem, part))
    analysed = check(selected, frame)._jdf.queryExecution().analyzed()
    untrusted.check_plan(analysed, lambda problem, node: _error_at(selected, problem, origin_of(node.origin())))
    growing.analysed(analysed)
    builder, jvm = Builder(spark), spark._jvm
    made = [builder.rebuilt(part, lambda inner: None, growing.guarded) for part in listed]
    names = [str(column.name()) for column in items(analysed.projectList())]
    if len(names) == len(listed):  # [!] else, with a star, names stay as they are: what is tested is none
        made = [_named(builder, *item) for item in zip(listed, made, names, strict=True)]
    shown = [builder.unwrapped(node) for node in made]
    project: Any = jvm.org.apache.spark.sql.catalyst.plans.logical.Project  # type: ignore[union-attr]
    return replace(selected, plan=project(builder.sequence(shown), selected.plan.child()))


def _named(builder: Builder, part: Part, node: Any, name: str) -> Any:
    """Return an item of a list as it was rebuilt, under the name that Spark gave it as it was written."""
    if part.kind != "UnresolvedAlias" or node is part.handle:
        return node
    return builder.node(builder.column(node.child()).alias(name))


def _error(selected: Selection, problem: str, part: Part) -> SqlError:
    """Return the error that underlines a part of what Spark was given."""
    return _error_at(selected, problem, None if part.kind == "UnresolvedAlias" else part.origin)


def check(selected: Selection, frame: DataFrame) -> DataFrame:
    """Let Spark itself check a list, over a frame as `Selection.over` takes it; return what it gives.

    Raises:
        SqlError: If Spark refuses it, or would not compute it result by result.
    """
    text = selected.text
    try:
        with quiet():
            made = selected.over(frame)
    except Py4JError as error:
        raise SqlError(f"select: {said(error)}.", text, 0, len(text)) from None
    except AnalysisException as error:
        problem = str(error).strip().splitlines()[0].split(" SQLSTATE:")[0]
        found = places_of(error)
        raise _not_row_by_row(selected, frame) or _error_at(selected, problem, found[0] if found else None) from None
    if _operators(made) - ROW_BY_ROW:
        raise _not_row_by_row(selected, frame) or _error_at(selected, f"The list {OTHERWISE}.", None)
    try:
        names = [name.lower() for name in made.columns]
    except PySparkException as error:
        problem = f"select: PySpark doesn't know the type of a column; cast it. {said(error)}."
        raise SqlError(problem, text, 0, len(text)) from None
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise SqlError(f"Two output columns are called {twice}; name one with AS.", text, 0, len(text))
    return made


def _parse(text: str, spark: SparkSession) -> Any:
    """Return Spark's plan of a list and nothing else."""
    if not text.strip():
        raise SqlError("select: the list is empty; leave select out for one struct column per stream.", text, 0, 1)
    refuse_variables(text)
    try:
        with quiet():
            plan = _parser(spark).parsePlan(PREFIX + text)
    except ParseException as error:
        raise _not_a_list(text, error) from None
    except (PySparkException, Py4JError) as error:
        raise SqlError(f"select: {said(error)}.", text, 0, len(text)) from None
    found = kind_of(plan)
    if found == "Distinct" and kind_of(plan.child()) == "Project":
        raise _at(
            text, r"\bDISTINCT\b", "DISTINCT would apply to each batch separately; apply it to the join's output."
        )
    if found != "Project" or kind_of(plan.child()) != "OneRowRelation":
        raise SqlError("select: only a list of output columns; conditions go into where.", text, 0, len(text))
    if text.split()[-1].upper() == "AS":  # a name to Spark
        raise SqlError("select: a name is missing after AS.", text, len(text.rstrip()) - 2, len(text.rstrip()))
    return plan


def _not_a_list(text: str, error: ParseException) -> SqlError:
    if re.search(r"\*[^,]*\bREPLACE\s*\(", text, re.IGNORECASE):
        problem = "Spark SQL has no REPLACE here; write a.* EXCEPT (x), and the new x as an item of its own."
        return _at(text, r"\bREPLACE\b", problem)
    origin: Any = error._origin  # type: ignore[attr-defined]
    line, column = (getattr(origin, name)() for name in ("line", "startPosition"))
    if line.isEmpty() or column.isEmpty():
        return SqlError("select: this is not a SELECT list.", text, 0, len(text))
    lines = (PREFIX + text).split("\n")
    at = sum(len(before) + 1 for before in lines[: line.get() - 1]) + column.get() - len(PREFIX)
    if text.rstrip().endswith(",") and at >= len(text.rstrip()) - 1:
        return SqlError("select: a column is missing after the last comma.", text, *_within(text, at, at + 1))
    return SqlError("select: this is not a SELECT list.", text, *_within(text, at, at + 1))


def _at(text: str, pattern: str, problem: str) -> SqlError:
    """Return the error that underlines the first thing that a pattern finds."""
    found = re.search(pattern, text, re.IGNORECASE)
    return SqlError(f"select: {problem}", text, *(found.span() if found else (0, len(text))))


def _within(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span cut to the text, at least one character long."""
    start = min(max(0, start), max(0, len(text) - 1))
    return start, max(start + 1, min(end, len(text)))


def _span(part: Part) -> tuple[int, int] | None:
    """Return where a part stands in the user's text; None if Spark does not say."""
    if part.origin is None or part.kind == "UnresolvedAlias":  # which has the place of the whole list
        return None
    return part.origin[0] - len(PREFIX), part.origin[1] - len(PREFIX)


def _whole(part: Part) -> tuple[int, int] | None:
    """Return where a part stands with all that is in it: Spark's own place of `x IN (...)` begins at IN."""
    spans = [span for inner in part.walk() if (span := _span(inner)) is not None]
    return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None


class _Reader:
    def __init__(self, text: str, query: Query, spark: SparkSession, untrusted: bool) -> None:
        self._text, self._query, self._spark, self._untrusted = text, query, spark, untrusted
        self._scope = Scope([(stream.name, stream.schema) for stream in query.streams])
        self._edits: dict[tuple[int, int], str] = {}
        self._columns: set[Column] = set()
        self._identity = False
        self._named: set[str] = set()

    def read(self, listed: Sequence[Part]) -> Selected:
        outputs = [output for item in listed for output in self._item(item)]
        plain = None if None in outputs else tuple(output for output in outputs if output is not None)
        names = [output.name.lower() for output in plain or ()]
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None:
            raise SqlError(f"Two output columns are called {twice}; name one with AS.", self._text, 0, len(self._text))
        sources = {output.name.lower(): output.column for output in outputs if output is not None}
        source = Rewritten(self._text, self._edits)
        plan = _parser(self._spark).parsePlan(PREFIX + source.result)
        columns = tuple(sorted(self._columns))
        return Selected(plain, Selection(source, plan, columns, self._identity, sources))

    def _item(self, item: Part) -> list[Output | None]:
        """Return the plain columns an item stands for; [None] if it has to be computed."""
        inner = item.children[0] if item.kind in ("Alias", "UnresolvedAlias") else item
        self._names(inner, frozenset())
        name = str(item.handle.name()) if item.kind == "Alias" else None
        if name is not None:
            self._named.add(name.lower())
        if inner.kind in STARS:
            starred = self._star(inner)
            return [None] if starred is None else list(starred)
        if inner.kind not in (ATTRIBUTE, VARIABLE):
            return [None]
        column, whole = self._column(inner)
        return [Output(name or inner.names[-1], column) if column is not None and whole else None]

    def _names(self, node: Part, bound: frozenset[str]) -> None:
        """Note the columns that an expression reads, and what must be written otherwise for Spark."""
        if node.kind in ("Exists", "ListQuery") or "Subquery" in node.kind:
            raise self.error("a subquery can't be part of the list; join what it reads as a stream.", node)
        if node.kind == "ExpressionWithUnresolvedIdentifier":
            raise self.error("write the name itself in place of IDENTIFIER.", node)
        if node.kind in STARS:
            self._star(node)
        elif node.kind in (ATTRIBUTE, VARIABLE) and node.names[0].lower() not in bound:
            self._column(node)
        elif node.kind == "LambdaFunction":
            function, *arguments = node.children
            self._names(function, bound | {argument.names[0].lower() for argument in arguments})
        else:
            for child in node.children:
                self._names(child, bound)

    def _star(self, star: Part) -> list[Output] | None:
        """Return the columns that `a.*` stands for; None where EXCEPT takes a field out of a struct."""
        target = star.handle.target()
        path = [] if target.isEmpty() else [str(part) for part in items(target.get())]
        if not path:
            raise self.error("`*` would give columns of several streams the same name; write a.*, or name them.", star)
        position = next((at for at, s in enumerate(self._query.streams) if [s.name.lower()] == _lower(path)), None)
        if position is None:
            raise self.error(f"There is no stream {'.'.join(path)}.", star)
        left_out = self._excepts(star, position)
        stream = self._query.streams[position]
        deep = any(len(names) > 1 for names in left_out)
        gone = set() if deep else {self._scope.column([stream.name, *names]).field for names in left_out}
        fields = [at for at, name in enumerate(stream.schema.names) if at not in gone and name != TABLE_TIME]
        if not fields:
            raise self.error(f"EXCEPT leaves no column of {stream.name}.", star)
        self._columns |= {Column(position, at) for at in fields}
        if deep:
            names = ", ".join(".".join(quoted(name) for name in names) for names in left_out)
            self._edit(star, f"{quoted(stream.name)}.* EXCEPT ({names})")
            return None
        self._edit(star, ", ".join(f"{quoted(stream.name)}.{quoted(stream.schema.names[at])}" for at in fields))
        return [Output(stream.schema.names[at], Column(position, at)) for at in fields]

    def _excepts(self, star: Part, position: int) -> list[list[str]]:
        """Return what EXCEPT leaves out, each as the path from the stream on."""
        given = items(star.handle.excepts()) if star.kind == "UnresolvedStarExceptOrReplace" else []
        paths = [[str(part) for part in items(path)] for path in given]
        stream, found = self._query.streams[position], []
        for path in paths:
            short = path[1:] if len(path) > 1 and same_name(path[0], stream.name) else path
            try:
                self._scope.column([stream.name, *short])
            except Refusal as refusal:
                raise self.error(refusal.problem, star) from None
            found.append(short)
        return found

    def _column(self, node: Part) -> tuple[Column | None, bool]:
        """Return the column a name reads, and whether it is that column rather than a field inside it.

        None for what is no column: the result's `_id`, an item of the list, further left, or a function called without
        parentheses.
        """
        path = node.names
        if _lower(path) == ["_time"]:
            self._columns.add(RESULT_TIME)
            return RESULT_TIME, True
        if _lower(path) == [ID]:
            self._identity = True
            return None, False
        named_stream = len(path) > 1 and any(same_name(stream.name, path[0]) for stream in self._query.streams)
        try:
            column = self._scope.column(path)
        except Refusal as refusal:
            if not named_stream and self._is_known(path):
                return None, False
            raise self.error(refusal.problem, node) from None
        self._columns.add(column)
        if not named_stream:
            stream = self._query.streams[column.stream].name
            self._edit(node, ".".join(quoted(part) for part in (stream, *path)))
        return column, len(path) == (2 if named_stream else 1)

    def _is_known(self, path: Sequence[str]) -> bool:
        """Tell whether a name that is no column means something to Spark over the results."""
        name = path[0].lower()
        if any(same_name(stream.name, name) for stream in self._query.streams):
            return False
        return name in self._named or (len(path) == 1 and name in NILADIC and not self._untrusted)

    def _edit(self, node: Part, text: str) -> None:
        span = _span(node)
        assert span is not None, node.handle.toString()
        self._edits[span] = text

    def error(self, problem: str, node: Part) -> SqlError:
        """Return the error that underlines a part."""
        span = _whole(node) or (0, len(self._text))
        return SqlError(f"select: {problem}", self._text, *_within(self._text, *span))


def _not_row_by_row(selected: Selection, frame: DataFrame) -> SqlError | None:
    """Return the error that underlines the innermost call which Spark does not compute row by row, if there is one."""
    sql = PREFIX + selected.source.result
    for node in (node for item in items(selected.plan.projectList()) for node in reversed([*part_of(item).walk()])):
        origin = node.handle.origin()
        if node.kind not in ("UnresolvedFunction", "WindowExpression") or origin.stopIndex().isEmpty():
            continue
        span = origin.startIndex().get(), origin.stopIndex().get() + 1
        try:
            with quiet():
                made = _over(_parser(frame.sparkSession).parsePlan(PREFIX + sql[slice(*span)]), frame)
        except (AnalysisException, ParseException):
            continue
        found = _operators(made) - ROW_BY_ROW
        if found:
            start, end = selected.source.back(*(at - len(PREFIX) for at in span))
            problem = next((REFUSED[name] for name in REFUSED if name in found), OTHERWISE)
            return _error_at(selected, f"{selected.text[start:end]} {problem}.", span)
    return None


def _error_at(selected: Selection, problem: str, span: tuple[int, int] | None) -> SqlError:
    """Return the error that underlines a span of what Spark was given."""
    text = selected.text
    start, end = selected.source.back(*(at - len(PREFIX) for at in span)) if span else (0, len(text))
    return SqlError(f"select: {problem}", text, *_within(text, start, end))


def _parser(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().sqlParser()


def _over(plan: Any, frame: DataFrame) -> DataFrame:
    """Return a parsed SELECT list over a frame."""
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    below = jvm.java.util.ArrayList()
    below.add(frame._jdf.logicalPlan())
    whole = plan.withNewChildren(jvm.scala.jdk.javaapi.CollectionConverters.asScala(below).toSeq())
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, whole), spark)


def _operators(frame: DataFrame) -> set[str]:
    """Return the kinds of operators of a frame's plan, its source left out."""

    def kinds(plan: Any) -> Iterator[str]:
        below = items(plan.children())
        if below:
            yield kind_of(plan)
        for child in below:
            yield from kinds(child)

    return set(kinds(frame._jdf.queryExecution().analyzed()))


def _lower(path: Sequence[str]) -> list[str]:
    return [part.lower() for part in path]
