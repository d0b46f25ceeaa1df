"""The state of a join as a question reads it: the chunks that a manifest names, dead rows included.

A running query may remove files while they are read; `read_newest` then starts over with the next manifest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints, Mask
from watersmeet.batch.node import any_flagged
from watersmeet.caching import cached_property
from watersmeet.errors import StateError
from watersmeet.metadata.expiry import Moment, first_needed, first_open, superseding_columns
from watersmeet.observe.why.answer import BatchRange
from watersmeet.observe.why.condition_trace import StoredTuple
from watersmeet.observe.why.question import TupleSelector
from watersmeet.predicate.model import Column
from watersmeet.probe.candidates import Hashes, Seat
from watersmeet.probe.chunk_table import ChunkTable, Target
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import NOWHERE, ROW_BITS, ROW_MASK, Partials, references
from watersmeet.query.query import Query
from watersmeet.spilling.paying_tuples import unit_reaches
from watersmeet.state.chunks.chunk import Rows
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.chunk_writer import dead_rows
from watersmeet.state.store.store import Store

TRIES = 5
"""How often state is read if a running query changes it meanwhile."""
Reading = TypeVar("Reading")


class EveryChunk:
    """Routes a partial result to every chunk; of rows that are stored several times, to one copy."""

    tracked: tuple[int, ...] = ()

    def seats(self, block: Partials, step: Step, hashes: Hashes) -> Callable[[Target], Seat]:
        """See Router."""
        return lambda target: 0 if target.chunk.bucket.first else NOWHERE


@dataclass(frozen=True)
class JoinState:
    """The state of a join after a batch.

    Attributes:
        query: The join.
        store: The store of its state.
        manifest: The state's manifest.
    """

    query: Query
    store: Store
    manifest: Manifest

    @cached_property
    def targets(self) -> list[Target]:
        """The chunks, numbered; each row in one of them."""
        return [Target(at, chunk) for at, chunk in enumerate(self.manifest.chunks.values()) if chunk.bucket.first]

    @cached_property
    def table(self) -> ChunkTable:
        """The rows of the chunks."""
        return ChunkTable(self.store, self.query, self.targets)

    @property
    def evaluated_query(self) -> Query:
        """The join, evaluated as carefully as the stored tuples require."""
        has_raised = any_flagged(self.query, (target.chunk for target in self.targets))
        return self.query.careful_query() if has_raised else self.query

    def columns(self, stream: int) -> list[int]:
        """Return the positions of the stream's own columns that state keeps, the time first; tables have no time."""
        spec = self.query.streams[stream]
        own = [c.field for c in self.query.stored_columns[stream] if c.field < len(spec.schema)]
        return own if spec.table else [spec.time, *own]

    def can_find(self, selector: TupleSelector) -> bool:
        """Tell whether state keeps one of the columns that a selector needs."""
        return not selector.values.keys().isdisjoint(self.columns(selector.stream))

    def find(self, selector: TupleSelector) -> Iterator[tuple[StoredTuple, bool]]:
        """Yield the tuples that a selector selects, by those of its columns that state keeps, and if they are dead."""
        fields = [field for field in selector.values if field in self.columns(selector.stream)]
        for target in self._targets_of(selector.stream) if fields else ():
            rows = self.table.rows(target)
            at = np.flatnonzero(selector.mask({field: rows.column(Column(selector.stream, field)) for field in fields}))
            dead = set(dead_rows(self.store, target.chunk).tolist()) if len(at) else set[int]()
            for row in at.tolist():
                yield self._stored_tuple(target, rows, row), row in dead or target.chunk.live == 0

    def _targets_of(self, stream: int) -> list[Target]:
        return [target for target in self.targets if target.chunk.stream == stream]

    def _stored_tuple(self, target: Target, rows: Rows, row: int) -> StoredTuple:
        """Return a row of a chunk as a stored tuple, with when it came and what its unit is owed since."""
        ordinal = None if rows.ordinals is None else int(rows.ordinals[row])
        ref = int(references(target.number, np.array([row]))[0])
        owed_since = self._owed_since.get(target.chunk.unit)
        return StoredTuple(
            target.chunk.stream, ref, int(rows.ts[row]), _arrival_of(target, rows, row), ordinal, owed_since
        )

    @cached_property
    def _owed_since(self) -> dict[int, int]:
        return {unit.number: unit.since for unit in self.manifest.ledger.units}

    @property
    def owes_results(self) -> bool:
        """Whether some tuple has not probed all it should."""
        return self.manifest.ledger.owes(unit_reaches(self.query, self.manifest.chunks.values()))

    def tuple_at(self, ref: int) -> StoredTuple:
        """Return the tuple that a reference points to."""
        target = self._targets_by_number[ref >> ROW_BITS]
        return self._stored_tuple(target, self.table.rows(target), ref & ROW_MASK)

    @cached_property
    def _targets_by_number(self) -> dict[int, Target]:
        return {target.number: target for target in self.targets}

    def values(self, stored: StoredTuple) -> dict[str, pa.Array]:
        """Return the columns of a tuple that state keeps, by name, each as an array of one value."""
        names, ref = self.query.streams[stored.stream].schema.names, np.array([stored.ref])
        fields = sorted(self.columns(stored.stream))
        return {names[field]: self.table.gather(Column(stored.stream, field), ref) for field in fields}

    def first_arrival(self, refs: Ints) -> BatchRange:
        """Return in which batch the first of some tuples, of which there must be one, came."""
        targets = [self._targets_by_number[number] for number in np.unique(refs >> ROW_BITS).tolist()]
        arrivals = [_first_arrival_in(target, self.table, refs) for target in targets]
        return min(first for first, _ in arrivals), min(last for _, last in arrivals)

    @cached_property
    def retained_from(self) -> list[int]:
        """For each stream the time from which on its window has purged no tuple."""
        arrived = tuple(stream.arrived for stream in self.manifest.streams)
        return first_needed(Moment(self.query, arrived, self.manifest.settled))

    def complete_at(self, stream: int, times: Ints) -> Mask:
        """Tell at which times all tuples of a stream are still stored that results from then on may contain.

        This holds for joins with optional streams: only windows remove their stored tuples, and in as-of streams
        newer tuples; what was not stored matches nothing.
        """
        complete: Mask = self.query.streams[stream].window.earliest(times) >= self.retained_from[stream]
        if self.manifest.settled is not None and stream in superseding_columns(self.query):
            complete &= times >= first_open(self.query, self.manifest.settled)
        return complete | self.is_complete(stream)

    def is_complete(self, stream: int) -> bool:
        """Tell whether every tuple of a stream that was ever accepted is still stored."""
        stored = sum(target.chunk.live for target in self._targets_of(stream))
        return stored == self.manifest.streams[stream].arrived

    def count_earlier(self, stream: int, stored: StoredTuple) -> tuple[int, int]:
        """Return how many tuples of a count-windowed stream came no later than another's: at least, and at most.

        The order of arrival is known for tuples that are still stored, except where merging has dropped it.
        """
        least, most = 0, self.manifest.streams[stream].arrived
        for target in self._targets_of(stream):
            rows = self.table.rows(target)
            assert rows.ordinals is not None
            before, after = _split_by_arrival(target, rows, stored)
            least = max([least, *rows.ordinals[before].tolist()])
            most = min([most, *(rows.ordinals[after] - 1).tolist()])
        return least, most


