"""The owners of chunks, and how they change."""

from collections.abc import Iterable, Mapping

from watersmeet.state.chunks.chunk import Chunk

Owners = tuple[int, ...]
Moves = Mapping[str, Owners]
"""New owners of chunks, by id."""


def remapped(owners: Iterable[int], nodes: int) -> Owners:
    """Return owners that exist when there are fewer nodes than there were.

    >>> remapped((5, 1, 2), 4)
    (1, 2)
    """
    return tuple(dict.fromkeys(owner % nodes for owner in owners))


def moves(chunks: Iterable[Chunk], owners: Iterable[Owners]) -> dict[str, Owners]:
    """Return the owners that each chunk is to have, without those chunks that have them already."""
    return {chunk.id: wanted for chunk, wanted in zip(chunks, owners, strict=True) if wanted != chunk.owners}


def owned(chunks: Iterable[Chunk], moved: Moves, nodes: int) -> tuple[Chunk, ...]:
    """Return the chunks with their new owners, or else their old ones; nodes that aren't there any more have heirs."""
    every = tuple(chunks)
    wanted = [moved.get(chunk.id, chunk.owners) for chunk in every]
    heirs = {owners: remapped(owners, nodes) for owners in set(wanted) if max(owners) >= nodes}
    given = (heirs.get(owners, owners) for owners in wanted)
    return tuple(
        chunk if owners == chunk.owners else chunk.owned_by(owners) for chunk, owners in zip(every, given, strict=True)
    )
