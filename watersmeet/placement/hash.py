"""Hash: tuples are kept by the hash of a join attribute, so that equal values meet on one node.

Liu, Li, Fan and Chen, "Multi-Way Windowed Streams θ-Joins Using Cluster", section 3.1 and figure 3. If equalities
tie all streams on one shared attribute, one hop is enough: a tuple and all that it may join are on one node. If the
attributes differ, partial results hop from one attribute's node to the next, and a stream with two join attributes is
stored once for each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from watersmeet.arguments import fields_to_python
from watersmeet.cost.cost_model import hash_cost
from watersmeet.placement.base import Layout, Owners, Placement, check_nodes, plan_moves
from watersmeet.placement.priced_strategy import Basis, Options, PricedStrategy, Pricer, Quote, Requirements
from watersmeet.predicate.model import Column
from watersmeet.state.chunks.chunk import WHOLE, Bucket, Chunk
from watersmeet.state.manifest.view import StateView

Attribute = tuple[Column, ...]
"""Columns that must all be equal, at most one of each stream."""


@dataclass(frozen=True, slots=True)
class HashPlacement(Placement):
    """Buckets by the hash of attributes.

    Attributes:
        nodes: How many nodes there are.
        lengths: The slice length of each stream.
        attributes: The attributes that streams are stored by.
        has_foreign_chunks: Whether there are live chunks elsewhere than their tuples' hashes say.
        partitions: The least number of buckets.
    """

    nodes: int
    lengths: tuple[int, ...]
    attributes: tuple[Attribute, ...]
    has_foreign_chunks: bool = False
    partitions: int = 1

    @property
    def buckets(self) -> int:
        """The number of buckets: the least multiple of the nodes that is no less than the partitions."""
        least = max(self.nodes, self.partitions if self.shared else 1)
        return -(-least // self.nodes) * self.nodes

    @property
    def apart(self) -> bool:
        """Whether one attribute ties all streams."""
        return self.shared

    def slice_length(self, stream: int) -> int:
        """Return the length of slices that expire one by one."""
        return self.lengths[stream]

    def owners(self, stream: int, start: int, bucket: Bucket) -> Owners:
        """Return the node of the bucket; a stream without an equality is spread by time."""
        if bucket == WHOLE:
            return (start // self.lengths[stream] % self.nodes,)
        return (bucket.number % self.nodes,)

    def stored_by(self, stream: int) -> tuple[Column, ...]:
        """Return the stream's column of each attribute that it is stored by."""
        return tuple(column for attribute in self.attributes for column in attribute if column.stream == stream)

    def probed_by(self, target: int, joined: frozenset[int]) -> tuple[Column, Column] | None:
        """Return the target's first bucketing by an attribute that a joined stream has too, with that stream's column.

        None if there is none: then all buckets are probed.
        """
        for own in self.stored_by(target):
            (attribute,) = (attribute for attribute in self.attributes if own in attribute)
            columns = [column for column in attribute if column.stream in joined]
            if columns:
                return own, columns[0]
        return None

    def lead(self, origin: int) -> tuple[int, ...]:
        """Return the few streams, chosen greedily, after which each hop can use an equality."""
        joined, rest = {origin}, set(range(len(self.lengths))) - {origin}
        leading: list[int] = []
        while True:
            untied = {stream for stream in rest if not self._is_tied(stream, joined)}
            helps = {s: sum(self._is_tied(other, {s}) for other in untied) for s in sorted(rest - untied)}
            best = max(helps, key=lambda stream: helps[stream], default=None)
            if best is None or not helps[best]:
                return tuple(leading)
            leading.append(best)
            joined.add(best)
            rest.remove(best)

    def stays_after(self) -> int | None:
        """Return 1 on a shared attribute: the first hop leads to the node of all that a partial result may join."""
        return 1 if self.nodes == 1 or (self.shared and not self.has_foreign_chunks) else None

    @property
    def shared(self) -> bool:
        """Whether one attribute ties all streams."""
        return is_shared(self.attributes, len(self.lengths))

    def _is_tied(self, stream: int, others: set[int]) -> bool:
        return self.probed_by(stream, frozenset(others)) is not None


