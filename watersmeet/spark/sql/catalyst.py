"""Spark's own expression trees: parsed by Spark, walked and rebuilt from Python, with positions in the text.

Spark parses what the user wrote, so grammar, literals and settings are Spark's by construction. Errors underline
the part of the text that they are about, even if Spark was given an edited text.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, QueryContextType
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, SparkSession
from sqlglot import exp

from watersmeet.caching import cached_property
from watersmeet.errors import SqlError
from watersmeet.predicate.source import SqlNode
from watersmeet.spark.run.workers import WORKER_DIED, is_death


@dataclass(frozen=True, eq=False)
class ParsedNode:
    """A node of Spark's tree, before names are resolved.

    Attributes:
        handle: The node in the JVM.
        kind: Its class, without the package.
        children: Its children, in Spark's order.
        origin: Its start and end in the text according to Spark; None if Spark doesn't know them.
    """

    handle: Any
    kind: str
    children: tuple["ParsedNode", ...]
    origin: tuple[int, int] | None

    def walk(self) -> Iterator["ParsedNode"]:
        """Yield the node and its descendants, outermost first."""
        yield self
        for child in self.children:
            yield from child.walk()

    @cached_property
    def span(self) -> tuple[int, int]:
        """Its start and end in the text; those of `x IN (..)` and the like include the operand, unlike in Spark.

        [!] Spark has a single TRUE and a single FALSE, whose origin is where they first stood, in whatever text.
        """
        inner = [child for child in self.children if child.kind != "Literal" or self.origin is None]
        spans = [child.span for child in inner] + ([self.origin] if self.origin else [])
        return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else (0, 0)

    @cached_property
    def names(self) -> list[str]:
        """The parts of the name of an attribute, a lambda's variable or a function."""
        return [str(name) for name in items(self.handle.nameParts())]


QUOTES = "'\"`"


@contextmanager
def without_error_log() -> Iterator[None]:
    """Silence PySpark's log of SQL errors within a `with`, in the whole process: we report them in a sentence."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def parse(spark: SparkSession, text: str) -> ParsedNode:
    """Return Spark's tree of an expression, as parsed: no name has been looked up.

    Raises:
        SqlError: If it is none; the position is underlined.
    """
    try:
        with without_error_log():
            tree = parsed_node(spark._jsparkSession.sessionState().sqlParser().parseExpression(text))
    except (PySparkException, Py4JError) as error:
        raise syntax_error(text, error) from None
    except RecursionError:
        raise SqlError("This is nested too deeply.", text, 0, len(text)) from None
    if tree.kind == "Alias":
        last = re.search(r"\S+\s*$", text)  # `a.x < b.x AND` is to Spark a condition that is called AND
        problem = "The expression ends too early, or has a name; complete it, or leave the name out."
        raise SqlError(problem, text, last.start() if last else 0, len(text.rstrip()))
    return tree


def syntax_error(text: str, error: Exception) -> SqlError:
    """Return an error of Spark's parser as ours, with the position underlined."""
    position = re.search(r"\(line (\d+), pos (\d+)\)", str(error))
    if position is None:
        return SqlError(f"Spark can't read this: {error_sentence(error)}.", text, 0, len(text))
    start = sum(len(line) + 1 for line in text.split("\n")[: int(position[1]) - 1]) + int(position[2])
    if start >= len(text.rstrip()):
        return SqlError("The expression ends too early.", text, max(0, len(text.rstrip()) - 1), len(text.rstrip()))
    if text[start] in QUOTES:
        return SqlError(f"The quote {text[start]} is not closed.", text, start, len(text))
    return SqlError(f"Spark can't read this: {error_sentence(error)}.", text, start, start + 1)


BARRIER = r"(?s)^.*?Could not recover from a failed barrier [^\n]*finished unsuccessfully\.\n"
"""What Spark puts before the error of a task whose stage runs as a whole."""


