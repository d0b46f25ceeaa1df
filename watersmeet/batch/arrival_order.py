"""Arrival order within a batch, for count windows: ordinals of stored tuples, as-of counts of probing ones.

Arrival order is total: batch, event time, position of the stream, content hash. Tuples of one stream with equal times
and equal hashes are interchangeable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints

Keys = tuple[Ints, Ints]
"""Event times and content hashes of the same tuples."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The arrivals of one count-windowed stream in one batch.

    Attributes:
        stream: The stream's position.
        base: How many of its tuples arrived in earlier batches.
        ts: The batch's event times in arrival order.
        hashes: The content hashes that go with them.
    """

    stream: int
    base: int
    ts: Ints
    hashes: Ints

    def ordinals(self, chunks: Sequence[Keys]) -> list[Ints]:
        """Return the ordinals (from 1) of the rows of some chunks, an array for each.

        Tuples with the same time and hash must be in these chunks all together, or not at all.
        """
        mine = _keys(chunks)
        order = np.argsort(mine, kind="stable")
        ranked = mine[order]
        # Tuples with equal time and content are interchangeable: the k-th of them gets the k-th ordinal.
        ordinal = np.searchsorted(_keys([(self.ts, self.hashes)]), ranked, "left")
        nth_equal = np.arange(len(ranked)) - np.searchsorted(ranked, ranked, "left")
        ordinals = np.empty(len(mine), dtype=np.int64)
        ordinals[order] = self.base + 1 + ordinal + nth_equal
        return np.split(ordinals, np.cumsum([len(ts) for ts, _ in chunks])[:-1])

    def as_of(self, origin: int, moments: Ints) -> Ints:
        """Return how many tuples of this stream arrived no later than tuples of `origin` with these times, for each."""
        side = "right" if self.stream <= origin else "left"
        return self.base + np.searchsorted(self.ts, moments, side)  # type: ignore[call-overload,no-any-return]


def arrivals(stream: int, base: int, chunks: Sequence[Keys]) -> Arrivals:
    """Return a stream's arrivals.

    Args:
        stream: The stream's position.
        base: How many of its tuples arrived in earlier batches.
        chunks: The (times, content hashes) of all its tuples in this batch, divided in any way.
    """
    keys = np.sort(_keys(chunks))
    return Arrivals(stream, base, keys["ts"].copy(), keys["hash"].copy())


def _keys(chunks: Sequence[Keys]) -> NDArray[np.void]:
    """Return (time, hash) as one sortable array."""
    keys = np.empty(sum(len(ts) for ts, _ in chunks), dtype=[("ts", np.int64), ("hash", np.int64)])
    for name, at in (("ts", 0), ("hash", 1)):
        keys[name] = np.concatenate([np.empty(0, np.int64), *(chunk[at] for chunk in chunks)])
    return keys


def as_of_counts(by_stream: Mapping[int, Arrivals], origin: int, moments: Ints) -> dict[int, Ints]:
    """Return the as-of counts of probing tuples for every count-windowed stream but their own, by stream."""
    return {stream: own.as_of(origin, moments) for stream, own in by_stream.items() if stream != origin}
