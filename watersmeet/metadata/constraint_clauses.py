"""Constraints in the brackets of a stream: `KEY (id)`, `ORDERED BY seq SLACK 100`, `PUNCTUATED BY end ON auction`."""

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
from watersmeet.predicate.source import is_name

FORMS = (
    "KEY (id)",
    "ORDERED BY seq [DESC] [SLACK 100]",
    "CLUSTERED BY zone [SLACK 2]",
    "FOREIGN KEY (auction) REFERENCES auctions (id)",
    "PUNCTUATED BY is_end ON auction [AT WATERMARK]",
)
"""The constraints that a stream may have, as they are written."""
WINDOW = {
    "RANGE": "RANGE 10 SECONDS",
    "SLIDE": "RANGE 1 MINUTE SLIDE 20 SECONDS",
    "WATTR": "RANGE 10 SECONDS WATTR ts",
    "ROWS": "ROWS 100",
}
"""The keywords of windows, which may stand next to constraints, each with an example."""
_NUMBER = re.compile(r"-?\s*\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE)


def parse_constraint(text: str, tokens: Sequence[Token]) -> ConstraintDeclaration | Punctuations:
    """Parse one constraint.

    Args:
        text: The whole statement.
        tokens: The tokens of the constraint.

    Raises:
        SqlError: If they are not a constraint; the message underlines them.
    """
    words = Words(text, tokens)
    for beginning, parse in _FORMS.items():
        if words.take(*beginning):
            try:
                declaration = parse(words)
            except DefinitionError as error:
                raise error if isinstance(error, SqlError) else words.error(str(error), tokens) from None
            if words.rest:
                raise words.error(f"This was not expected here; write it like {_form_of(beginning)}.", words.rest)
            return declaration
    raise words.error(_explain_unknown(tokens), tokens)


def _explain_unknown(tokens: Sequence[Token]) -> str:
    """Return an error message for tokens that are neither a window nor a constraint, guessing which one was meant."""
    first = tokens[0]
    plain = first.token_type is not TokenType.IDENTIFIER
    word = nearest_name(first.text, [*WINDOW, *(form.split()[0] for form in FORMS)]) if plain else None
    if word is not None and word in WINDOW:
        return f"{first.text} is not a window; did you mean {word}, as in [{WINDOW[word]}]?"
    if word is None and plain and tokens[1:2] and tokens[1].token_type is TokenType.NUMBER:
        return f"{first.text} is not a window; write {', '.join(f'[{form}]' for form in WINDOW.values())}."
    near = f" Did you mean {word}?" if word else ""
    return f"This is not a constraint of a stream; choose from {'; '.join(FORMS)}.{near}"


@dataclass
class Words:
    """Reads the tokens of a constraint from left to right.

    Attributes:
        text: The whole statement.
        tokens: The tokens of the constraint.
        at: How many of them have been read.
    """

    text: str
    tokens: Sequence[Token]
    at: int = 0

    @property
    def rest(self) -> Sequence[Token]:
        """The tokens not yet read."""
        return self.tokens[self.at :]

    def take(self, *words: str) -> bool:
        """Read these words if they come next, and return whether they did."""
        upcoming = [" ".join(token.text.upper().split()) for token in self.rest[: len(words)]]
        quoted = any(token.token_type is TokenType.IDENTIFIER for token in self.rest[: len(words)])
        if quoted or upcoming != list(words):
            return False
        self.at += len(words)
        return True

    def need(self, word: str) -> None:
        """Read a word that must come next.

        Raises:
            SqlError: If another one comes.
        """
        if not self.take(word):
            raise self.expected(word)

    def name(self) -> str:
        """Read the name of a column or stream.

        Raises:
            SqlError: If something else comes.
        """
        if not self.rest or not is_name(self.rest[0]):
            raise self.expected("a name")
        self.at += 1
        return self.tokens[self.at - 1].text

    def slack(self) -> str | None:
        """Read a slack, which extends to the last token; None if none comes.

        Raises:
            SqlError: If nothing follows the word SLACK.
        """
        if not self.take("SLACK"):
            return None
        if not self.rest:
            raise self.expected("a number or a duration such as 10 SECONDS")
        slack = self.text[self.rest[0].start : self.rest[-1].end + 1]
        self.at = len(self.tokens)
        return slack

    def error(self, problem: str, tokens: Sequence[Token]) -> SqlError:
        """Return an error that underlines these tokens."""
        return SqlError(problem, self.text, tokens[0].start, tokens[-1].end + 1)

    def expected(self, what: str) -> SqlError:
        """Return an error that says what should come next."""
        where = self.rest[:1] or self.tokens[-1:]
        return self.error(f"{what} was expected {'here' if self.rest else 'after this'}.", where)


def _parse_list(words: Words, item: Callable[[Words], str]) -> list[str]:
    """Read one item, or several in parentheses; raises SqlError if a parenthesis or an item is missing."""
    if not words.take("("):
        return [item(words)]
    items = [item(words)]
    while words.take(","):
        items.append(item(words))
    words.need(")")
    return items


def _parse_key(words: Words) -> ConstraintDeclaration:
    return key(*_parse_list(words, Words.name))


def _parse_order(words: Words) -> ConstraintDeclaration:
    """Parse what follows ORDERED: a column, a direction and a slack.

    Raises:
        DefinitionError: If something else comes, or the slack can't be right.
    """
    column = words.name()
    falling = words.take("DESC")
    if not falling:
        words.take("ASC")
    slack = words.slack()
    if slack is not None and _NUMBER.fullmatch(slack):
        number = Decimal(slack.replace(" ", ""))
        return ordered(column, int(number) if number == int(number) else number, falling)
    return ordered(column, slack, falling)


def _parse_clustering(words: Words) -> ConstraintDeclaration:
    """Parse what follows CLUSTERED: a column, and a slack in batches.

    Raises:
        DefinitionError: If something else comes, or the slack is not a whole number.
    """
    column, slack = words.name(), words.slack()
    if slack is None:
        return clustered(column)
    if not slack.isdigit():
        raise DefinitionError(f"SLACK {slack}: a slack of runs is a whole number of batches, such as 2.")
    return clustered(column, int(slack))


def _parse_foreign_key(words: Words) -> ConstraintDeclaration:
    """Parse what follows FOREIGN KEY: a column, and the one that it references.

    Raises:
        DefinitionError: If something else comes, or there are several columns.
    """
    columns = _parse_list(words, Words.name)
    words.need("REFERENCES")
    stream = words.name()
    words.need("(")
    parent = words.name()
    words.need(")")
    if len(columns) > 1:
        raise DefinitionError("FOREIGN KEY has one column; write several keys for several columns.")
    return foreign_key(columns[0], f"{stream}.{parent}")


def _parse_punctuations(words: Words) -> Punctuations:
    """Parse what follows PUNCTUATIONS: the flag, the pattern's columns and when they take effect.

    Raises:
        DefinitionError: If something else comes, or a column comes twice.
    """
    flag, on = words.name(), dict[str, str | Between]()
    words.need("ON")

    def pattern(words: Words) -> str:
        """Read one column of the pattern into `on`, and return its name; raises DefinitionError if it comes twice."""
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

    _parse_list(words, pattern)
    return punctuations(flag=flag, on=on, effect=_parse_effect(words))


def _parse_effect(words: Words) -> Effect | None:
    """Read AT BATCH or AT WATERMARK; None if there is no AT. Raises SqlError if another word follows it."""
    if not words.take("AT"):
        return None
    if words.take("BATCH"):
        return "batch"
    if not words.take("WATERMARK"):
        raise words.expected("BATCH or WATERMARK")
    return "watermark"


_FORMS: dict[tuple[str, ...], Callable[[Words], ConstraintDeclaration | Punctuations]] = {
    ("KEY",): _parse_key,
    ("ORDERED", "BY"): _parse_order,
    ("CLUSTERED", "BY"): _parse_clustering,
    ("FOREIGN KEY",): _parse_foreign_key,
    ("PUNCTUATED", "BY"): _parse_punctuations,
}


def _form_of(beginning: tuple[str, ...]) -> str:
    return next(form for form in FORMS if form.startswith(" ".join(beginning)))
