"""Joins in a join as text: `JOIN .. ON ..` in FROM, `[NOT] EXISTS (SELECT ..)` and `[NOT] IN (SELECT ..)` in WHERE."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import SqlError

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti", "asof", "asof left"]
"""How a stream is joined to what stands before it."""
OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET}
CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET}
QUOTED = {TokenType.STRING, TokenType.IDENTIFIER}
KINDS: dict[str, JoinKind] = {
    **dict.fromkeys(("", "INNER", "CROSS"), "inner"),
    **dict.fromkeys(("LEFT", "LEFT OUTER"), "left"),
    **dict.fromkeys(("RIGHT", "RIGHT OUTER"), "right"),
    **dict.fromkeys(("FULL", "FULL OUTER"), "full"),
    **dict.fromkeys(("LEFT SEMI", "SEMI"), "semi"),
    **dict.fromkeys(("LEFT ANTI", "ANTI"), "anti"),
    "ASOF": "asof",
    "ASOF LEFT": "asof left",
}
"""What may stand before JOIN."""
MODIFIERS = {word for words in KINDS for word in words.split()} | {"NATURAL"}


class JoinClause(NamedTuple):
    """A stream that is joined, as it is written.

    Attributes:
        kind: How.
        stream: Its name, and what follows in brackets.
        on: The condition; empty if there is none.
        using: The columns that must be equal on both sides.
        compared: For IN, the column that is looked for and the value that it is compared with.
    """

    kind: JoinKind
    stream: list[Token]
    on: str
    using: tuple[str, ...] = ()
    compared: tuple[str, str] | None = None


def split_joins(text: str, tokens: Sequence[Token]) -> tuple[list[Token], list[JoinClause]]:
    """Return the first stream of an item of FROM, and what is joined to it, in written order.

    Raises:
        SqlError: If a join has no stream or lacks its condition; the span is underlined.
    """
    joins = [at for at, token in outside(tokens) if _is_word(tokens, at, "JOIN")]
    starts = [_first_modifier(tokens, at) for at in joins]
    parts = [tokens[one:two] for one, two in pairwise([*starts, len(tokens)])]
    if starts and starts[0] == 0:
        words = " ".join(_word(token) for token in tokens[: joins[0] + 1])
        raise _error(text, tokens[: joins[0] + 1], f"There is no stream before {words}.")
    return list(tokens[: starts[0]] if starts else tokens), [_join(text, part) for part in parts]


def _first_modifier(tokens: Sequence[Token], join: int) -> int:
    while join > 0 and _word(tokens[join - 1]) in MODIFIERS and not _follows_dot(tokens, join - 1):
        join -= 1
    return join


def _join(text: str, tokens: Sequence[Token]) -> JoinClause:
    join = next(at for at, token in enumerate(tokens) if _word(token) == "JOIN")
    words = " ".join(_word(token) for token in tokens[:join])
    if words not in KINDS:
        natural = "name the columns instead, as in JOIN b USING (id)" if "NATURAL" in words else "choose another"
        raise _error(text, tokens[: join + 1], f"{words} JOIN can't be used here; {natural}.")
    kind, spelled = KINDS[words], f"{words} JOIN".strip()
    end = next((at for at, _ in outside(tokens) if at > join and _word(tokens[at]) in ("ON", "USING")), len(tokens))
    stream, condition = list(tokens[join + 1 : end]), tokens[end + 1 :]
    if not stream or (end < len(tokens) and not condition) or (end == len(tokens) and kind != "inner"):
        problem = f"{spelled} is followed by a stream, its window, ON and a condition, as in"
        raise _error(text, tokens, f"{problem} {spelled} b [RANGE 10 SECONDS] ON b.id = a.id.")
    if words == "CROSS" and condition:
        raise _error(text, tokens[end:], "CROSS JOIN takes no condition; write JOIN.")
    if end < len(tokens) and _word(tokens[end]) == "USING":
        return JoinClause(kind, stream, "", _columns(text, condition))
    return JoinClause(kind, stream, _text(text, condition))


def _columns(text: str, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Return the columns of USING (..)."""
    names, commas = tokens[1:-1:2], tokens[2:-1:2]
    listed = len(tokens) > 2 and len(tokens) % 2 == 1 and (tokens[0].text, tokens[-1].text) == ("(", ")")
    if not listed or not all(map(_is_name, names)) or any(t.token_type is not TokenType.COMMA for t in commas):
        raise _error(text, tokens, "USING is followed by columns in parentheses, as in USING (id, zone).")
    return tuple(token.text for token in names)


def _is_name(token: Token) -> bool:
    return token.token_type is TokenType.IDENTIFIER or (token.token_type not in QUOTED and token.text.isidentifier())


# -- subqueries in WHERE


def split_subqueries(text: str, tokens: Sequence[Token]) -> tuple[str | None, list[JoinClause]]:
    """Return what a WHERE clause asks beside subqueries, and the streams that these ask.

    Raises:
        SqlError: If a subquery isn't one of the conditions that AND joins, or asks more than one stream.
    """
    others, clauses = [list[Token]()], list[JoinClause]()
    for part in _conjuncts(tokens):
        at = _subquery(part)
        if at is None:
            others[-1] += part  # what stands together stays together, as it is written
        else:
            others.append([])
            clauses.append(_parse_subquery(text, part, at))
    return " AND ".join(_text(text, part) for part in others if part) or None, clauses


