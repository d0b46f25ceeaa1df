"""Writing chunks: rows of one stream, sorted canonically, cut into cells, one file for many cells; and their dead rows.

Which rows of a chunk are dead is written beside it, in *deletion vectors*, one file for each purge of a node. Row
numbers don't change, so references to rows and cached answers stay valid. Probes ignore deletion vectors: no dead row
can be part of a result. Merges leave dead rows out, and a chunk of which a quarter is dead is rewritten.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.state.chunks.chunk import CHUNKS, HASH, HOT, ORDINAL, TIME, WHOLE, ArrivalBatches, Bucket, Chunk, Place
from watersmeet.state.chunks.merging import Merge
from watersmeet.state.chunks.sorted_index import add_sort_orders, zone_of
from watersmeet.state.store.file_format import digest, encode
from watersmeet.state.store.store import FileCache, Store

Owners = Callable[[int, Bucket], tuple[int, ...]]
DEAD_ROWS: FileCache[Mapping[str, Ints]] = FileCache(16)
"""The dead rows of chunks, by their ids, for each file that this process has read."""


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """Writes the chunks of one task attempt.

    Attributes:
        store: The store.
        name: Part of every file name, never reused: query run, batch, task and attempt.
        batch: The batch.
        indexed: For each stream the columns that get sort orders.
        zoned: For each stream the columns that get zone maps.
        hashed: The streams whose content hashes are stored: for the arrival order of count windows until their rows are
            numbered, and for as-of joins.
        again: Whether the name may be used again; file names then contain a digest of the content too.
        arrivals: Whether merges store the batch of each row.
    """

    store: Store
    name: str
    batch: int
    indexed: tuple[tuple[Column, ...], ...]
    zoned: tuple[tuple[Column, ...], ...]
    hashed: frozenset[int]
    again: bool = False
    arrivals: bool = False

    def write(
        self,
        stream: int,
        rows: pa.RecordBatch,
        starts: Ints,
        length: int,
        owners: Owners,
        part: int,
        buckets: Ints | None = None,
        kind: Bucket = WHOLE,
    ) -> list[Chunk]:
        """Write new rows of a stream; return their chunks.

        Args:
            stream: The stream.
            rows: The columns to store, `ts` and `hash`.
            starts: The start of each row's slice.
            length: The length of the stream's slices.
            owners: Returns the owners of a cell, by the start of its slice and its bucket.
            part: A number that this attempt uses once.
            buckets: The number of each row's bucket; None if there is only one.
            kind: One of these buckets.
        """
        buckets = np.zeros(rows.num_rows, np.int64) if buckets is None else buckets
        order = np.lexsort((rows.column(HASH).to_numpy(), rows.column(TIME).to_numpy(), buckets))
        rows = rows.take(pa.array(order))
        if stream not in self.hashed:
            rows = rows.drop_columns([HASH])
        cells = [
            _CellRows(
                rows.slice(run.first, run.end - run.first),
                run.start,
                run.last + length,
                run.bucket,
                run.owners,
                ArrivalBatches(self.batch, self.batch),
            )
            for run in _cut_runs(starts[order], buckets[order], kind, owners)
        ]
        return self._save(stream, cells, part, sealed=False)

    def merge(self, merge: Merge, part: int, dead: Mapping[str, Ints]) -> Chunk | None:
        """Write several chunks of one stream as one, in canonical order: by time, then arrival or content.

        Args:
            merge: The chunks.
            part: A number that this attempt uses once.
            dead: Rows that died in this batch, by the ids of chunks; they are left out, as are those dead before.

        Returns:
            The chunk; None if no row remains.
        """
        first = merge.chunks[0]
        tables = [pa.Table.from_batches([self._live(chunk, dead.get(chunk.id))]) for chunk in merge.chunks]
        table = pa.concat_tables(tables, promote_options="default")  # rows of some runs may not have been traced
        if not table.num_rows:
            return None
        keys = [(name, "ascending") for name in (TIME, ORDINAL, HASH) if name in table.schema.names]
        rows = table.sort_by(keys).combine_chunks().to_batches()[0]
        start, end = min(chunk.start for chunk in merge.chunks), max(chunk.end for chunk in merge.chunks)
        arrived = ArrivalBatches(min(c.arrived.first for c in merge.chunks), max(c.arrived.last for c in merge.chunks))
        cell = _CellRows(rows, start, end, first.bucket, first.owners, arrived, first.unit)
        return self._save(first.stream, [cell], part, merge.sealed, compressed=first.unit != HOT)[0]

    def _live(self, chunk: Chunk, dead: Ints | None) -> pa.RecordBatch:
        rows = self.store.open(chunk, pa.int64()).to_merge(chunk.arrived.last if self.arrivals else None)
        whole = not chunk.dead and dead is None
        return rows if whole else rows.take(pa.array(live_rows(self.store, chunk, dead)))

    def write_ordinals(self, chunk: Chunk, ordinals: Ints) -> Chunk:
        """Write the arrival ordinals of a chunk's rows to a file beside it; return the chunk that names the file."""
        buffer, _ = encode([pa.record_batch([pa.array(ordinals)], names=[ORDINAL])])
        path = f"{CHUNKS}/{self.name}-{chunk.id.replace('/', '-')}-{digest(buffer)}.ordinals"
        self.store.write(path, buffer)
        return replace(chunk, ordinals=path, last_ordinal=int(ordinals.max()))

    def _save(
        self, stream: int, cells: "Sequence[_CellRows]", part: int, sealed: bool, compressed: bool = False
    ) -> list[Chunk]:
        """Write cells in as few files as is worthwhile: a file is removed only when all its chunks have expired.

        Compressed chunks have no sort orders: they are spilled, and not read for a while.
        """
        if not compressed:
            cells = [replace(cell, rows=add_sort_orders(cell.rows, self.indexed[stream])) for cell in cells]
        chunks: list[Chunk] = []
        for number, group in enumerate(_group(cells)):
            buffer, places = encode([cell.rows for cell in group], compressed)
            path = self._write_file(f"{CHUNKS}/{self.name}-s{stream}-{part}-{number}", buffer)
            for index, (cell, place) in enumerate(zip(group, places, strict=True)):
                chunks.append(self._describe(stream, cell, path, index, place, sealed))
        return chunks

    def _write_file(self, name: str, buffer: pa.Buffer) -> str:
        """Write a file of chunks; return its path, which contains a digest of the content if `again`."""
        if not self.again:
            self.store.write(f"{name}.arrow", buffer)
            return f"{name}.arrow"
        path = f"{name}-{digest(buffer)}.arrow"
        self.store.publish(path, buffer)
        return path

    def _describe(
        self, stream: int, cell: "_CellRows", path: str, index: int, place: tuple[int, int, str], sealed: bool
    ) -> Chunk:
        """Return the record of a chunk that has been written: what it holds, where it lies and its zones."""
        ts = cell.rows.column(TIME).to_numpy()
        return Chunk(
            id=f"{path.removeprefix(f'{CHUNKS}/')}#{index}",
            stream=stream,
            batch=self.batch,
            start=cell.start,
            end=cell.end,
            bucket=cell.bucket,
            rows=cell.rows.num_rows,
            bytes=int(cell.rows.nbytes),
            low=int(ts[0]),
            high=int(ts[-1]),
            owners=cell.owners,
            place=Place(path, *place),
            sealed=sealed,
            last_ordinal=int(cell.rows.column(ORDINAL).to_numpy().max()) if ORDINAL in cell.rows.schema.names else 0,
            arrived=cell.arrived,
            unit=cell.unit,
            zones={c.name: zone_of(cell.rows.column(c.name)) for c in self.zoned[stream]},
        )


