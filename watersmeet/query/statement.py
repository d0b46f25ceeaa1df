"""A join as text: `SELECT .. FROM a [RANGE 10 SECONDS], b [ROWS 100, KEY (id)] WHERE ..`, the papers' streaming SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import zip_longest
from typing import NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.arguments import microseconds
from watersmeet.errors import DefinitionError, SqlError
from watersmeet.metadata.constraint_clauses import WINDOW, parse_constraint
from watersmeet.metadata.declarations import ConstraintDeclaration, Punctuations
from watersmeet.predicate.scope import same_name
from watersmeet.predicate.source import Source, is_name
from watersmeet.query.sql_joins import (
    CLOSE,
    OPEN,
    QUOTED,
    JoinClause,
    JoinKind,
    error_at,
    is_clause,
    outside,
    split_at_commas,
    split_joins,
    split_subqueries,
    text_of,
)
from watersmeet.query.windows import Count, Hopping, Sliding, Window, tumbling

FORM = ("TUMBLING", "CLOSED")
"""The words that determine the form of a window by time."""


class Brackets(NamedTuple):
    """What the brackets of a stream contain; see `SourceStream`."""

    window: Window = Window()
    time: str | None = None
    constraints: tuple[ConstraintDeclaration, ...] = ()
    punctuations: tuple[Punctuations, ...] = ()


def parse_brackets(text: str, tokens: Sequence[Token]) -> Brackets:
    """Parse the brackets of a stream, which are the first and the last token.

    Raises:
        SqlError: If they hold anything but a window and constraints; the span is underlined.
    """
    if tokens[-1].token_type is not TokenType.R_BRACKET:
        raise error_at(text, tokens[:1], "This bracket is not closed; write ] after the window.")
    if len(tokens) == 2:
        raise window_error(text, tokens)
    parts = split_at_commas(text, tokens[1:-1], "Something is missing between two commas.")
    windows = [part for part in parts if part[0].text.upper() in WINDOW or part[0].token_type is TokenType.NUMBER]
    constraints = [parse_constraint(text, part) for part in parts if part not in windows]
    window, time = _window(text, tokens, [token for part in windows for token in part]) if windows else (Window(), None)
    return Brackets(
        window,
        time,
        tuple(constraint for constraint in constraints if not isinstance(constraint, Punctuations)),
        tuple(constraint for constraint in constraints if isinstance(constraint, Punctuations)),
    )


def _window(text: str, tokens: Sequence[Token], inside: Sequence[Token]) -> tuple[Window, str | None]:
    """Return a window, and the time column if WATTR names one, else None; raises SqlError if it isn't a window.

    Args:
        text: The statement.
        tokens: The brackets, which an error underlines.
        inside: What they hold, without constraints.
    """
    parts: dict[str, list[Token]] = {}
    current = ""
    for token in inside:
        word = token.text.upper()
        if word in (*WINDOW, *FORM) and not (current == "WATTR" and not parts[current]):
            if word in parts:
                raise window_error(text, tokens)
            current = word
            parts[word] = []
        elif current:
            parts[current].append(token)
        else:
            raise window_error(text, tokens)
    words = {word: text_of(text, part) for word, part in parts.items()}
    time = words.get("WATTR") or None
    try:
        if set(words) <= {"ROWS", "WATTR"} and words.get("ROWS", "").isdigit():
            return Count(int(words["ROWS"])), time
        if set(words) == {"WATTR"} and time:
            return Window(), time
        if "RANGE" in words and "ROWS" not in words and (window := _by_time(words)) is not None:
            return window, time
    except DefinitionError as error:
        raise error_at(text, tokens, str(error)) from None
    raise window_error(text, tokens)


def _by_time(words: Mapping[str, str]) -> Window | None:
    """Return a window by time; None if its words don't go together. Raises DefinitionError for a wrong duration.

    Args:
        words: The text after each word of the window.
    """
    size, closed = words["RANGE"], words.get("CLOSED", "RIGHT").lower()
    if words.get("TUMBLING") == "" and not words.keys() & {"SLIDE", "CLOSED"}:
        return tumbling(size)
    if "TUMBLING" in words or closed not in ("left", "right"):
        return None
    if "SLIDE" in words:
        step = microseconds(words["SLIDE"], "SLIDE", 1)
        return Hopping(microseconds(size, "RANGE", 1), step, "left" if closed == "left" else "right")
    return None if "CLOSED" in words else Sliding(microseconds(size, "RANGE", 1))


def window_error(text: str, tokens: Sequence[Token]) -> SqlError:
    """Return the error that lists the windows there are."""
    problem = (
        "A window is [RANGE 10 SECONDS], [RANGE 10 MINUTES TUMBLING], [RANGE 1 MINUTE SLIDE 20 SECONDS [CLOSED LEFT]] "
        "or [ROWS 100], optionally with WATTR column; constraints may follow, each after a comma, such as "
        "[ROWS 100, KEY (id)]."
    )
    return error_at(text, tokens, problem)


@dataclass(frozen=True, slots=True)
class SourceStream:
    """A stream of the FROM list.

    Attributes:
        name: What the statement calls it: its alias, if it has one.
        window: Its window.
        time: Its time column, if WATTR names one.
        constraints: Its constraints.
        punctuations: The columns or frames that hold its punctuations.
        alias_of: Its key in `streams`, if it has an alias.
    """

    name: str
    window: Window
    time: str | None
    constraints: tuple[ConstraintDeclaration, ...] = ()
    punctuations: tuple[Punctuations, ...] = ()
    alias_of: str | None = None

    @property
    def key(self) -> str:
        """Its key in `streams`."""
        return self.name if self.alias_of is None else self.alias_of


@dataclass(frozen=True, slots=True)
class JoinedStream:
    """A stream that is joined to those before it.

    Attributes:
        kind: The kind of join.
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
    """An item of the FROM list: a stream, and those joined to it, in written order."""

    first: SourceStream
    joins: tuple[JoinedStream, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement.

    Attributes:
        select: The SELECT list; None for all.
        relations: The FROM list.
        where: The condition of WHERE, without subqueries.
        subqueries: The streams of subqueries in WHERE.
    """

    select: str | None
    relations: tuple[Relation, ...]
    where: str | None = None
    subqueries: tuple[JoinedStream, ...] = ()

    @property
    def streams(self) -> tuple[SourceStream, ...]:
        """All streams, in written order."""
        listed = (s for relation in self.relations for s in (relation.first, *(j.stream for j in relation.joins)))
        return (*listed, *(joined.stream for joined in self.subqueries))


def parse_statement(text: str, streams: Mapping[str, object]) -> Statement:
    """Parse `SELECT list FROM stream [window, constraints] [AS alias], ... [JOIN ... ON ...] [WHERE condition]`.

    Conditions and the SELECT list stay text.

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
    select = text_of(text, clauses["SELECT"])
    listed = split_at_commas(text, clauses["FROM"], "A stream is missing between two commas.")
    split = [split_joins(text, part) for part in listed]
    where, subqueries = split_subqueries(text, clauses.get("WHERE", []))
    relations = tuple(
        Relation(_stream(text, first, streams), tuple(_join(text, clause, streams) for clause in joins))
        for first, joins in split
    )
    joined = tuple(_join(text, clause, streams) for clause in subqueries)
    statement = Statement(None if select == "*" else select, relations, where, joined)
    parts = [part for first, joins in split for part in (first, *(clause.stream for clause in joins))]
    _refuse_duplicates(text, statement.streams, [*parts, *(clause.stream for clause in subqueries)])
    return statement


def _join(text: str, clause: JoinClause, streams: Mapping[str, object]) -> JoinedStream:
    stream = _stream(text, clause.stream, streams)
    return JoinedStream(clause.kind, stream, _condition(clause, stream.name), clause.using)


def _condition(clause: JoinClause, stream: str) -> str:
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
    """Return the tokens of SELECT, FROM and WHERE; raises SqlError if a clause is missing, repeated or refused."""
    clauses: dict[str, list[Token]] = {}
    depth, current = 0, ""
    for at, (token, after) in enumerate(zip_longest(tokens, tokens[1:])):
        word = token.text.upper()
        depth += (token.token_type in OPEN) - (token.token_type in CLOSE)
        if depth == 0 and current in ("FROM", "WHERE"):
            _refuse_clause(text, clauses[current], token, after)
        if depth == 0 and is_clause(tokens, at):
            if word in clauses or (word == "SELECT") != (not clauses) or (word == "WHERE" and "FROM" not in clauses):
                raise error_at(text, [token], f"{word} was not expected here.")
            current = word
            clauses[word] = []
        elif not current:
            raise error_at(text, [token], "A join as text begins with SELECT.")
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
"""Clauses of SQL that a join doesn't have, each with what to do instead."""
_FOLLOWERS = {
    **dict.fromkeys(("LIMIT", "OFFSET"), ("ALL",)),
    **dict.fromkeys(("UNION", "INTERSECT", "EXCEPT", "MINUS"), ("ALL", "DISTINCT", "SELECT", "(")),
    "LATERAL": ("VIEW", "("),
}
"""What follows the first word of such a clause, if that might also be a column's name."""


def _refuse_clause(text: str, before: Sequence[Token], token: Token, after: Token | None) -> None:
    """Raise SqlError at a token that begins a clause of SQL which a join doesn't have.

    Args:
        text: The statement.
        before: The tokens of the clause so far.
        token: The token.
        after: The next one; None at the end.
    """
    word = " ".join(token.text.upper().split())
    if word not in OTHERS or token.token_type in QUOTED or not before or before[-1].token_type in _UNFINISHED:
        return
    follow, number = _FOLLOWERS.get(word, ()), after is not None and after.token_type is TokenType.NUMBER
    if follow and not number and (after is None or after.text.upper() not in follow):
        return
    raise error_at(text, [token], f"{word} is not part of a join as text: {OTHERS[word]}.")


_UNFINISHED = {TokenType.DOT, TokenType.COMMA}


def _stream(text: str, tokens: Sequence[Token], streams: Mapping[str, object]) -> SourceStream:
    """Return a stream of FROM with what its brackets say.

    Raises:
        SqlError: For an unknown stream, a subquery, ON, USING, two aliases, or brackets that can't be read.
    """
    if tokens[0].token_type is TokenType.L_PAREN:
        problem = "A subquery can't be a stream: make it a frame, and give it a name in streams."
        if len(tokens) < 2 or tokens[1].text.upper() != "SELECT":
            problem = "Streams are joined one after the other, without parentheses around some of them."
        raise error_at(text, tokens, problem)
    key, rest = _key(text, tokens[0], streams), tokens[1:]
    for token in (t for _, t in outside(rest) if t.text.upper() in ("ON", "USING") and t.token_type not in QUOTED):
        problem = f"{token.text.upper()} follows a JOIN; put conditions on streams that commas separate into WHERE."
        raise error_at(text, [token], problem)
    kinds = [token.token_type for token in rest]
    start = kinds.index(TokenType.L_BRACKET) if TokenType.L_BRACKET in kinds else len(rest)
    end = len(rest) - (kinds[::-1].index(TokenType.R_BRACKET) if TokenType.R_BRACKET in kinds else 0)
    inside, beside = rest[start:end], (rest[:start], rest[end:])
    aliases = [alias for part in beside for alias in _aliases(text, rest, part)]
    if len(aliases) > 1:
        raise error_at(text, rest, f"{key} has two aliases, {aliases[0]} and {aliases[1]}; leave one of them out.")
    brackets = parse_brackets(text, inside) if inside else Brackets()
    return SourceStream(aliases[0], *brackets, key) if aliases else SourceStream(key, *brackets)


def _aliases(text: str, rest: Sequence[Token], part: Sequence[Token]) -> list[str]:
    """Return the aliases in the tokens before or after a stream's brackets, each with or without AS.

    Args:
        text: The statement.
        rest: The tokens after the stream's name, to be underlined.
        part: The tokens.

    Raises:
        SqlError: If there is anything but aliases.
    """
    names = list[str]()
    while part:
        at = 1 if part[0].token_type is TokenType.ALIAS else 0
        if len(part) > at and _names_stream(part[at]):
            names.append(part[at].text)
        elif at == 0:
            raise window_error(text, rest)
        else:
            raise error_at(text, rest, "AS is followed by a name, as in orders [RANGE 10 SECONDS] AS o.")
        part = part[at + 1 :]
    return names


def _refuse_duplicates(text: str, streams: Sequence[SourceStream], parts: Sequence[Sequence[Token]]) -> None:
    """Raise SqlError if a stream has the name of an earlier one; `parts` are the tokens to underline, by stream."""
    for at, stream in enumerate(streams):
        if any(same_name(stream.name, other.name) for other in streams[:at]):
            problem = (
                f"Two streams are called {stream.name}; give one an alias of its own, as in {stream.key} AS other."
            )
            raise error_at(text, parts[at], problem)


def _key(text: str, token: Token, streams: Mapping[str, object]) -> str:
    """Return the key of a stream in `streams`; case matters only where two differ in nothing else.

    Raises:
        SqlError: If there is no such stream, or several.
    """
    if token.text in streams:
        return token.text
    alike = [name for name in streams if same_name(str(name), token.text)]
    if len(alike) == 1:
        return alike[0]
    close = alike or get_close_matches(token.text, list(streams), n=3) or list(streams)
    problem = f"There is no stream {token.text}; choose from {', '.join(close)}."
    raise error_at(text, [token], problem)


def _names_stream(token: Token) -> bool:
    """Tell whether a token can name a stream; a name in backticks may be a word that windows begin with."""
    is_plain = token.token_type is not TokenType.ALIAS and token.text.upper() not in WINDOW
    return is_name(token) and (token.token_type is TokenType.IDENTIFIER or is_plain)
