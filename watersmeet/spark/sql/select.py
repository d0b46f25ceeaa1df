"""The SELECT list, as Spark itself parses it: the join outputs plain columns itself, Spark computes everything else.

Spark computes a list over the results, with one struct column per stream. It gets the list as the user wrote it, except
that names without a stream get theirs, and `a.*` becomes the columns it stands for.
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
from watersmeet.spark.run.frames import quote_name
from watersmeet.spark.sql.catalyst import (
    EditedText,
    NodeBuilder,
    ParsedNode,
    error_sentence,
    error_spans,
    items,
    kind_of,
    origin_of,
    parsed_node,
    without_error_log,
)
from watersmeet.spark.sql.condition_names import ATTRIBUTE, STARS, VARIABLE
from watersmeet.spark.sql.purity import NAMES as NILADIC
from watersmeet.spark.sql.purity import check_plan, check_tree, is_by_clock, refuse_variables
from watersmeet.spark.sql.value_limits import UntrustedLimits

PREFIX = "SELECT "
ROW_BY_ROW = {"Project", "Filter"}
"""The operators that Spark's plan of a list may consist of; window(...) has a Filter, for NULL times."""
REFUSED = {
    "Aggregate": "is an aggregate, which would be computed for each batch separately; "
    "select the columns it reads, and aggregate the join's output",
    "Window": "is a window function, which would be computed for each batch separately; "
    "select the columns it reads, and compute it over the join's output",
    "Generate": "turns one row into several; select the column itself, and explode it in the join's output",
}
FILTER_COLUMN = f"{OURS}kept"
"""The item of a list by which results are filtered; no output column may have this name."""
OTHERWISE = "can't be computed row by row; select the columns it reads, and compute it over the join's output"


@dataclass(frozen=True)
class Selection:
    """A SELECT list that Spark computes over the results.

    Attributes:
        source: The user's text, and the edited text for Spark.
        plan: Spark's plan of it.
        columns: All columns that it reads.
        identity: Whether it reads the results' `_id`.
        sources: The columns behind output columns that are plain columns, by names in lower case.
        filters: Whether its last item, `FILTER_COLUMN`, is not an output column but filters the results.
    """

    source: EditedText
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
        results = self._project(frame, *beside)
        return results.where(FILTER_COLUMN).drop(FILTER_COLUMN) if self.filters else results

    def _project(self, frame: DataFrame, *beside: str) -> DataFrame:
        """Return the selected columns of a frame, after those in `beside`; Spark analyses the parsed list again."""
        if not beside:
            return _apply_to(self.plan, frame)
        builder = NodeBuilder(frame.sparkSession)
        nodes = [*map(builder.attribute, beside), *_items(self.plan)]
        return _apply_to(builder.project(nodes, self.plan.child()), frame)


@dataclass(frozen=True, slots=True)
class SelectList:
    """A SELECT list: its output columns if all of them are plain columns, and the list for Spark to compute."""

    plain: tuple[Output, ...] | None
    computed: Selection


def parse_select(text: str, query: Query, spark: SparkSession, untrusted: bool = False) -> SelectList:
    """Parse a SELECT list over a join's streams.

    Args:
        text: The list.
        query: The join.
        spark: The session.
        untrusted: Whether the list comes from people, who may do less than the program.

    Raises:
        SqlError: If it can't be parsed, names what does not exist, computes over several results, or is not a list.
    """
    listed = _parsed_items(_parse(text, spark), text)
    reader = _TextReader(text, query, spark, untrusted)
    if not untrusted:
        return reader.read(listed)
    _check_text(spark, listed, reader.error)
    for part in (part for item in listed for part in item.walk()):
        span = _span(part)
        if is_by_clock(part, "" if span is None else text[slice(*span)]):
            raise reader.error("A moment by the clock is not allowed here; write the moment itself.", part)
    select_list = reader.read(listed)
    # Check the edited text, too: qualified names must not have turned it into something else.
    computed = select_list.computed
    _check_text(spark, _parsed_items(computed.plan, text), lambda problem, part: _error(computed, problem, part))
    return select_list


def _check_text(
    spark: SparkSession, listed: Sequence[ParsedNode], error: Callable[[str, ParsedNode], SqlError]
) -> None:
    check_tree(spark, listed, error, lambda part: False)


def _items(plan: Any) -> list[Any]:
    return items(plan.projectList())


