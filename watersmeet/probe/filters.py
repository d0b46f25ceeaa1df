"""Filters of candidates: the conjuncts that a hop can decide, in a fixed order.

`make_filters` returns the filters of a hop, through which blocks flow.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Literal

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.candidates import Probe, Times
from watersmeet.probe.chunk_table import ColumnReader
from watersmeet.probe.emitted_once import limit_times, mask_pairs
from watersmeet.probe.evaluators.real_comparisons import Comparisons
from watersmeet.probe.evaluators.sql import Sql
from watersmeet.probe.partials import BlockBuffer, Partials, concat, regroup
from watersmeet.probe.work import HopWork, TestCounts, texts_of
from watersmeet.query.windows import FOREVER, NEVER

Truth = Literal["TRUE", "FALSE", "NULL", "undecided"]
"""What a conjunct answers; `undecided` if only Spark can tell."""


@dataclass(frozen=True, slots=True)
class Evaluators:
    """What filters evaluate conjuncts with.

    Attributes:
        reader: Looks columns up.
        sql: Evaluates conjuncts in SQL.
        comparisons: Evaluates conjuncts of real numbers.
        clock: Returns seconds.
    """

    reader: ColumnReader
    sql: Sql
    comparisons: Comparisons
    clock: Callable[[], float]

    def pending(self, block: Partials) -> Mask:
        """Return which combinations Spark has to decide: those of opaque conjuncts, and those too close to call.

        Combinations of the required streams alone are decided by the conjuncts over these.
        """
        query = self.reader.query
        if query.needs_spark:
            is_ready = any(conjunct.streams <= {*block.joined} for conjunct in query.deferred_conjuncts)
            return np.full(len(block), is_ready)
        mask = np.zeros(len(block), dtype=bool)
        for conjunct in query.conjuncts:
            if not conjunct.exact and conjunct.streams <= {*block.joined}:
                evaluator = self.comparisons if conjunct.near else self.sql
                mask[evaluator.unsure(block, conjunct)] = True
        return mask

    def evaluate(self, conjunct: Conjunct, combination: Partials) -> Truth:
        """Return what a conjunct answers for one combination, which may lack streams that the conjunct doesn't read.

        It calls the Python predicates of the conjunct.

        Args:
            conjunct: The conjunct; the Python predicates that it calls are available.
            combination: A block of one.

        Raises:
            PredicateError: If it raises instead of answering.
        """
        if conjunct.near:
            if not len(self.comparisons.possible(combination, conjunct)):
                columns = self.reader.read(combination, conjunct.columns)
                return "NULL" if any(values.null_count for values in columns.values()) else "FALSE"
            return "undecided" if len(self.comparisons.unsure(combination, conjunct)) else "TRUE"
        if conjunct.sql is None or (conjunct.unsure is not None and len(self.sql.unsure(combination, conjunct))):
            return "undecided"
        if len(self.sql.decide(combination, (conjunct,))):
            return "TRUE"
        is_null = replace(conjunct, sql=f"(({conjunct.sql}) IS NULL)", unsure=None)
        return "NULL" if len(self.sql.decide(combination, (is_null,))) else "FALSE"


@dataclass(frozen=True, slots=True)
class Filter(ABC):
    """Drops the candidates that some conjuncts refuse.

    Attributes:
        conjuncts: The conjuncts; there is at least one.
        evaluators: Evaluate them.
        work: Counts pairs.
    """

    conjuncts: tuple[Conjunct, ...]
    evaluators: Evaluators
    work: HopWork

    @abstractmethod
    def test(self, block: Partials) -> Partials:
        """Return what passes of a block that isn't empty, and count it."""

    def apply(self, blocks: Iterable[Partials]) -> Iterator[Partials]:
        """Yield what passes of some blocks, without empty blocks."""
        return filter(len, map(self.test, blocks))

    def _take(self, block: Partials, locate: Callable[[], Ints], counts: TestCounts) -> Partials:
        """Return the located part of a block that isn't empty, and count it."""
        start = self.evaluators.clock()
        at = locate()
        passing = block.take(at) if len(at) < len(block) else block
        counts.add(TestCounts(len(block), len(passing), 1, self.evaluators.clock() - start))
        return passing

    def _one_by_one(self, block: Partials, decide: Callable[[Partials, Conjunct], Ints]) -> Partials:
        """Return what passes every conjunct, each tested on what has passed those before it."""
        for conjunct in self.conjuncts:
            if len(block):
                block = self._take(block, partial(decide, block, conjunct), self.work.tests[(conjunct.text,)])
        return block


