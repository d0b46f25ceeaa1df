"""How much a process may keep open: a share of the memory of its host or container, and of its address space.

Spark's `spark.executor.pyspark.memory` limits the address space of Python workers. Everything mapped counts there,
whether it is in memory or not, and so does what allocators reserve and don't use.
"""

import os
import resource
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SHARE = 8
"""A process keeps open as much as one in so many parts of the memory that is there for it,"""
LEAST = 64 << 20
"""but this at least,"""
MOST = 2 << 30
"""and this at most, unless the user says otherwise."""
WORK = 768 << 20
"""Address space that is left for all else where it is limited: rows on their way, DuckDB, results."""
UNLIMITED = 1 << 60
"""Beyond this a limit of a container means none."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that processes share.

    Attributes:
        host: Of the host, in bytes.
        cores: Of the host: there is about one process for each.
        container: The limit of the container that the process runs in; None without one.
        workers: How many processes share the container; None if that isn't known.
    """

    host: int
    cores: int
    container: int | None = None
    workers: int | None = None

    @property
    def share(self) -> int:
        """What a process may keep open, if the user doesn't say."""
        mine = self.host // self.cores
        if self.container is not None:
            mine = min(mine, self.container // (self.workers or self.cores))
        return min(MOST, max(LEAST, mine // SHARE))


@dataclass(frozen=True, slots=True)
class Space:
    """The address space of a process, in bytes.

    Attributes:
        limit: What it may take.
        taken: What it takes.
    """

    limit: int
    taken: int

    def room(self, held: int = 0) -> int:
        """Return what is free, or would be without what caches hold."""
        return max(0, self.limit - self.taken + held)

    def to_open(self, held: int) -> int:
        """Return what may be kept open: what is free but for the room to work in, and a quarter of it at least."""
        room = self.room(held)
        return max(room // 4, room - WORK)


def most_open(given: int, held: int) -> int:
    """Return how many bytes this process may keep open now.

    Args:
        given: What the user says; 0 for a share of its memory.
        held: What it keeps open.
    """
    most, limited = given or _memory().share, space()
    return most if limited is None else min(most, limited.to_open(held))


def shared_by(workers: int | None) -> None:
    """Note how many processes share this one's container."""
    global _workers  # known to what starts the process, asked for wherever a file is opened
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


def container(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory that the process's control groups allow, those around its own included; None for any.

    Args:
        own: Names the groups that the process is in.
        root: Where they are.
    """
    found = [_limit(file) for line in _lines(own) for file in _files(line, root)]
    limits = [limit for limit in found if limit is not None and limit < UNLIMITED]
    return min(limits, default=None)


def _files(line: str, root: Path) -> list[Path]:
    """Return the files that hold limits of a group and those around it, by its line `number:controllers:path`."""
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


def space(statm: Path = Path("/proc/self/statm")) -> Space | None:
    """Return this process's address space, if it is limited and can be measured.

    Args:
        statm: Its first number is how many pages the process takes.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    lines = _lines(statm)
    return Space(limit, int(lines[0].split()[0]) * os.sysconf("SC_PAGE_SIZE")) if lines else None
