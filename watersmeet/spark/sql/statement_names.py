"""Names in a statement whose streams may be inside joins of their own: streams that a text names, and their paths."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import SqlError
from watersmeet.predicate.source import Source
from watersmeet.query.sql_joins import CLOSE, OPEN
from watersmeet.spark.run.frames import quote_name
from watersmeet.spark.sql.catalyst import EditedText

ENDS = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, *CLOSE}
"""Tokens that end a value: a name behind it, without AS, is an alias."""


@dataclass(frozen=True)
class UsingColumn:
    """A column of USING: what its name alone means, and the streams that it is read from."""

    text: str
    streams: frozenset[str]


@dataclass(frozen=True)
class StatementNames:
    """The names that a text may use.

    Attributes:
        paths: The path of each stream: `b`, or `a_b.b` inside a join.
        columns: The columns of each stream, as they are spelled.
        using: The columns of USING, by their names in lower case.
    """

    paths: Mapping[str, str]
    columns: Mapping[str, Collection[str]]
    using: Mapping[str, UsingColumn]

    def streams(self, text: str) -> frozenset[str]:
        """Return the streams that a text names; for a column without a stream, all that have it."""
        return frozenset(name for _, _, streams in self._mentions(text) for name in streams)

    def stream(self, name: str) -> str | None:
        """Return a stream's name as the statement spells it; None if no stream that may be named is called so."""
        return next((stream for stream in self.paths if stream.lower() == name.lower()), None)

    def owners(self, column: str) -> list[str]:
        """Return the streams that have a column, whatever its case, of those that may be named."""
        return [name for name in self.paths if column.lower() in map(str.lower, self.columns[name])]

    def condition(self, text: str) -> str:
        """Return a condition with paths for streams, and with the meanings of columns of USING."""
        return EditedText(text, dict(self._edits(text))).result

    def select_list(self, text: str) -> str:
        """Return a SELECT list with paths for streams and the meanings of USING columns, which keep their names.

        `x.*` of a stream inside a join is spelled out.

        Raises:
            SqlError: If EXCEPT follows the columns of a stream that is inside a join.
        """
        edits = dict(self._edits(text))
        for token, (before, after), _ in self._mentions(text):
            alone = all(beside is None or beside.token_type is TokenType.COMMA for beside in (before, after))
            if alone and token.text.lower() in self.using:
                edits[token.start, token.end + 1] += f" AS {quote_name(token.text)}"
        tokens = Source(text).tokens
        for at, (one, dot, star) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
            name = self.stream(one.text)
            if name is None or dot.token_type is not TokenType.DOT or star.token_type is not TokenType.STAR:
                continue
            if "." in self.paths[name]:
                if tokens[at + 3 : at + 4] and tokens[at + 3].text.upper() == "EXCEPT":
                    problem = f"select: {name} is inside a join of its own here: name its columns one by one."
                    raise SqlError(problem, text, one.start, star.end + 1)
                edits.pop((one.start, one.end + 1))
                edits[one.start, star.end + 1] = ", ".join(self._column(name, column) for column in self.columns[name])
        return EditedText(text, edits).result

    def _column(self, stream: str, column: str) -> str:
        return f"{self._path(stream)}.{quote_name(column)}"

    def _path(self, stream: str) -> str:
        return ".".join(map(quote_name, self.paths[stream].split(".")))

    def _edits(self, text: str) -> Iterator[tuple[tuple[int, int], str]]:
        """Yield what to replace, by span: names of streams by their paths, and columns of USING by their meanings."""
        for token, (_, after), _ in self._mentions(text):
            is_dotted = after is not None and after.token_type is TokenType.DOT
            name, span = self.stream(token.text), (token.start, token.end + 1)
            if is_dotted and name is not None:
                if self.paths[name] != name:
                    yield span, self._path(name)
            elif token.text.lower() in self.using:
                yield span, self.condition(self.using[token.text.lower()].text)

    def _mentions(self, text: str) -> Iterator[tuple[Token, tuple[Token | None, Token | None], frozenset[str]]]:
        """Yield the names of streams and columns in a text, with the tokens before and behind them, and their streams.

        A column without a stream counts for all that have it. Aliases, functions and names behind a dot are left out.
        """
        tokens = Source(text).tokens
        for at, token in enumerate(tokens):
            before = tokens[at - 1] if at else None
            after = tokens[at + 1] if at + 1 < len(tokens) else None
            if token.token_type is TokenType.STRING or (before and before.token_type is TokenType.DOT):
                continue
            if after and after.token_type is TokenType.DOT and (name := self.stream(token.text)) is not None:
                yield token, (before, after), frozenset({name})
            elif not (after and after.token_type in OPEN and after.text == "(") and not _is_alias(before):
                using = self.using.get(token.text.lower())
                owners = self.owners(token.text) if using is None else using.streams
                if owners:
                    yield token, (before, after), frozenset(owners)


def _is_alias(before: Token | None) -> bool:
    """Tell whether a name is an alias, by the token before it."""
    return before is not None and (before.token_type is TokenType.ALIAS or before.token_type in ENDS)
