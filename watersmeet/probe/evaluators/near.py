"""Conjuncts of real numbers over blocks: decided with a bound of the error (`balls.py`), but for the closest."""

import functools
from dataclasses import dataclass

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.predicate.model import Conjunct
from watersmeet.predicate.terms import Input, Leaf, Term, inputs_of
from watersmeet.probe.column_reader import Reader
from watersmeet.probe.evaluators import balls
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.evaluators.pairwise import pairwise
from watersmeet.probe.partials import Partials


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Evaluates conjuncts that are comparisons with an error bound.

    Attributes:
        reader: Looks columns up.
        duck: The process's DuckDB connection, which evaluates what is exact in them.
    """

    reader: Reader
    duck: Duck

    def possible(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return where a conjunct may be TRUE."""
        return self.reader.where(block, conjunct.columns, functools.partial(self._possible, conjunct))

    def _possible(self, conjunct: Conjunct, block: Partials, at: slice) -> Ints:
        return np.flatnonzero(self._known(block, conjunct)[0])

    def unsure(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return where a conjunct isn't TRUE for sure."""
        return self.reader.where(block, conjunct.columns, functools.partial(self._unsure, conjunct))

    def _unsure(self, conjunct: Conjunct, block: Partials, at: slice) -> Ints:
        return np.flatnonzero(~self._known(block, conjunct)[1])

    def _known(self, block: Partials, conjunct: Conjunct) -> tuple[Mask, Mask]:
        """Return where a conjunct may be TRUE, and where it is for sure."""
        possible, sure = np.ones(len(block), dtype=bool), np.ones(len(block), dtype=bool)
        for comparison in conjunct.near:
            known = {term: self._ball(block, term) for term in comparison.inputs}
            may, must = balls.decide(comparison, known)
            possible, sure = possible & may, sure & must
        return possible, sure

    def value(self, block: Partials, term: Term) -> balls.Ball:
        """Return what is known of a term."""
        return balls.evaluate(term, {part: self._ball(block, part) for part in inputs_of(term)})

    def _ball(self, block: Partials, term: Input) -> balls.Ball:
        if isinstance(term, Leaf):
            columns = self.reader.read(block, term.columns)
            return balls.ball_of(self.duck.values(columns, f"CAST({term.sql} AS DOUBLE)", len(block)), term.error)
        left, left_at = self.reader.distinct(block, term.left)
        right, right_at = self.reader.distinct(block, term.right)
        return pairwise(term, left, right, left_at, right_at)