def _conjuncts(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the conditions that AND joins; all as one where there is an OR beside them."""
    top = {at for at, _ in outside(tokens)}
    part, between, cases = list[Token](), 0, 0
    if any(_word(tokens[at]) == "OR" for at in top):
        yield list(tokens)
        return
    for at, token in enumerate(tokens):
        word = _word(token) if at in top else ""
        cases += (word == "CASE") - (word == "END" and cases > 0)
        between += word == "BETWEEN" and not cases
        if word == "AND" and not cases and not between:
            yield part
            part = []
            continue
        between -= word == "AND" and not cases
        part.append(token)
    yield part


def _subquery(tokens: Sequence[Token]) -> int | None:
    """Return where a condition begins to be a subquery; EXISTS of an array is a function."""
    for at, token in enumerate(tokens):
        if _word(token) in ("EXISTS", "IN") and [_word(t) for t in tokens[at + 1 : at + 3]] == ["(", "SELECT"]:
            return at
    return None


def _parse_subquery(text: str, tokens: list[Token], at: int) -> JoinClause:
    """Return what a condition asks that is a subquery from `at` on."""
    word, negated = _word(tokens[at]), at > 0 and _word(tokens[at - 1]) == "NOT"
    operand, subquery = tokens[: at - negated], tokens[at + 1 :]
    if word == "IN" and operand and _word(operand[0]) == "NOT":  # NOT x IN (..) is NOT (x IN (..))
        operand, negated = operand[1:], not negated
    ends = [place for place, token in outside(subquery) if token.token_type is TokenType.R_PAREN]
    apart = at in {place for place, _ in outside(tokens)} and ends[:1] == [len(subquery) - 1]
    several = any(_word(token) == "OR" for _, token in outside(operand))
    if not apart or several or bool(operand) != (word == "IN"):
        problem = f"{word} (SELECT ..) must be one of the conditions that AND joins, and not in parentheses"
        raise _error(text, tokens, f"{problem}; put an OR beside it in parentheses.")
    item, stream, condition = _select(text, tokens, subquery[1:-1], word)
    kind: JoinKind = "anti" if negated else "semi"
    if word == "EXISTS":
        if not _is_plain(item):
            raise _error(text, item or tokens, "EXISTS asks only whether there is a row: write SELECT 1 in it.")
        return JoinClause(kind, stream, condition)
    if not _is_plain(item) or not _is_name(item[0]):
        raise _error(text, item or tokens, "IN (SELECT ..) selects one column of its stream, as in SELECT b.id.")
    return JoinClause(kind, stream, condition, compared=(_text(text, item), _text(text, operand)))


def _select(
    text: str, whole: Sequence[Token], inner: Sequence[Token], word: str
) -> tuple[Sequence[Token], list[Token], str]:
    """Return what a subquery selects, its stream, and its condition."""
    words = {_word(inner[at]): at for at, _ in outside(inner) if is_clause(inner, at)}
    begin, where = words.get("FROM", len(inner)), words.get("WHERE", len(inner))
    stream, on = list(inner[begin + 1 : where]), inner[where + 1 :]
    several = any(token.token_type is TokenType.COMMA or _word(token) == "JOIN" for _, token in outside(stream))
    if not stream or several or bool(on) != ("WHERE" in words):
        example = "EXISTS (SELECT 1" if word == "EXISTS" else "IN (SELECT b.id"
        raise _error(text, whole, f"{word} asks one stream: {example} FROM b [RANGE 10 SECONDS] WHERE ..).")
    return inner[1:begin], stream, _text(text, on)


def _is_plain(item: Sequence[Token]) -> bool:
    """Tell whether what a subquery selects is one value that can't be an aggregate: [!] that is a row where none is."""
    kinds = [token.token_type for token in item]
    names = len(kinds) % 2 == 1 and all(kind is TokenType.DOT for kind in kinds[1::2])
    return names and not any(kind in OPEN | CLOSE or kind is TokenType.DOT for kind in kinds[::2])


# -- tokens


def outside(tokens: Sequence[Token]) -> list[tuple[int, Token]]:
    """Return the tokens that are in no brackets, with their places."""
    places, depth = [], 0
    for at, token in enumerate(tokens):
        depth -= token.token_type in CLOSE
        if depth == 0:
            places.append((at, token))
        depth += token.token_type in OPEN
    return places


def is_clause(tokens: Sequence[Token], at: int) -> bool:
    """Tell whether a token begins a clause; the FROM of `IS DISTINCT FROM` doesn't."""
    before = [_word(token) for token in tokens[max(0, at - 2) : at]]
    compares = before[1:] == ["DISTINCT"] and before[0] in ("IS", "NOT")
    return _word(tokens[at]) in ("SELECT", "FROM", "WHERE") and not compares


def _is_word(tokens: Sequence[Token], at: int, word: str) -> bool:
    return _word(tokens[at]) == word and not _follows_dot(tokens, at)


def _follows_dot(tokens: Sequence[Token], at: int) -> bool:
    return at > 0 and tokens[at - 1].token_type is TokenType.DOT


def _word(token: Token) -> str:
    """Return a token in capitals; nothing if it is quoted."""
    return "" if token.token_type in QUOTED else token.text.upper()


def _text(text: str, tokens: Sequence[Token]) -> str:
    return text[tokens[0].start : tokens[-1].end + 1] if tokens else ""


def _error(text: str, tokens: Sequence[Token], problem: str) -> SqlError:
    return SqlError(problem, text, tokens[0].start, tokens[-1].end + 1)
