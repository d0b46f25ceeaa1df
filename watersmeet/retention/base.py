"""The interface of what may leave the state: a rule each, and what any of them lets go is purged."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from watersmeet.model.query import Query
from watersmeet.state.chunk import Chunk


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


class Retention(ABC):
    """A reason why state is no longer needed."""

    @abstractmethod
    def leaving(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the chunks, by id, of which no row can be part of a result of a later batch.

        [!] Whatever the strategy, the order of streams or the exchange: what is named here is gone for good.
        """


def leaving(rules: Iterable[Retention], chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
    """Return the chunks that one of the rules lets go."""
    return frozenset[str]().union(*(rule.leaving(chunks, now) for rule in rules))
