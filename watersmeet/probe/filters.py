"""What a candidate must pass to go on: the conjuncts that a hop can decide, as filters in their order.

`residuals` gives the filters of a hop, which lets blocks flow through them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from watersmeet.arrays import Ints
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.column_reader import Reader
from watersmeet.probe.evaluators.near import Comparisons
from watersmeet.probe.evaluators.sql import Sql
from watersmeet.probe.evaluators.undecided import Undecided
from watersmeet.probe.partials import Partials, Waiting, concat, regroup
from watersmeet.probe.work import HopWork, Tested, texts_of


@dataclass(frozen=True, slots=True)
class Evaluators:
    """What filters evaluate conjuncts by."""

    reader: Reader
    sql: Sql
    comparisons: Comparisons
    undecided: Undecided
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Filter(ABC):
    """Drops the candidates that some conjuncts refuse.

    Attributes:
        conjuncts: The conjuncts; there is at least one.
        by: What evaluates them.
        work: Where pairs are counted.
    """

    conjuncts: tuple[Conjunct, ...]
    by: Evaluators
    work: HopWork

    @abstractmethod
    def passing(self, block: Partials) -> Partials:
        """Return what passes of a block that isn't empty."""

    def through(self, blocks: Iterable[Partials]) -> Iterator[Partials]:
        """Yield what passes of blocks, none of which is empty."""
        return filter(len, map(self.passing, blocks))

    def _kept(self, block: Partials, keep: Callable[[], Ints], tested: Tested) -> Partials:
        """Return what is kept of a block that isn't empty, and count it."""
        started = self.by.clock()
        passed = block.take(keep())
        tested.add(Tested(len(block), len(passed), 1, self.by.clock() - started))
        return passed

    def _one_by_one(self, block: Partials, decide: Callable[[Partials, Conjunct], Ints]) -> Partials:
        """Return what every conjunct lets through, each tested on what those before it have left."""
        for conjunct in self.conjuncts:
            if len(block):
                block = self._kept(block, partial(decide, block, conjunct), self.work.tests[(conjunct.text,)])
        return block


class PlainSql(Filter):
    """Tests conjuncts in plain SQL that can't raise, all at once; in large blocks rather than chunk by chunk."""

    __slots__ = ()

    def passing(self, block: Partials) -> Partials:
        """See Filter; conjuncts are tested one by one now and then, to see what each lets through."""
        texts = texts_of(self.conjuncts)
        keep = self._sampled if self.work.is_sampled(texts, len(block)) else self.by.sql.true
        return self._kept(block, partial(keep, block, self.conjuncts), self.work.tests[texts])

    def _sampled(self, block: Partials, conjuncts: tuple[Conjunct, ...]) -> Ints:
        found = np.arange(len(block))
        for conjunct in conjuncts:
            left, started = block.take(found) if len(found) < len(block) else block, self.by.clock()
            kept = self.by.sql.true(left, (conjunct,)) if len(found) else found
            self.work.alone[conjunct.text].add(Tested(len(found), len(kept), 1, self.by.clock() - started))
            found = found[kept]
        return found

    def through(self, blocks: Iterable[Partials]) -> Iterator[Partials]:
        """See Filter; what a scan has found has passed already."""
        return filter(len, map(self._tested, _gathered(blocks)))

    def _tested(self, block: Partials) -> Partials:
        return block if block.scanned else self.passing(block)


def _gathered(blocks: Iterable[Partials]) -> Iterator[Partials]:
    """Yield what scans have found as it comes, all else in large blocks."""
    waiting = Waiting()
    for block in blocks:
        if block.scanned:
            yield block
        elif waiting.add(block):
            yield waiting.together()
    if waiting:
        yield waiting.together()


class Near(Filter):
    """Drops what conjuncts of real numbers deny for sure; Spark will decide the closest of the others."""

    __slots__ = ()

    def passing(self, block: Partials) -> Partials:
        """See Filter."""
        return self._one_by_one(block, self.by.comparisons.possible)


class Hopeful(Filter):
    """Drops what a conjunct that may raise already denies; where it raises, its guard may yet come."""

    __slots__ = ()

    def passing(self, block: Partials) -> Partials:
        """See Filter."""
        return self._one_by_one(block, self.by.sql.undenied)


class PythonPredicates(Filter):
    """Asks Python predicates, the cheapest per rejected combination first."""

    __slots__ = ()

    def passing(self, block: Partials) -> Partials:
        """See Filter."""
        cheapest = replace(self, conjuncts=tuple(self.by.sql.asker.by_cost(self.conjuncts)))
        return cheapest._one_by_one(self.by.reader.lean(block), self.by.sql.called)

    def through(self, blocks: Iterable[Partials]) -> Iterator[Partials]:
        """See Filter; they are asked about large blocks, not about crumbs."""
        return Filter.through(self, regroup(map(self.by.reader.lean, blocks)))


class Raising(Filter):
    """Decides what may raise, last of all; not for combinations of which Spark has yet to decide something."""

    __slots__ = ()

    def passing(self, block: Partials) -> Partials:
        """See Filter."""
        block = self.by.reader.lean(block)
        later = self.by.undecided.mask(block)
        block, waiting = block.take(np.flatnonzero(~later)), block.take(np.flatnonzero(later))
        tested = self.work.tests[texts_of(self.conjuncts)]
        block = self._kept(block, partial(self.by.sql.decided, block, self.conjuncts), tested)
        return concat([block, waiting]) if len(waiting) else block


def residuals(
    by: Evaluators,
    work: HopWork,
    *,
    sql: tuple[Conjunct, ...] = (),
    near: tuple[Conjunct, ...] = (),
    hopeful: tuple[Conjunct, ...] = (),
    calls: tuple[Conjunct, ...] = (),
    raising: tuple[Conjunct, ...] = (),
) -> tuple[Filter, ...]:
    """Return the filters that have something to do, in the order in which they are applied; see `steps.Step`."""
    made: tuple[Filter, ...] = (
        PlainSql(sql, by, work),
        Near(near, by, work),
        Hopeful(hopeful, by, work),
        PythonPredicates(calls, by, work),
        Raising(raising, by, work),
    )
    return tuple(filter_ for filter_ in made if filter_.conjuncts)
