"""Expiry: when whole chunks may be dropped for good; a chunk is dropped if any rule allows it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from watersmeet.query.query import Query
from watersmeet.query.windows import NEVER, Window
from watersmeet.state.chunks.chunk import Chunk


@dataclass(frozen=True, slots=True)
class Moment:
    """The progress of a join after a batch.

    Attributes:
        query: The join.
        arrived: For each stream how many tuples had arrived before the first that still owes results.
        settled: The time before which no later result can lie; None for minus infinity.
    """

    query: Query
    arrived: tuple[int, ...]
    settled: int | None


class ExpiryRule(ABC):
    """A reason why chunks are no longer needed."""

    @abstractmethod
    def find_expired(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the ids of chunks no row of which can be part of a result of a later batch.

        [!] This must hold for every strategy, order of streams and exchange: these chunks are dropped for good.
        """


def find_expired(rules: Iterable[ExpiryRule], chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
    """Return the ids of the chunks that any of the rules allows to be dropped."""
    return frozenset[str]().union(*(rule.find_expired(chunks, now) for rule in rules))


class TableRefreshExpiry(ExpiryRule):
    """Drops all rows of tables that the next batch reads again."""

    def find_expired(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the chunks of such tables."""
        tables = {at for at, stream in enumerate(now.query.streams) if stream.refreshed}
        return frozenset(key for key, chunk in chunks.items() if chunk.stream in tables)


class WindowExpiry(ExpiryRule):
    """Drops chunks that lie before every window of a later result."""

    def find_expired(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the chunks whose last row is too old; for count windows, the chunks that arrived too long ago."""
        first, counted = first_needed(now), set(now.query.counted_streams)
        return frozenset(
            key
            for key, chunk in chunks.items()
            if (chunk.last_ordinal if chunk.stream in counted else chunk.high) < first[chunk.stream]
        )


def first_needed(now: Moment) -> list[int]:
    """Return for each stream the time from which its tuples are needed; for count windows, the arrival ordinal."""
    windows = [stream.window for stream in now.query.streams]
    return [_first_admitted(*each) for each in zip(windows, now.arrived, _earliest_results(now), strict=True)]


def _earliest_results(now: Moment) -> list[int | None]:
    """Return for each stream the time before which no result can lie that depends on one of its tuples.

    A tuple of an optional stream affects combinations that are not closed.
    """
    if now.settled is None or not now.query.optional:
        return [now.settled] * len(now.query.streams)
    sides = [_earliest_of_side(side, now.settled) for side in now.query.sides]
    return [min(times) for times in zip(*sides, strict=True)]


def _earliest_of_side(query: Query, settled: int) -> list[int]:
    """Return the same times for the combinations of a join's required streams."""
    earliest = first_open(query, settled)
    return [earliest if at in query.optional else settled for at in range(len(query.streams))]


def first_open(query: Query, settled: int) -> int:
    """Return the time before which all combinations of the required streams are closed.

    An open combination is no earlier than its latest member, each of which still has to expire. One that closes at its
    own time is no earlier than `settled`.

    Args:
        query: The join.
        settled: The time before which no later result can lie.
    """
    if not query.optional or query.closes_at_its_time:
        return settled
    windows = [query.streams[at].window for at in query.members]
    return max(int(window.earliest(np.array([settled]))[0]) for window in windows)


def _first_admitted(window: Window, arrived: int, settled: int | None) -> int:
    """Return the earliest time that a window still admits; for a count window, the first arrival ordinal."""
    if window.rows is not None:
        return arrived - window.rows + 1
    return NEVER if settled is None else int(window.earliest(np.array([settled]))[0])
