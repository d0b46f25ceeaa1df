"""The tuples of earlier batches that pay in this batch: they make the probes that they owe."""

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
class Payment:
    """What a batch pays to the units of a group.

    Attributes:
        since: The first batch that pays.
        until: The batch after the last one that does.
        group: The group.
        reach: The reach of its units.
    """

    since: int
    until: int
    group: Group
    reach: Reach

    def concerns(self, chunk: Chunk, apart: bool) -> bool:
        """Tell whether rows of a chunk may have to pay.

        Args:
            chunk: The chunk.
            apart: Whether tuples of different buckets never join.
        """
        if chunk.arrived.last < self.since or chunk.arrived.first >= self.until or chunk.low > self.reach.deadline:
            return False
        if not apart or not chunk.bucket.fields or self.group.of == 1:
            return True
        common = gcd(chunk.bucket.of, self.group.of)
        return chunk.bucket.number % common == self.group.partition % common

    def paying_rows(self, batch: Ints, ts: Ints, end: Ints) -> NDArray[np.bool_]:
        """Return which rows pay, given their batches, their times, and the latest times that they may join."""
        paying: NDArray[np.bool_] = (batch >= self.since) & (batch < self.until)
        return paying & (ts <= self.reach.deadline) & (end >= self.reach.low)

    def plus(self, other: "Payment") -> "Payment":
        """Return one payment that covers both.

        It may cover rows that owe nothing: these find nothing, since each chunk records which batches owe it.
        """
        reach = Reach(min(self.reach.low, other.reach.low), max(self.reach.deadline, other.reach.deadline))
        return Payment(min(self.since, other.since), max(self.until, other.until), self.group, reach)


def _payments(plan: BatchPlan) -> list[Payment]:
    """Return what a batch pays, one payment a group; units without rows are left out."""
    reaches, payments = unit_reaches(plan.query, plan.chunks), dict[Group, Payment]()
    for unit in plan.spilling.ledger.paying():
        if unit.pay is not None and unit.number in reaches:
            payment = Payment(unit.since, unit.pay, unit.group, reaches[unit.number])
            payments[unit.group] = payment.plus(payments.get(unit.group, payment))
    return list(payments.values())


def unit_reaches(query: Query, chunks: Iterable[Chunk]) -> dict[int, Reach]:
    """Return the reaches of the spilled units that have rows, by number."""
    low: dict[int, int] = {}
    high: dict[int, dict[int, int]] = defaultdict(dict)  # by stream: one call of a window, not one for each chunk
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


class PayingTuples:
    """Finds the tuples that pay in a batch; used by a task for the streams that it probes from.

    Args:
        plan: The batch's plan.
        table: The task's chunks.
        targets: The chunks of earlier batches.
    """

    def __init__(self, plan: BatchPlan, table: ChunkTable, targets: Sequence[Target]) -> None:
        self._plan, self._table = plan, table
        self._targets = [target for target in targets if target.chunk.bucket.first]
        self._payments = _payments(plan)
        self._arrived = lru_cache(maxsize=None)(self._arrivals)

    def tuples(self, stream: int) -> Iterator[tuple[Target, Ints, Ints]]:
        """Yield the chunks of a stream that hold paying tuples, with the rows of these and their batches."""
        window, apart = self._plan.query.streams[stream].window, self._plan.placement.apart
        for target in (target for target in self._targets if target.chunk.stream == stream):
            payments = [payment for payment in self._payments if payment.concerns(target.chunk, apart)]
            if not payments:
                continue
            batch, ts = self._batches(target), self._table.rows(target).ts
            end = window.deadline(ts)
            paying = np.logical_or.reduce([payment.paying_rows(batch, ts, end) for payment in payments])
            rows = np.flatnonzero(paying)
            if len(rows):
                yield target, rows, batch[rows]

    def as_of(self, origin: int, ts: Ints, batch: Ints) -> dict[int, Ints]:
        """Return how many tuples of each other count-windowed stream had arrived before each tuple of a stream."""
        counted = [stream for stream in self._plan.query.counted_streams if stream != origin]
        arrived = {stream: np.zeros(len(ts), np.int64) for stream in counted}
        for stream, counts in arrived.items():
            for number in np.unique(batch).tolist():
                mine = batch == number
                counts[mine] = self._arrived(stream, number).as_of(origin, ts[mine])
        return arrived

    def _arrivals(self, stream: int, batch: int) -> Arrivals:
        """Return the arrivals of an earlier batch in a count-windowed stream, with zeros for content hashes.

        They are kept as long as the batch owes.
        """
        times = [np.empty(0, np.int64)]
        for target in self._targets:
            batches = target.chunk.arrived
            if target.chunk.stream == stream and batches.first <= batch <= batches.last:
                times.append(self._table.rows(target).ts[self._batches(target) == batch])
        ts = np.sort(np.concatenate(times))
        before = self._plan.spilling.ledger.batches[batch].arrived[stream]
        return Arrivals(stream, before, ts, np.zeros(len(ts), np.int64))

    def _batches(self, target: Target) -> Ints:
        """Return the batch in which each row of a chunk came."""
        arrivals = self._table.rows(target).arrivals
        return np.full(target.chunk.rows, target.chunk.arrived.last) if arrivals is None else arrivals
