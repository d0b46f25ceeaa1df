"""A join as text: `SELECT .. FROM a [RANGE 10 SECONDS], b [ROWS 100, KEY (id)] WHERE ..`, the papers' streaming SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import zip_longest

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import DefinitionError, SqlError
from watersmeet.model.clauses import CLOSE, OPEN, QUOTED, exists, left_joins
from watersmeet.model.declared import Constraint, Punctuations
from watersmeet.model.duration import microseconds
from watersmeet.model.promise_words import WINDOW, parse_promise
from watersmeet.model.query import How
from watersmeet.model.windows import Count, Hopping, Sliding, Window
from watersmeet.predicate.scope import same
from watersmeet.predicate.source import Source


@dataclass(frozen=True, slots=True)
class SourceStream:
    """A stream of the FROM list.

    Attributes:
        name: What the statement calls it: its alias, if it has one.
        window: Its window.
        time: Its time column, if WATTR names one.
        constraints: What it promises.
        punctuations: What says that some of its rows no longer come.
        alias_of: Its key in `streams`, if it has an alias.
    """

    name: str
    window: Window
    time: str | None
    constraints: tuple[Constraint, ...] = ()
    punctuations: tuple[Punctuations, ...] = ()
    alias_of: str | None = None

    @property
    def key(self) -> str:
        """Its key in `streams`."""
        return self.name if self.alias_of is None else self.alias_of


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement.

    Attributes:
        select: The SELECT list; None for all.
        streams: Those of the FROM list, then those that are optional.
        where: The condition of WHERE, without EXISTS.
        optional: For each optional stream, by name, what is asked of it, and the condition.
    """

    select: str | None
    streams: tuple[SourceStream, ...]
    where: str | None
    optional: Mapping[str, tuple[How, str]] = field(default_factory=dict)

    @property
    def condition(self) -> str | None:
        """All conditions as one, that of WHERE first."""
        every = [part for part in (self.where, *(on for _, on in self.optional.values())) if part]
        return " AND ".join(f"({part})" for part in every) if len(every) > 1 else every[0] if every else None


def parse_statement(text: str, streams: Mapping[str, object]) -> Statement:
    """Parse `SELECT list FROM stream [window, promises] [AS alias], ... [LEFT JOIN ... ON ...] [WHERE condition]`.

    Args:
        text: The statement; `SELECT *` gives one struct column per stream.
        streams: The streams it may name.

    Raises:
        SqlError: If it isn't such a statement; the span is underlined.
    """
    tokens = Source(text).tokens
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens = tokens[:-1]
    clauses = _clauses(text, tokens)
    select = _between(text, clauses["SELECT"])
    required, left = left_joins(text, clauses["FROM"])
    where, asked = exists(text, clauses.get("WHERE", []))
    if not required:
        raise SqlError("There is no stream before LEFT JOIN.", text, clauses["FROM"][0].start, len(text))
    listed = _commas(text, required, "A stream is missing between two commas.")
    parts = [*listed, *(clause.stream for clause in (*left, *asked))]
    found = [_stream(text, part, streams) for part in parts]
    _refuse_twice(text, found, parts)
    names = [stream.name for stream in found[len(listed) :]]
    optional = dict(zip(names, ((how, _between(text, on) or "") for how, _, on in (*left, *asked)), strict=True))
    return Statement(None if select == "*" else select, tuple(found), where, optional)


def _clauses(text: str, tokens: Sequence[Token]) -> dict[str, list[Token]]:
    clauses: dict[str, list[Token]] = {}
    depth, current = 0, ""
    for token, after in zip_longest(tokens, tokens[1:]):
        word = token.text.upper()
        depth += (token.token_type in OPEN) - (token.token_type in CLOSE)
        if depth == 0 and current in ("FROM", "WHERE"):
            _refuse(text, clauses[current], token, after)
        if depth == 0 and word in ("SELECT", "FROM", "WHERE") and token.token_type not in QUOTED:
            if word in clauses or (word == "SELECT") != (not clauses) or (word == "WHERE" and "FROM" not in clauses):
                raise SqlError(f"{word} was not expected here.", text, token.start, token.end + 1)
            current = word
            clauses[word] = []
        elif not current:
            raise SqlError("A join as text begins with SELECT.", text, token.start, token.end + 1)
        else:
            clauses[current].append(token)
    for word in ("SELECT", "FROM"):
        if not clauses.get(word):
            raise SqlError(
                f"There is no {word} list; write SELECT .. FROM a [RANGE ..], b [RANGE ..] WHERE ..", text, 0, len(text)
            )
    if clauses.get("WHERE") == []:
        at = text.upper().rindex("WHERE")
        raise SqlError("There is no condition after WHERE.", text, at, at + len("WHERE"))
    return clauses


