"""Joins in a join as text: `JOIN .. ON ..` in FROM, `[NOT] EXISTS (SELECT ..)` and `[NOT] IN (SELECT ..)` in WHERE.

They are found among the tokens: which are outside of brackets, where lists split, and which an error underlines.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import SqlError
from watersmeet.predicate.source import is_name

OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET}
CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET}
QUOTED = {TokenType.STRING, TokenType.IDENTIFIER}
JoinKind = Literal["inner", "left", "right", "full", "semi", "anti", "asof", "asof left"]
"""How a stream is joined to what stands before it."""
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


def outside(tokens: Sequence[Token]) -> list[tuple[int, Token]]:
    """Return the tokens that are in no brackets, with their places."""
    places, depth = [], 0
    for at, token in enumerate(tokens):
        depth -= token.token_type in CLOSE
        if depth == 0:
            places.append((at, token))
        depth += token.token_type in OPEN
    return places


def split_at_commas(text: str, tokens: Sequence[Token], problem: str) -> list[list[Token]]:
    """Split tokens at the commas that are in no brackets of their own.

    Args:
        text: The statement.
        tokens: The tokens.
        problem: What is wrong if there is nothing beside a comma.

    Raises:
        SqlError: In that case.
    """
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.token_type in OPEN) - (token.token_type in CLOSE)
        if token.token_type is TokenType.COMMA and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    if not all(parts):
        raise error_at(text, tokens, problem)
    return parts


def is_clause(tokens: Sequence[Token], at: int) -> bool:
    """Tell whether a token begins a clause; the FROM of `IS DISTINCT FROM` doesn't."""
    before = [word_of(token) for token in tokens[max(0, at - 2) : at]]
    compares = before[1:] == ["DISTINCT"] and before[0] in ("IS", "NOT")
    return word_of(tokens[at]) in ("SELECT", "FROM", "WHERE") and not compares


def follows_dot(tokens: Sequence[Token], at: int) -> bool:
    """Tell whether a token is a name after a dot."""
    return at > 0 and tokens[at - 1].token_type is TokenType.DOT


def word_of(token: Token) -> str:
    """Return a token in capitals; empty if it is quoted."""
    return "" if token.token_type in QUOTED else token.text.upper()


def text_of(text: str, tokens: Sequence[Token]) -> str:
    """Return the text from the first token to the last."""
    return text[tokens[0].start : tokens[-1].end + 1] if tokens else ""


def error_at(text: str, tokens: Sequence[Token], problem: str) -> SqlError:
    """Return the error that underlines some tokens."""
    return SqlError(problem, text, tokens[0].start, tokens[-1].end + 1)


class JoinClause(NamedTuple):
    """A stream that is joined, as tokens and text.

    Attributes:
        kind: The kind of join.
        stream: Its name, brackets and alias.
        on: The condition; empty if there is none.
        using: The columns that must be equal on both sides.
        compared: For IN, the column of the subquery and the value that it is compared with.
    """

    kind: JoinKind
    stream: list[Token]
    on: str
    using: tuple[str, ...] = ()
    compared: tuple[str, str] | None = None


def split_joins(text: str, tokens: Sequence[Token]) -> tuple[list[Token], list[JoinClause]]:
    """Return the first stream of an item of FROM, and the joins that follow, in written order.

    Raises:
        SqlError: If a join has no stream or lacks its condition; the span is underlined.
    """
    joins = [at for at, token in outside(tokens) if word_of(token) == "JOIN" and not follows_dot(tokens, at)]
    starts = [_first_modifier(tokens, at) for at in joins]
    parts = [tokens[one:two] for one, two in pairwise([*starts, len(tokens)])]
    if starts and starts[0] == 0:
        words = " ".join(word_of(token) for token in tokens[: joins[0] + 1])
        raise error_at(text, tokens[: joins[0] + 1], f"There is no stream before {words}.")
    return list(tokens[: starts[0]] if starts else tokens), [_join(text, part) for part in parts]


def _first_modifier(tokens: Sequence[Token], join: int) -> int:
    while join > 0 and word_of(tokens[join - 1]) in MODIFIERS and not follows_dot(tokens, join - 1):
        join -= 1
    return join


def _join(text: str, tokens: Sequence[Token]) -> JoinClause:
    """Return a JOIN with its stream and condition; raises SqlError if its kind isn't known or a part is missing."""
    join = next(at for at, token in enumerate(tokens) if word_of(token) == "JOIN")
    words = " ".join(word_of(token) for token in tokens[:join])
    if words not in KINDS:
        natural = "name the columns instead, as in JOIN b USING (id)" if "NATURAL" in words else "choose another"
        raise error_at(text, tokens[: join + 1], f"{words} JOIN can't be used here; {natural}.")
    kind, spelled = KINDS[words], f"{words} JOIN".strip()
    end = next((at for at, _ in outside(tokens) if at > join and word_of(tokens[at]) in ("ON", "USING")), len(tokens))
    stream, condition = list(tokens[join + 1 : end]), tokens[end + 1 :]
    if not stream or (end < len(tokens) and not condition) or (end == len(tokens) and kind != "inner"):
        problem = f"{spelled} is followed by a stream, its window, ON and a condition, as in"
        raise error_at(text, tokens, f"{problem} {spelled} b [RANGE 10 SECONDS] ON b.id = a.id.")
    if words == "CROSS" and condition:
        raise error_at(text, tokens[end:], "CROSS JOIN takes no condition; write JOIN.")
    if end < len(tokens) and word_of(tokens[end]) == "USING":
        return JoinClause(kind, stream, "", _columns(text, condition))
    return JoinClause(kind, stream, text_of(text, condition))


