"""The owners of chunks, and how they change."""

from collections.abc import Iterable

from watersmeet.state.chunk import Chunk

Owners = tuple[int, ...]


def remapped(owners: Iterable[int], nodes: int) -> tuple[int, ...]:
    """Return owners that exist when there are fewer nodes than there were.

    >>> remapped((5, 1, 2), 4)
    (1, 2)
    """
    return tuple(dict.fromkeys(owner % nodes for owner in owners))


def moves(chunks: Iterable[Chunk], owners: Iterable[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the owners that each chunk is to have, without those chunks that have them already."""
    return {chunk.id: wanted for chunk, wanted in zip(chunks, owners, strict=True) if wanted != chunk.owners}
