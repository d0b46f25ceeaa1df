"""How sentences speak of values, times, durations and batches."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.arguments import format_duration, format_roughly
from watersmeet.formatting import value_at
from watersmeet.observe.why.answer import Batches, shown_value
from watersmeet.predicate.model import Column, ComparedValue, ComparedValues
from watersmeet.probe.evaluators.compared_values import SideValues, describe_comparison, format_plain, format_values
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.query.query import Query

MOST_UNITS = 1000
"""A duration of more units than this is told roughly."""


SHOWN = 4
"""So many columns tell a tuple from others."""


@dataclass(frozen=True, slots=True)
class Voice:
    """Words for what is found, with times as the session shows them.

    Attributes:
        query: The join.
        duck: Knows the session's time zone.
    """

    query: Query
    duck: Duck

    def time(self, ts: int, stream: int = 0) -> str:
        """Return an event time, in microseconds, as the session shows it."""
        return self.value(pa.array([ts], pa.int64()).cast(self.query.streams[stream].time_type))

    def value(self, values: pa.Array) -> str:
        """Return the only one of some values."""
        if pa.types.is_timestamp(values.type) and values[0].is_valid:
            text = str(self.duck.values({"c": values}, "CAST(c AS VARCHAR)", 1)[0].as_py())
            return re.sub(r"[+-]\d\d(:\d\d)*$", "", text) if values.type.tz is not None else text
        return shown_value(value_at(values, 0))

    def compared(
        self, comparing: ComparedValues, sides: Sequence[SideValues], columns: Mapping[Column, pa.Array]
    ) -> str:
        """Return what a conjunct compares, and columns beside it, as the end of a sentence."""
        texts = format_values(sides, 0, self._compared)
        names = {self.query.name_of(column): values for column, values in columns.items()}
        says = describe_comparison(comparing, texts, [*names])
        known = {side.compared.text for side in sides} if says else set[str]()
        named = {} if says or not texts else {s.compared.text: t for s, t in zip(sides, texts, strict=True)}
        named |= {name: self.value(values) for name, values in names.items() if name not in known}
        beside = ", ".join(f"{name} = {value}" for name, value in named.items())
        return f"{f': {says}' if says else ''}{f' ({beside})' if beside else ''}"

    def _compared(self, compared: ComparedValue, values: pa.Array) -> str:
        return format_plain(compared, values) if compared.is_duration else self.value(values)

    def row(self, values: Mapping[str, pa.Array]) -> str:
        """Return the first columns of a tuple with their values."""
        return ", ".join(f"{name} = {self.value(found)}" for name, found in [*values.items()][:SHOWN])


def plain_values(query: Query, columns: Mapping[Column, pa.Array]) -> dict[str, Any]:
    """Return columns of a combination with their values, for programs."""
    return {query.name_of(column): value_at(values, 0) for column, values in columns.items()}


def lasting(length: int) -> str:
    """Return a duration, exactly if that is short.

    >>> lasting(90_000_000), lasting(3_723_000_001)
    ('90 seconds', '1 hour')
    """
    exact = format_duration(length)
    return exact if int(exact.split()[0]) <= MOST_UNITS else format_roughly(length)


def in_batch(batches: Batches) -> str:
    """Return in which batch something happened.

    >>> in_batch((3, 3)), in_batch((3, 5))
    ('in batch 3', 'in one of batches 3 to 5')
    """
    first, last = batches
    return f"in batch {first}" if first == last else f"in one of batches {max(first, 0)} to {last}"


def latest(batches: Sequence[Batches]) -> Batches:
    """Return when the last of several things happened."""
    return max(first for first, _ in batches), max(last for _, last in batches)
