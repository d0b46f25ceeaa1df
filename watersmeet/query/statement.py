"""A join as text: `SELECT .. FROM a [RANGE 10 SECONDS], b [ROWS 100, KEY (id)] WHERE ..`, the papers' streaming SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import zip_longest

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.arguments import microseconds
from watersmeet.errors import DefinitionError, SqlError
from watersmeet.metadata.constraint_clauses import WINDOW, parse_promise
from watersmeet.metadata.declarations import Constraint, Punctuations
from watersmeet.predicate.scope import same_name
from watersmeet.predicate.source import Source
from watersmeet.query.sql_joins import (
    CLOSE,
    OPEN,
    QUOTED,
    JoinClause,
    JoinKind,
    is_clause,
    outside,
    split_joins,
    split_subqueries,
)
from watersmeet.query.windows import Count, Hopping, Sliding, Window, tumbling


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
class JoinedStream:
    """A stream that is joined to what stands before it.

    Attributes:
        kind: How.
        stream: The stream.
        on: The condition; empty if there is none.
        using: The columns that must be equal on both sides.
    """

    kind: JoinKind
    stream: SourceStream
    on: str = ""
    using: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Relation:
    """An item of the FROM list: a stream, and what is joined to it, in written order."""

    first: SourceStream
    joins: tuple[JoinedStream, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement.

    Attributes:
        select: The SELECT list; None for all.
        relations: The FROM list.
        where: The condition of WHERE, without subqueries.
        asked: The streams that subqueries of WHERE ask.
    """

    select: str | None
    relations: tuple[Relation, ...]
    where: str | None = None
    asked: tuple[JoinedStream, ...] = ()

    @property
    def streams(self) -> tuple[SourceStream, ...]:
        """All streams, in written order."""
        listed = (s for relation in self.relations for s in (relation.first, *(j.stream for j in relation.joins)))
        return (*listed, *(joined.stream for joined in self.asked))


