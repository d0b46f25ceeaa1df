"""The brackets of a stream in a join as text: its window, and its constraints, with commas between them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.arguments import microseconds
from watersmeet.errors import DefinitionError, SqlError
from watersmeet.metadata.constraint_clauses import WINDOW, parse_promise
from watersmeet.metadata.declarations import Constraint, Punctuations
from watersmeet.query.sql_tokens import error_at, split_at_commas, text_of
from watersmeet.query.windows import Count, Hopping, Sliding, Window, tumbling

FORM = ("TUMBLING", "CLOSED")
"""The words that determine the form of a window by time."""


class Brackets(NamedTuple):
    """What the brackets of a stream contain; see `SourceStream`."""

    window: Window = Window()
    time: str | None = None
    constraints: tuple[Constraint, ...] = ()
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
    constraints = [parse_promise(text, part) for part in parts if part not in windows]
    window, time = _window(text, tokens, [token for part in windows for token in part]) if windows else (Window(), None)
    return Brackets(
        window,
        time,
        tuple(constraint for constraint in constraints if not isinstance(constraint, Punctuations)),
        tuple(constraint for constraint in constraints if isinstance(constraint, Punctuations)),
    )


def _window(text: str, tokens: Sequence[Token], inside: Sequence[Token]) -> tuple[Window, str | None]:
    """Return a window, and the time column if WATTR names one."""
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


def window_error(text: str, tokens: Sequence[Token]) -> SqlError:
    """Return the error that lists the windows there are."""
    problem = (
        "A window is [RANGE 10 SECONDS], [RANGE 10 MINUTES TUMBLING], [RANGE 1 MINUTE SLIDE 20 SECONDS [CLOSED LEFT]] "
        "or [ROWS 100], optionally with WATTR column; promises may follow, each after a comma, such as "
        "[ROWS 100, KEY (id)]."
    )
    return error_at(text, tokens, problem)