def _parsed_items(plan: Any, text: str) -> list[ParsedNode]:
    """Return the items of a SELECT list, from Spark's plan of it.

    Raises:
        SqlError: If they are nested too deeply to be walked.
    """
    try:
        return [parsed_node(item) for item in _items(plan)]
    except RecursionError:
        raise SqlError("select: This is nested too deeply.", text, 0, len(text)) from None


def check_untrusted(selection: Selection, frame: DataFrame) -> Selection:
    """Check a list from people as `check` does; return it with limits for the values that it makes.

    Args:
        selection: The list.
        frame: A frame over which it can be computed.

    Raises:
        SqlError: If it is refused, or makes a value that is too large.
    """
    spark, listed = frame.sparkSession, _parsed_items(selection.plan, selection.text)
    limits = UntrustedLimits(spark, listed, lambda problem, part: _error(selection, problem, part))
    analysed = check(selection, frame)._jdf.queryExecution().analyzed()
    check_plan(analysed, lambda problem, node: _error_at(selection, problem, origin_of(node.origin())))
    limits.learn_types(analysed)
    builder = NodeBuilder(spark)
    nodes = [builder.rebuild(part, lambda inner: None, limits.guard) for part in listed]
    names = [str(column.name()) for column in _items(analysed)]
    if len(names) == len(listed):  # [!] otherwise there is a star; names stay, as a star is never guarded
        nodes = [_alias_as_before(builder, *item) for item in zip(listed, nodes, names, strict=True)]
    plan = builder.project([builder.unwrap(node) for node in nodes], selection.plan.child())
    return replace(selection, plan=plan)


def _alias_as_before(builder: NodeBuilder, part: ParsedNode, node: Any, name: str) -> Any:
    """Return a rebuilt item of a list under the name that it had before."""
    if part.kind != "UnresolvedAlias" or node is part.handle:
        return node
    return builder.node(builder.column(node.child()).alias(name))


def _error(selection: Selection, problem: str, part: ParsedNode) -> SqlError:
    """Return the error that underlines a part of the text for Spark."""
    return _error_at(selection, problem, None if part.kind == "UnresolvedAlias" else part.origin)


def check(selection: Selection, frame: DataFrame) -> DataFrame:
    """Let Spark analyse a list over a frame, and return it computed over that, as `Selection.over` does; runs no job.

    Raises:
        SqlError: If Spark refuses it or would not compute it result by result, or two columns have the same name.
    """
    text = selection.text
    try:
        with without_error_log():
            results = selection.over(frame)
    except Py4JError as error:
        raise SqlError(f"select: {error_sentence(error)}.", text, 0, len(text)) from None
    except AnalysisException as error:
        problem = str(error).strip().splitlines()[0].split(" SQLSTATE:")[0]
        spans = error_spans(error)
        raise _find_not_row_by_row(selection, frame) or _error_at(
            selection, problem, spans[0] if spans else None
        ) from None
    if _operators(results) - ROW_BY_ROW:
        raise _find_not_row_by_row(selection, frame) or _error_at(selection, f"The list {OTHERWISE}.", None)
    try:
        names = [name.lower() for name in results.columns]
    except PySparkException as error:
        problem = f"select: PySpark doesn't know the type of a column; cast it. {error_sentence(error)}."
        raise SqlError(problem, text, 0, len(text)) from None
    if twice := first_duplicate(names):
        raise SqlError(f"Two output columns are called {twice}; name one with AS.", text, 0, len(text))
    return results


def first_duplicate(names: Sequence[str]) -> str | None:
    """Return the first name that occurs twice, if any."""
    return next((name for at, name in enumerate(names) if name in names[:at]), None)


