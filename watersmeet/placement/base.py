"""The interface that every strategy of the papers answers: who keeps a tuple, and whom a partial result must visit.

A `Strategy` is what the user names. Before each batch it looks at the state and returns a `Placement`: a frozen, pure,
total function for that batch, which travels to every task. Tasks ask it two things: who keeps a new tuple, and at which
copy of a chunk a partial result probes it. Everything else about routes follows from these two.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from watersmeet.placement.owners import remapped
from watersmeet.predicate.model import Column
from watersmeet.state.chunk import Bucket
from watersmeet.state.view import ANYWHERE, Ints, StateView


class Placement(ABC):
    """A batch's answers; pure and total, so that the driver and every task agree without asking each other.

    Attributes:
        nodes: How many nodes there are.
        tracked: Streams whose members' times `groups` wants to see.
    """

    nodes: int
    tracked: tuple[int, ...] = ()

    # -- where a tuple is kept

    @abstractmethod
    def slice_length(self, stream: int) -> int:
        """Return the length of the stream's slices of time; slices start at multiples of it."""

    @abstractmethod
    def owners(self, stream: int, start: int, bucket: Bucket) -> tuple[int, ...]:
        """Return the nodes, each in 0..nodes-1, that keep this batch's tuples of a cell; also beyond any horizon."""

    def stored_by(self, stream: int) -> tuple[Column, ...]:
        """Return the columns by whose hash the stream is cut into buckets, once for each; none for one whole bucket."""
        return ()

    def starts(self, stream: int, ts: Ints) -> Ints:
        """Return the start of each tuple's slice."""
        length = self.slice_length(stream)
        return ts // length * length

    # -- whom a partial result visits

    def lead(self, origin: int) -> tuple[int, ...]:
        """Return the streams that a tuple of `origin` must probe first, in this order, whatever the join order says."""
        return ()

    def groups(self, origin: int, moment: Ints, times: Mapping[int, Ints]) -> Ints:
        """Return a number for each partial result; those of one number and at one node visit the same copies.

        Args:
            origin: The stream of the probing tuples.
            moment: Their event times.
            times: For tracked streams that are joined already, the times of the members.
        """
        return np.full(len(moment), ANYWHERE)

    def visit(self, group: int, target: int, owners: Sequence[int], here: int) -> int:
        """Return the one owner at which partial results probe a chunk.

        Args:
            group: Their group.
            target: The chunk's stream.
            owners: The nodes that hold a copy of the chunk.
            here: The node the partial results are on; ANYWHERE before the first hop.
        """
        return here if here in owners else owners[0]

    def probed_by(self, target: int, joined: frozenset[int]) -> tuple[Column, Column] | None:
        """Return a column that the target is stored by and the column joined that must equal it; None for all."""
        return None

    def stays_after(self) -> int | None:
        """Return after how many hops a partial result finds all it still has to probe where it is; None for never."""
        return 1 if self.nodes == 1 else None


class Strategy(ABC):
    """A strategy with its options; serialisable, and free to plan each batch anew."""

    nodes: int

    def named(self, streams: Sequence[str]) -> "Strategy":
        """Return the strategy for streams of these names, where an option names one of them."""
        return self

    def refusal(self, state: StateView) -> str | None:
        """Return why the strategy can't serve a join of these streams, as a sentence; None if it can."""
        return None

    @abstractmethod
    def plan(self, state: StateView) -> Placement:
        """Return the placement of the next batch."""

    def move(self, state: StateView, placement: Placement) -> dict[str, tuple[int, ...]]:
        """Return new owners for live chunks; only owners change, no rows are copied.

        Chunks that stay are left out. The default sees to it that every owner exists when `nodes` has shrunk.
        """
        nodes = placement.nodes
        gone = [owners for owners in set(map(attrgetter("owners"), state.chunks)) if max(owners) >= nodes]
        heirs = {owners: remapped(owners, nodes) for owners in gone}
        return {chunk.id: heirs[chunk.owners] for chunk in state.chunks if chunk.owners in heirs} if heirs else {}

    def freeze(self, placement: Placement, after: StateView) -> dict[str, Any]:
        """Return what the next batch's plan must know of this one's, as JSON can hold it.

        Args:
            placement: This batch's placement.
            after: The state after the batch; `after.frozen` is what the plan of this batch was given.
        """
        return {}

    def facts(self, placement: Placement, state: StateView) -> dict[str, Any]:
        """Return what people may want to know of a placement, for `progress` and `explain`."""
        return {}

    def history(self, state: StateView) -> list[str]:
        """Return what was decided before, the last things last, as sentences for `explain`."""
        return []

    def describe(self) -> str:
        """Return the strategy in words."""
        return f"{type(self).__name__}(nodes={self.nodes})"
