"""How much a process may keep open: a share of the memory of its host or container, and of its address space.

Spark's `spark.executor.pyspark.memory` limits the address space of Python workers. Everything mapped counts there,
whether it is in memory or not, and so does what allocators reserve without using it.
Chunks are open, with their sort orders, until there are too many; their files stay mapped for as long.
"""

import ctypes
import os
import resource
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa

from watersmeet.limits import limits
from watersmeet.state.chunks.chunk import Rows

SHARE = 8
"""A process keeps chunks open in up to this fraction of its memory: one part in eight,"""
LEAST = 64 << 20
"""but at least this,"""
MOST = 2 << 30
"""and at most this, unless the user sets a limit."""
WORK = 768 << 20
"""Address space reserved for everything else if it is limited: rows on their way, DuckDB, results."""
UNLIMITED = 1 << 60
"""A container's limit beyond this means none."""
ARENA_MAX = -8
"""The number of `M_ARENA_MAX` in glibc's malloc.h."""
MOST_CHECKED = 100_000
"""The number of chunks that a process remembers as verified."""

MOST_CHUNKS = 20_000
"""The most chunks open at once, however small: Linux lets a process map 65,530 files, and some chunks have two."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that processes share.

    Attributes:
        host: The host's memory in bytes.
        cores: The host's cores; there is about one process for each.
        container: The limit of the process's container; None without one.
        workers: How many processes share the container; None if unknown.
    """

    host: int
    cores: int
    container: int | None = None
    workers: int | None = None

    @property
    def share(self) -> int:
        """What a process may keep open if the user sets no limit."""
        own_share = self.host // self.cores
        if self.container is not None:
            own_share = min(own_share, self.container // (self.workers or self.cores))
        return min(MOST, max(LEAST, own_share // SHARE))


@dataclass(frozen=True, slots=True)
class AddressSpace:
    """The address space of a process, in bytes.

    Attributes:
        limit: What it may take.
        size: What it takes.
    """

    limit: int
    size: int

    def room(self, cache_bytes: int = 0) -> int:
        """Return what is free, or would be if caches were emptied."""
        return max(0, self.limit - self.size + cache_bytes)

    def to_open(self, cache_bytes: int) -> int:
        """Return what may be kept open: what is free but for the room to work in, and a quarter of it at least."""
        room = self.room(cache_bytes)
        return max(room // 4, room - WORK)


def most_open(user_limit: int, cache_bytes: int) -> int:
    """Return how many bytes this process may keep open now.

    Args:
        user_limit: The user's limit; 0 for a share of the process's memory.
        cache_bytes: What the process keeps open.
    """
    most, limits = user_limit or _memory().share, address_space()
    return most if limits is None else min(most, limits.to_open(cache_bytes))


def set_workers(workers: int | None) -> None:
    """Set how many processes share this one's container."""
    global _workers  # set by what starts the process, read wherever a file is opened
    _workers = workers
    _memory.cache_clear()


_workers: int | None = None


@lru_cache
def _memory() -> Memory:
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Memory(host, cores(), container(), _workers)


def cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def container(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory limit, in bytes, of the process's control groups and their parents; None if there is none.

    Args:
        groups: The file that names the process's groups.
        root: The folder of all groups.
    """
    values = [_limit(file) for line in _lines(groups) for file in _files(line, root)]
    limits = [limit for limit in values if limit is not None and limit < UNLIMITED]
    return min(limits, default=None)


def _files(line: str, root: Path) -> list[Path]:
    """Return the files with the limits of a group and its parents, by its line `number:controllers:path`."""
    _, controllers, path = line.split(":", 2)
    if controllers not in ("", "memory"):
        return []
    top, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
    group = top / path.lstrip("/")
    return [folder / name for folder in (group, *group.parents) if folder.is_relative_to(top)]


def _limit(file: Path) -> int | None:
    lines = _lines(file)
    return int(lines[0]) if lines and lines[0].isdigit() else None  # it may be `max`


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:  # no such group as seen from within a container, or no Linux
        return []


def address_space(statm: Path = Path("/proc/self/statm")) -> AddressSpace | None:
    """Return this process's address space; None if it is unlimited or can't be measured.

    Args:
        statm: A file whose first number is how many pages the process uses.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    lines = _lines(statm)
    return AddressSpace(limit, int(lines[0].split()[0]) * os.sysconf("SC_PAGE_SIZE")) if lines else None


def save_address_space() -> None:
    """Make Arrow and malloc reserve little in this process, if its address space is limited; call it before any use.

    Arrow's own allocator reserves 1 GiB at once, malloc 64 MiB for every thread that allocates.
    """
    if address_space() is None:
        return
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(ARENA_MAX, 1)


Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True)
class _Entry(Generic[Value]):
    """A value of a cache, and the bytes it takes."""

    value: Value
    size: int


class Cache(Generic[Key, Value]):
    """Values by key, with the bytes they take; the owner bounds them by calling `shrink`.

    [!] Threads may use it at the same time, so that a key may be gone at any moment.
    """

    def __init__(self) -> None:
        self._values: OrderedDict[Key, _Entry[Value]] = OrderedDict()
        self.size = 0
        """The bytes of all values, as the owner counts them."""

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Key]:
        """Return the keys, the least recently used first; they may be dropped during the iteration."""
        return iter(list(self._values))

    def get(self, key: Key) -> Value | None:
        """Return a value and mark it as used; None if there is none."""
        try:
            self._values.move_to_end(key)
            return self._values[key].value
        except KeyError:
            return None

    def put(self, key: Key, value: Value, size: int) -> None:
        """Store a value as the most recently used."""
        self.drop(key)
        self._values[key] = _Entry(value, size)
        self.size += size

    def resize(self, key: Key, size: int) -> None:
        """Set how many bytes a value takes, if it is still there."""
        entry = self._values.get(key)
        if entry is not None:
            self.size += size - entry.size
            entry.size = size

    def load(self, key: Key, read: Callable[[], Value], size_of: Callable[[Value], int], most: int) -> Value:
        """Return a value; if it isn't there, read and store it, and drop others beyond a number of bytes.

        Args:
            key: Its key.
            read: Reads it.
            size_of: Returns the bytes it takes.
            most: How many bytes all values may take.
        """
        value = self.get(key)
        if value is None:
            value = read()
            self.put(key, value, size_of(value))
            self.shrink(most)
        return value

    def drop(self, key: Key) -> bool:
        """Drop a value; return whether there was one."""
        entry = self._values.pop(key, None)
        self.size -= 0 if entry is None else entry.size
        return entry is not None

    def forget(self, is_gone: Callable[[Key], bool]) -> list[Key]:
        """Drop the values of some keys and return these keys."""
        return [key for key in self if is_gone(key) and self.drop(key)]

    def shrink(self, most: int) -> list[Key]:
        """Drop values until the rest take at most a number of bytes, but never the last; return the dropped keys."""
        keys = []
        for key in self:
            if self.size <= most or len(self) <= 1:
                break
            self.drop(key)
            keys.append(key)
        return keys

    def measure(self, size_of: Callable[[Value], int]) -> int:
        """Recount the bytes of all values, which may have grown, and return the sum."""
        entries = list(self._values.values())
        for entry in entries:
            entry.size = size_of(entry.value)
        self.size = sum(entry.size for entry in entries)
        return self.size


class RowsKey(NamedTuple):
    """The key of open rows."""

    root: str
    path: str
    offset: int
    ordinals: str | None
    time_type: str


class OpenChunks:
    """Open chunks of any store, up to a number of bytes; the least recently used are closed first."""

    def __init__(self) -> None:
        self._rows: Cache[RowsKey, Rows] = Cache()
        self._verified: set[tuple[str, str, int]] = set()
        self._user_limit = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[RowsKey]:
        return iter(self._rows)

    @property
    def nbytes(self) -> int:
        """The bytes that they take now."""
        return self._rows.measure(lambda rows: rows.nbytes)

    def get(self, key: RowsKey) -> Rows | None:
        """Return the rows if they are open."""
        return self._rows.get(key)

    def is_checked(self, key: RowsKey) -> bool:
        """Tell whether their checksum has been verified, so that opening them again need not."""
        return key[:3] in self._verified

    def put(self, key: RowsKey, rows: Rows, user_limit: int = 0) -> None:
        """Keep verified rows open, and count what they take as they grow; others may be closed to make room.

        Args:
            key: Their key.
            rows: The rows.
            user_limit: How many bytes all open chunks may take; 0 for the default.
        """
        if len(self._verified) >= MOST_CHECKED:
            self._verified.clear()
        self._verified.add(key[:3])
        self._user_limit = user_limit
        self._rows.put(key, rows, rows.nbytes)
        rows.on_growth = lambda grown: self._resize(key, grown)
        self._bound()

    def _resize(self, key: RowsKey, rows: Rows) -> None:
        self._rows.resize(key, rows.nbytes)
        self._bound()

    def _bound(self) -> None:
        """Close the chunks least recently used if they take more bytes than they may, or are too many."""
        most = self._most(self._rows.size)
        if self._rows.size > most and self.nbytes > most:
            self._rows.shrink(3 * most // 4)  # by a quarter, so that this is not due again at once
        if len(self._rows) > MOST_CHUNKS:
            self._rows.shrink(3 * self._rows.size // 4)

    def _most(self, open_bytes: int) -> int:
        return most_open(self._user_limit or limits().open_bytes, open_bytes)

    def close(self) -> bool:
        """Close all but the last; return whether there were any."""
        return bool(self._rows.shrink(0))

    def forget(self, is_gone: Callable[[RowsKey], bool]) -> None:
        """Close some of them, and forget that they were verified."""
        self._verified.difference_update(key[:3] for key in self._rows.forget(is_gone))
