"""Chunks: immutable Arrow rows of one cell, sorted by time, as the manifest describes them, and as they are opened.

The rows are a record batch of an Arrow IPC stream. It holds the event time as `ts` (int64 microseconds) and the columns
that the join needs, under their generated names. Beside these it may hold content hashes or arrival ordinals (count
windows), content hashes (as-of joins), the batch of each row (if tuples of several batches are owed results), the
groups of inner joins that rows came from (if they are traced), and sort orders (large chunks). Zone maps and sort
orders (`sorted_index.py`) let probes skip most rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.predicate.model import Column
from watersmeet.predicate.numbers import is_text
from watersmeet.state.chunks.sorted_index import SortedColumn, Zone, drop_sort_orders, sort_column

CHUNKS = "chunks"
"""The folder of a store in which chunks lie."""
TIME = "ts"
HASH = "hash"
ORDINAL = "ordinal"
ARRIVAL = "arrival"
TRACE = "trace"


class Bucket(NamedTuple):
    """The hash bucket of a cell.

    Attributes:
        field: The column whose hash it is, by its position in the stream; UNHASHED for a bucket that holds all rows.
        of: Into how many buckets the hashes are cut.
        number: Which of them it is.
        fields: The columns by which the same rows are stored, once for each.
    """

    field: int
    of: int
    number: int
    fields: tuple[int, ...] = ()

    @property
    def first(self) -> bool:
        """Whether this is the first of the ways in which its rows are stored."""
        return self.field == self.field_for(None)

    def field_for(self, field: int | None) -> int:
        """Return the field of the buckets to probe for these rows, given the column whose hash is known, if any."""
        return field if field in self.fields else self.fields[0] if self.fields else UNHASHED


UNHASHED = -1
WHOLE = Bucket(UNHASHED, 1, 0)
"""The one bucket of a stream that isn't hashed."""


class Place(NamedTuple):
    """Where a chunk's rows are: which bytes of which file, and their digest, the file's schema included."""

    path: str
    offset: int
    length: int
    digest: str


class ArrivalBatches(NamedTuple):
    """The first and last batches in which a chunk's rows arrived."""

    first: int
    last: int


BEFORE_ALL = ArrivalBatches(-1, -1)
"""For rows that arrived before the first batch."""
HOT = 0
"""The unit of chunks that are not spilled."""
REWRITE_SHARE = 4
"""A chunk is rewritten once one row in this many is dead."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk as the manifest describes it.

    Attributes:
        id: Never reused: it contains the run and the task attempt that wrote the chunk.
        stream: The stream's position in the join.
        batch: The batch that wrote it.
        start: Start of its slice of time.
        end: End of its slice, exclusive.
        bucket: The hash bucket; WHOLE but for hashing.
        rows: How many rows.
        bytes: Their Arrow bytes.
        low: The earliest time in it.
        high: The latest.
        owners: The nodes that keep a copy, the first of them the chunk's home; one but for replicated placements.
        place: Where its rows are: written once, however many owners there are.
        sealed: Whether it holds all of its slice that there will ever be.
        ordinals: For count windows: the file with the rows' arrival ordinals, unless the chunk itself holds them.
        last_ordinal: The largest arrival ordinal in it.
        zones: Zone maps, by the columns' generated names.
        deleted: The file that names its dead rows; None if it has none.
        dead: How many rows are dead.
        arrived: The batches in which its rows arrived.
        unit: The number of the spilled unit that it belongs to; HOT if new tuples probe it.
    """

    id: str
    stream: int
    batch: int
    start: int
    end: int
    bucket: Bucket
    rows: int
    bytes: int
    low: int
    high: int
    owners: tuple[int, ...]
    place: Place
    sealed: bool = False
    ordinals: str | None = None
    last_ordinal: int = 0
    zones: Mapping[str, Zone] = field(default_factory=dict)
    deleted: str | None = None
    dead: int = 0
    arrived: ArrivalBatches = BEFORE_ALL
    unit: int = HOT

    @property
    def live(self) -> int:
        """How many rows are not dead."""
        return self.rows - self.dead

    @property
    def needs_rewrite(self) -> bool:
        """Whether enough rows are dead that the chunk is worth rewriting."""
        return self.dead * REWRITE_SHARE >= self.rows

    @property
    def files(self) -> frozenset[str]:
        """Every file that the chunk needs."""
        return frozenset({self.place.path, self.ordinals, self.deleted} - {None})  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a tuple: thousands of chunks travel to every task, and a dataclass takes twice as long."""
        return Chunk, _parts(self)

    def with_dead(self, deleted: str | None, dead: int) -> "Chunk":
        """Return the chunk with the file that names its dead rows, None if all are dead, and their number."""
        return replace(self, deleted=deleted, dead=dead)

    def owned_by(self, nodes: Sequence[int]) -> "Chunk":
        """Return the chunk with other owners; the rows stay where they are."""
        return replace(self, owners=tuple(nodes))

    def in_unit(self, unit: int) -> "Chunk":
        """Return the chunk as part of a spilled unit, or HOT."""
        return replace(self, unit=unit)

    def to_json(self) -> dict[str, Any]:
        """Return the chunk as the manifest stores it."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in ("place", "zones")}
        plain["place"] = list(self.place)
        plain["zones"] = {name: [zone.low, zone.high, zone.nan, zone.counts] for name, zone in self.zones.items()}
        return plain

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> "Chunk":
        """Return the chunk that `to_json` wrote."""
        zones = {name: Zone(*zone[:3], *map(tuple, zone[3:])) for name, zone in plain["zones"].items()}
        parts = {"bucket": _bucket(plain["bucket"]), "owners": tuple(plain["owners"]), "place": Place(*plain["place"])}
        return Chunk(**{**plain, **parts, "zones": zones, "arrived": ArrivalBatches(*plain["arrived"])})


