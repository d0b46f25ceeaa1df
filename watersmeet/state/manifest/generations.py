"""Generations and fences: which of the files that several runs wrote for a batch count.

A driver that was suspended may publish a file long after another one took over. Therefore a file's name contains the
lease under which it was written, its generation, and each start writes a fence before it changes anything else: files
of other generations count only up to the batch that the start has read. Files without a generation were written
without a lease. A generation is the number of the lease and the beginning of its token, as leases of an older copy of
the store that was restored have the same numbers again; those that earlier versions wrote have no token.

[!] No step compares and sets atomically. A publisher checks the lease *after* its file is there, a start lists files
*after* it took the lease: one of the two sees the other. A run that sees a later lease delivers nothing and removes
nothing, since the later run may or may not have counted its file. A start checks the lease again before it delivers or
removes anything.
"""

import re
from dataclasses import dataclass

from watersmeet.state.store.store import Store

FENCES = "fences"


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """Voids the files that other generations wrote, or will write, for this batch and later ones.

    Attributes:
        generation: The generation of the start.
        first: The first batch whose files of others are void.
    """

    generation: str = ""
    first: int = 0

    @property
    def number(self) -> int:
        """The number of the start's lease; 0 without one."""
        return int(self.generation.partition("-")[0] or 0)

    def voids(self, batch: int, generation: str) -> bool:
        """Tell whether a generation's file of a batch does not count."""
        return self.generation not in ("", generation) and batch >= self.first

    @property
    def path(self) -> str:
        """Its path in the store."""
        return path_of(FENCES, self.first, self.generation, "fence")

    def publish(self, store: Store) -> None:
        """Write the fence.

        The caller has taken the lease and read the newest manifest since. It must check its lease again afterwards,
        before it changes anything else.
        """
        store.publish(self.path, b"fence\n")


def generation_of(number: int, token: str) -> str:
    """Return the generation of a lease; of two, the one with the higher number is greater."""
    return f"{number:012d}-{token[:8]}"


def path_of(folder: str, batch: int, generation: str = "", ending: str = "json") -> str:
    """Return the path of a generation's file of a batch."""
    return f"{folder}/{batch:012d}{f'-{generation}' if generation else ''}.{ending}"


def last_fence(store: Store) -> Fence:
    """Return the fence of the last start, the only one that matters: that start has seen the ones before."""
    return max((Fence(generation, batch) for batch, generation in _files(store, FENCES, "fence")), default=Fence())


def valid_files(store: Store, folder: str) -> dict[int, str]:
    """Return the files of a folder that count, by batch in rising order: for each batch that of the last generation.

    This is the only place that trusts a listing: a run that starts must notice if state is ahead of Spark.
    """
    files, fence = _files(store, folder), last_fence(store)
    paths: dict[int, str] = {}
    for batch, generation in sorted(files):
        path = path_of(folder, batch, generation)
        # [!] An empty file is an interrupted write without hard links: the one before it, if any, still counts.
        if not fence.voids(batch, generation) and (batch not in paths or store.read(path)):
            paths[batch] = path
    return paths


def _files(store: Store, folder: str, ending: str = "json") -> list[tuple[int, str]]:
    """Return the batch and the generation of each file in a folder whose name has both."""
    pattern = re.compile(rf"{folder}/(\d{{12}})(?:-(\d{{12}}(?:-[0-9a-f]{{8}})?))?\.{ending}")
    matches = (pattern.fullmatch(name) for name in store.names(folder))
    return [(int(match[1]), match[2] or "") for match in matches if match]
