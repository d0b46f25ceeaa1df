"""Writing chunks: rows of one stream, sorted canonically, cut into cells, one file for many cells."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.state.chunks.chunk import CHUNKS, HOT, WHOLE, Arrived, Bucket, Chunk, Place
from watersmeet.state.chunks.merging import Merge
from watersmeet.state.chunks.rows import HASH, ORDINAL, TIME
from watersmeet.state.chunks.sorted_index import with_orders
from watersmeet.state.chunks.zones import zone_of
from watersmeet.state.store.deletion_vectors import live_rows
from watersmeet.state.store.ipc import encode
from watersmeet.state.store.sealed import digest
from watersmeet.state.store.store import Store

Owners = Callable[[int, Bucket], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the chunks of one task attempt.

    Attributes:
        store: Where to.
        name: Unique for ever: query run, batch, task and attempt; part of every file name.
        batch: The batch.
        indexed: For each stream the columns that get sort orders.
        zoned: Likewise, zone maps.
        hashed: The streams whose content hashes are kept: for the arrival order of count windows until their rows are
            numbered, and for as-of joins.
        arrivals: Whether merged rows keep the batch in which each of them came.
        again: Whether the name isn't unique: what is written again under it has a name of its own for each content.
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
            rows: Its kept columns, `ts` and `hash`.
            starts: The start of each row's slice.
            length: The length of the stream's slices.
            owners: The owners of a cell, by the start of its slice and its bucket.
            part: A number that this attempt uses once.
            buckets: The number of each row's bucket; None if they have but one.
            kind: One of these buckets.
        """
        buckets = np.zeros(rows.num_rows, np.int64) if buckets is None else buckets
        order = np.lexsort((rows.column(HASH).to_numpy(), rows.column(TIME).to_numpy(), buckets))
        rows = rows.take(pa.array(order))
        if stream not in self.hashed:
            rows = rows.drop_columns([HASH])
        cells = [
            _Cell(
                rows.slice(run.first, run.end - run.first),
                run.start,
                run.last + length,
                run.bucket,
                run.owners,
                Arrived(self.batch, self.batch),
            )
            for run in _cut(starts[order], buckets[order], kind, owners)
        ]
        return self._save(stream, cells, part, sealed=False)

    def merge(self, merge: Merge, part: int, dead: Mapping[str, Ints]) -> Chunk | None:
        """Write several chunks of one stream as one, in canonical order: by time, then arrival or content.

        Args:
            merge: The chunks.
            part: A number that this attempt uses once.
            dead: Rows found dead in this batch, by the ids of chunks; they are left out, as those dead before are.

        Returns:
            The chunk; None if no row is left.
        """
        first = merge.chunks[0]
        parts = [pa.Table.from_batches([self._live(chunk, dead.get(chunk.id))]) for chunk in merge.chunks]
        table = pa.concat_tables(parts, promote_options="default")  # rows of some runs may not have been traced
        if not table.num_rows:
            return None
        keys = [(name, "ascending") for name in (TIME, ORDINAL, HASH) if name in table.schema.names]
        rows = table.sort_by(keys).combine_chunks().to_batches()[0]
        start, end = min(chunk.start for chunk in merge.chunks), max(chunk.end for chunk in merge.chunks)
        came = Arrived(min(c.arrived.first for c in merge.chunks), max(c.arrived.last for c in merge.chunks))
        cell = _Cell(rows, start, end, first.bucket, first.owners, came, first.unit)
        return self._save(first.stream, [cell], part, merge.sealed, packed=first.unit != HOT)[0]

    def _live(self, chunk: Chunk, dead: Ints | None) -> pa.RecordBatch:
        rows = self.store.open(chunk, pa.int64()).to_merge(chunk.arrived.last if self.arrivals else None)
        whole = not chunk.dead and dead is None
        return rows if whole else rows.take(pa.array(live_rows(self.store, chunk, dead)))

    def write_ordinals(self, chunk: Chunk, ordinals: Ints) -> Chunk:
        """Write the arrival ordinals of a chunk's rows beside it; return the chunk that names them."""
        data, _ = encode([pa.record_batch([pa.array(ordinals)], names=[ORDINAL])])
        path = f"{CHUNKS}/{self.name}-{chunk.id.replace('/', '-')}-{digest(data)}.ordinals"
        self.store.write(path, data)
        return replace(chunk, ordinals=path, last_ordinal=int(ordinals.max()))

    def _save(
        self, stream: int, cells: "Sequence[_Cell]", part: int, sealed: bool, packed: bool = False
    ) -> list[Chunk]:
        """Write cells in as few files as is worth it: a file goes only when all its chunks have expired.

        What is packed is compressed and has no sort orders: it isn't read for a while.
        """
        if not packed:
            cells = [replace(cell, rows=with_orders(cell.rows, self.indexed[stream])) for cell in cells]
        chunks: list[Chunk] = []
        for number, group in enumerate(_grouped(cells)):
            data, places = encode([cell.rows for cell in group], packed)
            path = self._put(f"{CHUNKS}/{self.name}-s{stream}-{part}-{number}", data)
            for index, (cell, place) in enumerate(zip(group, places, strict=True)):
                chunks.append(self._describe(stream, cell, path, index, place, sealed))
        return chunks

    def _put(self, name: str, data: pa.Buffer) -> str:
        """Write a file of chunks and return its path."""
        if not self.again:
            self.store.write(f"{name}.arrow", data)
            return f"{name}.arrow"
        path = f"{name}-{digest(data)}.arrow"
        self.store.publish(path, data)
        return path

    def _describe(
        self, stream: int, cell: "_Cell", path: str, index: int, place: tuple[int, int, str], sealed: bool
    ) -> Chunk:
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
class _Cell:
    rows: pa.RecordBatch
    start: int
    end: int
    bucket: Bucket
    owners: tuple[int, ...]
    arrived: Arrived
    unit: int = HOT