def _parse(text: str, spark: SparkSession) -> Any:
    """Return Spark's plan of a SELECT list as parsed, not analysed: a Project over one row.

    Raises:
        SqlError: If the text is empty, can't be parsed, or is more than a list: variables, DISTINCT, other clauses, an
            AS without a name at the end.
    """
    if not text.strip():
        raise SqlError("select: the list is empty; leave select out for one struct column per stream.", text, 0, 1)
    refuse_variables(text)
    try:
        with without_error_log():
            plan = _parser(spark).parsePlan(PREFIX + text)
    except ParseException as error:
        raise _list_error(text, error) from None
    except (PySparkException, Py4JError) as error:
        raise SqlError(f"select: {error_sentence(error)}.", text, 0, len(text)) from None
    kind = kind_of(plan)
    if kind == "Distinct" and kind_of(plan.child()) == "Project":
        raise _error_at_match(
            text, r"\bDISTINCT\b", "DISTINCT would apply to each batch separately; apply it to the join's output."
        )
    if kind != "Project" or kind_of(plan.child()) != "OneRowRelation":
        raise SqlError("select: only a list of output columns; conditions go into where.", text, 0, len(text))
    if text.split()[-1].upper() == "AS":  # an alias to Spark
        raise SqlError("select: a name is missing after AS.", text, len(text.rstrip()) - 2, len(text.rstrip()))
    return plan


def _list_error(text: str, error: ParseException) -> SqlError:
    """Return the error for a list that Spark can't parse, which underlines where Spark stopped."""
    if re.search(r"\*[^,]*\bREPLACE\s*\(", text, re.IGNORECASE):
        problem = "Spark SQL has no REPLACE here; write a.* EXCEPT (x), and the new x as an item of its own."
        return _error_at_match(text, r"\bREPLACE\b", problem)
    origin: Any = error._origin  # type: ignore[attr-defined]
    line, column = (getattr(origin, name)() for name in ("line", "startPosition"))
    if line.isEmpty() or column.isEmpty():
        return SqlError("select: this is not a SELECT list.", text, 0, len(text))
    lines = (PREFIX + text).split("\n")
    at = sum(len(before) + 1 for before in lines[: line.get() - 1]) + column.get() - len(PREFIX)
    if text.rstrip().endswith(",") and at >= len(text.rstrip()) - 1:
        return SqlError("select: a column is missing after the last comma.", text, *_clip(text, at, at + 1))
    return SqlError("select: this is not a SELECT list.", text, *_clip(text, at, at + 1))


def _error_at_match(text: str, pattern: str, problem: str) -> SqlError:
    """Return the error that underlines the first match of a pattern."""
    match = re.search(pattern, text, re.IGNORECASE)
    return SqlError(f"select: {problem}", text, *(match.span() if match else (0, len(text))))


