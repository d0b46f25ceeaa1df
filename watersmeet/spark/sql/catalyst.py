"""Spark's own tree of an expression, walked from Python: what it is made of, where it stands in the text, and rebuilt.

Spark parses what the user wrote, so that its grammar, its literals and its settings are Spark's by construction.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, QueryContextType
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, SparkSession

from watersmeet.errors import SqlError
from watersmeet.spark.run.workers import DIED, is_death


@dataclass(frozen=True, eq=False)
class Part:
    """A node of Spark's tree, before names are resolved.

    Attributes:
        handle: The node in the JVM.
        kind: Its class, without the package.
        children: What it is made of, in Spark's order.
        origin: Where Spark says it stands in the text, first and last character; None if it doesn't.
    """

    handle: Any
    kind: str
    children: tuple["Part", ...]
    origin: tuple[int, int] | None

    def walk(self) -> Iterator["Part"]:
        """Yield the part and all it is made of, outermost first."""
        yield self
        for child in self.children:
            yield from child.walk()

    @cached_property
    def span(self) -> tuple[int, int]:
        """Where it stands, as start and end; `x IN (..)` and its like stand with their operand, unlike in Spark.

        [!] Spark has one TRUE and one FALSE for all, which say where they stood first: in whatever text that was.
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
def quiet() -> Iterator[None]:
    """Keep PySpark from logging errors of Spark's, with stacks of frames, that are told as a sentence."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def parse(spark: SparkSession, text: str) -> Part:
    """Let Spark parse an expression.

    Raises:
        SqlError: If it is none; the place is underlined.
    """
    try:
        with quiet():
            made = part_of(spark._jsparkSession.sessionState().sqlParser().parseExpression(text))
    except (PySparkException, Py4JError) as error:
        raise syntax_error(text, error) from None
    except RecursionError:
        raise SqlError("This is nested too deeply.", text, 0, len(text)) from None
    if made.kind == "Alias":
        last = re.search(r"\S+\s*$", text)  # `a.x < b.x AND` is to Spark a condition that is called AND
        problem = "The expression ends too early, or has a name; complete it, or leave the name out."
        raise SqlError(problem, text, last.start() if last else 0, len(text.rstrip()))
    return made


def syntax_error(text: str, error: Exception) -> SqlError:
    """Return what Spark's parser says of a text, with the place underlined."""
    place = re.search(r"\(line (\d+), pos (\d+)\)", str(error))
    if place is None:
        return SqlError(f"Spark can't read this: {said(error)}.", text, 0, len(text))
    start = sum(len(line) + 1 for line in text.split("\n")[: int(place[1]) - 1]) + int(place[2])
    if start >= len(text.rstrip()):
        return SqlError("The expression ends too early.", text, max(0, len(text.rstrip()) - 1), len(text.rstrip()))
    if text[start] in QUOTES:
        return SqlError(f"The quote {text[start]} is not closed.", text, start, len(text))
    return SqlError(f"Spark can't read this: {said(error)}.", text, start, start + 1)


def said(error: Exception) -> str:
    """Return the sentence of an error of Spark's, without its code, its class and the JVM's and Python's frames."""
    if is_death(error):
        return DIED
    lines = [line.strip() for line in str(error).strip().splitlines()]
    if lines and lines[0].startswith("An error occurred while calling"):  # py4j's; what the JVM says follows
        lines = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")][-1:] or lines
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    coded = [line for line in lines if re.search(r"\[[A-Z][A-Z0-9_.]+\] ", line)]
    if "Python worker" in str(error) and raised:
        return raised[-1].rstrip(".")
    line = re.sub(r"^.*\[[A-Z][A-Z0-9_.]+\] ", "", (coded or [*raised, *lines])[0])
    return re.sub(r" ?(SQLSTATE|\(line \d+, pos).*", "", line).rstrip(".")


def part_of(handle: Any) -> Part:
    """Return a node of the JVM's with all that it is made of."""
    children = tuple(part_of(child) for child in items(handle.children()))
    return Part(handle, kind_of(handle), children, origin_of(handle.origin()))


def items(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(at) for at in range(sequence.size())]


def walk(handle: Any) -> Iterator[Any]:
    """Yield a node of the JVM's and all below it."""
    yield handle
    for child in items(handle.children()):
        yield from walk(child)


def expressions(plan: Any) -> Iterator[Any]:
    """Yield every expression of a plan of the JVM's, and all below each."""
    for operator in walk(plan):
        for shown in items(operator.expressions()):
            yield from walk(shown)


def kind_of(handle: Any) -> str:
    """Return the class of an object of the JVM's, without its package."""
    return str(handle.getClass().getSimpleName()).rstrip("$")


def origin_of(origin: Any) -> tuple[int, int] | None:
    """Return where Spark says a node stands, as start and end, if it does."""
    start, stop = origin.startIndex(), origin.stopIndex()
    return (int(start.get()), int(stop.get()) + 1) if start.isDefined() and stop.isDefined() else None


def places_of(error: PySparkException) -> list[tuple[int, int]]:
    """Return where in the text Spark's analyser says that something is wrong; it can't where there was no text."""
    contexts = [context for context in error.getQueryContext() or [] if context.contextType() is QueryContextType.SQL]
    return [(context.startIndex(), context.stopIndex() + 1) for context in contexts if context.startIndex() >= 0]


class Builder:
    """Makes nodes of Spark's tree."""

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

    def rebuilt(
        self,
        part: Part,
        replaced: Callable[[Part], Any],
        guarded: Callable[[Part, list[Any]], Any] = lambda part, children: None,
    ) -> Any:
        """Return the tree with some nodes replaced.

        Args:
            part: The tree.
            replaced: Returns the node that stands for a part, or None to keep it, with its children looked at.
            guarded: Returns the node that stands for a part that is kept, given its children as rebuilt; None if it is
                itself.
        """
        other = replaced(part)
        if other is not None:
            return other
        children = [self.rebuilt(child, replaced, guarded) for child in part.children]
        return guarded(part, children) or self.with_children(part, children)

    def with_children(self, part: Part, children: Sequence[Any]) -> Any:
        """Return a part with other children."""
        same = all(new is child.handle for new, child in zip(children, part.children, strict=True))
        return part.handle if same else part.handle.withNewChildren(self.sequence(children))

    def column(self, handle: Any) -> Column:
        """Return a node as a column of a frame."""
        return Column(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(handle))

    def node(self, column: Column) -> Any:
        """Return a column as a node."""
        return self._jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)

    def unwrapped(self, handle: Any) -> Any:
        """Return a node in which columns stand as nodes of their own, as a plan needs them."""
        return self._session.expression(self.column(handle)._jc)

    def tried(self, column: Column) -> Column:
        """Return a column that is NULL where computing it raises."""
        return self.column(self._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(self.node(column)))
