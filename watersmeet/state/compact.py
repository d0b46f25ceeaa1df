"""Which chunks to merge: small ones in tiers while their slice is open, all of a slice once it is closed.

A ten-minute window fed once a second would else be six hundred small chunks a stream to open at every probe.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from watersmeet.limits import limits
from watersmeet.state.chunk import Bucket, Chunk


@dataclass(frozen=True, slots=True)
class Merge:
    """Chunks of one slice and one owner that become one; `sealed` if nothing more will come for the slice."""

    node: int
    chunks: tuple[Chunk, ...]
    sealed: bool


def merges(chunks: Iterable[Chunk], batch: int, watermark: int | None) -> list[Merge]:
    """Return the merges worth doing in a batch: all of a slice that is closed or quiet, else full tiers."""
    slices: dict[tuple[int, int, Bucket, tuple[int, ...]], list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        if not chunk.sealed:
            slices[chunk.stream, chunk.start, chunk.bucket, chunk.owners].append(chunk)
    made: list[Merge] = []
    for group in slices.values():
        if len(group) == 1:
            continue
        closed = watermark is not None and watermark >= max(chunk.end for chunk in group)
        quiet = batch - max(chunk.batch for chunk in group) > limits().merged_chunks
        parts = _packed(group) if closed or quiet else _full_tiers(group)
        made += [Merge(part[0].owners[0], tuple(part), closed) for part in parts if len(part) > 1]
    return made


def _full_tiers(group: list[Chunk]) -> list[list[Chunk]]:
    tiers: dict[int, list[Chunk]] = defaultdict(list)
    for chunk in group:
        tiers[_tier(chunk.rows)].append(chunk)
    return [part for tier in tiers.values() if len(tier) >= limits().merged_chunks for part in _packed(tier)]


def _tier(rows: int) -> int:
    tier = 0
    while rows > limits().tier_rows:
        rows //= limits().merged_chunks
        tier += 1
    return tier


def _packed(group: list[Chunk]) -> list[list[Chunk]]:
    """Split a group so that no part grows beyond the largest chunk allowed."""
    parts: list[list[Chunk]] = [[]]
    for chunk in sorted(group, key=lambda chunk: (chunk.batch, chunk.id)):
        if parts[-1] and sum(c.bytes for c in parts[-1]) + chunk.bytes > limits().merged_bytes:
            parts.append([])
        parts[-1].append(chunk)
    return parts