@dataclass(frozen=True, slots=True)
class Hash(PricedStrategy):
    """Hashing on `nodes` nodes, for joins whose streams are tied by equalities.

    >>> Hash(nodes=4).describe()
    'Hash(nodes=4)'
    """

    nodes: int = 4

    ONE_NODE: ClassVar[bool] = True
    PREFERENCE: ClassVar[str | None] = "each stream has an equality with another, so that probes look into one bucket"

    def __post_init__(self) -> None:
        fields_to_python(self)
        check_nodes(self.nodes)

    @classmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return a pricer with buckets by the attributes of the join."""
        p, by = basis.parameters(None), choose_attributes(attributes(basis.state.equalities))
        copies = [sum(column.stream == at for columns in by for column in columns) for at in p.streams]
        shared = is_shared(by, len(p.rates))
        return lambda nodes, options: Quote(p, hash_cost(p, nodes, copies, shared))

    @classmethod
    def configure(cls, nodes: int, options: Options, terms: Requirements) -> "Hash":
        """Return the strategy on this many nodes; node loads don't affect it."""
        return cls(nodes)

    def refusal(self, state: StateView) -> str | None:
        """Return a sentence about a stream that has no equality with another; None if each of them has one."""
        if not state.equalities:
            return (
                "Hash keeps tuples by the hash of a column that must equal another stream's, and `where` asks for no "
                "such equality; use PSP, DSJ, ATR or CTR."
            )
        tied = {column.stream for pair in state.equalities for column in pair}
        free = [name for at, name in enumerate(state.names) if at not in tied]
        if not free:
            return None
        return (
            f"Hash needs for each stream a column that must equal another stream's, and `where` has none for "
            f"'{free[0]}'; use PSP, DSJ, ATR or CTR."
        )

    def plan(self, state: StateView) -> Layout[HashPlacement]:
        """Return buckets by the attributes of the join; each chunk has one owner: its bucket's, or its first so far."""
        by = choose_attributes(attributes(state.equalities))
        placement = HashPlacement(
            self.nodes,
            tuple(stream.slice for stream in state.streams),
            by,
            any(self._is_foreign(chunk, by) for chunk in state.chunks),
            state.partitions,
        )
        return Layout(placement, moves=plan_moves(state.chunks, map(self._owner, state.chunks)))

    def _owner(self, chunk: Chunk) -> Owners:
        return ((chunk.owners[0] if chunk.bucket == WHOLE else chunk.bucket.number) % self.nodes,)

    def _is_foreign(self, chunk: Chunk, by: Sequence[Attribute]) -> bool:
        """Return whether a chunk may hold tuples of several nodes' buckets; one of 8 buckets is within one of 4."""
        has_bucket = any(Column(chunk.stream, chunk.bucket.field) in attribute for attribute in by)
        return not has_bucket or chunk.bucket.of % self.nodes != 0


def attributes(equalities: Iterable[tuple[Column, Column]]) -> list[Attribute]:
    """Return the columns that equalities combine, in the order in which they first occur; one of each stream.

    >>> attributes([(Column(0, 2), Column(1, 2)), (Column(1, 3), Column(2, 3)), (Column(1, 2), Column(3, 0))])
    [(Column(stream=0, field=2), Column(stream=1, field=2), Column(stream=3, field=0)), \
(Column(stream=1, field=3), Column(stream=2, field=3))]
    """
    groups: list[list[Column]] = []
    for pair in equalities:
        meeting = [group for group in groups if set(group) & set(pair)]
        merged = list(dict.fromkeys(column for group in (*meeting, pair) for column in group))
        at = groups.index(meeting[0]) if meeting else len(groups)
        groups = [*(group for group in groups[:at]), merged, *(group for group in groups[at:] if group not in meeting)]
    return [_one_each(group) for group in groups]


def _one_each(columns: Iterable[Column]) -> Attribute:
    first: dict[int, Column] = {}
    for column in columns:
        first.setdefault(column.stream, column)
    return tuple(first[stream] for stream in sorted(first))


def is_shared(by: Sequence[Attribute], streams: int) -> bool:
    """Return whether one attribute ties all streams."""
    return len(by) == 1 and len(by[0]) == streams


def choose_attributes(candidates: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """Return the attributes worth storing by: those that tie streams that no larger or earlier one ties already.

    An attribute shared by all streams makes all others redundant, and a path the one that would close a cycle.
    """
    choice: list[Attribute] = []
    tied: list[frozenset[int]] = []
    for attribute in sorted(candidates, key=len, reverse=True):
        streams = frozenset(column.stream for column in attribute)
        if any(streams <= group for group in tied):
            continue
        choice.append(attribute)
        apart = [group for group in tied if not group & streams]
        tied = [*apart, streams.union(*(group for group in tied if group & streams))]
    return tuple(choice)
