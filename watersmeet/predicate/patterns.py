"""LIKE and RLIKE, with patterns restricted to what DuckDB's engine and Java's read alike."""

import re

from watersmeet.predicate.expr import Expr, Refusal, error_sql, quote, strict_expr
from watersmeet.predicate.types import BOOLEAN, STRING

LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
END = rf"(?:\r\n|[{LINE_ENDS}])?\z"

_REGEX_PIECE = re.compile(
    r"""(?P<dot>\.) | (?P<end>\$) | (?P<quantifier>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)
      | (?P<set>\[\^?(?:\\[dwtnr.\\\-\]\[^/]|[^\\\[\]&\^])+\])
      | (?P<escape>\\[dDwWtnr.\\*+?()\[\]{}|^$/\-]) | (?P<group>\((?:\?:)?|\)|\|) | (?P<start>\^)
      | (?P<plain>[^\\\[\]{}()*+?.$^|])""",
    re.VERBOSE,
)


def like(value: Expr, pattern: Expr, escape: str = "\\", *, fold: bool = False) -> Expr:
    """`value LIKE pattern ESCAPE escape`; with `fold`, ILIKE, whose pattern must be a literal.

    A pattern that Spark can't read is refused if it is a literal; one that isn't raises for the row.

    Raises:
        Refusal: Also for an escape that isn't one character of ASCII, and for ILIKE with letters beyond ASCII.
    """
    if len(escape) != 1 or not escape.isascii() or escape in "%_":
        raise Refusal("ESCAPE is followed by a single character of ASCII other than % and _.")
    if not pattern.is_literal and not fold:
        return _like_column(value, pattern, escape)
    text = _literal(pattern, "ILIKE" if fold else "LIKE")
    _check_escapes(text, escape)
    if fold:
        if not text.isascii():
            raise Refusal("ILIKE with letters beyond ASCII can't be translated.")
        sql = f"(lower({value.sql}) LIKE {quote(text.lower())} ESCAPE {quote(escape)})"
        return strict_expr(sql, BOOLEAN, (value,), unsure=f"ws_strange_lower({value.sql})")
    return strict_expr(f"({value.sql} LIKE {quote(text)} ESCAPE {quote(escape)})", BOOLEAN, (value,))


def _like_column(value: Expr, pattern: Expr, escape: str) -> Expr:
    """LIKE with a pattern that isn't a literal; it raises where Spark can't read the pattern."""
    unreadable = error_sql(f"[INVALID_FORMAT] In a LIKE pattern {escape} may only precede %, _ or itself.", BOOLEAN)
    sql = (
        f"(CASE WHEN {value.sql} IS NULL OR {pattern.sql} IS NULL THEN NULL "
        f"WHEN {_is_readable(pattern, escape)} THEN {value.sql} LIKE {pattern.sql} ESCAPE {quote(escape)} "
        f"ELSE {unreadable} END)"
    )
    return strict_expr(sql, BOOLEAN, (value, pattern), raises=True)


def _is_readable(pattern: Expr, escape: str) -> str:
    """DuckDB's condition that the escape character stands only where it may."""
    code = _code(escape)
    return f"regexp_full_match({pattern.sql}, '(?:[^{code}]|{code}[%_{code}])*')"


def _code(escape: str) -> str:
    """A character as a regular expression, inside or outside brackets."""
    return rf"\x{{{ord(escape):x}}}"


def prefix_of(pattern: Expr, escape: str) -> Expr:
    """The prefix of all texts that are LIKE a pattern; empty for a pattern that raises."""
    if pattern.is_literal:
        text = re.split(f"[%_{re.escape(escape)}]", pattern.literal, maxsplit=1)[0]
        return Expr(quote(text), STRING, literal=text)
    plain = f"regexp_extract({pattern.sql}, '^[^%_{_code(escape)}]*')"
    return strict_expr(f"(CASE WHEN NOT {_is_readable(pattern, escape)} THEN '' ELSE {plain} END)", STRING, (pattern,))


def _check_escapes(text: str, escape: str) -> None:
    unescaped = text.replace(escape * 2, "").replace(f"{escape}%", "").replace(f"{escape}_", "")
    if escape in unescaped:
        raise Refusal(f"In a LIKE pattern {escape} may only precede %, _ or itself.")


def rlike(value: Expr, pattern: Expr) -> Expr:
    """`value RLIKE pattern`, for constructs on which Java and RE2 agree."""
    text = _literal(pattern, "RLIKE")
    return strict_expr(f"regexp_matches({value.sql}, {quote(to_re2(text))})", BOOLEAN, (value,))


def to_re2(text: str) -> str:
    """Translate a Java regular expression to RE2; raises Refusal for constructs on which the two may disagree."""
    pieces, place, before = [], 0, ""
    while place < len(text):
        match = _REGEX_PIECE.match(text, place)
        kind = match.lastgroup if match else None
        if match is None or (kind == "quantifier" and before in {"", "quantifier", "start", "end"}):
            raise Refusal(f"RLIKE can't be translated from {text[place:]!r} on; use LIKE or a Python predicate.")
        pieces.append({"dot": f"[^{LINE_ENDS}]", "end": END}.get(str(kind), match.group()))
        place, before = match.end(), "" if match.group() in {"(", "(?:", "|"} else str(kind)
    try:
        re.compile(text)
    except re.error as error:
        raise Refusal(f"RLIKE: {error}.") from None
    return "".join(pieces)


def _literal(pattern: Expr, word: str) -> str:
    if not isinstance(pattern.literal, str):
        raise Refusal(f"The pattern of {word} must be a string literal.")
    return pattern.literal