def _arrival_of(target: Target, rows: Rows, row: int) -> BatchRange:
    first, last = target.chunk.arrived
    return (first, last) if rows.arrivals is None else (int(rows.arrivals[row]), int(rows.arrivals[row]))


def _first_arrival_in(target: Target, table: ChunkTable, refs: Ints) -> BatchRange:
    """Return in which batch the first of the tuples in `refs` that a chunk holds came: a range if it doesn't say."""
    arrivals = table.rows(target).arrivals
    if arrivals is None:
        return target.chunk.arrived.first, target.chunk.arrived.last
    first = int(arrivals[refs[refs >> ROW_BITS == target.number] & ROW_MASK].min())
    return first, first


def _split_by_arrival(target: Target, rows: Rows, stored: StoredTuple) -> tuple[Mask, Mask]:
    """Return which rows of a chunk certainly came before a tuple of another stream, and which after it."""
    arrivals = target.chunk.arrived
    first = np.full(len(rows), arrivals.first) if rows.arrivals is None else rows.arrivals
    last = np.full(len(rows), arrivals.last) if rows.arrivals is None else rows.arrivals
    same = (first == last) & (first == stored.batches[0]) & (stored.batches[0] == stored.batches[1])
    earlier = rows.ts <= stored.ts if target.chunk.stream < stored.stream else rows.ts < stored.ts
    return (last < stored.batches[0]) | (same & earlier), (first > stored.batches[1]) | (same & ~earlier)


def read_newest(store: Store, make: Callable[[Manifest | None], Reading]) -> Reading:
    """Return what a function makes of the newest state.

    If a running query removes files meanwhile, the function is called again with the next state, a few times.

    Args:
        store: The store of the state.
        make: Gets the manifest, or None before the first batch.

    Raises:
        StateError: If a file of the newest state is damaged, or the state changes faster than it can be read.
        FileNotFoundError: If a file that the newest manifest names is missing.
    """
    for _ in range(TRIES):
        batch = manifests.newest(store)
        try:
            state = None if batch is None else manifests.load(store, batch)
            if batch is None or state is not None:
                return make(state)
        except (StateError, FileNotFoundError):
            if manifests.newest(store) == batch:
                raise
    raise StateError(f"The state under {store.root} changes faster than it can be read; ask again.")


def inner_state(state: Manifest, path: str) -> Manifest:
    """Return the state of a join by its path in the tree: `j_0` is the first stream of the outermost join."""
    for at in path.split("_")[1:]:
        state = state.inner[int(at)]
    return state
