"""Tuples as they begin to probe."""

from collections.abc import Collection, Mapping

import numpy as np

from watersmeet.arrays import Ints
from watersmeet.probe.chunk_table import Target
from watersmeet.probe.partials import Partials, references
from watersmeet.probe.routing import NOWHERE
from watersmeet.query.query import Query


def entrants(
    query: Query,
    target: Target,
    rows: Ints,
    ts: Ints,
    batch: Ints,
    asof: Mapping[int, Ints],
    tracked: Collection[int],
) -> Partials:
    """Return tuples of a chunk as partial results that have joined nothing yet.

    Args:
        query: The join.
        target: The chunk.
        rows: The numbers of its rows.
        ts: Their times.
        batch: The batches in which they count as new.
        asof: See `Partials`.
        tracked: The streams whose times go with them.
    """
    origin = target.chunk.stream
    return Partials(
        joined=(origin,),
        rows={origin: references(target.number, rows)},
        moment=ts,
        high=ts,
        deadline=query.streams[origin].window.deadline(ts),
        here=np.full(len(ts), NOWHERE),
        batch=batch,
        asof=dict(asof),
        times={origin: ts} if origin in tracked else {},
    )
