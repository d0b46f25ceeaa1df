"""What a candidate must pass to go on: the conjuncts that a hop can decide, as named filters in their order.

`residuals` gives the filters of a hop. A hop lets blocks flow through them; `why.py` asks them about one combination.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from watersmeet.kernel.near import Comparisons
from watersmeet.kernel.partials import Partials, Waiting, concat, regroup
from watersmeet.kernel.reader import Reader
from watersmeet.kernel.sql import Sql
from watersmeet.kernel.undecided import Undecided
from watersmeet.predicate.model import Conjunct


@dataclass(frozen=True, slots=True)
class Evaluators:
    """What filters evaluate conjuncts by."""

    reader: Reader
    sql: Sql
    comparisons: Comparisons
    undecided: Undecided


@dataclass(frozen=True, slots=True)
class Filter(ABC):
    """Drops the candidates that some conjuncts refuse.

    Attributes:
        conjuncts: The conjuncts; there is at least one.
        by: What evaluates them.
    """

    conjuncts: tuple[Conjunct, ...]
    by: Evaluators
    name: ClassVar[str]

    @abstractmethod
    def passing(self, block: Partials) -> Partials:
        """Return what passes of a block that isn't empty."""

    def through(self, blocks: Iterable[Partials]) -> Iterator[Partials]:
        """Yield what passes of blocks, none of which is empty."""
        return filter(len, map(self.passing, blocks))

    def alone(self, conjunct: Conjunct) -> "Filter":
        """Return the same filter for one of its conjuncts."""
        return replace(self, conjuncts=(conjunct,))


class PlainSql(Filter):
    """Tests conjuncts in plain SQL that can't raise, all at once; in large blocks rather than chunk by chunk."""

    __slots__ = ()
    name = "SQL"

    def passing(self, block: Partials) -> Partials:
        """See Filter."""
        return block.take(self.by.sql.true(block, self.conjuncts))

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
    name = "near"

    def passing(self, block: Partials) -> Partials:
        """See Filter."""
        for conjunct in self.conjuncts:
            block = block.take(self.by.comparisons.possible(block, conjunct))
        return block


class Hopeful(Filter):
    """Drops what a conjunct that may raise already denies; where it raises, its guard may yet come."""

    __slots__ = ()
    name = "hopeful"

    def passing(self, block: Partials) -> Partials:
        """See Filter."""
        for conjunct in self.conjuncts:
            block = block.take(self.by.sql.undenied(block, conjunct)) if len(block) else block
        return block


class PythonPredicates(Filter):
    """Asks Python predicates, the cheapest per rejected combination first."""

    __slots__ = ()
    name = "Python predicates"

    def passing(self, block: Partials) -> Partials:
        """See Filter."""
        block = self.by.reader.lean(block)
        for conjunct in self.by.sql.asker.by_cost(self.conjuncts):
            block = block.take(self.by.sql.called(block, conjunct)) if len(block) else block
        return block

    def through(self, blocks: Iterable[Partials]) -> Iterator[Partials]:
        """See Filter; they are asked about large blocks, not about crumbs."""
        return Filter.through(self, regroup(map(self.by.reader.lean, blocks)))


class Raising(Filter):
    """Decides what may raise, last of all; not for combinations of which Spark has yet to decide something."""

    __slots__ = ()
    name = "raising"

    def passing(self, block: Partials) -> Partials:
        """See Filter."""
        block = self.by.reader.lean(block)
        later = self.by.undecided.mask(block)
        block, waiting = block.take(np.flatnonzero(~later)), block.take(np.flatnonzero(later))
        block = block.take(self.by.sql.decided(block, self.conjuncts))
        return concat([block, waiting]) if len(waiting) else block


def residuals(
    by: Evaluators,
    *,
    sql: tuple[Conjunct, ...] = (),
    near: tuple[Conjunct, ...] = (),
    hopeful: tuple[Conjunct, ...] = (),
    calls: tuple[Conjunct, ...] = (),
    raising: tuple[Conjunct, ...] = (),
) -> tuple[Filter, ...]:
    """Return the filters that have something to do, in the order in which they are applied; see `steps.Step`."""
    made: tuple[Filter, ...] = (
        PlainSql(sql, by),
        Near(near, by),
        Hopeful(hopeful, by),
        PythonPredicates(calls, by),
        Raising(raising, by),
    )
    return tuple(filter_ for filter_ in made if filter_.conjuncts)
