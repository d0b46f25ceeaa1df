"""The text of a condition or a SELECT list: where its parts stand, and the same text with some spans replaced."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.errors import SqlError
from watersmeet.predicate.source import SqlNode
from watersmeet.spark.sql.catalyst import ParsedNode


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
        """Widen a span to include both of each pair of parentheses that it includes one of."""
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
