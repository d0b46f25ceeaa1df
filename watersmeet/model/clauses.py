"""Optional streams in a join as text: `LEFT JOIN .. ON ..` in FROM, `[NOT] EXISTS (SELECT ..)` in WHERE."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import SqlError
from watersmeet.model.query import How

OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET}
CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET}
QUOTED = {TokenType.STRING, TokenType.IDENTIFIER}
KINDS: dict[str, How] = {"OUTER": "left", "SEMI": "semi", "ANTI": "anti"}


class Clause(NamedTuple):
    """An optional stream as it is written.

    Attributes:
        how: What is asked of it.
        stream: Its name, and what follows in brackets.
        on: The condition.
    """

    how: How
    stream: list[Token]
    on: list[Token]


def left_joins(text: str, tokens: Sequence[Token]) -> tuple[list[Token], list[Clause]]:
    """Return what a FROM list has before its first LEFT JOIN, and the joins.

    Raises:
        SqlError: If a join has no stream or no condition, or streams follow it; the span is underlined.
    """
    starts = [at for at, _ in _outside(tokens) if _is_left_join(tokens, at)]
    parts = [list(tokens[one:two]) for one, two in pairwise([*starts, len(tokens)])]
    return list(tokens[: starts[0]] if starts else tokens), [_left_join(text, part) for part in parts]


def _is_left_join(tokens: Sequence[Token], at: int) -> bool:
    words = [_word(token) for token in tokens[at : at + 3]]
    return words[:2] == ["LEFT", "JOIN"] or (words[0] == "LEFT" and words[1:] in [[kind, "JOIN"] for kind in KINDS])


def _left_join(text: str, tokens: list[Token]) -> Clause:
    words = [_word(token) for token in tokens]
    join = words.index("JOIN")
    kind = KINDS["OUTER" if join == 1 else words[1]]
    on = next((at for at, token in _outside(tokens) if _word(token) == "ON"), None)
    if on is None or on == len(tokens) - 1 or on == join + 1:
        problem = f"{' '.join(words[: join + 1])} is followed by a stream, its window, ON and a condition, as in"
        raise _error(text, tokens, f"{problem} LEFT JOIN b [RANGE 10 SECONDS] ON b.id = a.id.")
    comma = next((token for at, token in _outside(tokens) if at > on and token.token_type is TokenType.COMMA), None)
    if comma is not None:
        raise _error(text, [comma], "Streams that every result has come first, before LEFT JOIN.")
    return Clause(kind, tokens[join + 1 : on], tokens[on + 1 :])


def exists(text: str, tokens: Sequence[Token]) -> tuple[str | None, list[Clause]]:
    """Return what a WHERE clause asks beside EXISTS, and the streams of which something must exist, or nothing.

    Raises:
        SqlError: If EXISTS isn't one of the conditions that AND joins, or asks for more than one stream.
    """
    outside = _outside(tokens)
    spans = [_span(tokens, at) for at, _ in outside if _is_exists(tokens, at)]
    for start, end in spans:
        beside = [_word(tokens[at]) for at in (start - 1, end) if 0 <= at < len(tokens)]
        if set(beside) - {"AND"} or any(_word(token) == "OR" for _, token in outside):
            problem = "EXISTS must be one of the conditions that AND joins; put an OR beside it in parentheses."
            raise _error(text, tokens[start:end], problem)
    ends = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(tokens)]
    others = [_text(text, _between_ands(tokens[one:two])) for one, two in zip(*ends, strict=True)]
    found = [_exists(text, list(tokens[start:end])) for start, end in spans]
    return " AND ".join(part for part in others if part) or None, found


def _is_exists(tokens: Sequence[Token], at: int) -> bool:
    """Tell whether EXISTS (SELECT .. begins at a token; EXISTS of an array is a function."""
    return [_word(token) for token in tokens[at : at + 3]] == ["EXISTS", "(", "SELECT"]


def _span(tokens: Sequence[Token], at: int) -> tuple[int, int]:
    """Return where EXISTS (..) begins, with a NOT before it, and where it ends."""
    end = next(end for end, token in _outside(tokens[at + 1 :]) if token.token_type is TokenType.R_PAREN)
    return at - (at > 0 and _word(tokens[at - 1]) == "NOT"), at + 2 + end


def _between_ands(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return tokens without an AND at either end."""
    first = 1 if tokens and _word(tokens[0]) == "AND" else 0
    last = len(tokens) - (1 if len(tokens) > first and _word(tokens[-1]) == "AND" else 0)
    return tokens[first:last]


def _exists(text: str, tokens: list[Token]) -> Clause:
    inner = tokens[tokens.index(next(t for t in tokens if t.token_type is TokenType.L_PAREN)) + 1 : -1]
    words = [(_word(token), at) for at, token in _outside(inner) if _word(token) in ("SELECT", "FROM", "WHERE")]
    known = [word for word, _ in words] == ["SELECT", "FROM", "WHERE"]
    begin, where = (words[1][1], words[2][1]) if known else (0, 0)
    stream, on = inner[begin + 1 : where], inner[where + 1 :]
    if not known or not stream or not on or any(t.token_type is TokenType.COMMA for _, t in _outside(stream)):
        raise _error(text, tokens, "EXISTS takes one stream: EXISTS (SELECT 1 FROM b [RANGE 10 SECONDS] WHERE ..).")
    if not _is_plain(asked := inner[1:begin]):
        raise _error(text, asked or tokens, "EXISTS asks only whether there is a row: write SELECT 1 in it.")
    return Clause("anti" if _word(tokens[0]) == "NOT" else "semi", stream, on)


def _is_plain(asked: Sequence[Token]) -> bool:
    """Tell whether what EXISTS selects can't matter: [!] an aggregate would be a row where there is none."""
    kinds = [token.token_type for token in asked]
    names = len(kinds) % 2 == 1 and all(kind is TokenType.DOT for kind in kinds[1::2])
    return names and not any(kind in OPEN | CLOSE or kind is TokenType.DOT for kind in kinds[::2])


def _outside(tokens: Sequence[Token]) -> list[tuple[int, Token]]:
    """Return the tokens that are in no brackets, with their places."""
    found, depth = [], 0
    for at, token in enumerate(tokens):
        depth -= token.token_type in CLOSE
        if depth == 0:
            found.append((at, token))
        depth += token.token_type in OPEN
    return found


def _word(token: Token) -> str:
    """Return a token in capitals; nothing if it is quoted."""
    return "" if token.token_type in QUOTED else token.text.upper()


def _text(text: str, tokens: Sequence[Token]) -> str | None:
    return text[tokens[0].start : tokens[-1].end + 1] if tokens else None


def _error(text: str, tokens: Sequence[Token], problem: str) -> SqlError:
    return SqlError(problem, text, tokens[0].start, tokens[-1].end + 1)
