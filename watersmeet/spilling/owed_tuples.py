"""Tuples of earlier batches that ask now what they owe."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.batch.arrival_order import Arrivals
from watersmeet.batch.plan import BatchPlan
from watersmeet.probe.chunk_table import ChunkTable, Target
from watersmeet.query.query import Query
from watersmeet.spilling.units import Group, Reach
from watersmeet.state.chunks.chunk import HOT, Chunk


@dataclass(frozen=True, slots=True)
class Debt:
    """What is paid to a unit.

    Attributes:
        since: The first batch that pays.
        until: The batch after the last one.
        group: The unit's group.
        reach: How far its rows reach.
    """

    since: int
    until: int
    group: Group
    reach: Reach

    def concerns(self, chunk: Chunk, apart: bool) -> bool:
        """Tell whether some row of a chunk may pay.

        Args:
            chunk: The chunk.
            apart: Whether tuples of different buckets never meet.
        """
        if chunk.arrived.last < self.since or chunk.arrived.first >= self.until or chunk.low > self.reach.deadline:
            return False
        if not apart or not chunk.bucket.fields or self.group.of == 1:
            return True
        common = gcd(chunk.bucket.of, self.group.of)
        return chunk.bucket.number % common == self.group.partition % common

    def paid_by(self, batch: Ints, ts: Ints, end: Ints) -> NDArray[np.bool_]:
        """Return which rows pay, given their batches, their times, and the latest times that they may join."""
        paid: NDArray[np.bool_] = (batch >= self.since) & (batch < self.until)
        return paid & (ts <= self.reach.deadline) & (end >= self.reach.low)

    def plus(self, other: "Debt") -> "Debt":
        """Return both as one: rows that pay neither find nothing, for each chunk knows what it is owed."""
        reach = Reach(min(self.reach.low, other.reach.low), max(self.reach.deadline, other.reach.deadline))
        return Debt(min(self.since, other.since), max(self.until, other.until), self.group, reach)


def _debts(plan: BatchPlan) -> list[Debt]:
    """Return what a batch pays to each group, but to units of which nothing is left."""
    found, debts = reaches(plan.query, plan.chunks), dict[Group, Debt]()
    for unit in plan.spilling.ledger.paying():
        if unit.pay is not None and unit.number in found:
            debt = Debt(unit.since, unit.pay, unit.group, found[unit.number])
            debts[unit.group] = debt.plus(debts.get(unit.group, debt))
    return list(debts.values())


def reaches(query: Query, chunks: Iterable[Chunk]) -> dict[int, Reach]:
    """Return how far the rows of cold units reach, by number."""
    low: dict[int, int] = {}
    high: dict[int, dict[int, int]] = defaultdict(dict)  # by stream: a window is asked once, not for every chunk
    for chunk in chunks:
        if chunk.unit != HOT:
            low[chunk.unit] = min(chunk.low, low.get(chunk.unit, chunk.low))
            own = high[chunk.stream]
            own[chunk.unit] = max(chunk.high, own.get(chunk.unit, chunk.high))
    end: dict[int, int] = {}
    for stream, own in high.items():
        deadlines = query.streams[stream].window.deadline(np.array([*own.values()])).tolist()
        end |= {unit: max(last, end.get(unit, last)) for unit, last in zip(own, deadlines, strict=True)}
    return {unit: Reach(low[unit], end[unit]) for unit in low}


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
        self._debts = _debts(plan)
        self._arrived = lru_cache(maxsize=None)(self._arrivals)

    def tuples(self, stream: int) -> Iterator[tuple[Target, Ints, Ints]]:
        """Yield the chunks of a stream that hold tuples which pay, with their rows and the batches of these."""
        window, apart = self._plan.query.streams[stream].window, self._plan.placement.apart
        for target in (target for target in self._targets if target.chunk.stream == stream):
            debts = [debt for debt in self._debts if debt.concerns(target.chunk, apart)]
            if not debts:
                continue
            batch, ts = self._batches(target), self._table.rows(target).ts
            end = window.deadline(ts)
            rows = np.flatnonzero(np.logical_or.reduce([debt.paid_by(batch, ts, end) for debt in debts]))
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
        return Arrivals(
            stream, self._plan.spilling.ledger.taken[batch].arrived[stream], ts, np.zeros(len(ts), np.int64)
        )

    def _batches(self, target: Target) -> Ints:
        """Return the batch in which each row of a chunk came."""
        arrivals = self._table.rows(target).arrivals
        return np.full(target.chunk.rows, target.chunk.arrived.last) if arrivals is None else arrivals
