"""Values, times, durations, batches and counts in the words of an answer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.arguments import format_duration, format_roughly
from watersmeet.formatting import value_at
from watersmeet.observe.why.answer import BatchRange, format_literal
from watersmeet.predicate.model import Column, ComparedValue, ComparedValues
from watersmeet.probe.evaluators.compared_values import SideValues, describe_comparison, format_plain, format_values
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.query.query import Query

MOST_UNITS = 1000
"""A duration of more units than this is told roughly."""


MOST_COLUMNS = 4
"""The columns of a tuple that a sentence shows at most."""


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
        """Return the first value of an array as text."""
        if pa.types.is_timestamp(values.type) and values[0].is_valid:
            text = str(self.duck.values({"c": values}, "CAST(c AS VARCHAR)", 1)[0].as_py())
            return re.sub(r"[+-]\d\d(:\d\d)*$", "", text) if values.type.tz is not None else text
        return format_literal(value_at(values, 0))

    def describe_comparison(
        self, comparing: ComparedValues, sides: Sequence[SideValues], columns: Mapping[Column, pa.Array]
    ) -> str:
        """Return what a conjunct compares, with further columns, as the end of a sentence."""
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
    """Return the batches in which the last of several things happened."""
    return max(first for first, _ in batches), max(last for _, last in batches)


def object_pronoun(members: Sequence[object]) -> str:
    """Return `it`, `both` or `them all`, by how many there are."""
    return "them all" if len(members) > 2 else "both" if len(members) == 2 else "it"


def count_noun(count: int, noun: str) -> str:
    """Return a number of things, such as `2 results`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
