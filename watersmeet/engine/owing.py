"""Tuples of earlier batches that ask now what they owe."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from watersmeet.engine.arrival import Arrivals
from watersmeet.engine.plan import BatchPlan
from watersmeet.kernel.table import ChunkTable, Target

Ints = NDArray[np.int64]


class Owing:
    """The tuples of one batch's payments.

    Args:
        plan: The batch's plan.
        table: The task's chunks.
        targets: Those of earlier batches.
    """

    def __init__(self, plan: BatchPlan, table: ChunkTable, targets: Sequence[Target]) -> None:
        self._plan, self._table = plan, table
        self._targets = [target for target in targets if target.chunk.bucket.first]
        self._paid = [(unit.since, unit.pay) for unit in plan.ledger.paying() if unit.pay is not None]
        self._arrived = lru_cache(maxsize=None)(self._arrivals)

    def tuples(self, stream: int) -> Iterator[tuple[Target, Ints, Ints]]:
        """Yield the chunks of a stream that hold tuples which pay, with their rows and the batches of these."""
        if not self._paid:
            return
        first, last = min(since for since, _ in self._paid), max(pay for _, pay in self._paid)
        for target in self._targets:
            came = target.chunk.arrived
            if target.chunk.stream != stream or came.last < first or came.first >= last:
                continue
            batch = self._batches(target)
            rows = np.flatnonzero(np.logical_or.reduce([(batch >= since) & (batch < pay) for since, pay in self._paid]))
            if len(rows):
                yield target, rows, batch[rows]

    def as_of(self, origin: int, ts: Ints, batch: Ints) -> dict[int, Ints]:
        """Return how many tuples of each other count-windowed stream had arrived when tuples of a stream did."""
        found = {stream: np.zeros(len(ts), np.int64) for stream in self._plan.query.counted if stream != origin}
        for stream, counts in found.items():
            for number in np.unique(batch).tolist():
                mine = batch == number
                counts[mine] = self._arrived(stream, number).as_of(origin, ts[mine])
        return found

    def _arrivals(self, stream: int, batch: int) -> Arrivals:
        """Return what an earlier batch brought of a count-windowed stream; all of it is kept as long as it owes."""
        times = [np.empty(0, np.int64)]
        for target in self._targets:
            came = target.chunk.arrived
            if target.chunk.stream == stream and came.first <= batch <= came.last:
                times.append(self._table.rows(target).ts[self._batches(target) == batch])
        ts = np.sort(np.concatenate(times))
        return Arrivals(stream, self._plan.ledger.taken[batch].arrived[stream], ts, np.zeros(len(ts), np.int64))

    def _batches(self, target: Target) -> Ints:
        """Return the batch in which each row of a chunk came."""
        arrivals = self._table.rows(target).arrivals
        return np.full(target.chunk.rows, target.chunk.arrived.last) if arrivals is None else arrivals