class SqlFilter(Filter):
    """Tests conjuncts in plain SQL that can't raise, all at once, in large blocks."""

    __slots__ = ()

    def test(self, block: Partials) -> Partials:
        """See Filter; for a sample, conjuncts are tested one by one, to measure each."""
        texts = texts_of(self.conjuncts)
        locate = self._test_each if self.work.is_sampled(texts, len(block)) else self.evaluators.sql.true
        return self._take(block, partial(locate, block, self.conjuncts), self.work.tests[texts])

    def _test_each(self, block: Partials, conjuncts: tuple[Conjunct, ...]) -> Ints:
        """Return the rows that pass all conjuncts, tested one after the other; records each one's pairs and time."""
        positions = np.arange(len(block))
        for conjunct in conjuncts:
            rest, start = block.take(positions) if len(positions) < len(block) else block, self.evaluators.clock()
            passing = self.evaluators.sql.true(rest, (conjunct,)) if len(positions) else positions
            self.work.single_tests[conjunct.text].add(
                TestCounts(len(positions), len(passing), 1, self.evaluators.clock() - start)
            )
            positions = positions[passing]
        return positions

    def apply(self, blocks: Iterable[Partials]) -> Iterator[Partials]:
        """See Filter; candidates from a scan have already passed."""
        return filter(len, map(self._pass_or_test, _gather_blocks(blocks)))

    def _pass_or_test(self, block: Partials) -> Partials:
        return block if block.from_scan else self.test(block)


def _gather_blocks(blocks: Iterable[Partials]) -> Iterator[Partials]:
    """Yield blocks from scans as they come, and the others in large blocks."""
    waiting = BlockBuffer()
    for block in blocks:
        if block.from_scan:
            yield block
        elif waiting.add(block):
            yield waiting.drain()
    if waiting:
        yield waiting.drain()


class ComparisonFilter(Filter):
    """Drops what conjuncts of real numbers certainly deny; Spark will decide the closest of the rest."""

    __slots__ = ()

    def test(self, block: Partials) -> Partials:
        """See Filter."""
        return self._one_by_one(block, self.evaluators.comparisons.possible)


class EarlyRaisingFilter(Filter):
    """Drops what a conjunct that may raise denies; what it raises for passes, as its guard may still drop it."""

    __slots__ = ()

    def test(self, block: Partials) -> Partials:
        """See Filter."""
        return self._one_by_one(block, self.evaluators.sql.not_denied)


class PredicateFilter(Filter):
    """Calls Python predicates, the cheapest per rejected combination first."""

    __slots__ = ()

    def test(self, block: Partials) -> Partials:
        """See Filter; predicates whose answers aren't cached are called, and raise PredicateError."""
        cheapest = replace(self, conjuncts=tuple(self.evaluators.sql.predicates.by_cost(self.conjuncts)))
        return cheapest._one_by_one(self.evaluators.reader.lean(block), self.evaluators.sql.evaluate_calls)

    def apply(self, blocks: Iterable[Partials]) -> Iterator[Partials]:
        """See Filter; predicates are called for large blocks."""
        return Filter.apply(self, regroup(map(self.evaluators.reader.lean, blocks)))


