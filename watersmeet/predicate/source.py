"""SQL text, parsed with sqlglot, and the position of each node in it."""

from itertools import accumulate, pairwise
from typing import Protocol

from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import SqlError

SqlNode = exp.Expr


class ColumnPath(exp.Column):
    """A column, as a path of names of any length; `path` holds them."""

    arg_types = {"this": True, "path": True}  # noqa: RUF012

    @property
    def parts(self) -> list[SqlNode]:
        """The names."""
        return [exp.Identifier(this=name) for name in self.args["path"]]


class ResolvedColumn(exp.Column):
    """A column that was looked up already; its `predicate.expr.Expr` is `meta["expr"]`.

    For one that Spark computes, `meta["meaning"]()` is the node that it is computed from.
    """

    arg_types = {"this": True}  # noqa: RUF012


class EvaluatedConstant(exp.Expression, exp.Condition):
    """A constant that was evaluated already; its `predicate.expr.Expr` is `meta["expr"]`."""

    arg_types = {"this": True}  # noqa: RUF012


class ForeignExpression(exp.Expression, exp.Func):
    """An expression that only Spark can compute; `this` describes it."""

    arg_types = {"this": True, "expressions": False}  # noqa: RUF012


class PlainSpark(Spark):  # type: ignore[misc]
    """Spark's grammar, with functions left as the user called them: our own tables define their meaning."""

    class Parser(Spark.Parser):  # type: ignore[misc]
        """Spark's parser without sqlglot's own rewrites of functions."""

        FUNCTIONS: dict[str, object] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parse
            for name, parse in Spark.Parser.FUNCTION_PARSERS.items()
            if name in {"CAST", "TRY_CAST", "EXTRACT"}
        }
        NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
            name: parse for name, parse in Spark.Parser.NO_PAREN_FUNCTION_PARSERS.items() if name in {"CASE", "IF"}
        }


class ParsedText(Protocol):
    """A parsed text, whatever parsed it, and the position of each node in it."""

    text: str

    def span(self, node: SqlNode) -> tuple[int, int]:
        """The span of the node."""

    def closed_span(self, node: SqlNode) -> tuple[int, int]:
        """The span of the node, widened until its parentheses are closed."""

    def error(self, problem: str, node: SqlNode | None) -> SqlError:
        """The error that underlines the node, or the whole text."""

    def arguments(self, call: exp.Anonymous) -> list[str]:
        """The arguments of a call as they were written."""


