"""Expiry: when state may leave for good, by rules that only add up; what any of them lets go is purged."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from watersmeet.query.query import Query
from watersmeet.query.windows import NEVER, Window
from watersmeet.state.chunks.chunk import Chunk


@dataclass(frozen=True, slots=True)
class Moment:
    """How far a join has come after a batch.

    Attributes:
        query: The join.
        arrived: For each stream how many tuples had arrived before any that have not probed all they should.
        settled: The time before which no result can lie that is still to come; None for minus infinity.
    """

    query: Query
    arrived: tuple[int, ...]
    settled: int | None


class ExpiryRule(ABC):
    """A reason why state is no longer needed."""

    @abstractmethod
    def find_expired(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the chunks, by id, of which no row can be part of a result of a later batch.

        [!] Whatever the strategy, the order of streams or the exchange: what is named here is gone for good.
        """


def find_expired(rules: Iterable[ExpiryRule], chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
    """Return the chunks that one of the rules lets go."""
    return frozenset[str]().union(*(rule.find_expired(chunks, now) for rule in rules))


class TableRefreshExpiry(ExpiryRule):
    """Lets go all rows of tables that the next batch reads anew."""

    def find_expired(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the chunks of such tables."""
        read_anew = {at for at, stream in enumerate(now.query.streams) if stream.refreshed}
        return frozenset(key for key, chunk in chunks.items() if chunk.stream in read_anew)


class WindowExpiry(ExpiryRule):
    """Lets go what lies before every window that a later result may have."""

    def find_expired(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the chunks whose last row is too old; of count windows, too long ago by arrival."""
        first, counted = first_needed(now), set(now.query.counted_streams)
        return frozenset(
            key
            for key, chunk in chunks.items()
            if (chunk.last_ordinal if chunk.stream in counted else chunk.high) < first[chunk.stream]
        )


def first_needed(now: Moment) -> list[int]:
    """Return for each stream the time from which all its tuples are kept; of count windows, the arrival ordinal."""
    windows = [stream.window for stream in now.query.streams]
    return [_first_kept(*found) for found in zip(windows, now.arrived, _marks(now), strict=True)]


def _marks(now: Moment) -> list[int | None]:
    """Return for each stream the time before which no result can lie that one of its tuples decides.

    A tuple of an optional stream decides on combinations that are not closed.
    """
    if now.settled is None or not now.query.optional:
        return [now.settled] * len(now.query.streams)
    marks = [_side_marks(side, now.settled) for side in now.query.sides]
    return [min(mark) for mark in zip(*marks, strict=True)]


def _side_marks(query: Query, settled: int) -> list[int]:
    """Return the marks for the combinations of a join's required streams."""
    earliest = first_open(query, settled)
    return [earliest if at in query.optional else settled for at in range(len(query.streams))]


def first_open(query: Query, settled: int) -> int:
    """Return the time before which no combination of the required streams lies that is not closed.

    They are no earlier than the latest of their members, each of which still has to expire. Those that are closed at
    their own time are no earlier than the closing mark.

    Args:
        query: The join.
        settled: The closing mark.
    """
    if not query.optional or query.closes_at_its_time:
        return settled
    windows = [query.streams[at].window for at in query.members]
    return max(int(window.earliest(np.array([settled]))[0]) for window in windows)


def _first_kept(window: Window, arrived: int, settled: int | None) -> int:
    """Return the earliest time that a window still admits; of a count window, the first arrival ordinal."""
    if window.rows is not None:
        return arrived - window.rows + 1
    return NEVER if settled is None else int(window.earliest(np.array([settled]))[0])
