"""The interface of join orders: an `Ordering` is what the user names, a `JoinOrder` its answers for one batch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.predicate.model import Column
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.work import HopWork
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk


class JoinOrder(ABC):
    """Answers in which order a new tuple probes the other streams; pure, planned per batch.

    Tuples of a stream may take different courses, told by their values; each course has an order of its own.
    """

    @abstractmethod
    def orders(self, origin: int) -> tuple[tuple[int, ...], ...]:
        """Return for each course of a stream's tuples the other streams, in the order to probe them."""

    def reads(self, origin: int) -> tuple[Column, ...]:
        """Return the columns that tell a tuple's course; none where there is but one."""
        return ()

    def courses(self, origin: int, values: Mapping[Column, pa.Array]) -> NDArray[np.int64]:
        """Return each tuple's course from the columns that `reads` names; by default all take the first."""
        return np.zeros(max(map(len, values.values()), default=0), np.int64)


class Ordering(ABC):
    """A way to choose join orders; free to plan each batch anew."""

    @abstractmethod
    def plan(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> JoinOrder:
        """Return the orders of the next batch.

        Args:
            query: The join.
            chunks: The live chunks, with their histograms.
            learned: What `learn` made of the batches before; empty at first.
        """

    def learn(self, learned: Mapping[str, Any], hops: Mapping[Hop, HopWork]) -> dict[str, Any]:
        """Return what is to be known of the batches so far, as JSON can hold it.

        Args:
            learned: What was known before the batch.
            hops: What the batch's hops did.
        """
        return {}

    def estimates(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> dict[Hop, float]:
        """Return for each hop that `plan` would choose the matches expected per partial result; for `explain`."""
        return {}
