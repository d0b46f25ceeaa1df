"""The interface of join orders, and the default one.

An `Ordering` is what the user names, a `JoinOrder` its answers for one batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.predicate.model import Column
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.work import HopWork
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk


class JoinOrder(ABC):
    """The order in which new tuples probe the other streams; pure, planned per batch.

    Tuples of a stream may take different courses depending on their values; each course has an order of its own.
    """

    @abstractmethod
    def orders(self, origin: int) -> tuple[tuple[int, ...], ...]:
        """Return for each course of a stream's tuples, at least one, the other streams in the order to probe them."""

    def reads(self, origin: int) -> tuple[Column, ...]:
        """Return the columns that determine a tuple's course; none if there is only one course."""
        return ()

    def courses(self, origin: int, values: Mapping[Column, pa.Array]) -> Ints:
        """Return each tuple's course from the columns that `reads` names; by default the first one for all."""
        return np.zeros(max(map(len, values.values()), default=0), np.int64)


class Ordering(ABC):
    """A way to choose join orders; free to plan each batch anew."""

    @abstractmethod
    def plan(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> JoinOrder:
        """Return the orders of the next batch.

        Args:
            query: The join.
            chunks: The live chunks, with their histograms.
            learned: What `learn` returned after the last batch; empty at first.
        """

    def learn(self, learned: Mapping[str, Any], hops: Mapping[Hop, HopWork]) -> dict[str, Any]:
        """Return what to remember of the batches so far, as JSON can represent it.

        Args:
            learned: What was remembered before the batch.
            hops: The work of the batch's hops.
        """
        return {}

    def estimates(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> dict[Hop, float]:
        """Return the expected matches per partial result, for each hop that `plan` would choose; for `explain`."""
        return {}


# -- the order of the definition


@dataclass(frozen=True, slots=True)
class FixedOrder(JoinOrder):
    """One order for each stream, whatever the values of its tuples."""

    by_origin: tuple[tuple[int, ...], ...]

    def orders(self, origin: int) -> tuple[tuple[int, ...], ...]:
        """See JoinOrder."""
        return (self.by_origin[origin],)


@dataclass(frozen=True, slots=True)
class Given(Ordering):
    """Probes the streams in the order of the join's definition, but those tied to joined ones by a conjunct first."""

    def plan(self, query: Query, chunks: tuple[Chunk, ...] = (), learned: Mapping[str, Any] | None = None) -> JoinOrder:
        """See Ordering."""
        streams, ties = len(query.streams), [c.streams for c in query.conjuncts if len(c.streams) > 1]
        return FixedOrder(tuple(given_order(origin, streams, ties) for origin in range(streams)))


def given_order(origin: int, streams: int, ties: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """Return the other streams by position, except that those for which a conjunct can already be decided come first.

    Args:
        origin: The stream whose tuples probe.
        streams: How many streams there are.
        ties: The streams of each conjunct over several.

    >>> given_order(2, 3, [frozenset({0, 1}), frozenset({1, 2})])
    (1, 0)
    """
    joined = [origin]
    while len(joined) < streams:
        joined.append(tied_streams(joined, streams, ties)[0])
    return tuple(joined[1:])


def tied_streams(joined: Sequence[int], streams: int, ties: Sequence[frozenset[int]]) -> list[int]:
    """Return the streams not yet joined that a conjunct ties to joined ones; all of them, if there are none."""
    rest = [stream for stream in range(streams) if stream not in joined]
    return [s for s in rest if any(s in tie and tie - {s} <= set(joined) for tie in ties)] or rest
