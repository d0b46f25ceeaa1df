"""The tuples that probe in a batch: the new ones, and earlier ones that make up for probes they still owe."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from watersmeet.batch.arrival_order import Arrivals, as_of_counts
from watersmeet.batch.plan import BatchPlan, Course
from watersmeet.probe.chunk_table import ChunkTable, Target, start_partials
from watersmeet.probe.hop import Hops
from watersmeet.probe.hop_steps import entry_conjuncts
from watersmeet.probe.partials import Partials, uniform
from watersmeet.query.query import Query
from watersmeet.spilling.paying_tuples import PayingTuples


class ProbingTuples:
    """Reads tuples from their chunks as partial results with one member.

    Args:
        plan: The batch's plan.
        query: The join, with the conjuncts by which it is decided.
        hops: Tests tuples before they probe.
        table: Where their columns are.
        stored: The chunks of earlier batches.
        fresh: Those of the batch's own tuples.
        arrivals: The batch's arrivals in count-windowed streams.
    """

    def __init__(
        self,
        plan: BatchPlan,
        query: Query,
        hops: Hops,
        table: ChunkTable,
        stored: Sequence[Target],
        fresh: Sequence[Target],
        arrivals: Mapping[int, Arrivals],
    ) -> None:
        self._plan, self._query, self._hops, self._table = plan, query, hops, table
        self._fresh, self._arrivals = fresh, arrivals
        self._owing = PayingTuples(plan, table, stored)
        self._tracked = plan.placement.tracked

    def entering(self, origin: int, course: int, steps: Course, share: int = 0, shares: int = 1) -> Iterator[Partials]:
        """Yield blocks of a stream's tuples that start a course, less those that fail conjuncts over the stream alone.

        They are the new tuples on `course`; or, if `steps` make owed probes, tuples of earlier batches that owe them
        now.

        [!] A share is every `shares`-th row of each chunk, since later rows have more to probe. Rows are in canonical
        order, so that a task that is run again over rewritten chunks takes the same tuples.
        """
        conjuncts, pays = entry_conjuncts(self._query, origin), steps[0].role.old
        for block in self._owing_tuples(origin, share, shares) if pays else self._new_tuples(origin, share, shares):
            block = self._hops.enter(block, conjuncts)
            block = block if pays else self._on_course(block, course)
            if len(block):
                yield block

    def _new_tuples(self, origin: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield a block for each chunk: a share of its rows, if they are new tuples of the stream."""
        for target in self._fresh:
            if target.chunk.stream == origin and target.chunk.bucket.first:
                rows = np.arange(share, target.chunk.rows, shares)
                ts = self._table.rows(target).ts[rows]
                asof = as_of_counts(self._arrivals, origin, ts)
                batch = uniform(self._plan.batch, len(ts))
                yield start_partials(self._query, target, rows, ts, batch, asof, self._tracked)

    def _owing_tuples(self, origin: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield blocks of a share of a stream's earlier tuples that make owed probes in this batch."""
        for target, rows, batch in self._owing.tuples(origin):
            rows, batch = rows[share::shares], batch[share::shares]
            ts = self._table.rows(target).ts[rows]
            asof = self._owing.as_of(origin, ts, batch)
            yield start_partials(self._query, target, rows, ts, batch, asof, self._tracked)

    def _on_course(self, block: Partials, course: int) -> Partials:
        """Return the tuples to which the join order assigns a course."""
        order = self._plan.order
        columns = order.reads(block.origin)
        if not columns or not len(block):
            return block
        courses = order.courses(block.origin, {c: block.column(c, self._table.gather) for c in columns})
        return block.take(np.flatnonzero(courses == course))