def error_sentence(error: Exception) -> str:
    """Return the message of an error of Spark's, without its code, its class and the JVM's and Python's frames.

    An error that a function of the user's raised keeps its class: it is the last line of Python's traceback.
    """
    if is_death(error):
        return WORKER_DIED
    lines = [line.strip() for line in re.sub(BARRIER, "", str(error).strip()).splitlines()]
    if lines and lines[0].startswith("An error occurred while calling"):  # py4j's; the JVM's message follows
        lines = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")][-1:] or lines
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    coded = [line for line in lines if re.search(r"\[[A-Z][A-Z0-9_.]+\] ", line)]
    if "Python worker" in str(error) and raised:
        return raised[-1].rstrip(".")
    line = re.sub(r"^.*\[[A-Z][A-Z0-9_.]+\] ", "", (coded or [*raised, *lines])[0])
    return re.sub(r" ?(SQLSTATE|\(line \d+, pos).*", "", line).rstrip(".")


def parsed_node(handle: Any) -> ParsedNode:
    """Return a node in the JVM, with its descendants."""
    children = tuple(parsed_node(child) for child in items(handle.children()))
    return ParsedNode(handle, kind_of(handle), children, origin_of(handle.origin()))


def items(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(at) for at in range(sequence.size())]


def walk(handle: Any) -> Iterator[Any]:
    """Yield a node in the JVM and its descendants."""
    yield handle
    for child in items(handle.children()):
        yield from walk(child)


def expressions(plan: Any) -> Iterator[Any]:
    """Yield every expression of a plan in the JVM, and its descendants."""
    for operator in walk(plan):
        for expression in items(operator.expressions()):
            yield from walk(expression)


def kind_of(handle: Any) -> str:
    """Return the class of an object in the JVM, without its package."""
    return str(handle.getClass().getSimpleName()).rstrip("$")


def origin_of(origin: Any) -> tuple[int, int] | None:
    """Return a node's start and end in the text, if Spark knows them."""
    start, stop = origin.startIndex(), origin.stopIndex()
    return (int(start.get()), int(stop.get()) + 1) if start.isDefined() and stop.isDefined() else None


def error_spans(error: PySparkException) -> list[tuple[int, int]]:
    """Return the spans of the text that an error of Spark's analyser is about; there are none without a text."""
    contexts = [context for context in error.getQueryContext() or [] if context.contextType() is QueryContextType.SQL]
    return [(context.startIndex(), context.stopIndex() + 1) for context in contexts if context.startIndex() >= 0]


