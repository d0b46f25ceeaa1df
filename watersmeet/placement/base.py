"""The interface of placement strategies: which nodes keep a tuple, and which a partial result must visit.

A `Strategy` is what the user names. Before each batch it looks at the state and plans a `Layout`, which stays with the
driver. Only its `Placement` travels to the tasks: a frozen, pure, total function for that batch. Tasks ask it two
things: which nodes keep a new tuple, and at which copy of a chunk a partial result probes it. Everything else about
routes follows from these two.

A new strategy is a file in this folder, listed in `strategies.py`; one that `Auto` may choose extends `PricedStrategy`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from math import inf
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np

from watersmeet.arguments import is_number, is_whole, microseconds
from watersmeet.arrays import Ints
from watersmeet.errors import DefinitionError
from watersmeet.predicate.model import Column
from watersmeet.state.chunks.chunk import Bucket, Chunk
from watersmeet.state.manifest.view import ANYWHERE, StateView, StoredNotes

Owners = tuple[int, ...]
"""The nodes that hold a copy of a chunk or segment."""
Moves = Mapping[str, Owners]
"""New owners of chunks, by id."""
MOST_NODES = 4096
"""The most nodes that a strategy may run on."""


class Placement(ABC):
    """A strategy's answers for one batch; pure and total, so that the driver and all tasks agree without communication.

    Attributes:
        nodes: How many nodes there are.
        tracked: Streams whose members' times `groups` needs.
        interleaved: How many tuples may be under way at once in a ring; None for what proves useful.
    """

    nodes: int
    tracked: tuple[int, ...] = ()
    interleaved: int | None = None

    # -- where a tuple is kept

    @abstractmethod
    def slice_length(self, stream: int) -> int:
        """Return the length of the stream's slices of time, in microseconds; slices start at multiples of it."""

    @abstractmethod
    def owners(self, stream: int, start: int, bucket: Bucket) -> Owners:
        """Return the nodes, each in 0..nodes-1, that keep this batch's tuples of a cell; defined for any time."""

    def stored_by(self, stream: int) -> tuple[Column, ...]:
        """Return the columns by whose hash the stream is cut into buckets, once for each; none for one whole bucket."""
        return ()

    @property
    def buckets(self) -> int:
        """The number of buckets that hashes are divided into."""
        return self.nodes

    @property
    def apart(self) -> bool:
        """Whether tuples of different buckets are never part of one result."""
        return False

    def starts(self, stream: int, ts: Ints) -> Ints:
        """Return the start of each tuple's slice."""
        length = self.slice_length(stream)
        return ts // length * length

    # -- which nodes a partial result visits

    def lead(self, origin: int) -> tuple[int, ...]:
        """Return the streams that tuples of `origin` must probe first, in this order, before the join order applies."""
        return ()

    def groups(self, origin: int, moment: Ints, times: Mapping[int, Ints]) -> Ints:
        """Return a number for each partial result; those with the same number on the same node visit the same copies.

        Args:
            origin: The stream of the probing tuples.
            moment: Their event times, in microseconds.
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
        """Return a column that the target is stored by and the joined column that it must equal; None to probe all."""
        return None

    def stays_after(self) -> int | None:
        """Return the number of hops after which partial results never leave their node again; None if they may."""
        return 1 if self.nodes == 1 else None


PlacementT = TypeVar("PlacementT", bound=Placement, covariant=True)


@dataclass(frozen=True, slots=True)
class Layout(Generic[PlacementT]):
    """The plan of a strategy for one batch; pure. Strategies that remember nothing use it as it is.

    Attributes:
        placement: What the batch's tasks ask; the only part of the layout that travels to them.
        moves: New owners of live chunks, by id; only owners change, no rows are copied. Chunks that stay are left out.
    """

    placement: PlacementT
    moves: Moves = field(default_factory=dict, kw_only=True)

    def assign_owners(self, chunks: Iterable[Chunk]) -> tuple[Chunk, ...]:
        """Return the live chunks with their owners in this batch, all of which exist, whether moved or not."""
        return apply_moves(chunks, self.moves, self.placement.nodes)

    def facts(self, state: StateView) -> dict[str, Any]:
        """Return details of the plan for `progress` and `explain`.

        Args:
            state: The state after the batch; before it when `explain` asks.
        """
        return {}

    def keep(self, after: StateView) -> StoredNotes:
        """Return the notes that the next batch's plan finds in the state; see `Notes`.

        Args:
            after: The state after the batch.
        """
        return StoredNotes()


class Strategy(ABC):
    """A strategy with its options; serialisable, and free to plan each batch anew."""

    nodes: int

    def resolve_streams(self, streams: Sequence[str]) -> "Strategy":
        """Return the strategy with the names of streams among its options replaced by positions."""
        return self

    def refusal(self, state: StateView) -> str | None:
        """Return why the strategy can't serve a join of these streams, as a sentence; None if it can."""
        return None

    @abstractmethod
    def plan(self, state: StateView) -> Layout[Placement]:
        """Return the layout of the next batch; the same for the same state."""

    def history(self, state: StateView) -> list[str]:
        """Return the decisions of earlier batches, the latest last, as sentences for `explain`."""
        return []

    def describe(self) -> str:
        """Return the strategy in words."""
        return f"{type(self).__name__}(nodes={self.nodes})"