def lies_in(path: str, folder: str) -> bool:
    """Tell whether a path names a file in a folder of the store, without `.` or `..` steps."""
    return path.startswith(f"{folder}/") and all(part.strip(".") for part in path.split("/")) and "\0" not in path


_parts = attrgetter(*Chunk.__slots__)


def _bucket(plain: Sequence[Any]) -> Bucket:
    field, of, number, fields = plain
    return Bucket(field, of, number, tuple(fields))


class Rows:
    """The rows of an open chunk: columns are views of the memory-mapped file, sort orders are cached.

    Args:
        batch: Its columns.
        time_type: The type of the event time.
        ordinals: The rows' arrival ordinals, if the stream has a count window and the batch doesn't hold them.
        mapped_bytes: The size of the mapped files, which may hold other chunks too.
    """

    def __init__(
        self, batch: pa.RecordBatch, time_type: pa.DataType, ordinals: Ints | None, mapped_bytes: int = 0
    ) -> None:
        self._batch, self._size = batch, max(mapped_bytes, int(batch.nbytes))
        self._time_type = time_type
        self.on_growth: Callable[[Rows], None] | None = None
        """Called when they take more bytes."""
        self._sorted: dict[Column, SortedColumn] = {}
        self.ts: Ints = batch.column(TIME).to_numpy()
        self.names = set(batch.schema.names)
        self.ordinals = batch.column(ORDINAL).to_numpy() if ORDINAL in self.names else ordinals
        self.arrivals: Ints | None = batch.column(ARRIVAL).to_numpy() if ARRIVAL in self.names else None
        """The batch of each row; None if all came in one batch, or if it doesn't matter."""

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def nbytes(self) -> int:
        """The bytes they take: the mapped files, and sort orders in memory."""
        return self._size + sum(column.nbytes for column in self._sorted.values())

    @property
    def hashes(self) -> Ints:
        """The content hashes of the rows, if they are stored; see `ChunkWriter`."""
        return self._batch.column(HASH).to_numpy()  # type: ignore[no-any-return]

    @property
    def traces(self) -> pa.Array | None:
        """Which groups of inner joins the rows came from; None if they weren't traced, NULL where one wasn't."""
        return self._batch.column(TRACE) if TRACE in self.names else None

    def column(self, column: Column) -> pa.Array:
        """Return a column; the event time, stored as `ts`, in its own type."""
        if column.name in self.names:
            return self._batch.column(column.name)
        return self._batch.column(TIME).cast(self._time_type)

    def to_merge(self, last_batch: int | None = None) -> pa.RecordBatch:
        """Return the rows as a merge takes them: without sort orders, with arrival ordinals instead of hashes.

        Args:
            last_batch: The last batch in which one of them arrived; None if their batches are not needed.
        """
        excluded = (ORDINAL, ARRIVAL) if self.ordinals is None else (HASH, ORDINAL, ARRIVAL)
        names = [name for name in drop_sort_orders(self._batch.schema.names) if name not in excluded]
        rows = self._batch.select(names)
        if last_batch is not None:
            arrivals = np.full(len(self), last_batch) if self.arrivals is None else self.arrivals
            rows = rows.append_column(ARRIVAL, pa.array(arrivals, pa.int64()))
        return rows if self.ordinals is None else rows.append_column(ORDINAL, pa.array(self.ordinals))

    def order(self, column: Column) -> SortedColumn:
        """Return a column in rising order of its values; sorts it once, keeps it, and tells `on_growth`."""
        if column not in self._sorted:
            self._sorted[column] = sort_column(self._batch, column, self.column(column))
            if self.on_growth is not None:
                self.on_growth(self)
        return self._sorted[column]


def widths(values: pa.Array, rows: Ints) -> Ints:
    """Return roughly how many bytes some values of a column take; exact for text and binary."""
    kind = values.type
    if pa.types.is_struct(kind):
        fields = (widths(values.field(at), rows) for at in range(kind.num_fields))
        return sum(fields, np.zeros(len(rows), np.int64))
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind)
    if not (lists or is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return np.full(len(rows), values.nbytes // max(1, len(values)) + 1)
    large = pa.types.is_large_list(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    edges = np.frombuffer(values.buffers()[1], np.int64 if large else np.int32)[values.offset :]
    counts: Ints = np.subtract(edges[rows + 1], edges[rows], dtype=np.int64)
    if lists:
        counts *= values.nbytes // max(1, int(edges[len(values)]) - int(edges[0])) + 1
    return counts
