"""Names in a statement whose streams are inside joins of their own: which streams a text names, and where they are."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import SqlError
from watersmeet.predicate.source import Source
from watersmeet.query.sql_tokens import CLOSE, OPEN
from watersmeet.spark.run.frames import quoted
from watersmeet.spark.sql.rewritten import Rewritten

ENDS = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, *CLOSE}
"""What ends a value: a name behind it, without AS, is an alias."""


@dataclass(frozen=True)
class Merged:
    """A column of USING: what its name alone means, and the streams that it is read from."""

    text: str
    streams: frozenset[str]


@dataclass(frozen=True)
class Names:
    """The names that a text may use.

    Attributes:
        paths: Where each stream is found: `b`, or `a_b.b` inside a join.
        columns: The columns of each stream, as they are spelled.
        merged: The columns of USING, by their names in small letters.
    """

    paths: Mapping[str, str]
    columns: Mapping[str, Collection[str]]
    merged: Mapping[str, Merged]

    def streams(self, text: str) -> frozenset[str]:
        """Return the streams that a text names; of a column without a stream all that have it."""
        return frozenset(name for _, _, found in self._mentions(text) for name in found)

    def stream(self, name: str) -> str | None:
        """Return a stream as the statement spells it, if it is one that may be named."""
        return next((known for known in self.paths if known.lower() == name.lower()), None)

    def owners(self, column: str) -> list[str]:
        """Return the streams that have a column."""
        return [name for name in self.paths if column.lower() in map(str.lower, self.columns[name])]

    def condition(self, text: str) -> str:
        """Return a condition with every stream by its path, and every column of USING by what it means."""
        return Rewritten(text, dict(self._edits(text))).result

    def listed(self, text: str) -> str:
        """Return a SELECT list likewise; an item that is a column of USING keeps its name.

        Raises:
            SqlError: If EXCEPT follows the columns of a stream that is inside a join.
        """
        edits = dict(self._edits(text))
        for token, (before, after), _ in self._mentions(text):
            alone = all(beside is None or beside.token_type is TokenType.COMMA for beside in (before, after))
            if alone and token.text.lower() in self.merged:
                edits[token.start, token.end + 1] += f" AS {quoted(token.text)}"
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
        return Rewritten(text, edits).result

    def _column(self, stream: str, column: str) -> str:
        return f"{self._path(stream)}.{quoted(column)}"

    def _path(self, stream: str) -> str:
        return ".".join(map(quoted, self.paths[stream].split(".")))

    def _edits(self, text: str) -> Iterator[tuple[tuple[int, int], str]]:
        for token, (_, after), _ in self._mentions(text):
            dotted = after is not None and after.token_type is TokenType.DOT
            name, span = self.stream(token.text), (token.start, token.end + 1)
            if dotted and name is not None:
                if self.paths[name] != name:
                    yield span, self._path(name)
            elif token.text.lower() in self.merged:
                yield span, self.condition(self.merged[token.text.lower()].text)

    def _mentions(self, text: str) -> Iterator[tuple[Token, tuple[Token | None, Token | None], frozenset[str]]]:
        """Yield the names in a text that are streams or columns, with the tokens beside them, and the streams meant."""
        tokens = Source(text).tokens
        for at, token in enumerate(tokens):
            before = tokens[at - 1] if at else None
            after = tokens[at + 1] if at + 1 < len(tokens) else None
            if token.token_type is TokenType.STRING or (before and before.token_type is TokenType.DOT):
                continue
            if after and after.token_type is TokenType.DOT and (name := self.stream(token.text)) is not None:
                yield token, (before, after), frozenset({name})
            elif not (after and after.token_type in OPEN and after.text == "(") and not _is_alias(before):
                merged = self.merged.get(token.text.lower())
                owners = self.owners(token.text) if merged is None else merged.streams
                if owners:
                    yield token, (before, after), frozenset(owners)


def _is_alias(before: Token | None) -> bool:
    """Tell whether what follows a token is the name of what stands before it."""
    return before is not None and (before.token_type is TokenType.ALIAS or before.token_type in ENDS)