def _clip(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span clipped to the text, at least one character long."""
    start = min(max(0, start), max(0, len(text) - 1))
    return start, max(start + 1, min(end, len(text)))


def _span(part: ParsedNode) -> tuple[int, int] | None:
    """Return the span of a part in the user's text; None if Spark has none."""
    if part.origin is None or part.kind == "UnresolvedAlias":  # its origin is that of the whole list
        return None
    return part.origin[0] - len(PREFIX), part.origin[1] - len(PREFIX)


def _full_span(part: ParsedNode) -> tuple[int, int] | None:
    """Return the span of a part with its descendants: Spark's own origin of `x IN (...)` begins at IN."""
    spans = [span for inner in part.walk() if (span := _span(inner)) is not None]
    return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None


class ListReader:
    """Reads a SELECT list: the columns that it reads, and those of its items that are plain columns.

    Args:
        text: The list.
        query: The join.
        ours: Whether the list is ours, not the user's.
    """

    def __init__(self, text: str, query: Query, ours: bool = False) -> None:
        self._text, self._query = text, query
        self._scope = Scope([(stream.name, stream.schema) for stream in query.streams], ours=ours)
        self._columns: set[Column] = set()
        self._identity = False

    def _has_stream(self, path: Sequence[str]) -> bool:
        """Tell whether a name begins with a stream's."""
        return len(path) > 1 and any(same_name(stream.name, path[0]) for stream in self._query.streams)

    def _select_list(
        self, outputs: Sequence[Output | None], source: EditedText, plan: Any, duplicate: str
    ) -> SelectList:
        """Return the list, with the columns that have been noted while its items were read.

        Args:
            outputs: Its items that are plain columns; None for each that has to be computed.
            source: Its text.
            plan: Spark's plan of it.
            duplicate: The message if two output columns have the same name, `{}`.

        Raises:
            SqlError: If all items are plain columns, and two have the same name; `check` finds others.
        """
        columns = [output for output in outputs if output is not None]
        plain = None if None in outputs else tuple(columns)
        if twice := first_duplicate([output.name.lower() for output in plain or ()]):
            raise SqlError(duplicate.format(twice), self._text, 0, len(self._text))
        sources = {output.name.lower(): output.column for output in columns}
        return SelectList(plain, Selection(source, plan, tuple(sorted(self._columns)), self._identity, sources))


class _TextReader(ListReader):
    """Reads a list that is a text, and edits it for Spark."""

    def __init__(self, text: str, query: Query, spark: SparkSession, untrusted: bool) -> None:
        super().__init__(text, query)
        self._spark, self._untrusted = spark, untrusted
        self._edits: dict[tuple[int, int], str] = {}
        self._aliases: set[str] = set()

    def read(self, listed: Sequence[ParsedNode]) -> SelectList:
        outputs = [output for item in listed for output in self._item(item)]
        source = EditedText(self._text, self._edits)
        plan = _parser(self._spark).parsePlan(PREFIX + source.result)
        return self._select_list(outputs, source, plan, "Two output columns are called {}; name one with AS.")

    def _item(self, item: ParsedNode) -> list[Output | None]:
        """Return the plain columns of an item; [None] if it has to be computed.

        Notes the columns that it reads, its alias, and the edits that it needs for Spark.
        """
        inner = item.children[0] if item.kind in ("Alias", "UnresolvedAlias") else item
        self._read_names(inner, frozenset())
        name = str(item.handle.name()) if item.kind == "Alias" else None
        if name is not None:
            self._aliases.add(name.lower())
        if inner.kind in STARS:
            columns = self._star(inner)
            return [None] if columns is None else list(columns)
        if inner.kind not in (ATTRIBUTE, VARIABLE):
            return [None]
        column, whole = self._column(inner)
        return [Output(name or inner.names[-1], column) if column is not None and whole else None]

    def _read_names(self, node: ParsedNode, bound: frozenset[str]) -> None:
        """Note the columns that an expression reads, and the edits that it needs for Spark.

        Args:
            node: The expression.
            bound: The variables of the lambdas around it, in lower case.

        Raises:
            SqlError: If it names what does not exist, or contains a subquery or IDENTIFIER.
        """
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
            self._read_names(function, bound | {argument.names[0].lower() for argument in arguments})
        else:
            for child in node.children:
                self._read_names(child, bound)

    def _star(self, star: ParsedNode) -> list[Output] | None:
        """Return the columns that `a.*` stands for; None if EXCEPT removes a field from a struct.

        In that case Spark computes them.

        Notes the columns, and the edit that spells them out.

        Raises:
            SqlError: If there is no such stream or column, or no column is left.
        """
        target = star.handle.target()
        path = [] if target.isEmpty() else [str(part) for part in items(target.get())]
        if not path:
            raise self.error("`*` would give columns of several streams the same name; write a.*, or name them.", star)
        position = next((at for at, s in enumerate(self._query.streams) if [s.name.lower()] == _lower(path)), None)
        if position is None:
            raise self.error(f"There is no stream {'.'.join(path)}.", star)
        exceptions = self._exceptions(star, position)
        stream = self._query.streams[position]
        deep = any(len(names) > 1 for names in exceptions)
        removed = set() if deep else {self._scope.column([stream.name, *names]).field for names in exceptions}
        fields = [at for at, name in enumerate(stream.schema.names) if at not in removed and name != TABLE_TIME]
        if not fields:
            raise self.error(f"EXCEPT leaves no column of {stream.name}.", star)
        self._columns |= {Column(position, at) for at in fields}
        if deep:
            names = ", ".join(".".join(quote_name(name) for name in names) for names in exceptions)
            self._edit(star, f"{quote_name(stream.name)}.* EXCEPT ({names})")
            return None
        self._edit(star, ", ".join(f"{quote_name(stream.name)}.{quote_name(stream.schema.names[at])}" for at in fields))
        return [Output(stream.schema.names[at], Column(position, at)) for at in fields]

    def _exceptions(self, star: ParsedNode, position: int) -> list[list[str]]:
        """Return the columns and fields in EXCEPT, as paths within the stream; raises SqlError if one doesn't exist."""
        names = items(star.handle.excepts()) if star.kind == "UnresolvedStarExceptOrReplace" else []
        stream, paths = self._query.streams[position], []
        for path in ([str(part) for part in items(name)] for name in names):
            short = path[1:] if len(path) > 1 and same_name(path[0], stream.name) else path
            try:
                self._scope.column([stream.name, *short])
            except Refusal as refusal:
                raise self.error(refusal.problem, star) from None
            paths.append(short)
        return paths

    def _column(self, node: ParsedNode) -> tuple[Column | None, bool]:
        """Return the column that a name reads, and whether it is that column rather than a field inside it.

        None if it is not a column: the result's `_id`, an alias further left in the list, or a function called without
        parentheses. Notes the column, and the edit that puts its stream's name before it; raises SqlError if there is
        no such column.
        """
        path = node.names
        if _lower(path) == ["_time"]:
            self._columns.add(RESULT_TIME)
            return RESULT_TIME, True
        if _lower(path) == [ID]:
            self._identity = True
            return None, False
        has_stream = self._has_stream(path)
        try:
            column = self._scope.column(path)
        except Refusal as refusal:
            if not has_stream and self._is_for_spark(path):
                return None, False
            raise self.error(refusal.problem, node) from None
        self._columns.add(column)
        if not has_stream:
            stream = self._query.streams[column.stream].name
            self._edit(node, ".".join(quote_name(part) for part in (stream, *path)))
        return column, len(path) == (2 if has_stream else 1)

    def _is_for_spark(self, path: Sequence[str]) -> bool:
        """Tell whether Spark knows a name that is not a column: an alias, or a function without parentheses."""
        name = path[0].lower()
        if any(same_name(stream.name, name) for stream in self._query.streams):
            return False
        return name in self._aliases or (len(path) == 1 and name in NILADIC and not self._untrusted)

    def _edit(self, node: ParsedNode, text: str) -> None:
        span = _span(node)
        assert span is not None, node.handle.toString()
        self._edits[span] = text

    def error(self, problem: str, node: ParsedNode) -> SqlError:
        """Return the error that underlines a part."""
        span = _full_span(node) or (0, len(self._text))
        return SqlError(f"select: {problem}", self._text, *_clip(self._text, *span))


def _find_not_row_by_row(selection: Selection, frame: DataFrame) -> SqlError | None:
    """Return the error that underlines the innermost call which Spark does not compute row by row, if any.

    Has Spark parse and analyse each call by itself, with its error log off; runs no job.
    """
    sql = PREFIX + selection.source.result
    for node in (node for item in _items(selection.plan) for node in reversed([*parsed_node(item).walk()])):
        origin = node.handle.origin()
        if node.kind not in ("UnresolvedFunction", "WindowExpression") or origin.stopIndex().isEmpty():
            continue
        span = origin.startIndex().get(), origin.stopIndex().get() + 1
        try:
            with without_error_log():
                values = _apply_to(_parser(frame.sparkSession).parsePlan(PREFIX + sql[slice(*span)]), frame)
        except (AnalysisException, ParseException):
            continue
        operators = _operators(values) - ROW_BY_ROW
        if operators:
            start, end = selection.source.original_span(*(at - len(PREFIX) for at in span))
            problem = next((REFUSED[name] for name in REFUSED if name in operators), OTHERWISE)
            return _error_at(selection, f"{selection.text[start:end]} {problem}.", span)
    return None


def _error_at(selection: Selection, problem: str, span: tuple[int, int] | None) -> SqlError:
    """Return the error that underlines a span of the text for Spark."""
    text = selection.text
    start, end = selection.source.original_span(*(at - len(PREFIX) for at in span)) if span else (0, len(text))
    return SqlError(f"select: {problem}", text, *_clip(text, start, end))


def _parser(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().sqlParser()


def _apply_to(plan: Any, frame: DataFrame) -> DataFrame:
    """Return the frame that a parsed list makes of another; Spark analyses it now, and may raise, but runs no job."""
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    below = jvm.java.util.ArrayList()
    below.add(frame._jdf.logicalPlan())
    whole = plan.withNewChildren(jvm.scala.jdk.javaapi.CollectionConverters.asScala(below).toSeq())
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, whole), spark)


def _operators(frame: DataFrame) -> set[str]:
    """Return the kinds of operators in a frame's plan, except its source."""

    def kinds(plan: Any) -> Iterator[str]:
        below = items(plan.children())
        if below:
            yield kind_of(plan)
        for child in below:
            yield from kinds(child)

    return set(kinds(frame._jdf.queryExecution().analyzed()))


def _lower(path: Sequence[str]) -> list[str]:
    return [part.lower() for part in path]
