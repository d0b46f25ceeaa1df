"""The interface that every strategy of the papers answers: owners of a cell, route of a partial result.

A `Strategy` is what the user names. Before each batch it looks at the state and returns a `Placement`: a frozen, pure,
total function for that batch, which travels to every task. Tasks ask it two things: who keeps a new tuple, and at which
copy of a chunk a partial result probes it. Everything else about routes follows from these.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from watersmeet.errors import DefinitionError
from watersmeet.predicate.model import Column
from watersmeet.state.chunk import Chunk

Ints = NDArray[np.int64]

LONGEST_SLICE = 3_600_000_000
"""Slices of streams whose window says nothing about time are an hour long."""


@dataclass(frozen=True, slots=True)
class StreamView:
    """What a strategy knows of a stream before a batch.

    Attributes:
        span: How long a tuple stays, delay included, in microseconds; None if time alone never ends it.
        latest: The latest event time seen; None before the first tuple.
        rows: Tuples that the last batch brought.
        advance: How far event time advanced in the last batch.
    """

    span: int | None
    latest: int | None = None
    rows: int = 0
    advance: int = 0


@dataclass(frozen=True, slots=True)
class StateView:
    """What a strategy knows before a batch: streams, live chunks, and what it froze itself in earlier batches."""

    streams: tuple[StreamView, ...]
    chunks: tuple[Chunk, ...] = ()
    frozen: Mapping[str, Any] = field(default_factory=dict)


class Placement(ABC):
    """A batch's answers; pure and total, so that the driver and every task agree without asking each other."""

    nodes: int

    @abstractmethod
    def slice_length(self, stream: int) -> int:
        """Return the length of the stream's slices of time; slices start at multiples of it."""

    @abstractmethod
    def owners(self, stream: int, start: int, bucket: int) -> tuple[int, ...]:
        """Return the nodes, each in 0..nodes-1, that keep this batch's tuples of a cell; also beyond any horizon."""

    def visit(self, owners: Sequence[int], here: int, segment: int) -> int:
        """Return the one owner at which a partial result probes a chunk.

        Args:
            owners: The nodes that hold a copy of the chunk.
            here: The node the partial result is on.
            segment: The slice its probing tuple belongs to.
        """
        return here if here in owners else owners[0]

    def stays(self) -> bool:
        """Tell whether a partial result finds all it still has to probe where it is, so that no hop needs a shuffle."""
        return self.nodes == 1

    def stored_by(self, stream: int) -> Column | None:
        """Return the column whose hash is the bucket of a stored tuple; None where there is one bucket."""
        return None

    def probed_by(self, target: int, joined: frozenset[int]) -> Column | None:
        """Return the carried column whose hash names the only bucket to probe; None to probe all buckets."""
        return None

    def starts(self, stream: int, ts: Ints) -> Ints:
        """Return the start of each tuple's slice."""
        length = self.slice_length(stream)
        return ts // length * length


class Strategy(ABC):
    """A strategy with its options; serialisable, and free to plan each batch anew."""

    nodes: int

    @abstractmethod
    def plan(self, state: StateView) -> Placement:
        """Return the placement of the next batch."""

    def move(self, state: StateView, placement: Placement) -> dict[str, tuple[int, ...]]:
        """Return new owners for live chunks; only owners change, no rows are copied.

        Chunks that stay are left out. The default sees to it that every owner exists when `nodes` has shrunk.
        """
        return {
            chunk.id: tuple(owner % placement.nodes for owner in chunk.owners)
            for chunk in state.chunks
            if max(chunk.owners) >= placement.nodes
        }

    def describe(self) -> str:
        """Return the strategy in words."""
        return f"{type(self).__name__}(nodes={self.nodes})"


def check_nodes(nodes: Any, limit: int = 4096) -> int:
    """Return the number of nodes.

    Raises:
        DefinitionError: If it isn't a whole number from 1 to the limit.
    """
    if not isinstance(nodes, int) or isinstance(nodes, bool) or not 1 <= nodes <= limit:
        raise DefinitionError(f"nodes={nodes!r}: a strategy runs on a whole number of nodes from 1 to {limit}.")
    return nodes
