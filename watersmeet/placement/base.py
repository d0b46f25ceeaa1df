"""The interface that every strategy of the papers answers: who keeps a tuple, and whom a partial result must visit.

A `Strategy` is what the user names. Before each batch it looks at the state and plans a `Layout`, which stays with the
driver. Of it only the `Placement` travels to every task: a frozen, pure, total function for that batch. Tasks ask it
two things: who keeps a new tuple, and at which copy of a chunk a partial result probes it. Everything else about routes
follows from these two.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from watersmeet.arrays import Ints
from watersmeet.placement.owners import Moves, owned
from watersmeet.predicate.model import Column
from watersmeet.state.chunks.chunk import Bucket, Chunk
from watersmeet.state.manifest.view import ANYWHERE, StateView, StoredNotes


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

    @property
    def buckets(self) -> int:
        """Into how many buckets hashes are cut."""
        return self.nodes

    @property
    def apart(self) -> bool:
        """Whether tuples of different buckets are never part of one result."""
        return False

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


Placed = TypeVar("Placed", bound=Placement, covariant=True)


@dataclass(frozen=True, slots=True)
class Layout(Generic[Placed]):
    """What a strategy planned for one batch; pure. It is enough as it is for a strategy that keeps nothing in mind.

    Attributes:
        placement: What the batch's tasks ask; all of the layout that travels to them.
        moves: New owners of live chunks, by id; only owners change, no rows are copied. Chunks that stay are left out.
    """

    placement: Placed
    moves: Moves = field(default_factory=dict, kw_only=True)

    def owned(self, chunks: Iterable[Chunk]) -> tuple[Chunk, ...]:
        """Return the live chunks with their owners in this batch, all of which exist, moved or not."""
        return owned(chunks, self.moves, self.placement.nodes)

    def facts(self, state: StateView) -> dict[str, Any]:
        """Return what people may want to know, for `progress` and `explain`.

        Args:
            state: The state after the batch; before it, where `explain` asks.
        """
        return {}

    def keep(self, after: StateView) -> StoredNotes:
        """Return what the next batch's plan must know of this one's, which it then finds in the state; see `Notes`.

        Args:
            after: The state after the batch.
        """
        return StoredNotes()


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
    def plan(self, state: StateView) -> Layout[Placement]:
        """Return the layout of the next batch; the same for the same state."""

    def history(self, state: StateView) -> list[str]:
        """Return what was decided before, the last things last, as sentences for `explain`."""
        return []

    def describe(self) -> str:
        """Return the strategy in words."""
        return f"{type(self).__name__}(nodes={self.nodes})"
