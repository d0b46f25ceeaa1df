"""Arrival order within a batch, for count windows: ordinals of stored tuples, as-of counts of probing ones.

Arrival order is total: batch, event time, position of the stream, content hash. Tuples of one stream with equal times
and equal hashes are interchangeable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The arrivals of one count-windowed stream in one batch.

    Attributes:
        stream: The stream's position.
        base: How many of its tuples arrived in earlier batches.
        ts: The batch's event times in arrival order.
    """

    stream: int
    base: int
    ts: Ints

    def as_of(self, origin: int, moments: Ints) -> Ints:
        """Return how many tuples of the stream arrived no later than tuples of `origin` with the given times."""
        side = "right" if self.stream <= origin else "left"
        return self.base + np.searchsorted(self.ts, moments, side)  # type: ignore[call-overload,no-any-return]


def arrivals(stream: int, base: int, keys: Sequence[tuple[Ints, Ints]]) -> tuple[Arrivals, list[Ints]]:
    """Return a stream's arrivals, and the ordinals (from 1) of the rows of each of its fresh chunks.

    Args:
        stream: The stream's position.
        base: How many of its tuples arrived in earlier batches.
        keys: For each fresh chunk its rows' (times, content hashes).
    """
    ts = np.concatenate([np.empty(0, np.int64), *(key[0] for key in keys)])
    hashes = np.concatenate([np.empty(0, np.int64), *(key[1] for key in keys)])
    order = np.lexsort((hashes, ts))
    ordinals = np.empty(len(ts), dtype=np.int64)
    ordinals[order] = base + 1 + np.arange(len(ts))
    return Arrivals(stream, base, ts[order]), np.split(ordinals, np.cumsum([len(key[0]) for key in keys])[:-1])


def as_of_all(found: Mapping[int, Arrivals], origin: int, moments: Ints) -> dict[int, Ints]:
    """Return the as-of counts of probing tuples for every count-windowed stream but their own."""
    return {stream: seen.as_of(origin, moments) for stream, seen in found.items() if stream != origin}
