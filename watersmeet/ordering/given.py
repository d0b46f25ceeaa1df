"""The order in which the streams were given, connected ones first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.ordering.base import JoinOrder, Ordering
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk


@dataclass(frozen=True, slots=True)
class FixedOrder(JoinOrder):
    """One order for each stream, whatever the values of its tuples."""

    by_origin: tuple[tuple[int, ...], ...]

    def orders(self, origin: int) -> tuple[tuple[int, ...], ...]:
        """See JoinOrder."""
        return (self.by_origin[origin],)


@dataclass(frozen=True, slots=True)
class Given(Ordering):
    """Probes the streams as given, but a stream that some conjunct ties to those joined before one that none does."""

    def plan(self, query: Query, chunks: tuple[Chunk, ...] = (), learned: Mapping[str, Any] | None = None) -> JoinOrder:
        """See Ordering."""
        streams, ties = len(query.streams), [c.streams for c in query.conjuncts if len(c.streams) > 1]
        return FixedOrder(tuple(given_order(origin, streams, ties) for origin in range(streams)))


def given_order(origin: int, streams: int, ties: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """Return the other streams, those that a conjunct can already be decided with first.

    >>> given_order(2, 3, [frozenset({0, 1}), frozenset({1, 2})])
    (1, 0)
    """
    joined = [origin]
    while len(joined) < streams:
        joined.append(tied(joined, streams, ties)[0])
    return tuple(joined[1:])


def tied(joined: Sequence[int], streams: int, ties: Sequence[frozenset[int]]) -> list[int]:
    """Return the streams not joined yet that a conjunct ties to those joined; all of them, if it ties none."""
    rest = [stream for stream in range(streams) if stream not in joined]
    return [s for s in rest if any(s in tie and tie - {s} <= set(joined) for tie in ties)] or rest
