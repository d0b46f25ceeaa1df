"""One hop: partial results probe the chunks of the next stream and come out longer, block by block.

Access paths propose candidates (`search.py`), windows and the arrival order cut them (`admission.py`), then conjuncts
(`filters.py`). Nothing here holds more than a few blocks at a time.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.answer_cache import AnswerCache
from watersmeet.probe.chunk_table import ChunkTable, Target
from watersmeet.probe.column_reader import Reader
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.evaluators.near import Comparisons
from watersmeet.probe.evaluators.sql import Sql
from watersmeet.probe.evaluators.undecided import Undecided
from watersmeet.probe.filters import Evaluators, Filter, residuals
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.near_miss_search import NearMisses
from watersmeet.probe.newest_rows import Tails
from watersmeet.probe.partials import Partials
from watersmeet.probe.predicate_blocks import Asker
from watersmeet.probe.routing import Router
from watersmeet.probe.search import Search
from watersmeet.probe.work import HopWork, Work, timed
from watersmeet.query.query import Query
from watersmeet.state.chunks.rows import Rows


class Hops:
    """Runs the hops of one task over its chunks.

    Args:
        query: The join.
        table: The chunks the task may probe.
        duck: The process's DuckDB connection.
        cache: What is known of Python predicates' answers.
        clock: Returns seconds; injected so that the core has no clock of its own.
        router: Says at which copy of a chunk a partial result probes it.
        run: The start of the query: in another a predicate of the same name may be another.
        near_misses: How many near-misses to look for, of each conjunct and hop.
    """

    def __init__(
        self,
        query: Query,
        table: ChunkTable,
        duck: Duck,
        cache: AnswerCache,
        clock: Callable[[], float],
        router: Router,
        run: str,
        near_misses: int = 0,
    ) -> None:
        reader = Reader(query, table)
        self._query, self._reader, self._asker = query, reader, Asker(reader, duck, cache, run, clock)
        sql, comparisons = Sql(reader, duck, self._asker), Comparisons(reader, duck)
        self.by = Evaluators(reader, sql, comparisons, Undecided(query, sql, comparisons), clock)
        self.work = Work(costs=self._asker.costs)
        self._search = Search(reader, duck, router, self.work, clock)
        aside = Sql(reader, duck, Asker(reader, duck, AnswerCache(limit=0), run, clock))
        self.missed = NearMisses(near_misses, self._search, aside, comparisons)

    def entry_filters(self, conjuncts: Sequence[Conjunct]) -> tuple[Filter, ...]:
        """Return the filters of tuples that have not probed yet, by the conjuncts over their own stream alone."""
        return residuals(
            self.by,
            HopWork(),
            sql=tuple(conjunct for conjunct in conjuncts if not conjunct.calls and not conjunct.near),
            near=tuple(conjunct for conjunct in conjuncts if conjunct.near),
            calls=tuple(conjunct for conjunct in conjuncts if conjunct.calls),
        )

    def filters(self, step: Step) -> tuple[Filter, ...]:
        """Return the filters of a hop's candidates."""
        return residuals(
            self.by,
            self.work.of(step),
            sql=step.sql,
            near=step.near,
            hopeful=step.hopeful,
            calls=step.calls,
            raising=step.raising,
        )

    def enter(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Partials:
        """Return the probing tuples that pass the conjuncts over their own stream alone."""
        for filter_ in self.entry_filters(conjuncts):
            block = self._reader.lean(filter_.passing(block)) if len(block) else block
        return block

    def complete(self, block: Partials) -> Partials:
        """Return the tuples that are combinations of their own and pass the conjuncts over their stream that may raise.

        Raises:
            PredicateError: If one raises for a tuple that no other denies.
        """
        conjuncts = tuple(c for c in self._query.conjuncts if c.raises and c.streams <= set(block.joined))
        for filter_ in residuals(self.by, HopWork(), raising=conjuncts):
            block = self._reader.lean(filter_.passing(block)) if len(block) else block
        return block

    def rows(self, target: Target) -> Rows:
        """Open a chunk."""
        return self._reader.table.rows(target)

    def contents(self, refs: Ints) -> Ints:
        """Return the content hashes of rows, which their stream must keep."""
        return self._reader.table.contents(refs)

    def hop(
        self, block: Partials, step: Step, node: int | None = None, tails: Tails | None = None
    ) -> Iterator[Partials]:
        """Yield what the partial results of a block become by probing `step.target`.

        Args:
            block: Partial results over `step.joined`.
            step: What to do.
            node: Probe only what is to be probed at this node; None for all that is to be probed anywhere.
            tails: Which rows to look at, where only the newest counts; None for all.
        """
        if not len(block):
            return
        found = timed(self._search.candidates(block, step, node, tails), self.work.of(step).search, self.by.clock)
        for filter_ in self.filters(step):
            found = filter_.through(found)
        for passed in found:
            self.work.of(step).matches += len(passed)
            yield self._reader.lean(passed)
        self.missed.look(block, step, node)

    def undecided(self, block: Partials) -> NDArray[np.bool_]:
        """Return which combinations Spark has to decide; the others are results."""
        return self.by.undecided.mask(block)

    def answers(self, block: Partials) -> dict[str, pa.Array]:
        """Return what Python predicates answer that conjuncts left to Spark call; not about streams that it lacks."""
        known = [conjunct for conjunct in self._query.deferred_conjuncts if conjunct.streams <= {*block.joined}]
        return {call.name: self._asker.booleans(block, call) for conjunct in known for call in conjunct.calls}