class Source:
    """A text and its tokens, which it parses; finds the span of each node."""

    def __init__(self, text: str) -> None:
        """Split a text into tokens; raises SqlError if it ends inside a string, a quoted name or a comment."""
        self.text = text
        try:
            self.tokens: list[Token] = PlainSpark().tokenize(text)
        except SqlglotError:
            raise SqlError("The text ends inside a string, a quoted name or a comment.", text, 0, len(text)) from None

    def parse(self) -> SqlNode | None:
        """The expression, or None for an empty text; raises SqlError if it is no expression, or more than one."""
        if not self.tokens:
            return None
        try:
            trees = PlainSpark().parse(self.text)
        except ParseError as error:
            raise self._syntax_error(error) from None
        except SqlglotError as error:
            raise self.error(f"This is not an SQL expression: {error}", None) from None
        if len(trees) != 1 or not isinstance(trees[0], SqlNode):
            raise self.error("`where` is one expression, without semicolons.", None)
        return trees[0]

    def _syntax_error(self, error: ParseError) -> SqlError:
        """Return sqlglot's error as ours, which underlines the token."""
        details = error.errors[0]
        lines = self.text.split("\n")
        end = sum(len(line) + 1 for line in lines[: details["line"] - 1]) + details["col"]
        start = max(0, end - len(details["highlight"] or " "))
        if not details["highlight"] or (end >= len(self.text.rstrip()) and self._is_incomplete()):
            return SqlError("The expression ends too early.", self.text, start, end)
        return SqlError(f"{details['highlight']!r} was not expected here.", self.text, start, end)

    def _is_incomplete(self) -> bool:
        """Whether something must follow the last token."""
        last = self.tokens[-1].token_type
        return last not in {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.NUMBER, TokenType.STRING, TokenType.VAR}

    def error(self, problem: str, node: SqlNode | None) -> SqlError:
        """The error that underlines the node, or the whole text."""
        start, end = self.span(node) if node is not None else (0, len(self.text))
        return SqlError(problem, self.text, start, end)

    def span(self, node: SqlNode) -> tuple[int, int]:
        """The span from the node's first to its last token, parentheses closed.

        A node without positions is looked for by its text; if that isn't there, the span is the whole text.
        """
        places = [part._meta for part in node.walk() if part._meta and "start" in part._meta]
        if not places:
            return self._keyword_span(node)
        start = min(place["start"] for place in places)
        end = max(place["end"] for place in places) + 1
        opening = next((token for token in self.tokens if token.start >= end), None)
        if isinstance(node, exp.Anonymous) and not node.expressions and opening is not None:
            end = opening.end + 1
        return self._close(start, end)

    def closed_span(self, node: SqlNode) -> tuple[int, int]:
        """The same, as spans always have their parentheses closed here."""
        return self.span(node)

    def arguments(self, call: exp.Anonymous) -> list[str]:
        """The arguments of a call as they were written: what stands between its parentheses and commas."""
        after = [token for token in self.tokens if token.start > call.meta["end"]]
        edges, depth = [after[0].end + 1], 0
        for token in after:
            depth += _step(token)
            if depth == 0 or (depth == 1 and token.token_type is TokenType.COMMA):
                edges.append(token.end + 1)
            if depth == 0:
                break
        texts = (self.text[start : end - 1].strip() for start, end in pairwise(edges))
        return [text for text in texts if text]

    def _keyword_span(self, node: SqlNode) -> tuple[int, int]:
        start = self.text.upper().find(node.sql("spark").upper())
        return (start, start + len(node.sql("spark"))) if start >= 0 else (0, len(self.text))

    def _close(self, start: int, end: int) -> tuple[int, int]:
        """The span widened until its parentheses and brackets match."""
        depth = lowest = 0
        for token in self.tokens:
            if start <= token.start and (token.end < end or depth > 0):
                depth += _step(token)
                lowest = min(lowest, depth)
                end = max(end, token.end + 1)
        for token in reversed(self.tokens):
            if token.end < start and lowest < 0:
                lowest += _step(token)
                start = token.start
        return start, end

    def clauses(self) -> list[tuple[int, int]]:
        """The spans of the conjuncts, in written order: the text between ANDs, inside outer parentheses too."""
        return [(part[0].start, part[-1].end + 1) for part in _clauses(self.tokens)]


def _clauses(tokens: list[Token]) -> list[list[Token]]:
    parts = _between_ands(tokens)
    if len(parts) > 1:
        return [clause for part in parts for clause in _clauses(part)]
    return _clauses(tokens[1:-1]) if _is_wrapped(tokens) else [tokens]


def _between_ands(tokens: list[Token]) -> list[list[Token]]:
    """The tokens split at each AND that joins conditions; not split if there is an OR beside them."""
    parts: list[list[Token]] = [[]]
    depth = betweens = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        is_name = before is not None and before.token_type is TokenType.DOT  # a.case, a.end: not keywords
        kind = TokenType.VAR if is_name else token.token_type
        depth += _step(token) + (kind is TokenType.CASE) - (kind is TokenType.END)
        betweens += depth == 0 and kind is TokenType.BETWEEN
        if depth == 0 and kind is TokenType.OR:
            return [tokens]
        if depth == 0 and kind is TokenType.AND and not betweens:
            parts.append([])
            continue
        betweens -= depth == 0 and kind is TokenType.AND
        parts[-1].append(token)
    return parts


def _is_wrapped(tokens: list[Token]) -> bool:
    """Whether one pair of parentheses holds all the tokens."""
    depths = list(accumulate(_step(token) for token in tokens))
    return tokens[0].token_type is TokenType.L_PAREN and depths.index(0) == len(tokens) - 1


_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET}


def _step(token: Token) -> int:
    return (token.token_type in _OPEN) - (token.token_type in _CLOSE)


def is_name(token: Token) -> bool:
    """Tell whether a token can be a name; one in backticks always is."""
    return token.token_type is TokenType.IDENTIFIER or (
        token.token_type is not TokenType.STRING and token.text.isidentifier()
    )
