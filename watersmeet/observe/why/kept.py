"""Where tuples are looked for: in the chunks that a manifest names, dead rows included as long as they are there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.batch.node import any_flagged
from watersmeet.errors import StateError
from watersmeet.metadata.expiry import Moment, first_kept, first_open
from watersmeet.metadata.superseded import superseding
from watersmeet.observe.why.answer import Batches
from watersmeet.observe.why.asked import Asked
from watersmeet.observe.why.judged import Seen
from watersmeet.predicate.model import Column
from watersmeet.probe.chunk_probe import Hashes, Seat
from watersmeet.probe.chunk_table import ChunkTable, Target
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import NOWHERE, ROW_BITS, ROW_MASK, Partials, references
from watersmeet.query.query import Query
from watersmeet.spilling.owed_tuples import reaches
from watersmeet.state.chunks.rows import Rows
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store import deletion_vectors as deleted
from watersmeet.state.store.store import Store

TRIES = 5
"""How often a state is read anew that a running query has changed meanwhile."""
Made = TypeVar("Made")


class Anywhere:
    """Lets a partial result probe every chunk, of rows that are stored several times one copy."""

    tracked: tuple[int, ...] = ()

    def seats(self, block: Partials, step: Step, hashes: Hashes) -> Callable[[Target], Seat]:
        """See Router."""
        return lambda target: 0 if target.chunk.bucket.first else NOWHERE


@dataclass(frozen=True)
class Kept:
    """The state of a join after a batch.

    Attributes:
        query: The join.
        store: Where its state is.
        state: Its manifest.
    """

    query: Query
    store: Store
    state: Manifest

    @cached_property
    def targets(self) -> list[Target]:
        """The chunks, numbered; each row in one of them."""
        return [Target(at, chunk) for at, chunk in enumerate(self.state.chunks.values()) if chunk.bucket.first]

    @cached_property
    def table(self) -> ChunkTable:
        """Where rows are looked up."""
        return ChunkTable(self.store, self.query, self.targets)

    @property
    def decided(self) -> Query:
        """The join as it is decided for the tuples that are there."""
        raised = any_flagged(self.query, (target.chunk for target in self.targets))
        return self.query.careful_query() if raised else self.query

    def columns(self, stream: int) -> list[int]:
        """Return the stream's own columns that state keeps, by position, the time first; a table has none."""
        spec = self.query.streams[stream]
        own = [c.field for c in self.query.stored_columns[stream] if c.field < len(spec.schema)]
        return own if spec.table else [spec.time, *own]

    def finds(self, asked: Asked) -> bool:
        """Tell whether state keeps one of the columns by which tuples are looked for."""
        return not asked.values.keys().isdisjoint(self.columns(asked.stream))

    def found(self, asked: Asked) -> Iterator[tuple[Seen, bool]]:
        """Yield the tuples that have the values, as far as state keeps these columns, and whether they are dead."""
        fields = [field for field in asked.values if field in self.columns(asked.stream)]
        for target in self._of(asked.stream) if fields else ():
            rows = self.table.rows(target)
            at = np.flatnonzero(asked.mask({field: rows.column(Column(asked.stream, field)) for field in fields}))
            dead = set(deleted.dead_rows(self.store, target.chunk).tolist()) if len(at) else set[int]()
            for row in at.tolist():
                yield self._seen(target, rows, row), row in dead or target.chunk.live == 0

    def _of(self, stream: int) -> list[Target]:
        return [target for target in self.targets if target.chunk.stream == stream]

    def _seen(self, target: Target, rows: Rows, row: int) -> Seen:
        ordinal = None if rows.ordinals is None else int(rows.ordinals[row])
        ref = int(references(target.number, np.array([row]))[0])
        unasked = self._unasked.get(target.chunk.unit)
        return Seen(target.chunk.stream, ref, int(rows.ts[row]), _batches(target, rows, row), ordinal, unasked)

    @cached_property
    def _unasked(self) -> dict[int, int]:
        return {unit.number: unit.since for unit in self.state.ledger.units}

    @property
    def owing(self) -> bool:
        """Whether some tuple that has come has not asked all it should."""
        return self.state.ledger.owes(reaches(self.query, self.state.chunks.values()))

    def at(self, ref: int) -> Seen:
        """Return the tuple that a reference names."""
        target = self._numbered[ref >> ROW_BITS]
        return self._seen(target, self.table.rows(target), ref & ROW_MASK)

    @cached_property
    def _numbered(self) -> dict[int, Target]:
        return {target.number: target for target in self.targets}

    def values(self, seen: Seen) -> dict[str, pa.Array]:
        """Return the columns of a tuple that state keeps, by name."""
        names, ref = self.query.streams[seen.stream].schema.names, np.array([seen.ref])
        fields = sorted(self.columns(seen.stream))
        return {names[field]: self.table.gather(Column(seen.stream, field), ref) for field in fields}

    def first_came(self, refs: Ints) -> Batches:
        """Return in which batch the first of some tuples came."""
        came = [_first(self._numbered[number], self.table, refs) for number in np.unique(refs >> ROW_BITS).tolist()]
        return min(first for first, _ in came), min(last for _, last in came)

    @cached_property
    def first(self) -> list[int]:
        """For each stream the time from which no tuple has been purged by its window."""
        arrived = tuple(stream.arrived for stream in self.state.streams)
        return first_kept(Moment(self.query, arrived, self.state.settled))

    def holds_all(self, stream: int, times: Ints) -> NDArray[np.bool_]:
        """Tell at which times all tuples of a stream are still there that a result at or after them may have.

        It is so where streams are optional: there nothing but windows lets stored tuples go, and newer ones in as-of
        streams, and what was not stored matches nothing.
        """
        kept: NDArray[np.bool_] = self.query.streams[stream].window.earliest(times) >= self.first[stream]
        if self.state.settled is not None and stream in superseding(self.query):
            kept &= times >= first_open(self.query, self.state.settled)
        return kept | self.is_whole(stream)

    def is_whole(self, stream: int) -> bool:
        """Tell whether every tuple of a stream that was ever accepted is still there."""
        stored = sum(target.chunk.live for target in self._of(stream))
        return stored == self.state.streams[stream].arrived

    def as_of(self, stream: int, seen: Seen) -> tuple[int, int]:
        """Return how many tuples of a count-windowed stream had come no later than another's: at least, at most.

        Which of them came first is known of those that are still there, but where merged chunks have forgotten it.
        """
        least, most = 0, self.state.streams[stream].arrived
        for target in self._of(stream):
            rows = self.table.rows(target)
            assert rows.ordinals is not None
            before, after = _order(target, rows, seen)
            least = max([least, *rows.ordinals[before].tolist()])
            most = min([most, *(rows.ordinals[after] - 1).tolist()])
        return least, most