OTHERS = {
    **dict.fromkeys(("GROUP BY", "HAVING"), "a join returns individual results; group its output"),
    **dict.fromkeys(
        ("ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY"), "results arrive as they are found; sort the output"
    ),
    **dict.fromkeys(("LIMIT", "OFFSET"), "a join returns all results; limit its output"),
    **dict.fromkeys(("UNION", "INTERSECT", "EXCEPT", "MINUS"), "a statement is a single join; combine the outputs"),
    "LATERAL": "a join returns one row per result; explode its output",
    "WINDOW": "a stream's window goes in brackets after its name, as in a [RANGE 10 SECONDS]",
}
"""Clauses of SQL that a join has not, each with what to do instead."""
_FOLLOWED = {
    **dict.fromkeys(("LIMIT", "OFFSET"), ("ALL",)),
    **dict.fromkeys(("UNION", "INTERSECT", "EXCEPT", "MINUS"), ("ALL", "DISTINCT", "SELECT", "(")),
    "LATERAL": ("VIEW", "("),
}
"""What follows such a clause's first word where that might as well be a column's name."""


def _refuse(text: str, before: Sequence[Token], token: Token, after: Token | None) -> None:
    """Refuse a token that begins a clause which a join has not."""
    word = " ".join(token.text.upper().split())
    if word not in OTHERS or token.token_type in QUOTED or not before or before[-1].token_type in _UNFINISHED:
        return
    follow, number = _FOLLOWED.get(word, ()), after is not None and after.token_type is TokenType.NUMBER
    if follow and not number and (after is None or after.text.upper() not in follow):
        return
    raise SqlError(f"{word} is not part of a join as text: {OTHERS[word]}.", text, token.start, token.end + 1)


_UNFINISHED = {TokenType.DOT, TokenType.COMMA}


def _between(text: str, tokens: Sequence[Token]) -> str | None:
    return text[tokens[0].start : tokens[-1].end + 1] if tokens else None


