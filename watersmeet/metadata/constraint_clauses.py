"""Promises in the brackets of a stream: `KEY (id)`, `ORDERED BY seq SLACK 100`, `PUNCTUATED BY is_end ON auction`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.arguments import nearest_name
from watersmeet.errors import DefinitionError, SqlError
from watersmeet.metadata.constraints import Effect
from watersmeet.metadata.declarations import (
    Between,
    ConstraintDeclaration,
    Punctuations,
    between,
    clustered,
    foreign_key,
    key,
    ordered,
    punctuations,
)

FORMS = (
    "KEY (id)",
    "ORDERED BY seq [DESC] [SLACK 100]",
    "CLUSTERED BY zone [SLACK 2]",
    "FOREIGN KEY (auction) REFERENCES auctions (id)",
    "PUNCTUATED BY is_end ON auction [AT WATERMARK]",
)
"""What a stream may promise, as it is written."""
WINDOW = {
    "RANGE": "RANGE 10 SECONDS",
    "SLIDE": "RANGE 1 MINUTE SLIDE 20 SECONDS",
    "WATTR": "RANGE 10 SECONDS WATTR ts",
    "ROWS": "ROWS 100",
}
"""The words of windows, which stand beside promises, each as it is written."""
_NUMBER = re.compile(r"-?\s*\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE)


def parse_promise(text: str, tokens: Sequence[Token]) -> ConstraintDeclaration | Punctuations:
    """Parse one promise.

    Args:
        text: The whole statement.
        tokens: Those of the promise.

    Raises:
        SqlError: If it is none; the span is underlined.
    """
    words = Words(text, tokens)
    for beginning, parse in _FORMS.items():
        if words.take(*beginning):
            try:
                made = parse(words)
            except DefinitionError as error:
                raise error if isinstance(error, SqlError) else words.error(str(error), tokens) from None
            if words.left:
                raise words.error(f"This was not expected here; write it like {_form(beginning)}.", words.left)
            return made
    raise words.error(_neither(tokens), tokens)


def _neither(tokens: Sequence[Token]) -> str:
    """Return what is wrong with words that are neither a window nor a promise, by what they look like."""
    first = tokens[0]
    plain = first.token_type is not TokenType.IDENTIFIER
    word = nearest_name(first.text, [*WINDOW, *(form.split()[0] for form in FORMS)]) if plain else None
    if word is not None and word in WINDOW:
        return f"{first.text} is not a window; did you mean {word}, as in [{WINDOW[word]}]?"
    if word is None and plain and tokens[1:2] and tokens[1].token_type is TokenType.NUMBER:
        return f"{first.text} is not a window; write {', '.join(f'[{form}]' for form in WINDOW.values())}."
    near = f" Did you mean {word}?" if word else ""
    return f"This is no promise of a stream; choose from {'; '.join(FORMS)}.{near}"


@dataclass
class Words:
    """Reads the words of a promise from left to right.

    Attributes:
        text: The whole statement.
        tokens: Those of the promise.
        at: How many were read.
    """

    text: str
    tokens: Sequence[Token]
    at: int = 0

    @property
    def left(self) -> Sequence[Token]:
        """What was not read yet."""
        return self.tokens[self.at :]

    def take(self, *words: str) -> bool:
        """Read some words if they are next; tell whether they were."""
        found = [" ".join(token.text.upper().split()) for token in self.left[: len(words)]]
        quoted = any(token.token_type is TokenType.IDENTIFIER for token in self.left[: len(words)])
        if quoted or found != list(words):
            return False
        self.at += len(words)
        return True

    def need(self, word: str) -> None:
        """Read a word that must be next."""
        if not self.take(word):
            raise self.missing(word)

    def name(self) -> str:
        """Read the name of a column or stream."""
        if not self.left or not _is_name(self.left[0]):
            raise self.missing("a name")
        self.at += 1
        return self.tokens[self.at - 1].text

    def slack(self) -> str | None:
        """Read a slack, up to the end, if there is one."""
        if not self.take("SLACK"):
            return None
        if not self.left:
            raise self.missing("a number or a duration such as 10 SECONDS")
        found = self.text[self.left[0].start : self.left[-1].end + 1]
        self.at = len(self.tokens)
        return found

    def error(self, problem: str, tokens: Sequence[Token]) -> SqlError:
        """Return an error that underlines some tokens."""
        return SqlError(problem, self.text, tokens[0].start, tokens[-1].end + 1)

    def missing(self, what: str) -> SqlError:
        """Return an error that says what should stand where reading has come to."""
        where = self.left[:1] or self.tokens[-1:]
        return self.error(f"{what} was expected {'here' if self.left else 'behind this'}.", where)


def _is_name(token: Token) -> bool:
    plain = token.token_type is not TokenType.STRING and token.text.isidentifier()
    return plain or token.token_type is TokenType.IDENTIFIER


def _listed(words: Words, item: Callable[[Words], str]) -> list[str]:
    """Read an item, or several in parentheses."""
    if not words.take("("):
        return [item(words)]
    found = [item(words)]
    while words.take(","):
        found.append(item(words))
    words.need(")")
    return found


def _key(words: Words) -> ConstraintDeclaration:
    return key(*_listed(words, Words.name))


def _ordered(words: Words) -> ConstraintDeclaration:
    column = words.name()
    falling = words.take("DESC")
    if not falling:
        words.take("ASC")
    slack = words.slack()
    if slack is not None and _NUMBER.fullmatch(slack):
        number = Decimal(slack.replace(" ", ""))
        return ordered(column, int(number) if number == int(number) else number, falling)
    return ordered(column, slack, falling)


def _clustered(words: Words) -> ConstraintDeclaration:
    column, slack = words.name(), words.slack()
    if slack is None:
        return clustered(column)
    if not slack.isdigit():
        raise DefinitionError(f"SLACK {slack}: a slack of runs is a whole number of batches, such as 2.")
    return clustered(column, int(slack))


def _foreign_key(words: Words) -> ConstraintDeclaration:
    columns = _listed(words, Words.name)
    words.need("REFERENCES")
    stream = words.name()
    words.need("(")
    parent = words.name()
    words.need(")")
    if len(columns) > 1:
        raise DefinitionError("FOREIGN KEY has one column; write several keys for several columns.")
    return foreign_key(columns[0], f"{stream}.{parent}")


def _punctuated(words: Words) -> Punctuations:
    flag, on = words.name(), dict[str, str | Between]()
    words.need("ON")

    def pattern(words: Words) -> str:
        column = words.name()
        if column in on:
            raise DefinitionError(f"ON names {column} twice.")
        on[column] = column
        if words.take("="):
            on[column] = words.name()
        elif words.take("BETWEEN"):
            low = words.name()
            words.need("AND")
            on[column] = between(low, words.name())
        return column

    _listed(words, pattern)
    return punctuations(flag=flag, on=on, effect=_effect(words))


def _effect(words: Words) -> Effect | None:
    if not words.take("AT"):
        return None
    if words.take("BATCH"):
        return "batch"
    if not words.take("WATERMARK"):
        raise words.missing("BATCH or WATERMARK")
    return "watermark"


_FORMS: dict[tuple[str, ...], Callable[[Words], ConstraintDeclaration | Punctuations]] = {
    ("KEY",): _key,
    ("ORDERED", "BY"): _ordered,
    ("CLUSTERED", "BY"): _clustered,
    ("FOREIGN KEY",): _foreign_key,
    ("PUNCTUATED", "BY"): _punctuated,
}


def _form(beginning: tuple[str, ...]) -> str:
    return next(form for form in FORMS if form.startswith(" ".join(beginning)))
