"""Tokens of a join as text: which are outside of brackets, where lists split, and errors that underline them."""

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import SqlError

OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET}
CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET}
QUOTED = {TokenType.STRING, TokenType.IDENTIFIER}


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
