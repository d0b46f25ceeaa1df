"""What an operator keeps of one stream: hash buckets, each with a part in memory and one on disk.

Section 5.1 of the MJoin paper, after XJoin. Buckets are searched row by row, as in the paper's figure 7: that is why
probing takes longer the more is kept.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Generic, Protocol, TypeVar


class Keyed(Protocol):
    """Anything that can be kept."""

    @property
    def key(self) -> int: ...


Stored = TypeVar("Stored", bound=Keyed)


@dataclass(frozen=True, slots=True)
class Memory:
    """How state is laid out.

    Attributes:
        buckets: How many hash buckets a stream has.
        limit: Most rows that both streams together may keep in memory.
        file: Makes the file that a bucket's part on disk is written to.
    """

    buckets: int = 64
    limit: float = float("inf")
    file: Callable[[], IO[bytes]] = tempfile.TemporaryFile


class DiskPart(Generic[Stored]):
    """The rows of a bucket that were flushed, in a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.rows = 0

    def append(self, rows: Sequence[Stored]) -> None:
        self._file.seek(0, 2)
        pickle.dump(rows, self._file)
        self.rows += len(rows)

    def read(self) -> list[Stored]:
        self._file.seek(0)
        rows: list[Stored] = []
        while len(rows) < self.rows:
            rows += pickle.load(self._file)
        return rows

    def replace(self, rows: Sequence[Stored]) -> None:
        self._file.seek(0)
        self._file.truncate()
        self.rows = 0
        if rows:
            self.append(rows)


class State(Generic[Stored]):
    """The kept rows of one stream."""

    def __init__(self, memory: Memory) -> None:
        self.buckets: list[list[Stored]] = [[] for _ in range(memory.buckets)]
        self.in_memory = 0
        self._file = memory.file
        self._disk: dict[int, DiskPart[Stored]] = {}

    @property
    def on_disk(self) -> int:
        return sum(part.rows for part in self._disk.values())

    def bucket_of(self, key: int) -> int:
        return hash(key) % len(self.buckets)

    def insert(self, row: Stored) -> int:
        """Keep a row in memory; return its bucket."""
        at = self.bucket_of(row.key)
        self.buckets[at].append(row)
        self.in_memory += 1
        return at

    def matches(self, key: int) -> list[Stored]:
        """Return the rows in memory that have a key."""
        return [row for row in self.buckets[self.bucket_of(key)] if row.key == key]

    def take(self, key: int) -> list[Stored]:
        """Remove the rows in memory that have a key, and return them."""
        rows = self.matches(key)
        if rows:
            at = self.bucket_of(key)
            self.keep(at, [row for row in self.buckets[at] if row.key != key])
        return rows

    def keep(self, at: int, rows: list[Stored]) -> None:
        """Keep these rows of a bucket in memory, in place of those that are there."""
        self.in_memory += len(rows) - len(self.buckets[at])
        self.buckets[at] = rows

    def drop(self, keys: Container[int]) -> None:
        """Remove the rows in memory that have one of the keys: a scan of all there are."""
        for at, bucket in enumerate(self.buckets):
            rows = [row for row in bucket if row.key not in keys]
            if len(rows) < len(bucket):
                self.keep(at, rows)

    # -- the part on disk

    def has_disk_part(self, at: int) -> bool:
        return at in self._disk

    def read_disk(self, at: int) -> list[Stored]:
        return self._disk[at].read() if at in self._disk else []

    def write_disk(self, at: int, rows: Sequence[Stored]) -> None:
        """Have exactly these rows in the bucket's part on disk, which there must be."""
        if len(rows) < self._disk[at].rows:
            self._disk[at].replace(rows)
        if not rows:
            del self._disk[at]

    def flush(self, at: int, change: Callable[[Stored], Stored] | None = None) -> None:
        """Move a bucket's rows from memory to disk, changed on the way if need be."""
        rows: Iterable[Any] = map(change, self.buckets[at]) if change else self.buckets[at]
        self._disk.setdefault(at, DiskPart(self._file())).append(list(rows))
        self.keep(at, [])


def largest(states: Sequence[State[Stored]]) -> tuple[int, int]:
    """Return the stream and the bucket that has most rows in memory."""
    sizes = ((len(bucket), side, at) for side, state in enumerate(states) for at, bucket in enumerate(state.buckets))
    _, side, at = max(sizes)
    return side, at
