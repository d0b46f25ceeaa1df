"""Purging by the dead rule: reads what is stored, and returns the chunks some of whose rows are dead from now on."""

from collections.abc import Sequence

import numpy as np

from watersmeet.kernel.duck import Duck
from watersmeet.model.query import Query
from watersmeet.retention.closing import Closings
from watersmeet.retention.dead import DeadRule
from watersmeet.retention.denied import Denied
from watersmeet.retention.stored import Stored
from watersmeet.state.chunk import Chunk
from watersmeet.state.deleted import with_dead
from watersmeet.state.store import Store


def purged(
    query: Query,
    store: Store,
    chunks: Sequence[Chunk],
    mine: Sequence[Chunk],
    denied: Denied,
    duck: Duck,
    name: str,
) -> list[Chunk]:
    """Return those of some chunks of which more rows are dead than before, each with a file that names them.

    Args:
        query: The join.
        store: Where state is kept.
        chunks: All chunks of earlier batches.
        mine: Those to be purged.
        denied: What was denied up to the batch before.
        duck: What evaluates conjuncts.
        name: Unique to the task attempt.
    """
    closings, stored = Closings(query), Stored(query, store, [chunk for chunk in chunks if chunk.bucket.first])
    own = stored if all(chunk.bucket.first for chunk in mine) else Stored(query, store, mine)
    known = {chunk.id: chunk for chunk in mine}
    found: list[Chunk] = []
    for stream in range(len(query.streams)):
        if not own.rows(stream) or not closings.possible(stream):
            continue
        dead = np.flatnonzero(DeadRule(query, closings, denied, {stream: own}, stored, duck).dead(stream))
        located = own.located(stream, dead).items()
        found += [with_dead(store, known[key], name, at) for key, at in located if key in known]
    return found
