"""Orphans: rows whose partner by a foreign key can no longer come.

A row waits until its parent's value was accepted, and then is none, or is denied without ever having been accepted, and
then is one. That is decided by marks, not by what is still stored, and judged by the state before a batch: an orphan is
reported in the batch after the one that made it one.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Mask
from watersmeet.metadata.constraints import ForeignKey, Ordered
from watersmeet.metadata.denial import Denied, fields_of
from watersmeet.metadata.frontiers import beyond
from watersmeet.predicate.model import Column
from watersmeet.query.query import Query


class Judged(NamedTuple):
    """What became of rows that waited: those that still do, and those that are orphans."""

    waiting: Mask
    orphans: Mask


def judged(values: pa.Array, accepted: Mask, denied: Mask) -> Judged:
    """Return what became of rows, by their parents' values.

    Args:
        values: The values of the foreign key; NULL has no parent and waits for none.
        accepted: Whether a parent of that value was accepted.
        denied: Whether none can come any more.
    """
    open_ = values.is_valid().to_numpy(zero_copy_only=False) & ~accepted
    return Judged(open_ & ~denied, open_ & denied)


def parent_denied(query: Query, promise: ForeignKey, values: pa.Array, denied: Denied) -> Mask:
    """Tell which values the parent stream has denied, by promises about that one column."""
    parent, found = promise.parent, np.zeros(len(values), bool)
    for given in query.streams[parent.stream].promises:
        source = parent.stream, given
        if isinstance(given, ForeignKey) or fields_of(given) != (parent.field,):
            continue
        if isinstance(given, Ordered):
            limit = denied.frontiers.get(source)
            found |= beyond(values, given, limit) if limit is not None else False
        elif denied.marks.get(source):
            found |= denied.find(source, [values])[1] >= 0
    return found


def children(query: Query, parent: int) -> list[tuple[int, int, Column]]:
    """Return the foreign keys that refer to a stream: stream and number of the promise, and the parent's column."""
    return [
        (stream, number, promise.parent)
        for stream, spec in enumerate(query.streams)
        for number, promise in enumerate(spec.promises)
        if isinstance(promise, ForeignKey) and promise.parent.stream == parent
    ]
