"""Chunks: immutable Arrow rows of one cell, sorted by time, with zone maps and sort orders.

A chunk is one record batch of an Arrow IPC stream. The file holds the event time as `ts` (int64 microseconds), the kept
columns under their generated names and, for large chunks, a permutation `o_<column>` per indexed column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.errors import StateError
from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.state.sealed import digest

CHUNKS = "chunks"
"""The folder of a store in which chunks lie."""
TIME = "ts"
HASH = "hash"
ORDINAL = "ordinal"
BINS = 64
"""Bins of a zone's histogram; columns of fewer values have none."""
TEXT_BYTES = 6
"""How many bytes of a text make its number: as many as a double holds exactly."""


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
        """Whether of the ways in which its rows are stored this is the first."""
        return self.field == self.sought(None)

    def sought(self, field: int | None) -> int:
        """Return the field of the buckets in which who has the hash of a column, or of none, finds these rows."""
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


class Zone(NamedTuple):
    """The smallest and largest value of a column in a chunk, as numbers; NaN is left out and flagged.

    [!] Arrow's min_max ignores NaN while Spark sorts it highest, hence the flag.

    Attributes:
        low: The smallest.
        high: The largest.
        nan: Whether there are NaNs.
        counts: An equi-width histogram over [low, high]; empty where there are too few values to be worth it.
    """

    low: float
    high: float
    nan: bool
    counts: tuple[int, ...] = ()

    def misses(self, low: float, high: float) -> bool:
        """Tell whether no value of the zone lies in [low, high]; a NaN counts as higher than everything."""
        return not (self.low <= high and (self.high >= low or self.nan))


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the manifest knows of a chunk.

    Attributes:
        id: Unique for ever: it holds the run and the task attempt that wrote the chunk.
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
        place: Where its rows are: written once, whoever keeps them.
        sealed: Whether it holds all of its slice that there will ever be.
        ordinals: For count windows: the file with the rows' arrival ordinals, unless the chunk itself holds them.
        last_ordinal: The largest arrival ordinal in it.
        zones: Zone maps, by the columns' generated names.
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

    @property
    def files(self) -> frozenset[str]:
        """Every file that the chunk needs."""
        return frozenset({self.place.path, self.ordinals} - {None})  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        """Thousands of chunks travel to every task; to pickle them as dataclasses do takes twice as long."""
        return Chunk, _parts(self)

    def owned_by(self, nodes: Sequence[int]) -> "Chunk":
        """Return the chunk handed to other nodes; the rows stay where they are."""
        return replace(self, owners=tuple(nodes))

    def to_json(self) -> dict[str, Any]:
        """Return the chunk as the manifest writes it."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in ("place", "zones")}
        plain["place"] = list(self.place)
        plain["zones"] = {name: [zone.low, zone.high, zone.nan, zone.counts] for name, zone in self.zones.items()}
        return plain

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> "Chunk":
        """Return the chunk that `to_json` wrote."""
        zones = {name: Zone(*zone[:3], *map(tuple, zone[3:])) for name, zone in plain["zones"].items()}
        parts = {"bucket": _bucket(plain["bucket"]), "owners": tuple(plain["owners"]), "place": Place(*plain["place"])}
        return Chunk(**{**plain, **parts, "zones": zones})


_parts = attrgetter(*Chunk.__slots__)


def _bucket(plain: Sequence[Any]) -> Bucket:
    field, of, number, fields = plain
    return Bucket(field, of, number, tuple(fields))


def numbers(values: pa.Array) -> NDArray[np.float64]:
    """Return a column as float64, NULL as NaN: dates in days, timestamps in microseconds, text by its first bytes.

    The conversion is monotone but not always exact, so what is found by it is a superset.
    """
    kind = values.type
    if is_text(kind):
        return _text_numbers(values)
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_duration(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def has_numbers(kind: pa.DataType) -> bool:
    """Tell whether a column's values can be taken as numbers."""
    plain = pa.types.is_primitive(kind) and not pa.types.is_time(kind)
    return bool(plain or pa.types.is_decimal(kind) or is_text(kind))


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column holds text, of which only the first bytes count as its number."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text_numbers(values: pa.Array) -> NDArray[np.float64]:
    """Return the first TEXT_BYTES of each text as a big-endian number, as if zeros followed its end."""
    if not len(values):
        return np.zeros(0)  # of an empty column Arrow may leave out the buffers
    _, ends, data = values.buffers()
    width = np.int64 if pa.types.is_large_string(values.type) else np.int32
    edges = np.frombuffer(ends, width)[values.offset :][: len(values) + 1].astype(np.int64)
    octets = np.frombuffer(data, np.uint8) if data else np.zeros(1, np.uint8)
    found = np.zeros(len(values))
    for place in (edges[:-1] + at for at in range(TEXT_BYTES)):
        found = found * 256 + np.where(place < edges[1:], octets[np.minimum(place, len(octets) - 1)], 0)
    return np.where(pc.is_valid(values).to_numpy(zero_copy_only=False), found, np.nan)


