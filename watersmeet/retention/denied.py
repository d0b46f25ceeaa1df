"""What streams have denied up to a batch: the rows of each that will not be accepted any more (D_k)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.model.metadata import Promise
from watersmeet.model.query import Query
from watersmeet.state.marks import Marks

Source = tuple[int, Promise]
"""A promise of a stream, by the stream's position."""


@dataclass(frozen=True, slots=True)
class Denied:
    """What was denied up to a batch.

    Attributes:
        watermark: The join's watermark; None for minus infinity.
        times: For each stream the event time before which its rows are denied; none before the first watermark.
        frontiers: For promised orders the value below which, or above which, rows are denied; none before the first.
        marks: For keys, clusters and punctuations the values and patterns that are denied, in one or more tables.
    """

    watermark: int | None = None
    times: Mapping[int, pa.Scalar] = field(default_factory=dict)
    frontiers: Mapping[Source, pa.Scalar] = field(default_factory=dict)
    marks: Mapping[Source, Sequence[Marks]] = field(default_factory=dict)


def times_before(query: Query, watermark: int | None) -> dict[int, pa.Scalar]:
    """Return for each stream the event time before which its rows are late, in the type of its event times."""
    if watermark is None:
        return {}
    time = pa.scalar(watermark, pa.int64())
    return {at: time.cast(stream.time_type) for at, stream in enumerate(query.streams)}