def _commas(text: str, tokens: Sequence[Token], missing: str) -> list[list[Token]]:
    """Return what stands between the commas that are in no brackets of their own."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.token_type in OPEN) - (token.token_type in CLOSE)
        if token.token_type is TokenType.COMMA and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    if not all(parts):
        raise SqlError(missing, text, tokens[0].start, tokens[-1].end + 1)
    return parts


def _stream(text: str, tokens: Sequence[Token], streams: Mapping[str, object]) -> SourceStream:
    if tokens[0].token_type is TokenType.L_PAREN:
        problem = "A subquery can't be a stream: make it a frame, and give it a name in streams."
        raise SqlError(problem, text, tokens[0].start, tokens[-1].end + 1)
    key, rest = _named(text, tokens[0], streams), tokens[1:]
    _refuse_joins(text, rest)
    kinds = [token.token_type for token in rest]
    opened = kinds.index(TokenType.L_BRACKET) if TokenType.L_BRACKET in kinds else len(rest)
    closed = len(rest) - (kinds[::-1].index(TokenType.R_BRACKET) if TokenType.R_BRACKET in kinds else 0)
    inside, outside = rest[opened:closed], (rest[:opened], rest[closed:])
    aliases = [alias for part in outside for alias in _aliases(text, rest, part)]
    if len(aliases) > 1:
        problem = f"{key} has two aliases, {aliases[0]} and {aliases[1]}; leave one of them out."
        raise SqlError(problem, text, rest[0].start, rest[-1].end + 1)
    made = _bracketed(text, key, inside) if inside else SourceStream(key, Window(), None)
    return replace(made, name=aliases[0], alias_of=key) if aliases else made


def _aliases(text: str, rest: Sequence[Token], outside: Sequence[Token]) -> list[str]:
    """Return what the tokens before or behind a stream's brackets call it: names, each with or without AS.

    Args:
        text: The statement.
        rest: What follows the stream's name, to be underlined.
        outside: The tokens.
    """
    found = list[str]()
    while outside:
        at = 1 if outside[0].token_type is TokenType.ALIAS else 0
        if len(outside) > at and _is_name(outside[at]):
            found.append(outside[at].text)
        elif at == 0:
            raise _bad_window(text, rest)
        else:
            problem = "AS is followed by a name, as in orders [RANGE 10 SECONDS] AS o."
            raise SqlError(problem, text, rest[0].start, rest[-1].end + 1)
        outside = outside[at + 1 :]
    return found


def _refuse_twice(text: str, streams: Sequence[SourceStream], parts: Sequence[Sequence[Token]]) -> None:
    """Refuse a stream that is called like one before it."""
    for at, stream in enumerate(streams):
        if any(same(stream.name, other.name) for other in streams[:at]):
            problem = (
                f"Two streams are called {stream.name}; give one an alias of its own, as in {stream.key} AS other."
            )
            raise SqlError(problem, text, parts[at][0].start, parts[at][-1].end + 1)


def _named(text: str, token: Token, streams: Mapping[str, object]) -> str:
    """Return the name that a stream has in `streams`; case matters only where two differ in nothing else."""
    if token.text in streams:
        return token.text
    alike = [name for name in streams if same(str(name), token.text)]
    if len(alike) == 1:
        return alike[0]
    close = alike or get_close_matches(token.text, list(streams), n=3) or list(streams)
    problem = f"There is no stream {token.text}; choose from {', '.join(close)}."
    raise SqlError(problem, text, token.start, token.end + 1)


JOINS = ("NATURAL", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "JOIN", "ON", "USING")


def _refuse_joins(text: str, tokens: Sequence[Token]) -> None:
    """Refuse what is written as JOIN."""
    depth, found = 0, list[Token]()
    for token in tokens:
        depth += (token.token_type in OPEN) - (token.token_type in CLOSE)
        if depth == 0 and token.text.upper() in JOINS and token.token_type not in QUOTED:
            found.append(token)
        elif found:
            break
    words = " ".join(token.text.upper() for token in found)
    if found:
        outer = any(word in words for word in ("LEFT", "RIGHT", "FULL", "SEMI", "ANTI"))
        problem = f"{words}: separate the streams by commas, and put the join condition into WHERE"
        problem += "; optional streams follow with LEFT [SEMI | ANTI] JOIN .. ON ..." if outer else "."
        raise SqlError(problem, text, found[0].start, found[-1].end + 1)


def _is_name(token: Token) -> bool:
    """Tell whether a token can name a stream; a name in backticks may be a word that windows begin with."""
    if token.token_type in {*QUOTED, TokenType.ALIAS}:
        return token.token_type is TokenType.IDENTIFIER
    return token.text.isidentifier() and token.text.upper() not in WINDOW


def _bracketed(text: str, name: str, tokens: Sequence[Token]) -> SourceStream:
    """Parse what stands in a stream's brackets: its window, and promises, with commas between them."""
    if tokens[-1].token_type is not TokenType.R_BRACKET:
        raise SqlError(
            "This bracket is not closed; write ] after the window.", text, tokens[0].start, tokens[0].end + 1
        )
    if len(tokens) == 2:
        raise _bad_window(text, tokens)
    parts = _commas(text, tokens[1:-1], "Something is missing between two commas.")
    windows = [part for part in parts if part[0].text.upper() in WINDOW or part[0].token_type is TokenType.NUMBER]
    promises = [parse_promise(text, part) for part in parts if part not in windows]
    window, time = _window(text, tokens, [token for part in windows for token in part]) if windows else (Window(), None)
    return SourceStream(
        name,
        window,
        time,
        tuple(promise for promise in promises if not isinstance(promise, Punctuations)),
        tuple(promise for promise in promises if isinstance(promise, Punctuations)),
    )


def _window(text: str, tokens: Sequence[Token], inside: Sequence[Token]) -> tuple[Window, str | None]:
    """Return a window, and the time column if WATTR names one."""
    parts: dict[str, list[Token]] = {}
    current = ""
    for token in inside:
        word = token.text.upper()
        if word in WINDOW:
            if word in parts:
                raise _bad_window(text, tokens)
            current = word
            parts[word] = []
        elif current:
            parts[current].append(token)
        else:
            raise _bad_window(text, tokens)
    words = {key: _between(text, found) or "" for key, found in parts.items()}
    time = words.get("WATTR") or None
    try:
        if set(words) <= {"ROWS", "WATTR"} and words.get("ROWS", "").isdigit():
            return Count(int(words["ROWS"])), time
        if set(words) == {"WATTR"} and time:
            return Window(), time
        if "RANGE" in words and "ROWS" not in words:
            size = microseconds(words["RANGE"], "RANGE", 1)
            window = Hopping(size, microseconds(words["SLIDE"], "SLIDE", 1)) if "SLIDE" in words else Sliding(size)
            return window, time
    except DefinitionError as error:
        raise SqlError(str(error), text, tokens[0].start, tokens[-1].end + 1) from None
    raise _bad_window(text, tokens)


def _bad_window(text: str, tokens: Sequence[Token]) -> SqlError:
    problem = (
        "A window is [RANGE 10 SECONDS], [RANGE 1 MINUTE SLIDE 20 SECONDS] or [ROWS 100], optionally with WATTR "
        "column; promises may follow, each after a comma, such as [ROWS 100, KEY (id)]."
    )
    return SqlError(problem, text, tokens[0].start, tokens[-1].end + 1)