def _grouped(cells: Sequence[_Cell]) -> list[list[_Cell]]:
    """Return runs of cells of one schema that share a file."""
    enough = max(limits().file_bytes, sum(cell.rows.nbytes for cell in cells) // limits().files)
    groups: list[list[_Cell]] = []
    taken = 0
    for cell in cells:
        if groups and groups[-1][0].rows.schema == cell.rows.schema and taken < enough:
            groups[-1].append(cell)
        else:
            groups.append([cell])
            taken = 0
        taken += cell.rows.nbytes
    return groups


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows `first` up to `end`, of the slices that begin from `start` to `last`."""

    first: int
    end: int
    start: int
    last: int
    bucket: Bucket
    owners: tuple[int, ...]

    def takes(self, other: "_Run", small: int) -> bool:
        """Tell whether a neighbour is to share this run's chunk."""
        alike = self.owners == other.owners and self.bucket == other.bucket
        return alike and self.end - self.first < small and other.end - other.first < small


def _cut(starts: Ints, buckets: Ints, kind: Bucket, owners: Owners) -> Iterator[_Run]:
    """Yield the runs of rows that are cells; rows are in rising order of their buckets, then slices."""
    edges = np.flatnonzero((np.diff(starts) != 0) | (np.diff(buckets) != 0)) + 1
    small = limits().small_rows if len(edges) > limits().many_slices else 0
    run: _Run | None = None
    for a, b in zip((0, *edges.tolist()), (*edges.tolist(), len(starts)), strict=True):
        start, bucket = int(starts[a]), kind._replace(number=int(buckets[a]))
        cell = _Run(a, b, start, start, bucket, owners(start, bucket))
        if run is not None and run.takes(cell, small):
            run = replace(run, end=b, last=start)
            continue
        if run is not None:
            yield run
        run = cell
    if run is not None:
        yield run
