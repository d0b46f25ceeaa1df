"""Purging by the dead rule: reads what is stored, and returns which rows are dead from now on."""

from collections.abc import Sequence

import numpy as np

from watersmeet.arrays import Ints
from watersmeet.metadata.closing import Closings
from watersmeet.metadata.dead_rule import DeadRule
from watersmeet.metadata.denial import Denied
from watersmeet.metadata.stored_columns import Stored
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store.store import Store


def newly_dead(
    query: Query, store: Store, chunks: Sequence[Chunk], mine: Sequence[Chunk], denied: Denied, duck: Duck
) -> dict[str, Ints]:
    """Return the numbers of the rows that are dead and were not before, by the ids of their chunks.

    Args:
        query: The join.
        store: Where state is kept.
        chunks: All chunks of earlier batches.
        mine: Those to be purged.
        denied: What was denied up to the batch before.
        duck: What evaluates conjuncts.
    """
    once = [chunk for chunk in chunks if chunk.bucket.first]
    closings, stored = Closings(query), Stored(query, store, once)
    whole = len(mine) == len(once) == len(chunks)
    own = stored if whole else Stored(query, store, mine)
    rule = DeadRule(query, closings, denied, {}, stored, duck)
    found: dict[str, Ints] = {}
    for stream in range(len(query.streams)):
        if not own.rows(stream) or not closings.possible(stream):
            continue
        one = rule if whole else DeadRule(query, closings, denied, {stream: own}, stored, duck)
        found |= own.located(stream, np.flatnonzero(one.dead(stream)))
    return found
