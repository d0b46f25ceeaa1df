"""The answer: what became of the tuples in question and of their combinations, as fields and as sentences."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

import pyarrow as pa

from watersmeet.arguments import format_duration, format_roughly
from watersmeet.formatting import value_at
from watersmeet.predicate.model import Column, ComparedValue, ComparedValues
from watersmeet.probe.evaluators.compared_values import SideValues, describe_comparison, format_plain, format_values
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.query.query import Query

Fate = Literal["stored", "purged", "not stored", "late", "rejected", "denied", "joined", "never arrived", "unknown"]
"""What became of a tuple; `joined` where only results still show it."""
Truth = Literal["TRUE", "FALSE", "NULL", "raises", "unknown"]
BatchRange = tuple[int, int]
"""The first and the last batch in which something may have happened; the same batch twice if it is known."""
LONGEST_LITERAL = 60
"""The characters of a value that a sentence shows at most."""
MOST_UNITS = 1000
"""A duration of more units than this is told roughly."""
MOST_COLUMNS = 4
"""The columns of a tuple that a sentence shows at most."""


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
        batches: The batch that emitted the result, as far as that is known.
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
        return "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)


def format_literal(value: Any) -> str:
    """Return a value as it appears in sentences, cut off if it is long.

    >>> format_literal(None), format_literal("x"), format_literal(1.5), format_literal(True)
    ('NULL', "'x'", '1.5', 'TRUE')
    """
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= LONGEST_LITERAL else f"{text[:LONGEST_LITERAL]}…"


@dataclass(frozen=True, slots=True)
class ValueFormatter:
    """Formats values of a join, with times as the session shows them.

    Attributes:
        query: The join.
        duck: Formats times in the session's time zone.
    """

    query: Query
    duck: Duck

    def format_time(self, ts: int, stream: int = 0) -> str:
        """Return an event time, in microseconds, as the session shows it."""
        return self.format_value(pa.array([ts], pa.int64()).cast(self.query.streams[stream].time_type))

    def format_value(self, values: pa.Array) -> str:
        """Return the first value of an array as text; a time as the session's clocks show it, without its offset."""
        if pa.types.is_timestamp(values.type) and values[0].is_valid:
            text = str(self.duck.values({"c": values}, "CAST(c AS VARCHAR)", 1)[0].as_py())
            return re.sub(r"[+-]\d\d(:\d\d)*$", "", text) if values.type.tz is not None else text
        return format_literal(value_at(values, 0))

    def describe_comparison(
        self, comparing: ComparedValues, sides: Sequence[SideValues], columns: Mapping[Column, pa.Array]
    ) -> str:
        """Return what a conjunct compares, with further columns, to end a sentence; empty if there is neither."""
        texts = format_values(sides, 0, self._format_side)
        names = {self.query.name_of(column): values for column, values in columns.items()}
        phrase = describe_comparison(comparing, texts, [*names])
        stated = {side.compared.text for side in sides} if phrase else set[str]()
        others = {} if phrase or not texts else {s.compared.text: t for s, t in zip(sides, texts, strict=True)}
        others |= {name: self.format_value(values) for name, values in names.items() if name not in stated}
        listing = ", ".join(f"{name} = {value}" for name, value in others.items())
        return f"{f': {phrase}' if phrase else ''}{f' ({listing})' if listing else ''}"

    def _format_side(self, compared: ComparedValue, values: pa.Array) -> str:
        return format_plain(compared, values) if compared.is_duration else self.format_value(values)

    def format_row(self, values: Mapping[str, pa.Array]) -> str:
        """Return the first columns of a tuple with their values as text."""
        return ", ".join(f"{name} = {self.format_value(value)}" for name, value in [*values.items()][:MOST_COLUMNS])


def plain_values(query: Query, columns: Mapping[Column, pa.Array]) -> dict[str, Any]:
    """Return columns of a combination as Python values, by name."""
    return {query.name_of(column): value_at(values, 0) for column, values in columns.items()}


def describe_duration(length: int) -> str:
    """Return a duration in words, exactly if that is short.

    >>> describe_duration(90_000_000), describe_duration(3_723_000_001)
    ('90 seconds', '1 hour')
    """
    exact = format_duration(length)
    return exact if int(exact.split()[0]) <= MOST_UNITS else format_roughly(length)


def describe_batches(batches: BatchRange) -> str:
    """Return in words in which batch something happened.

    >>> describe_batches((3, 3)), describe_batches((3, 5))
    ('in batch 3', 'in one of batches 3 to 5')
    """
    first, last = batches
    return f"in batch {first}" if first == last else f"in one of batches {max(first, 0)} to {last}"


def latest_batches(batches: Sequence[BatchRange]) -> BatchRange:
    """Return the range of batches in which the last of several things happened."""
    return max(first for first, _ in batches), max(last for _, last in batches)


def object_pronoun(members: Sequence[object]) -> str:
    """Return `it`, `both` or `them all`, by how many there are."""
    return "them all" if len(members) > 2 else "both" if len(members) == 2 else "it"


def count_noun(count: int, noun: str) -> str:
    """Return a number of things, such as `2 results`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