@dataclass(frozen=True, slots=True)
class _CellRows:
    """The rows of a chunk to be written, in canonical order, and what its record says of them."""

    rows: pa.RecordBatch
    start: int
    end: int
    bucket: Bucket
    owners: tuple[int, ...]
    arrived: ArrivalBatches
    unit: int = HOT


def _group(cells: Sequence[_CellRows]) -> list[list[_CellRows]]:
    """Return runs of cells of one schema that share a file."""
    enough = max(limits().file_bytes, sum(cell.rows.nbytes for cell in cells) // limits().files)
    groups: list[list[_CellRows]] = []
    size = 0
    for cell in cells:
        if groups and groups[-1][0].rows.schema == cell.rows.schema and size < enough:
            groups[-1].append(cell)
        else:
            groups.append([cell])
            size = 0
        size += cell.rows.nbytes
    return groups


@dataclass(frozen=True, slots=True)
class _RowRun:
    """Rows `first` up to `end`, of the slices from the one at `start` to the one at `last`."""

    first: int
    end: int
    start: int
    last: int
    bucket: Bucket
    owners: tuple[int, ...]

    def takes(self, other: "_RowRun", small: int) -> bool:
        """Tell whether a neighbouring run shares this one's chunk."""
        same_place = self.owners == other.owners and self.bucket == other.bucket
        return same_place and self.end - self.first < small and other.end - other.first < small


def _cut_runs(starts: Ints, buckets: Ints, kind: Bucket, owners: Owners) -> Iterator[_RowRun]:
    """Yield the runs of rows that share a chunk; rows are in rising order of their buckets, then slices."""
    edges = np.flatnonzero((np.diff(starts) != 0) | (np.diff(buckets) != 0)) + 1
    small = limits().small_rows if len(edges) > limits().many_slices else 0
    run: _RowRun | None = None
    for a, b in zip((0, *edges.tolist()), (*edges.tolist(), len(starts)), strict=True):
        start, bucket = int(starts[a]), kind._replace(number=int(buckets[a]))
        cell = _RowRun(a, b, start, start, bucket, owners(start, bucket))
        if run is not None and run.takes(cell, small):
            run = replace(run, end=b, last=start)
            continue
        if run is not None:
            yield run
        run = cell
    if run is not None:
        yield run


def mark_dead(store: Store, chunks: Sequence[Chunk], name: str, dead: Mapping[str, Ints]) -> list[Chunk]:
    """Write which rows of chunks are dead, besides those that already were; return the chunks, which name the file.

    [!] Nothing is written for chunks whose rows are all dead: no manifest names them, so the file would never be swept.

    Args:
        store: The store.
        chunks: The chunks.
        name: Unique to the task attempt and its node.
        dead: The numbers of the rows that died, by the chunks' ids.
    """
    rows = {chunk.id: np.union1d(dead_rows(store, chunk), dead[chunk.id]) for chunk in chunks}
    partial = {chunk.id: rows[chunk.id] for chunk in chunks if len(rows[chunk.id]) < chunk.rows}
    path = _write(store, name, partial) if partial else None
    return [chunk.with_dead(path if chunk.id in partial else None, len(rows[chunk.id])) for chunk in chunks]


def _write(store: Store, name: str, rows: Mapping[str, Ints]) -> str:
    """Write the numbers of dead rows by chunk to a file named by its content, and return its path."""
    ends = np.cumsum([0, *map(len, rows.values())], dtype=np.int32)
    numbers = pa.array(np.concatenate([*rows.values()]).astype(np.uint32))
    columns = {"chunk": pa.array([*rows]), "rows": pa.ListArray.from_arrays(pa.array(ends), numbers)}
    buffer, _ = encode([pa.record_batch(columns)])
    path = f"{CHUNKS}/{name}-{digest(buffer)}.deleted"
    store.write(path, buffer)
    return path


def dead_rows(store: Store, chunk: Chunk) -> Ints:
    """Return the numbers of a chunk's dead rows, in rising order; the process keeps what it has read of their file.

    Raises:
        StateError: If the file is missing or damaged.
    """
    path = chunk.deleted
    if path is None:
        return np.zeros(0, np.int64)
    return DEAD_ROWS.load(store, path, lambda: _read(store, path), _size)[chunk.id]


def _size(dead: Mapping[str, Ints]) -> int:
    return sum(rows.nbytes for rows in dead.values())


def _read(store: Store, path: str) -> dict[str, Ints]:
    """Return the numbers of dead rows in a file, by chunk; raises StateError if it is missing or damaged."""
    batch = pa.ipc.open_stream(store.map_digested(path)).read_next_batch()
    store.validate(batch)
    chunks, rows = batch.columns
    numbers = rows.flatten().to_numpy().astype(np.int64)
    return dict(zip(chunks.to_pylist(), np.split(numbers, rows.offsets.to_numpy()[1:-1]), strict=True))


def live_rows(store: Store, chunk: Chunk, dead: Ints | None = None) -> Ints:
    """Return the numbers of a chunk's rows that are not dead.

    Args:
        store: The store.
        chunk: The chunk.
        dead: More dead rows, besides those that the chunk names.

    Raises:
        StateError: If the file of dead rows is missing or damaged.
    """
    live = np.ones(chunk.rows, bool)
    live[dead_rows(store, chunk)] = False
    if dead is not None:
        live[dead] = False
    return np.flatnonzero(live)
