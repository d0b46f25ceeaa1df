"""LIKE and RLIKE: patterns checked when the join is defined, so that DuckDB's engine means what Java's does."""

import re

from watersmeet.predicate.expr import Expr, Refusal, quote, strict
from watersmeet.predicate.types import BOOLEAN

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
    """`value LIKE pattern ESCAPE escape`; with `fold`, ILIKE."""
    text = _literal(pattern, "LIKE")
    _check_escapes(text, escape)
    if fold:
        if not text.isascii():
            raise Refusal("ILIKE with letters beyond ASCII can't be carried over.")
        lowered = f"ws_lower({value.sql})"
        return strict(f"({lowered} LIKE {quote(text.lower())} ESCAPE {quote(escape)})", BOOLEAN, (value,))
    return strict(f"({value.sql} LIKE {quote(text)} ESCAPE {quote(escape)})", BOOLEAN, (value,))


def _check_escapes(text: str, escape: str) -> None:
    if len(escape) != 1 or escape in "%_":
        raise Refusal("ESCAPE is followed by a single character other than % and _.")
    unescaped = text.replace(escape * 2, "").replace(f"{escape}%", "").replace(f"{escape}_", "")
    if escape in unescaped:
        raise Refusal(f"In a LIKE pattern {escape} stands only before %, _ or itself.")


def rlike(value: Expr, pattern: Expr) -> Expr:
    """`value RLIKE pattern`, for the constructs on which Java and RE2 agree."""
    text = _literal(pattern, "RLIKE")
    return strict(f"regexp_matches({value.sql}, {quote(to_re2(text))})", BOOLEAN, (value,))


def to_re2(text: str) -> str:
    """A Java regular expression as RE2 understands it."""
    made, place, before = [], 0, ""
    while place < len(text):
        found = _REGEX_PIECE.match(text, place)
        kind = found.lastgroup if found else None
        if found is None or (kind == "quantifier" and before in {"", "quantifier", "start", "end"}):
            raise Refusal(f"RLIKE can't be carried over from {text[place:]!r} on; use LIKE or a Python predicate.")
        made.append({"dot": f"[^{LINE_ENDS}]", "end": END}.get(str(kind), found.group()))
        place, before = found.end(), "" if found.group() in {"(", "(?:", "|"} else str(kind)
    try:
        re.compile(text)
    except re.error as error:
        raise Refusal(f"RLIKE: {error}.") from None
    return "".join(made)


def _literal(pattern: Expr, word: str) -> str:
    if not isinstance(pattern.literal, str):
        raise Refusal(f"The pattern of {word} must be a string written out.")
    return pattern.literal