def _batches(target: Target, rows: Rows, row: int) -> Batches:
    first, last = target.chunk.arrived
    return (first, last) if rows.arrivals is None else (int(rows.arrivals[row]), int(rows.arrivals[row]))


def _first(target: Target, table: ChunkTable, refs: Ints) -> Batches:
    """Return in which batch the first of those tuples came that are of a chunk."""
    arrivals = table.rows(target).arrivals
    if arrivals is None:
        return target.chunk.arrived.first, target.chunk.arrived.last
    first = int(arrivals[refs[refs >> ROW_BITS == target.number] & ROW_MASK].min())
    return first, first


def _order(target: Target, rows: Rows, seen: Seen) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows of a chunk are known to have come before a tuple of another stream, and which after it."""
    came = target.chunk.arrived
    first = np.full(len(rows), came.first) if rows.arrivals is None else rows.arrivals
    last = np.full(len(rows), came.last) if rows.arrivals is None else rows.arrivals
    same = (first == last) & (first == seen.batches[0]) & (seen.batches[0] == seen.batches[1])
    earlier = rows.ts <= seen.ts if target.chunk.stream < seen.stream else rows.ts < seen.ts
    return (last < seen.batches[0]) | (same & earlier), (first > seen.batches[1]) | (same & ~earlier)


def read(store: Store, make: Callable[[Manifest | None], Made]) -> Made:
    """Return what is made of the newest state; if a running query removes files meanwhile, of the one after it.

    Raises:
        StateError: If files are missing or damaged that the newest manifest names.
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


def within(state: Manifest, path: str) -> Manifest:
    """Return the state of a join by where it stands in the tree: `j_0` is the first stream of the outermost."""
    for at in path.split("_")[1:]:
        state = state.inner[int(at)]
    return state