@dataclass(frozen=True, slots=True)
class Notes(ABC):
    """What a strategy stores for its next batch: a frozen dataclass of numbers, text, and tuples or mappings of them.

    Owners belong to chunks, and routes are found from the owners: a strategy that loses its notes may keep more copies
    or move more chunks than necessary, but loses no result. Unreadable notes therefore count as none.
    """

    VERSION: ClassVar[int] = 1
    """The version of the fields and their meaning; notes of any other version are unreadable."""

    def kept(self) -> StoredNotes:
        """Return the notes as the manifest stores them."""
        return StoredNotes(
            type(self).__name__, {each.name: getattr(self, each.name) for each in fields(self)}, self.VERSION
        )

    @classmethod
    def read(cls, stored: StoredNotes) -> Self | None:
        """Return stored notes; None if there are none, or if they are of another strategy or version."""
        if (stored.by, stored.version) != (cls.__name__, cls.VERSION):
            return None
        try:
            return cls.from_json(stored.notes)
        except (KeyError, TypeError, ValueError):
            return None

    @classmethod
    @abstractmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the notes from their fields as JSON returns them, with lists instead of tuples."""


# -- owners of chunks


def remap_owners(owners: Iterable[int], nodes: int) -> Owners:
    """Return owners that exist when there are fewer nodes than before.

    >>> remap_owners((5, 1, 2), 4)
    (1, 2)
    """
    return tuple(dict.fromkeys(owner % nodes for owner in owners))


def plan_moves(chunks: Iterable[Chunk], owners: Iterable[Owners]) -> dict[str, Owners]:
    """Return the intended owners of chunks by id, without the chunks that have them already."""
    return {chunk.id: new for chunk, new in zip(chunks, owners, strict=True) if new != chunk.owners}


def apply_moves(chunks: Iterable[Chunk], moves: Moves, nodes: int) -> tuple[Chunk, ...]:
    """Return the chunks with their new owners, or else their old ones; removed nodes are replaced by others."""
    live = tuple(chunks)
    intended = [moves.get(chunk.id, chunk.owners) for chunk in live]
    heirs = {owners: remap_owners(owners, nodes) for owners in set(intended) if max(owners) >= nodes}
    existing = (heirs.get(owners, owners) for owners in intended)
    return tuple(
        chunk if owners == chunk.owners else chunk.owned_by(owners)
        for chunk, owners in zip(live, existing, strict=True)
    )


Relocation = Literal["auto", "passive", "aggressive"]
"""What happens to the state when a ring changes."""


def check_nodes(nodes: Any, what: str = "nodes") -> int:
    """Return the number of nodes if it is valid.

    Raises:
        DefinitionError: If it isn't a whole number from 1 to `MOST_NODES`.
    """
    if not is_whole(nodes) or nodes > MOST_NODES:
        raise DefinitionError(f"{what}={nodes!r}: a strategy runs on a whole number of nodes from 1 to {MOST_NODES}.")
    return int(nodes)


def check_switch(what: str, value: Any) -> None:
    """Reject a value that is neither True nor False; `what` is how the error calls it.

    Raises:
        DefinitionError: If it is neither.
    """
    if not isinstance(value, bool):
        raise DefinitionError(f"{what}={value!r}: it is True or False.")


def check_above_zero(what: str, value: Any, most: float = inf) -> None:
    """Reject a value that is not a number above 0 and at most `most`; `what` is how the error calls it.

    Raises:
        DefinitionError: If it isn't one.
    """
    if not is_number(value) or not 0 < value <= most:
        limit = "" if most == inf else f", at most {most:g}"
        raise DefinitionError(f"{what} is {value!r}: give a number above 0{limit}.")


def segment_length(segment: str | timedelta | None) -> int | None:
    """Return a segment length in microseconds; None for None.

    Raises:
        DefinitionError: If it is no duration, or isn't longer than zero.
    """
    length = None if segment is None else microseconds(segment, "segment")
    if length is not None and length < 1:
        raise DefinitionError(f"segment={segment!r}: a segment must be longer than zero.")
    return length


def check_load(nodes: int, weights: Any, capacities: Any) -> None:
    """Check the weights and capacities that define a node's load.

    Raises:
        DefinitionError: Unless there are three weights of at least 0, not all 0, and a capacity above 0 for each node.
    """
    if not _are_amounts(weights) or len(weights) != 3 or not any(weights):
        raise DefinitionError(f"weights={weights!r}: give three numbers, for CPU, memory and network, not all 0.")
    if capacities != () and not (_are_amounts(capacities) and len(capacities) == nodes and all(capacities)):
        raise DefinitionError(f"capacities={capacities!r}: give one number above 0 for each of the {nodes} nodes.")


def _are_amounts(values: Any) -> bool:
    return isinstance(values, tuple) and all(is_number(value) and 0 <= value < inf for value in values)
