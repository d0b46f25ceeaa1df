"""Partial results: blocks of tuples on their way through the hops."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.limits import limits
from watersmeet.predicate.model import Column

Gather = Callable[[Column, Ints], pa.Array]

ROW_BITS = 24
"""The low bits of a row's reference are its number in its chunk, the others the chunk's; chunks are small enough."""
ROW_MASK = (1 << ROW_BITS) - 1
NOWHERE = -1
"""The node of a partial result before its first hop, and of one that probes a chunk at no node."""


def references(chunk_number: int, rows: Ints) -> Ints:
    """Return the references of rows of one chunk."""
    return (chunk_number << ROW_BITS) + rows.astype(np.int64, copy=False)


@dataclass(slots=True)
class Partials:
    """A block of partial results that share the streams joined so far.

    Attributes:
        joined: The streams joined, the probing tuple's first.
        rows: For each of them the references of the member rows.
        moment: The event time of the probing tuple: with its stream's position, its place in the arrival order.
        high: The latest event time of the members.
        deadline: The earliest deadline of the members: no later member may lie beyond it.
        asof: For each count-windowed stream the number of its tuples that arrived no later than the probing tuple.
        here: The node that each of them is on; NOWHERE before the first hop.
        batch: The batch in which the probing tuple arrived.
        times: The event times of the members of streams that the placement tracks.
        columns: Column values that travel with the block; others are looked up by reference.
        from_scan: Whether they are candidates of a scan, which have passed the plain SQL of their hop.
        tags: Further numbers that travel with the block, by name.
    """

    joined: tuple[int, ...]
    rows: dict[int, Ints]
    moment: Ints
    high: Ints
    deadline: Ints
    here: Ints
    batch: Ints
    asof: dict[int, Ints] = field(default_factory=dict)
    times: dict[int, Ints] = field(default_factory=dict)
    columns: dict[Column, pa.Array] = field(default_factory=dict)
    from_scan: bool = False
    tags: dict[str, Ints] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.moment)

    @property
    def nbytes(self) -> int:
        """Roughly how many bytes the carried columns take."""
        return sum(values.nbytes for values in self.columns.values())

    @property
    def origin(self) -> int:
        """The stream of the probing tuples."""
        return self.joined[0]

    def column(self, column: Column, gather: Gather) -> pa.Array:
        """Return a member's column for the whole block, looked up once and then carried."""
        if column not in self.columns:
            self.columns[column] = gather(column, self.rows[column.stream])
        return self.columns[column]

    def only(self, columns: Collection[Column]) -> "Partials":
        """Return the block with just the given columns carried."""
        return replace(self, columns={c: v for c, v in self.columns.items() if c in columns})

    def take(self, at: NDArray[np.integer[Any]]) -> "Partials":
        """Return the partial results at the given positions; `from_scan` is not kept."""
        index = pa.array(at)
        return Partials(
            joined=self.joined,
            rows={stream: refs[at] for stream, refs in self.rows.items()},
            moment=self.moment[at],
            high=self.high[at],
            deadline=self.deadline[at],
            here=_pick(self.here, at),
            batch=_pick(self.batch, at),
            asof={stream: counts[at] for stream, counts in self.asof.items()},
            times={stream: times[at] for stream, times in self.times.items()},
            columns={column: values.take(index) for column, values in self.columns.items()},
            tags={name: numbers[at] for name, numbers in self.tags.items()},
        )

    def slice(self, start: int, length: int) -> "Partials":
        """Return a run of the block, as views; `from_scan` is not kept."""
        end = start + length
        return Partials(
            joined=self.joined,
            rows={stream: refs[start:end] for stream, refs in self.rows.items()},
            moment=self.moment[start:end],
            high=self.high[start:end],
            deadline=self.deadline[start:end],
            here=self.here[start:end],
            batch=self.batch[start:end],
            asof={stream: counts[start:end] for stream, counts in self.asof.items()},
            times={stream: times[start:end] for stream, times in self.times.items()},
            columns={column: values.slice(start, length) for column, values in self.columns.items()},
            tags={name: numbers[start:end] for name, numbers in self.tags.items()},
        )


def uniform(value: int, length: int) -> Ints:
    """Return an array of one value, which takes no memory, nor does what is picked from it; it can't be written to."""
    return np.broadcast_to(np.int64(value), length)


def _pick(values: Ints, at: NDArray[np.integer[Any]]) -> Ints:
    return values[at] if values.strides[0] else np.broadcast_to(values[:1], len(at))


def _join(parts: Sequence[Ints]) -> Ints:
    values = {int(part[0]) for part in parts if len(part) and not part.strides[0]}
    is_uniform = len(values) == 1 and not any(part.strides[0] for part in parts)
    return uniform(values.pop(), sum(map(len, parts))) if is_uniform else np.concatenate(parts)


def concat(blocks: Sequence[Partials]) -> Partials:
    """Return blocks of the same streams as one, which carries the columns that all of them do; a single one itself."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    columns = set.intersection(*(set(block.columns) for block in blocks))
    return Partials(
        joined=first.joined,
        rows={stream: np.concatenate([block.rows[stream] for block in blocks]) for stream in first.joined},
        moment=np.concatenate([block.moment for block in blocks]),
        high=np.concatenate([block.high for block in blocks]),
        deadline=np.concatenate([block.deadline for block in blocks]),
        here=_join([block.here for block in blocks]),
        batch=_join([block.batch for block in blocks]),
        asof={stream: np.concatenate([block.asof[stream] for block in blocks]) for stream in first.asof},
        times={stream: np.concatenate([block.times[stream] for block in blocks]) for stream in first.times},
        columns={column: pa.concat_arrays([block.columns[column] for block in blocks]) for column in columns},
        tags={name: np.concatenate([block.tags[name] for block in blocks]) for name in first.tags},
    )


SMALL = 4
"""Blocks of less than one part in so many of the limits' size are put together."""


class BlockBuffer:
    """Collects small blocks until together they have the size of a block."""

    def __init__(self) -> None:
        self._blocks: list[Partials] = []
        self._rows = self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, block: Partials) -> bool:
        """Add a block; return whether the buffer is full."""
        self._blocks.append(block)
        self._rows += len(block)
        self._bytes += block.nbytes
        return self._rows >= limits().block_rows or self._bytes >= limits().block_bytes

    def drain(self) -> Partials:
        """Return all as one block and empty the buffer, since processing takes as much memory again."""
        block = concat(self._blocks)
        self._blocks, self._rows, self._bytes = [], 0, 0
        return block


def regroup(blocks: Iterable[Partials]) -> Iterator[Partials]:
    """Yield the same partial results in blocks of at most the limits' size, so that no later hop runs for tiny blocks.

    Small blocks are held back until there are enough of them; others go ahead as they are, since copying them costs as
    much as a hop.
    """
    rows, waiting = limits().block_rows, BlockBuffer()
    for block in blocks:
        for start in range(0, len(block), rows):
            part = block.slice(start, min(rows, len(block) - start)) if len(block) > rows else block
            if len(part) * SMALL >= rows:
                yield part
            elif waiting.add(part):
                yield waiting.drain()
    if waiting:
        yield waiting.drain()
