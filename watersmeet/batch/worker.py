"""A worker process: the connections and caches that it keeps between tasks."""

import os
from collections.abc import Callable
from pathlib import Path

from watersmeet.batch.meeting_nodes import Routes
from watersmeet.batch.plan import BatchPlan
from watersmeet.metadata.denial import OPEN_MARKS
from watersmeet.predicate.model import Dialect
from watersmeet.probe.answer_cache import AnswerCache
from watersmeet.probe.chunk_table import ChunkTable
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.hop import Hops
from watersmeet.query.query import Query
from watersmeet.state.store.budget import save_address_space
from watersmeet.state.store.chunk_writer import DEAD_ROWS

Clock = Callable[[], float]
"""Returns seconds."""


class Worker:
    """The DuckDB connections and cached predicate answers of a process. Creating it also limits its address space.

    Args:
        clock: Returns seconds.
        folder: The folder in which processes share answers and DuckDB spills; None to do neither.
    """

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        save_address_space()
        self._clock = clock
        self._folder = folder
        self._cache = AnswerCache(None if folder is None else folder / "answers")
        self._ducks: dict[Dialect, Duck] = {}

    def hops(self, plan: BatchPlan, query: Query, table: ChunkTable, routes: Routes) -> Hops:
        """Return what runs hops over the chunks of a table; closes and forgets what is cached for other chunks."""
        self._cache.retain(plan.run, {chunk.id for chunk in table.chunks})
        plan.store.retain(plan.run, (chunk for chunk in table.chunks if plan.is_read(chunk)))
        OPEN_MARKS.forget_missing()
        DEAD_ROWS.forget_missing()
        duck, near_misses = self.duck(query.dialect), plan.observing.near_misses
        return Hops(query, table, duck, self._cache, self._clock, routes, plan.run, near_misses)

    def duck(self, dialect: Dialect) -> Duck:
        """Return the connection for a session's settings, opened at the first call."""
        if dialect not in self._ducks:
            folder = None if self._folder is None else self._folder / f"duckdb-{os.getpid()}-{len(self._ducks)}"
            self._ducks[dialect] = Duck(dialect, folder)
        return self._ducks[dialect]
