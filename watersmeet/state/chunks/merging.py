"""Which chunks to merge: small ones in tiers while their slice is open, all of a slice once it is closed.

A chunk that is worn, many of its rows dead, is written anew by itself; what is left of old slices is merged in tiers.

A ten-minute window fed once a second would else be six hundred small chunks a stream to open at every probe.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from watersmeet.limits import limits
from watersmeet.state.chunks.chunk import Bucket, Chunk


@dataclass(frozen=True, slots=True)
class Merge:
    """Chunks of one slice, owner and unit that become one; `sealed` if nothing more will come for the slice."""

    node: int
    chunks: tuple[Chunk, ...]
    sealed: bool


def merges(chunks: Collection[Chunk], batch: int, watermark: int | None, endless: Collection[int] = ()) -> list[Merge]:
    """Return the merges worth doing in a batch: all of a slice that is closed or quiet, else full tiers.

    Args:
        chunks: The live chunks.
        batch: The batch.
        watermark: The time before it that no result still to come can lie before.
        endless: The streams whose tuples no window ends; what metadata leave of their slices is merged, too.
    """
    slices: dict[tuple[int, int, Bucket, tuple[int, ...], int], list[Chunk]] = defaultdict(list)
    remnants: dict[tuple[int, Bucket, tuple[int, ...], int], list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        if not chunk.sealed:
            slices[chunk.stream, chunk.start, chunk.bucket, chunk.owners, chunk.unit].append(chunk)
        elif chunk.stream in endless:
            remnants[chunk.stream, chunk.bucket, chunk.owners, chunk.unit].append(chunk)
    made: list[Merge] = []
    for group in slices.values():
        closed = watermark is not None and watermark >= max(chunk.end for chunk in group)
        if len(group) == 1:
            if closed and group[0].stream in endless:
                remnants[group[0].stream, group[0].bucket, group[0].owners, group[0].unit] += group
            continue
        quiet = batch - max(chunk.batch for chunk in group) > limits().merged_chunks
        parts = _packed(group) if closed or quiet else _full_tiers(group)
        made += [Merge(part[0].owners[0], tuple(part), closed) for part in parts if len(part) > 1]
    tiers = [tier for found in remnants.values() for tier in _full_tiers(found) if len(tier) > 1]
    made += [Merge(tier[0].owners[0], tuple(tier), True) for tier in tiers]
    merged = {chunk.id for merge in made for chunk in merge.chunks}
    worn = [chunk for chunk in chunks if chunk.worn and chunk.id not in merged]
    return [*made, *(Merge(chunk.owners[0], (chunk,), chunk.sealed) for chunk in worn)]


def _full_tiers(group: list[Chunk]) -> list[list[Chunk]]:
    tiers: dict[int, list[Chunk]] = defaultdict(list)
    for chunk in group:
        tiers[_tier(chunk.live)].append(chunk)
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