class NodeBuilder:
    """Builds nodes of Spark's tree."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._session = spark._jsparkSession

    def sequence(self, items: Sequence[Any]) -> Any:
        """Return a Scala sequence."""
        return self._jvm.PythonUtils.toSeq(list(items))

    def attribute(self, *names: str) -> Any:
        """Return a name that Spark is to resolve."""
        return self._jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute(self.sequence(names))

    def variable(self, *names: str) -> Any:
        """Return a name inside a lambda."""
        kind = self._jvm.org.apache.spark.sql.catalyst.expressions.UnresolvedNamedLambdaVariable
        return kind(self.sequence(names))

    def rebuild(
        self,
        part: ParsedNode,
        replace: Callable[[ParsedNode], Any],
        guard: Callable[[ParsedNode, list[Any]], Any] = lambda part, children: None,
    ) -> Any:
        """Return a tree with some nodes replaced.

        Args:
            part: The tree.
            replace: Returns a replacement for a part, or None to keep it and rebuild its children.
            guard: Returns a replacement for a part that is kept, from its rebuilt children; None for the part itself.
        """
        other = replace(part)
        if other is not None:
            return other
        children = [self.rebuild(child, replace, guard) for child in part.children]
        return guard(part, children) or self.with_children(part, children)

    def with_children(self, part: ParsedNode, children: Sequence[Any]) -> Any:
        """Return a node with other children."""
        same = all(new is child.handle for new, child in zip(children, part.children, strict=True))
        return part.handle if same else part.handle.withNewChildren(self.sequence(children))

    def project(self, nodes: Sequence[Any], child: Any) -> Any:
        """Return a plan that selects nodes from another."""
        return self._jvm.org.apache.spark.sql.catalyst.plans.logical.Project(self.sequence(nodes), child)

    def column(self, handle: Any) -> Column:
        """Return a node as a column of a frame."""
        return Column(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(handle))

    def node(self, column: Column) -> Any:
        """Return a column as a node."""
        return self._jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)

    def unwrap(self, handle: Any) -> Any:
        """Return a node with columns inside it replaced by their nodes, as a plan needs them."""
        return self._session.expression(self.column(handle)._jc)

    def null_if_raises(self, column: Column) -> Column:
        """Return a column that is NULL where computing it raises."""
        return self.column(self._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(self.node(column)))


class ConditionText:
    """The text of a `where`, and where in it each part stands."""

    def __init__(self, text: str) -> None:
        self.text = text

    def of(self, part: ParsedNode) -> str:
        """Return the text of a part, with its parentheses."""
        start, end = self._close(*part.span)
        return self.text[start:end]

    def span(self, node: SqlNode) -> tuple[int, int]:
        """Return the start and end of a node."""
        return node.meta["start"], node.meta["end"]

    def closed_span(self, node: SqlNode) -> tuple[int, int]:
        """Return the start and end of a node with its parentheses."""
        return self._close(*self.span(node))

    def arguments(self, call: exp.Anonymous) -> list[str]:
        """Return the texts of a call's arguments."""
        texts: list[str] = call.meta["arguments"]
        return texts

    def spark_span(self, span: tuple[int, int] | None) -> tuple[int, int]:
        """Return a span from Spark; the whole text if Spark has none."""
        return span or (0, len(self.text))

    def error(self, problem: str, node: SqlNode | ParsedNode | None) -> SqlError:
        """Return an error that underlines a part, or the whole text."""
        whole = (0, len(self.text))
        span = node.span if isinstance(node, ParsedNode) else whole if node is None else self.span(node)
        return SqlError(problem, self.text, *self._close(*span))

    def _close(self, start: int, end: int) -> tuple[int, int]:
        """Return a span widened to hold both of each pair of parentheses of which it holds one."""
        while (missing := _count_unbalanced(self.text[start:end]))[0] and (at := self.text.rfind("(", 0, start)) >= 0:
            start = at
        while missing[1] and (at := self.text.find(")", end)) >= 0:
            end = at + 1
            missing = _count_unbalanced(self.text[start:end])
        return start, end


class UnplacedText(ConditionText):
    """The text of a condition that was not parsed from it: spans from Spark mean nothing in it."""

    def spark_span(self, span: tuple[int, int] | None) -> tuple[int, int]:
        """Return the span of the whole text."""
        return 0, len(self.text)


def _count_unbalanced(text: str) -> tuple[int, int]:
    """Return how many parentheses a text closes without opening them, and opens without closing them."""
    closed = opened = 0
    for letter in text:
        if letter == "(":
            opened += 1
        elif letter == ")":
            closed, opened = closed + (opened == 0), max(0, opened - 1)
    return closed, opened


@dataclass(frozen=True, slots=True)
class EditedText:
    """A text, and replacements of spans of it, which don't overlap.

    >>> edited = EditedText("x + a.*", {(0, 1): "b.x", (4, 7): "a.y, a.z"})
    >>> edited.result
    'b.x + a.y, a.z'
    >>> edited.original_span(6, 9), edited.original_span(4, 5)
    ((4, 7), (2, 3))
    """

    text: str
    replacements: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @property
    def result(self) -> str:
        """The text with its replacements."""
        pieces, at = [], 0
        for (start, end), replacement in sorted(self.replacements.items()):
            pieces += [self.text[at:start], replacement]
            at = end
        return "".join([*pieces, self.text[at:]])

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the text that a span of the result comes from; replaced spans count as a whole."""
        return self._original_position(start, False), self._original_position(end, True)

    def _original_position(self, position: int, is_end: bool) -> int:
        """Return where a position was before the edits; inside a replacement, the start or end of what it replaced."""
        shift = 0
        for (start, end), replacement in sorted(self.replacements.items()):
            first, last = start + shift, start + shift + len(replacement)
            if position <= first and not (position == first and not is_end):
                break
            if position < last or (position == last and is_end):
                return end if is_end else start
            shift += len(replacement) - (end - start)
        return position - shift
