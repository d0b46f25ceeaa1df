"""A placement and an order that make no sense, to show that the executor is exact under any."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.adapt.auto import Auto, StrategyChoice
from watersmeet.adapt.pricing import Pricing
from watersmeet.arrays import Ints
from watersmeet.ordering import JoinOrder, Ordering
from watersmeet.placement import Hash, Layout, Placement, Strategy
from watersmeet.predicate.model import Column
from watersmeet.predicate.numbers import hashes
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Bucket, Chunk
from watersmeet.state.manifest.view import StateView, StoredNotes


def dice(*parts: Any) -> int:
    """The same number for the same parts, in every process."""
    return zlib.crc32(repr(parts).encode())


@dataclass(frozen=True)
class ScatterPlacement(Placement):
    """Everything by dice: owners, copies, bucketings, visits, which depend on all they may depend on."""

    nodes: int
    seed: int
    streams: int
    hashed: Mapping[int, tuple[Column, ...]]
    equal: Mapping[Column, Column]
    stays: int | None
    tracked: tuple[int, ...] = ()

    def slice_length(self, stream: int) -> int:
        return 1 + dice(self.seed, "length", stream) % 12

    def owners(self, stream: int, start: int, bucket: Bucket) -> tuple[int, ...]:
        copies = 1 + dice(self.seed, "copies", stream, start, bucket) % self.nodes
        shuffled = sorted(range(self.nodes), key=lambda node: dice(self.seed, node, stream, start, bucket))
        return tuple(shuffled[:copies])

    def stored_by(self, stream: int) -> tuple[Column, ...]:
        return self.hashed.get(stream, ())

    def probed_by(self, target: int, joined: frozenset[int]) -> tuple[Column, Column] | None:
        for column in self.hashed.get(target, ()):
            if self.equal[column].stream in joined:
                return column, self.equal[column]
        return None

    def lead(self, origin: int) -> tuple[int, ...]:
        other = dice(self.seed, "lead", origin) % (2 * self.streams)
        return (other,) if other < self.streams and other != origin else ()

    def groups(self, origin: int, moment: Ints, times: Mapping[int, Ints]) -> Ints:
        return (moment + sum(times.values(), np.zeros_like(moment))) % 5

    def visit(self, group: int, target: int, owners: Sequence[int], here: int) -> int:
        return owners[dice(self.seed, group, target, here) % len(owners)]

    def stays_after(self) -> int | None:
        return self.stays


@dataclass(frozen=True)
class Scatter(Strategy):
    """A new throw of the dice each batch."""

    nodes: int
    seed: int

    def plan(self, state: StateView) -> "ScatterLayout":
        rolled = dice(self.seed, len(state.chunks), state.streams)
        pairs = [pair for pair in state.equalities if dice(rolled, pair) % 3] if rolled % 2 else ()
        hashed: dict[int, tuple[Column, ...]] = {}
        for column in (column for pair in pairs for column in pair):
            hashed[column.stream] = tuple(dict.fromkeys((*hashed.get(column.stream, ()), column)))
        tracked = tuple(at for at in range(len(state.streams)) if dice(rolled, at) % 2)
        equal = {one: two for pair in pairs for one, two in (pair, pair[::-1])}
        stays = (None, None, 1, 2)[rolled // 2 % 4]
        placement = ScatterPlacement(self.nodes, rolled, len(state.streams), hashed, equal, stays, tracked)
        moved = [chunk for chunk in state.chunks if max(chunk.owners) >= self.nodes or dice(chunk.id) % 3 == 0]
        moves = {chunk.id: placement.owners(chunk.stream, chunk.start, chunk.bucket) for chunk in moved}
        return ScatterLayout(placement, state.notes.notes.get("batches", 0) + 1, moves=moves)


@dataclass(frozen=True)
class ScatterLayout(Layout[ScatterPlacement]):
    """Owners by dice, and a count of the batches."""

    batches: int

    def keep(self, after: StateView) -> StoredNotes:
        return StoredNotes("Scatter", {"batches": self.batches})


@dataclass(frozen=True)
class Forgetful(Strategy):
    """A strategy whose notes are lost, or of a form that it can't read."""

    inner: Strategy
    nodes: int = 0

    def plan(self, state: StateView) -> Layout[Placement]:
        by, notes, version = state.notes
        lost = [StoredNotes(), StoredNotes(by, {}, version), StoredNotes(by, notes, version + 1), state.notes]
        return self.inner.plan(replace(state, notes=lost[dice(len(state.chunks), state.batch) % len(lost)]))


@dataclass(frozen=True)
class ScatterOrder(JoinOrder):
    """Every order there is, chosen by a tuple's values."""

    streams: int

    def orders(self, origin: int) -> tuple[tuple[int, ...], ...]:
        return tuple(permutations([at for at in range(self.streams) if at != origin]))

    def reads(self, origin: int) -> tuple[Column, ...]:
        return (Column(origin, 0), Column(origin, 1))

    def courses(self, origin: int, values: Mapping[Column, pa.Array]) -> Ints:
        found = hashes(values[Column(origin, 0)]) + hashes(values[Column(origin, 1)])
        return (found % np.uint64(len(self.orders(origin)))).astype(np.int64)


@dataclass(frozen=True)
class ScatterOrdering(Ordering):
    """Probes in any order."""

    def plan(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> JoinOrder:
        return ScatterOrder(len(query.streams))


@dataclass(frozen=True)
class Restless(Auto):
    """An Auto that takes any candidate it can, by dice, and often another one than for the batch before."""

    seed: int = 0

    def choose(self, state: StateView) -> StrategyChoice:
        pricing = Pricing(state)
        names = [*(["Hash"] if Hash().refusal(state) is None else []), "Central", "PSP", "DSJ", "ATR", "CTR"]
        thrown = dice(self.seed, [stream.latest for stream in state.streams], len(state.chunks))
        options = [option for name in names for option in pricing.candidates(name, 2, self.max_nodes)]
        own = [option for option in options if option.name == names[thrown % len(names)]]
        table = tuple(pricing.best(self.max_nodes))
        return StrategyChoice(own[thrown // 7 % len(own)] if own else table[0], "by dice", table, True)