def widths(values: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return about how many bytes some values of a column take; those of text and binary are exact."""
    kind = values.type
    if pa.types.is_struct(kind):
        fields = (widths(values.field(at), rows) for at in range(kind.num_fields))
        return sum(fields, np.zeros(len(rows), np.int64))
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind)
    if not (lists or is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return np.full(len(rows), values.nbytes // max(1, len(values)) + 1)
    large = pa.types.is_large_list(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    edges = np.frombuffer(values.buffers()[1], np.int64 if large else np.int32)[values.offset :]
    counts: NDArray[np.int64] = np.subtract(edges[rows + 1], edges[rows], dtype=np.int64)
    if lists:
        counts *= values.nbytes // max(1, int(edges[len(values)]) - int(edges[0])) + 1
    return counts


def zone_of(values: pa.Array) -> Zone:
    """Return the zone map of a column; the widest zone is that of no values at all."""
    as_numbers = numbers(values.drop_null())
    nan = bool(np.isnan(as_numbers).any())
    as_numbers = as_numbers[~np.isnan(as_numbers)] if nan else as_numbers
    if not len(as_numbers):
        return Zone(np.inf, -np.inf, nan)
    low, high = float(as_numbers.min()), float(as_numbers.max())
    return Zone(low, high, nan, _counts(as_numbers, low, high))


def _counts(values: NDArray[np.float64], low: float, high: float) -> tuple[int, ...]:
    """Return how many values fall into each of BINS equal parts of [low, high]."""
    width = high - low
    if len(values) < BINS or not np.isfinite(width):
        return ()
    if width == 0:
        return (len(values),)
    bins = np.minimum(((values - low) / width * BINS).astype(np.int64), BINS - 1)
    return tuple(np.bincount(bins, minlength=BINS).tolist())


def with_orders(rows: pa.RecordBatch, indexed: Sequence[Column]) -> pa.RecordBatch:
    """Return the rows with a permutation column per indexed column: the row numbers in rising order of the value."""
    if rows.num_rows < limits().order_rows:
        return rows
    small = np.uint16 if rows.num_rows <= np.iinfo(np.uint16).max else np.uint32
    for column in indexed:
        order = np.argsort(numbers(rows.column(column.name)), kind="stable").astype(small)
        rows = rows.append_column(f"o_{column.name}", pa.array(order))
    return rows


class Rows:
    """The rows of one chunk, opened: columns are views of the memory-mapped file, sort orders are kept."""

    def __init__(self, batch: pa.RecordBatch, time_type: pa.DataType, ordinals: NDArray[np.int64] | None) -> None:
        self._batch, self._size = batch, int(batch.nbytes)
        self._time_type = time_type
        self._orders: dict[Column, tuple[NDArray[np.float64], NDArray[np.integer[Any]]]] = {}
        self.ts: NDArray[np.int64] = batch.column(TIME).to_numpy()
        self.names = set(batch.schema.names)
        self.ordinals = batch.column(ORDINAL).to_numpy() if ORDINAL in self.names else ordinals

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def nbytes(self) -> int:
        """How many bytes they take: those of the file, and those of sort orders in memory."""
        orders = sum(values.nbytes + order.nbytes for values, order in self._orders.values())
        return self._size + orders

    @property
    def hashes(self) -> NDArray[np.int64]:
        """The content hashes of a count-windowed stream's rows."""
        return self._batch.column(HASH).to_numpy()  # type: ignore[no-any-return]

    def column(self, column: Column) -> pa.Array:
        """Return a column; the event time, kept as `ts`, comes back in its own type."""
        if column.name in self.names:
            return self._batch.column(column.name)
        return self._batch.column(TIME).cast(self._time_type)

    def to_merge(self) -> pa.RecordBatch:
        """Return the rows as a merge takes them: without sort orders or hashes, with the arrival ordinals."""
        kept = [name for name in self._batch.schema.names if name not in (HASH, ORDINAL) and not name.startswith("o_")]
        rows = self._batch.select(kept)
        return rows if self.ordinals is None else rows.append_column(ORDINAL, pa.array(self.ordinals))

    def order(self, column: Column) -> tuple[NDArray[np.float64], NDArray[np.integer[Any]]]:
        """Return the column's values in rising order, and the row numbers in that order; NULLs are left out."""
        if column not in self._orders:
            self._orders[column] = self._sorted(column)
        return self._orders[column]

    def _sorted(self, column: Column) -> tuple[NDArray[np.float64], NDArray[np.integer[Any]]]:
        array = self.column(column)
        values = numbers(array)
        stored = f"o_{column.name}"
        order = self._batch.column(stored).to_numpy() if stored in self.names else np.argsort(values, kind="stable")
        if array.null_count:
            order = order[pc.is_valid(array).to_numpy(zero_copy_only=False)[order]]
        return values[order], order


def read_batch(source: pa.Buffer, place: Place, checked: bool = False) -> pa.RecordBatch:
    """Return the record batch that holds a chunk's rows; its checksum need not be right twice.

    Raises:
        StateError: If it does not match the checksum the manifest holds.
    """
    head = 8 + int.from_bytes(source[4:8], "little")  # a marker, the length of the schema, and as many bytes
    schema = source.slice(0, min(head, place.offset))
    message = source.slice(place.offset, place.length)
    if not checked and digest(schema, message) != place.digest:
        raise StateError(f"The state file {place.path} fails its checksum; restore it or start a new checkpoint.")
    return pa.ipc.read_record_batch(message, pa.ipc.read_schema(schema))


def encode(batches: Sequence[pa.RecordBatch]) -> tuple[bytearray, list[tuple[int, int, str]]]:
    """Return the IPC stream that holds the batches, and for each of them (offset, length, digest)."""
    schema = batches[0].schema.serialize()
    data, places = bytearray(schema), []
    for batch in batches:
        message = batch.serialize()
        places.append((len(data), message.size, digest(schema, message)))
        data += message
    return data, places
