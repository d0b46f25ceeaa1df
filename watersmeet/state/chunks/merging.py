"""Which chunks to merge: small ones in tiers while their slice is open, all of a slice once it is closed.

A chunk with many dead rows is rewritten by itself; remnants of old slices are merged in tiers.

Without merges, a ten-minute window fed once a second would be six hundred small chunks a stream to open at each probe.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from watersmeet.limits import limits
from watersmeet.state.chunks.chunk import Bucket, Chunk


@dataclass(frozen=True, slots=True)
class Merge:
    """Chunks of one slice, owner and unit that become one; `sealed` if no more rows can come for the slice."""

    node: int
    chunks: tuple[Chunk, ...]
    sealed: bool


def choose_merges(
    chunks: Collection[Chunk], batch: int, watermark: int | None, endless: Collection[int] = ()
) -> list[Merge]:
    """Return the merges worth doing in a batch: all of a slice that is closed or quiet, else full tiers.

    A chunk that needs rewriting and is in none of these is a merge of its own.

    Args:
        chunks: The live chunks.
        batch: The batch.
        watermark: No later result can lie before this time; None for minus infinity.
        endless: The streams whose tuples never expire by a window; what purging leaves of their slices is merged too.
    """
    slices: dict[tuple[int, int, Bucket, tuple[int, ...], int], list[Chunk]] = defaultdict(list)
    remnants: dict[tuple[int, Bucket, tuple[int, ...], int], list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        if not chunk.sealed:
            slices[chunk.stream, chunk.start, chunk.bucket, chunk.owners, chunk.unit].append(chunk)
        elif chunk.stream in endless:
            remnants[chunk.stream, chunk.bucket, chunk.owners, chunk.unit].append(chunk)
    merges: list[Merge] = []
    for group in slices.values():
        is_closed = watermark is not None and watermark >= max(chunk.end for chunk in group)
        if len(group) == 1:
            if is_closed and group[0].stream in endless:
                remnants[group[0].stream, group[0].bucket, group[0].owners, group[0].unit] += group
            continue
        is_quiet = batch - max(chunk.batch for chunk in group) > limits().merged_chunks
        parts = _pack(group) if is_closed or is_quiet else _full_tiers(group)
        merges += [Merge(part[0].owners[0], tuple(part), is_closed) for part in parts if len(part) > 1]
    remnant_tiers = [tier for group in remnants.values() for tier in _full_tiers(group) if len(tier) > 1]
    merges += [Merge(tier[0].owners[0], tuple(tier), True) for tier in remnant_tiers]
    ids = {chunk.id for merge in merges for chunk in merge.chunks}
    rewrites = [chunk for chunk in chunks if chunk.needs_rewrite and chunk.id not in ids]
    return [*merges, *(Merge(chunk.owners[0], (chunk,), chunk.sealed) for chunk in rewrites)]


def _full_tiers(group: list[Chunk]) -> list[list[Chunk]]:
    tiers: dict[int, list[Chunk]] = defaultdict(list)
    for chunk in group:
        tiers[_tier(chunk.live)].append(chunk)
    return [chunks for tier in tiers.values() if len(tier) >= limits().merged_chunks for chunks in _pack(tier)]


def _tier(rows: int) -> int:
    """Return the tier of a chunk by its rows; each tier has `merged_chunks` times as many as the one below."""
    tier = 0
    while rows > limits().tier_rows:
        rows //= limits().merged_chunks
        tier += 1
    return tier


def _pack(group: list[Chunk]) -> list[list[Chunk]]:
    """Return a group in parts, the oldest chunks first, none larger than a chunk may be."""
    parts: list[list[Chunk]] = [[]]
    for chunk in sorted(group, key=lambda chunk: (chunk.batch, chunk.id)):
        if parts[-1] and sum(c.bytes for c in parts[-1]) + chunk.bytes > limits().merged_bytes:
            parts.append([])
        parts[-1].append(chunk)
    return parts