class RaisingFilter(Filter):
    """Decides conjuncts that may raise, last of all, except for combinations that are pending."""

    __slots__ = ()

    def test(self, block: Partials) -> Partials:
        """See Filter; pending combinations pass untested.

        It calls Python predicates, and raises PredicateError for a combination that one raises for and none denies.
        """
        block = self.evaluators.reader.lean(block)
        pending = self.evaluators.pending(block)
        block, waiting = block.take(np.flatnonzero(~pending)), block.take(np.flatnonzero(pending))
        counts = self.work.tests[texts_of(self.conjuncts)]
        block = self._take(block, partial(self.evaluators.sql.decide, block, self.conjuncts), counts)
        return concat([block, waiting]) if len(waiting) else block


def make_filters(
    evaluators: Evaluators,
    work: HopWork,
    *,
    sql: tuple[Conjunct, ...] = (),
    near: tuple[Conjunct, ...] = (),
    early_raising: tuple[Conjunct, ...] = (),
    calls: tuple[Conjunct, ...] = (),
    raising: tuple[Conjunct, ...] = (),
) -> tuple[Filter, ...]:
    """Return the filters that have conjuncts, in the order in which they are applied; see `hop_steps.Step`."""
    filters: tuple[Filter, ...] = (
        SqlFilter(sql, evaluators, work),
        ComparisonFilter(near, evaluators, work),
        EarlyRaisingFilter(early_raising, evaluators, work),
        PredicateFilter(calls, evaluators, work),
        RaisingFilter(raising, evaluators, work),
    )
    return tuple(filter_ for filter_ in filters if filter_.conjuncts)


EVER = Times(np.array([NEVER]), np.array([FOREVER]))


def _all_times(probe: Probe, times: Times) -> Times:
    return times


def _all_pairs(probe: Probe, partial: Ints, row: Ints) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Admission:
    """A filter of pairs that does not depend on `where`.

    Attributes:
        narrow: Narrows the times that each partial result of a probe looks for.
        mask: Returns which pairs, given by the positions of the partial results and by rows, it admits; None for all.
    """

    narrow: Callable[[Probe, Times], Times] = _all_times
    mask: Callable[[Probe, Ints, Ints], Mask | None] = _all_pairs


def _in_window(probe: Probe, times: Times) -> Times:
    return probe.input.times  # the same for all chunks; as the first filter it narrows EVER


def _in_count_window(probe: Probe, partial: Ints, row: Ints) -> Mask | None:
    """Return which pairs are inside the count window of the stream probed; None if it has none."""
    size = probe.input.window.rows
    if size is None:
        return None
    assert probe.rows.ordinals is not None
    mask: Mask = probe.rows.ordinals[row] > probe.block.asof[probe.step.target][partial] - size
    return mask


ADMISSION = (
    Admission(narrow=_in_window),
    Admission(narrow=limit_times, mask=mask_pairs),
    Admission(mask=_in_count_window),
)


def admit_times(probe: Probe) -> Times:
    """Return the times that each partial result looks for in the chunk."""
    return reduce(lambda times, filter_: filter_.narrow(probe, times), ADMISSION, EVER)


def admit_pairs(probe: Probe, times: Times | None, partial: Ints, row: Ints) -> tuple[Ints, Ints]:
    """Return the pairs that are admitted.

    Args:
        probe: The probe.
        times: The result of `admit_times`; None if the pairs were looked up by it.
        partial: The positions of their partial results.
        row: Their rows of the chunk.
    """
    masks = [mask for filter_ in ADMISSION if (mask := filter_.mask(probe, partial, row)) is not None]
    if times is not None:
        ts = probe.rows.ts[row]
        masks.append((ts >= times.low[partial]) & (ts <= times.high[partial]))
    if not masks:
        return partial, row
    mask = reduce(np.logical_and, masks)
    return (partial, row) if mask.all() else (partial[mask], row[mask])