def _columns(text: str, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Return the columns of USING (..); raises SqlError if there is anything but names between the parentheses."""
    names, commas = tokens[1:-1:2], tokens[2:-1:2]
    listed = len(tokens) > 2 and len(tokens) % 2 == 1 and (tokens[0].text, tokens[-1].text) == ("(", ")")
    if not listed or not all(map(is_name, names)) or any(t.token_type is not TokenType.COMMA for t in commas):
        raise error_at(text, tokens, "USING is followed by columns in parentheses, as in USING (id, zone).")
    return tuple(token.text for token in names)


# -- subqueries in WHERE


def split_subqueries(text: str, tokens: Sequence[Token]) -> tuple[str | None, list[JoinClause]]:
    """Split a WHERE clause into the condition without subqueries, None if there is none, and the joins that these are.

    Raises:
        SqlError: If a subquery isn't one of the conditions that AND joins, or reads more than one stream.
    """
    others, clauses = [list[Token]()], list[JoinClause]()
    for part in _conjuncts(tokens):
        at = _subquery(part)
        if at is None:
            others[-1] += part  # neighbours stay together, with the text between them
        else:
            others.append([])
            clauses.append(_parse_subquery(text, part, at))
    return " AND ".join(text_of(text, part) for part in others if part) or None, clauses


def _conjuncts(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the conditions that AND joins; all as one where there is an OR beside them."""
    top = {at for at, _ in outside(tokens)}
    part, between, cases = list[Token](), 0, 0
    if any(word_of(tokens[at]) == "OR" for at in top):
        yield list(tokens)
        return
    for at, token in enumerate(tokens):
        word = word_of(token) if at in top else ""
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
    """Return the place of EXISTS or IN before a subquery; None if there is none, as EXISTS may be a function."""
    for at, token in enumerate(tokens):
        if word_of(token) in ("EXISTS", "IN") and [word_of(t) for t in tokens[at + 1 : at + 3]] == ["(", "SELECT"]:
            return at
    return None


def _parse_subquery(text: str, tokens: list[Token], at: int) -> JoinClause:
    """Return the join that a condition with a subquery stands for: semi, or anti after NOT.

    Args:
        text: The statement.
        tokens: The condition.
        at: The place of its EXISTS or IN.

    Raises:
        SqlError: If the subquery isn't the whole condition, or doesn't select what EXISTS or IN needs.
    """
    word, negated = word_of(tokens[at]), at > 0 and word_of(tokens[at - 1]) == "NOT"
    operand, subquery = tokens[: at - negated], tokens[at + 1 :]
    if word == "IN" and operand and word_of(operand[0]) == "NOT":  # NOT x IN (..) is NOT (x IN (..))
        operand, negated = operand[1:], not negated
    ends = [place for place, token in outside(subquery) if token.token_type is TokenType.R_PAREN]
    apart = at in {place for place, _ in outside(tokens)} and ends[:1] == [len(subquery) - 1]
    several = any(word_of(token) == "OR" for _, token in outside(operand))
    if not apart or several or bool(operand) != (word == "IN"):
        problem = f"{word} (SELECT ..) must be one of the conditions that AND joins, and not in parentheses"
        raise error_at(text, tokens, f"{problem}; put an OR beside it in parentheses.")
    item, stream, condition = _select(text, tokens, subquery[1:-1], word)
    kind: JoinKind = "anti" if negated else "semi"
    if word == "EXISTS":
        if not _is_plain(item):
            raise error_at(text, item or tokens, "EXISTS asks only whether there is a row: write SELECT 1 in it.")
        return JoinClause(kind, stream, condition)
    if not _is_plain(item) or not is_name(item[0]):
        raise error_at(text, item or tokens, "IN (SELECT ..) selects one column of its stream, as in SELECT b.id.")
    return JoinClause(kind, stream, condition, compared=(text_of(text, item), text_of(text, operand)))


def _select(
    text: str, whole: Sequence[Token], inner: Sequence[Token], word: str
) -> tuple[Sequence[Token], list[Token], str]:
    """Return the item that a subquery selects, its stream, and its condition, empty if there is none.

    Args:
        text: The statement.
        whole: The condition with the subquery, which an error underlines.
        inner: The subquery, without its parentheses.
        word: EXISTS or IN.

    Raises:
        SqlError: If it doesn't read just one stream.
    """
    words = {word_of(inner[at]): at for at, _ in outside(inner) if is_clause(inner, at)}
    begin, where = words.get("FROM", len(inner)), words.get("WHERE", len(inner))
    stream, on = list(inner[begin + 1 : where]), inner[where + 1 :]
    several = any(token.token_type is TokenType.COMMA or word_of(token) == "JOIN" for _, token in outside(stream))
    if not stream or several or bool(on) != ("WHERE" in words):
        example = "EXISTS (SELECT 1" if word == "EXISTS" else "IN (SELECT b.id"
        raise error_at(text, whole, f"{word} asks one stream: {example} FROM b [RANGE 10 SECONDS] WHERE ..).")
    return inner[1:begin], stream, text_of(text, on)


def _is_plain(item: Sequence[Token]) -> bool:
    """Tell whether an item is one value and no aggregate. [!] An aggregate has a row even if there are none."""
    kinds = [token.token_type for token in item]
    names = len(kinds) % 2 == 1 and all(kind is TokenType.DOT for kind in kinds[1::2])
    return names and not any(kind in OPEN | CLOSE or kind is TokenType.DOT for kind in kinds[::2])
