"""Generations and fences: which of the files that several runs wrote for a batch count.

A driver that was suspended may publish a file long after another one took over. Therefore a file's name contains the
number of the lease under which it was written, its generation, and each start writes a fence before it changes anything
else: files of earlier generations count only up to the batch that the start has read. Files of generation 0 were
written without a lease.

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
    """Voids the files that earlier generations wrote, or will write, for this batch and later ones.

    Attributes:
        generation: The number of the start's lease.
        first: The first batch whose earlier files are void.
    """

    generation: int = 0
    first: int = 0

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


def path_of(folder: str, batch: int, generation: int = 0, ending: str = "json") -> str:
    """Return the path of a generation's file of a batch."""
    return f"{folder}/{batch:012d}{f'-{generation:012d}' if generation else ''}.{ending}"


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
        if (generation >= fence.generation or batch < fence.first) and (batch not in paths or store.read(path)):
            paths[batch] = path
    return paths


def _files(store: Store, folder: str, ending: str = "json") -> list[tuple[int, int]]:
    """Return the batch and the generation of each file in a folder whose name has both."""
    pattern = re.compile(rf"{folder}/(\d{{12}})(?:-(\d{{12}}))?\.{ending}")
    matches = (pattern.fullmatch(name) for name in store.names(folder))
    return [(int(match[1]), int(match[2] or 0)) for match in matches if match]
