"""One hop: partial results probe the chunks of the next stream and come out longer, block by block.

Access paths propose candidates (`search.py`), windows and the arrival order cut them, then conjuncts
(`filters.py`). Nothing here holds more than a few blocks at a time.
"""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from watersmeet.arrays import Ints, Mask
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.answer_cache import AnswerCache
from watersmeet.probe.candidates import Router
from watersmeet.probe.chunk_table import ChunkTable, ColumnReader, Target
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.evaluators.real_comparisons import Comparisons
from watersmeet.probe.evaluators.sql import Sql
from watersmeet.probe.filters import Evaluators, Filter, make_filters
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.near_miss_search import NearMissSearch
from watersmeet.probe.partials import Partials
from watersmeet.probe.predicate_blocks import PredicateCaller
from watersmeet.probe.search import CandidateSearch, Tails
from watersmeet.probe.work import HopWork, Work, time_iterator
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Rows


class Hops:
    """Runs the hops of one task over its chunks.

    Args:
        query: The join.
        table: The chunks the task may probe.
        duck: The process's DuckDB connection.
        cache: Answers of Python predicates.
        clock: Returns seconds; injected so that the core has no clock of its own.
        router: Finds the node at which a partial result probes a chunk.
        run: The start of the query: predicates of the same name may differ between starts.
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
        reader = ColumnReader(query, table)
        self._query, self._reader, self._asker = query, reader, PredicateCaller(reader, duck, cache, run, clock)
        sql, comparisons = Sql(reader, duck, self._asker), Comparisons(reader, duck)
        self.evaluators = Evaluators(reader, sql, comparisons, clock)
        self.work = Work(costs=self._asker.costs)
        self._search = CandidateSearch(reader, duck, router, self.work, clock)
        uncounted = Sql(reader, duck, PredicateCaller(reader, duck, AnswerCache(limit=0), run, clock))
        self.near_misses = NearMissSearch(near_misses, self._search, uncounted, comparisons)

    def entry_filters(self, conjuncts: Sequence[Conjunct]) -> tuple[Filter, ...]:
        """Return the filters of tuples that have not probed yet: the conjuncts over their own stream alone."""
        return make_filters(
            self.evaluators,
            HopWork(),
            sql=tuple(conjunct for conjunct in conjuncts if not conjunct.calls and not conjunct.near),
            near=tuple(conjunct for conjunct in conjuncts if conjunct.near),
            calls=tuple(conjunct for conjunct in conjuncts if conjunct.calls),
        )

    def filters(self, step: Step) -> tuple[Filter, ...]:
        """Return the filters of a hop's candidates, in order; they count into the hop's work."""
        return make_filters(
            self.evaluators,
            self.work.of(step),
            sql=tuple(conjunct for conjunct in step.sql if not conjunct.numeric),
            near=step.near,
            early_raising=step.early_raising,
            calls=step.calls,
            raising=step.raising,
        )

    def enter(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Partials:
        """Return the probing tuples that pass the conjuncts over their own stream alone; may call Python predicates.

        Args:
            block: The tuples.
            conjuncts: These conjuncts; see `entry_conjuncts`.
        """
        for filter_ in self.entry_filters(conjuncts):
            block = self._reader.lean(filter_.test(block)) if len(block) else block
        return block

    def complete(self, block: Partials) -> Partials:
        """Return the tuples, combinations by themselves, that pass the conjuncts over their stream that may raise.

        Raises:
            PredicateError: If one raises for a tuple that no other denies.
        """
        conjuncts = tuple(c for c in self._query.conjuncts if c.raises and c.streams <= set(block.joined))
        for filter_ in make_filters(self.evaluators, HopWork(), raising=conjuncts):
            block = self._reader.lean(filter_.test(block)) if len(block) else block
        return block

    def rows(self, target: Target) -> Rows:
        """Open a chunk."""
        return self._reader.table.rows(target)

    def contents(self, refs: Ints) -> Ints:
        """Return the content hashes of rows; their stream must store them."""
        return self._reader.table.contents(refs)

    def hop(
        self, block: Partials, step: Step, node: int | None = None, tails: Tails | None = None
    ) -> Iterator[Partials]:
        """Yield the longer partial results that a block becomes by probing `step.target`.

        It calls Python predicates, counts the work, and searches for near-misses once all results are taken.

        Args:
            block: Partial results over `step.joined`.
            step: The hop.
            node: Probe only chunks that are probed at this node; None for all chunks.
            tails: The rows to look at if only the newest partner counts, which notes what they leave out; None for all.

        Raises:
            PredicateError: If a conjunct or a predicate raises.
        """
        if not len(block):
            return
        work, blocks = self.work.of(step), self._search.candidates(block, step, node, tails)
        blocks = time_iterator(blocks, work.search, self.evaluators.clock)
        for filter_ in self.filters(step):
            blocks = filter_.apply(blocks)
        for matches in blocks:
            work.matches += len(matches)
            yield self._reader.lean(matches)
        self.near_misses.look(block, step, node)

    def pending(self, block: Partials) -> Mask:
        """Return which combinations are pending: Spark has to decide them; the others are results."""
        return self.evaluators.pending(block)

    def answers(self, block: Partials) -> dict[str, pa.Array]:
        """Return the answers of Python predicates for conjuncts that Spark decides and whose streams are joined.

        It calls the predicates for combinations without a cached answer, and caches what may be asked again.
        """
        conjuncts = [conjunct for conjunct in self._query.deferred_conjuncts if conjunct.streams <= {*block.joined}]
        return {call.name: self._asker.booleans(block, call) for conjunct in conjuncts for call in conjunct.calls}
