"""An answer to why: what became of tuples, and of their combinations; sentences for people, fields for programs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

Fate = Literal["stored", "purged", "not stored", "late", "rejected", "denied", "joined", "never arrived", "unknown"]
"""What became of a tuple; `joined` where only results still tell of it."""
Holds = Literal["TRUE", "FALSE", "NULL", "raises", "unknown"]
Batches = tuple[int, int]
"""The first and the last batch in which something may have happened; the same if it is known which."""


@dataclass(frozen=True, slots=True)
class Tuple:
    """What became of a tuple that was asked for.

    Attributes:
        stream: Its stream.
        asked: What it was asked for by, such as `id = 17`.
        fate: What became of it; `unknown` where nothing is left to tell.
        says: The same in a sentence.
        batches: In which batch it came, as far as that is known.
        values: Its columns, as far as they are kept.
        shown: Some of them, as people read them.
    """

    stream: str
    asked: str
    fate: Fate
    says: str
    batches: Batches | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    shown: str = ""

    @property
    def name(self) -> str:
        """How sentences call it."""
        return f"{self.stream} ({self.asked})"


@dataclass(frozen=True, slots=True)
class Check:
    """One of the tests that a combination must pass.

    Attributes:
        name: The conjunct as it is written, or the window: `window of a`.
        kind: What it is.
        holds: Its answer; `unknown` where it can't be told here.
        says: The same in words.
        values: The values that the answer follows from.
    """

    name: str
    kind: Literal["window", "conjunct"]
    holds: Holds
    says: str
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def refuses(self) -> bool:
        """Whether the combination fails by it."""
        return self.holds in ("FALSE", "NULL")


@dataclass(frozen=True, slots=True)
class Combination:
    """What became of a combination of tuples.

    Attributes:
        members: The tuples, one for each stream that was asked about.
        joined: Whether a result has them all or, of a semi join, is there because of them; None where that can't be
            told, or is not certain yet. No result has tuples of an anti join.
        tests: The tests that they can be put to, in the order in which sentences speak of them.
        says: What became of it, in sentences.
        batches: The batch that put the result out, as far as that is known.
        results: How many results have them all, as far as that is known.
    """

    members: tuple[Tuple, ...]
    joined: bool | None
    tests: tuple[Check, ...]
    says: tuple[str, ...]
    batches: Batches | None = None
    results: int | None = None

    @property
    def refused_by(self) -> Check | None:
        """The first test that refuses it."""
        return next((test for test in self.tests if test.refuses), None)


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """What `why` found; `print` it, or look at its fields.

    Attributes:
        tuples: The tuples that were found, and those that were not.
        combinations: One of each stream asked about; none if only one stream was.
        notes: What else is worth knowing.
    """

    tuples: tuple[Tuple, ...]
    combinations: tuple[Combination, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def joined(self) -> bool | None:
        """Whether some combination joined; None where that can't be told, or is not certain yet."""
        known = [combination.joined for combination in self.combinations]
        return True if True in known else None if None in known or not known else False

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer, a sentence or two each."""
        several = len(self.combinations) > 1
        streams = [found.stream for found in self.tuples]
        said = [f"{_called(found, streams.count(found.stream) > 1)} {found.says}" for found in self.tuples]
        for at, combination in enumerate(self.combinations, 1):
            named = " and ".join(_called(found, streams.count(found.stream) > 1) for found in combination.members)
            head, then = (f"{at}. {named}: ", "   ") if several else ("", "")
            said += [f"{then if more else head}{says}" for more, says in enumerate(combination.says)]
        return (*said, *self.notes)

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(describe_comparison)}</p>" for describe_comparison in self.sentences)


def _called(found: Tuple, several: bool) -> str:
    """Return how sentences call a tuple; if there are several of its stream, by what tells it from the others."""
    return f"{found.stream} ({found.shown})" if several and found.shown else found.name


def shown_value(value: Any, limit: int = 60) -> str:
    """Return a value as sentences show it.

    >>> shown_value(None), shown_value("x"), shown_value(1.5), shown_value(True)
    ('NULL', "'x'", '1.5', 'TRUE')
    """
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
