"""The answer: what became of the tuples in question and of their combinations, as fields and as sentences."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

Fate = Literal["stored", "purged", "not stored", "late", "rejected", "denied", "joined", "never arrived", "unknown"]
"""What became of a tuple; `joined` where only results still show it."""
Truth = Literal["TRUE", "FALSE", "NULL", "raises", "unknown"]
BatchRange = tuple[int, int]
"""The first and the last batch in which something may have happened; the same batch twice if it is known."""


@dataclass(frozen=True, slots=True)
class TupleStatus:
    """What became of a tuple in question.

    Attributes:
        stream: Its stream.
        selector: The condition that selected it, such as `id = 17`.
        fate: What became of it; `unknown` where no trace is left.
        message: The same as a sentence without its subject.
        batches: The batch in which it came, as far as that is known.
        values: Its columns, as far as they are kept.
        summary: The first of these, as text.
    """

    stream: str
    selector: str
    fate: Fate
    message: str
    batches: BatchRange | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""

    @property
    def name(self) -> str:
        """How sentences refer to it."""
        return f"{self.stream} ({self.selector})"


@dataclass(frozen=True, slots=True)
class Check:
    """One of the tests that a combination must pass.

    Attributes:
        name: The conjunct as written, or the window: `window of a`.
        kind: Whether it is a window or a conjunct.
        holds: The outcome; `unknown` where it can't be determined here.
        message: The same in words.
        values: The values that the outcome follows from.
    """

    name: str
    kind: Literal["window", "conjunct"]
    holds: Truth
    message: str
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def refuses(self) -> bool:
        """Whether the combination fails the test."""
        return self.holds in ("FALSE", "NULL")


@dataclass(frozen=True, slots=True)
class Combination:
    """What became of a combination of tuples.

    Attributes:
        members: The tuples, one of each stream in question.
        joined: Whether a result contains them all or, in a semi join, exists because of them; None where that can't be
            determined, or is not certain yet. No result contains tuples of an anti join.
        tests: The tests that could be run on them, in the order in which sentences mention them.
        messages: What became of it, in sentences.
        batches: The batch that put out the result, as far as that is known.
        results: How many results contain them all, as far as that is known.
    """

    members: tuple[TupleStatus, ...]
    joined: bool | None
    tests: tuple[Check, ...]
    messages: tuple[str, ...]
    batches: BatchRange | None = None
    results: int | None = None

    @property
    def refused_by(self) -> Check | None:
        """The first test that it fails."""
        return next((test for test in self.tests if test.refuses), None)


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """What `why` answers; `print` it, or read its fields.

    Attributes:
        tuples: The tuples in question, those included that were not found.
        combinations: The combinations of one tuple of each stream in question.
        notes: What else is worth knowing.
    """

    tuples: tuple[TupleStatus, ...]
    combinations: tuple[Combination, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def joined(self) -> bool | None:
        """Whether some combination joined; None where that is unknown, or not certain yet."""
        outcomes = [combination.joined for combination in self.combinations]
        return True if True in outcomes else None if None in outcomes or not outcomes else False

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer, a sentence or two each."""
        streams = [status.stream for status in self.tuples]

        def name(status: TupleStatus) -> str:  # several tuples of a stream are told apart by their values
            several = streams.count(status.stream) > 1 and status.summary
            return f"{status.stream} ({status.summary})" if several else status.name

        sentences = [f"{name(status)} {status.message}" for status in self.tuples]
        for number, combination in enumerate(self.combinations, 1):
            members = " and ".join(map(name, combination.members))
            head, indent = (f"{number}. {members}: ", "   ") if len(self.combinations) > 1 else ("", "")
            sentences += [f"{indent if at else head}{message}" for at, message in enumerate(combination.messages)]
        return (*sentences, *self.notes)

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(describe_comparison)}</p>" for describe_comparison in self.sentences)


def format_literal(value: Any, limit: int = 60) -> str:
    """Return a value as it appears in sentences.

    >>> format_literal(None), format_literal("x"), format_literal(1.5), format_literal(True)
    ('NULL', "'x'", '1.5', 'TRUE')
    """
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
