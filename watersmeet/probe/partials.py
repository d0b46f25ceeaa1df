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
"""A row's reference is its chunk's number, then its row number in the low bits; no chunk is larger than they allow."""
ROW_MASK = (1 << ROW_BITS) - 1


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
        here: The node that each of them is on; -1 before the first hop.
        batch: The batch in which the probing tuple came.
        times: The event times of the members of streams that the placement tracks.
        carried: Column values that travel with the block; others are looked up by reference.
        scanned: Whether they are candidates that a scan has found, which the plain SQL of their hop has let through.
        noted: Numbers that go with them wherever they go, by name.
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
    carried: dict[Column, pa.Array] = field(default_factory=dict)
    scanned: bool = False
    noted: dict[str, Ints] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.moment)

    @property
    def nbytes(self) -> int:
        """About how many bytes the columns that are carried take."""
        return sum(values.nbytes for values in self.carried.values())

    @property
    def origin(self) -> int:
        """The stream of the probing tuples."""
        return self.joined[0]

    def column(self, column: Column, gather: Gather) -> pa.Array:
        """Return a member's column for the whole block, looked up once."""
        if column not in self.carried:
            self.carried[column] = gather(column, self.rows[column.stream])
        return self.carried[column]

    def only(self, columns: Collection[Column]) -> "Partials":
        """Return the block with just the given columns carried."""
        return replace(self, carried={c: v for c, v in self.carried.items() if c in columns})

    def take(self, at: NDArray[np.integer[Any]]) -> "Partials":
        """Return the partial results at the given positions."""
        index = pa.array(at)
        return Partials(
            joined=self.joined,
            rows={stream: refs[at] for stream, refs in self.rows.items()},
            moment=self.moment[at],
            high=self.high[at],
            deadline=self.deadline[at],
            here=self.here[at],
            batch=self.batch[at],
            asof={stream: counts[at] for stream, counts in self.asof.items()},
            times={stream: times[at] for stream, times in self.times.items()},
            carried={column: values.take(index) for column, values in self.carried.items()},
            noted={name: numbers[at] for name, numbers in self.noted.items()},
        )

    def slice(self, start: int, length: int) -> "Partials":
        """Return a run of the block, as views."""
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
            carried={column: values.slice(start, length) for column, values in self.carried.items()},
            noted={name: numbers[start:end] for name, numbers in self.noted.items()},
        )


def concat(blocks: Sequence[Partials]) -> Partials:
    """Return blocks of the same streams as one."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    columns = set.intersection(*(set(block.carried) for block in blocks))
    return Partials(
        joined=first.joined,
        rows={stream: np.concatenate([block.rows[stream] for block in blocks]) for stream in first.joined},
        moment=np.concatenate([block.moment for block in blocks]),
        high=np.concatenate([block.high for block in blocks]),
        deadline=np.concatenate([block.deadline for block in blocks]),
        here=np.concatenate([block.here for block in blocks]),
        batch=np.concatenate([block.batch for block in blocks]),
        asof={stream: np.concatenate([block.asof[stream] for block in blocks]) for stream in first.asof},
        times={stream: np.concatenate([block.times[stream] for block in blocks]) for stream in first.times},
        carried={column: pa.concat_arrays([block.carried[column] for block in blocks]) for column in columns},
        noted={name: np.concatenate([block.noted[name] for block in blocks]) for name in first.noted},
    )


class Waiting:
    """Blocks that wait until together they are as large as one should be."""

    def __init__(self) -> None:
        self._blocks: list[Partials] = []
        self._rows = self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, block: Partials) -> bool:
        """Add a block; return whether they are as large as one should be."""
        self._blocks.append(block)
        self._rows += len(block)
        self._bytes += block.nbytes
        return self._rows >= limits().block_rows or self._bytes >= limits().block_bytes

    def together(self) -> Partials:
        """Return them as one block, and let go of them: what is found in it takes as much again."""
        block = concat(self._blocks)
        self._blocks, self._rows, self._bytes = [], 0, 0
        return block


def regroup(blocks: Iterable[Partials]) -> Iterator[Partials]:
    """Yield the same partial results in blocks of about the limits' size, so that a later hop isn't run for crumbs."""
    rows, waiting = limits().block_rows, Waiting()
    for block in blocks:
        for start in range(0, len(block), rows):
            if waiting.add(block.slice(start, min(rows, len(block) - start)) if len(block) > rows else block):
                yield waiting.together()
    if waiting:
        yield waiting.together()