def parse_statement(text: str, streams: Mapping[str, object]) -> Statement:
    """Parse `SELECT list FROM stream [window, promises] [AS alias], ... [JOIN ... ON ...] [WHERE condition]`.

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
    listed = _commas(text, clauses["FROM"], "A stream is missing between two commas.")
    split = [split_joins(text, part) for part in listed]
    where, subqueries = split_subqueries(text, clauses.get("WHERE", []))
    relations = tuple(
        Relation(_stream(text, first, streams), tuple(_joined(text, clause, streams) for clause in joins))
        for first, joins in split
    )
    asked = tuple(_joined(text, clause, streams) for clause in subqueries)
    statement = Statement(None if select == "*" else select, relations, where, asked)
    parts = [part for first, joins in split for part in (first, *(clause.stream for clause in joins))]
    _refuse_twice(text, statement.streams, [*parts, *(clause.stream for clause in subqueries)])
    return statement


def _joined(text: str, clause: JoinClause, streams: Mapping[str, object]) -> JoinedStream:
    stream = _stream(text, clause.stream, streams)
    return JoinedStream(clause.kind, stream, _compared(clause, stream.name), clause.using)


def _compared(clause: JoinClause, stream: str) -> str:
    """Return the condition of a join, that of IN included.

    [!] `x NOT IN (SELECT y ..)` is only TRUE if no y is NULL, nor x, unless there is no y at all.
    """
    if clause.compared is None:
        return clause.on
    column, value = clause.compared
    column = column if "." in column else f"`{stream}`.{column}"
    equal = f"{column} = ({value})"
    if clause.kind == "anti":
        equal = f"({equal} OR {column} IS NULL OR ({value}) IS NULL)"
    return f"{equal} AND ({clause.on})" if clause.on else equal


def _clauses(text: str, tokens: Sequence[Token]) -> dict[str, list[Token]]:
    clauses: dict[str, list[Token]] = {}
    depth, current = 0, ""
    for at, (token, after) in enumerate(zip_longest(tokens, tokens[1:])):
        word = token.text.upper()
        depth += (token.token_type in OPEN) - (token.token_type in CLOSE)
        if depth == 0 and current in ("FROM", "WHERE"):
            _refuse(text, clauses[current], token, after)
        if depth == 0 and is_clause(tokens, at):
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
        if len(tokens) < 2 or tokens[1].text.upper() != "SELECT":
            problem = "Streams are joined one after the other, without parentheses around some of them."
        raise SqlError(problem, text, tokens[0].start, tokens[-1].end + 1)
    key, rest = _named(text, tokens[0], streams), tokens[1:]
    for token in (t for _, t in outside(rest) if t.text.upper() in ("ON", "USING") and t.token_type not in QUOTED):
        problem = f"{token.text.upper()} follows a JOIN; put conditions on streams that commas separate into WHERE."
        raise SqlError(problem, text, token.start, token.end + 1)
    kinds = [token.token_type for token in rest]
    opened = kinds.index(TokenType.L_BRACKET) if TokenType.L_BRACKET in kinds else len(rest)
    closed = len(rest) - (kinds[::-1].index(TokenType.R_BRACKET) if TokenType.R_BRACKET in kinds else 0)
    inside, beside = rest[opened:closed], (rest[:opened], rest[closed:])
    aliases = [alias for part in beside for alias in _aliases(text, rest, part)]
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
        if any(same_name(stream.name, other.name) for other in streams[:at]):
            problem = (
                f"Two streams are called {stream.name}; give one an alias of its own, as in {stream.key} AS other."
            )
            raise SqlError(problem, text, parts[at][0].start, parts[at][-1].end + 1)


def _named(text: str, token: Token, streams: Mapping[str, object]) -> str:
    """Return the name that a stream has in `streams`; case matters only where two differ in nothing else."""
    if token.text in streams:
        return token.text
    alike = [name for name in streams if same_name(str(name), token.text)]
    if len(alike) == 1:
        return alike[0]
    close = alike or get_close_matches(token.text, list(streams), n=3) or list(streams)
    problem = f"There is no stream {token.text}; choose from {', '.join(close)}."
    raise SqlError(problem, text, token.start, token.end + 1)


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
        if word in (*WINDOW, *FORM) and not (current == "WATTR" and not parts[current]):
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
        if "RANGE" in words and "ROWS" not in words and (window := _by_time(words)) is not None:
            return window, time
    except DefinitionError as error:
        raise SqlError(str(error), text, tokens[0].start, tokens[-1].end + 1) from None
    raise _bad_window(text, tokens)


FORM = ("TUMBLING", "CLOSED")
"""The words that say of which form a window by time is."""


def _by_time(words: Mapping[str, str]) -> Window | None:
    """Return a window by time; None if its words don't go together."""
    size, closed = words["RANGE"], words.get("CLOSED", "RIGHT").lower()
    if words.get("TUMBLING") == "" and not words.keys() & {"SLIDE", "CLOSED"}:
        return tumbling(size)
    if "TUMBLING" in words or closed not in ("left", "right"):
        return None
    if "SLIDE" in words:
        step = microseconds(words["SLIDE"], "SLIDE", 1)
        return Hopping(microseconds(size, "RANGE", 1), step, "left" if closed == "left" else "right")
    return None if "CLOSED" in words else Sliding(microseconds(size, "RANGE", 1))


def _bad_window(text: str, tokens: Sequence[Token]) -> SqlError:
    problem = (
        "A window is [RANGE 10 SECONDS], [RANGE 10 MINUTES TUMBLING], [RANGE 1 MINUTE SLIDE 20 SECONDS [CLOSED LEFT]] "
        "or [ROWS 100], optionally with WATTR column; promises may follow, each after a comma, such as "
        "[ROWS 100, KEY (id)]."
    )
    return SqlError(problem, text, tokens[0].start, tokens[-1].end + 1)
