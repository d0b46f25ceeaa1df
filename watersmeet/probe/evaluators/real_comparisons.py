"""Conjuncts of real numbers, evaluated for blocks with an error bound (`balls.py`); the closest are left to Spark."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints, Mask
from watersmeet.predicate.model import Conjunct
from watersmeet.predicate.terms import Input, Leaf, Term, TextFunction, VectorFunction, inputs_of
from watersmeet.probe.chunk_table import ColumnReader
from watersmeet.probe.evaluators import balls
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.evaluators.texts import jaro_winkler, levenshtein
from watersmeet.probe.evaluators.vectors import vectors
from watersmeet.probe.partials import Partials


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Evaluates conjuncts that are comparisons with an error bound.

    Attributes:
        reader: Looks columns up.
        duck: The process's DuckDB connection, which evaluates their exact parts.
    """

    reader: ColumnReader
    duck: Duck

    def possible(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return where a conjunct may be TRUE."""
        return self.reader.where(
            block, conjunct.columns, lambda piece, at: np.flatnonzero(self._masks(piece, conjunct)[0])
        )

    def unsure(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return where a conjunct isn't certainly TRUE."""
        return self.reader.where(
            block, conjunct.columns, lambda piece, at: np.flatnonzero(~self._masks(piece, conjunct)[1])
        )

    def _masks(self, block: Partials, conjunct: Conjunct) -> tuple[Mask, Mask]:
        """Return where a conjunct may be TRUE, and where it certainly is."""
        possible, sure = np.ones(len(block), dtype=bool), np.ones(len(block), dtype=bool)
        for comparison in conjunct.near:
            terms = {term: self._ball(block, term) for term in comparison.inputs}
            may, must = balls.decide(comparison, terms)
            possible, sure = possible & may, sure & must
        return possible, sure

    def value(self, block: Partials, term: Term) -> balls.Ball:
        """Return the ball of a term."""
        return balls.evaluate(term, {part: self._ball(block, part) for part in inputs_of(term)})

    def _ball(self, block: Partials, term: Input) -> balls.Ball:
        """Return a term's value for each row of a block, with a bound on its error; DuckDB computes leaves."""
        if isinstance(term, Leaf):
            columns = self.reader.read(block, term.columns)
            return balls.ball_of(self.duck.values(columns, f"CAST({term.sql} AS DOUBLE)", len(block)), term.error)
        left, left_at = self.reader.distinct(block, term.left)
        right, right_at = self.reader.distinct(block, term.right)
        return evaluate_pairs(term, left, right, left_at, right_at)


def evaluate_pairs(
    term: TextFunction | VectorFunction, left: pa.Array, right: pa.Array, left_at: Ints, right_at: Ints
) -> balls.Ball:
    """The ball of a function of two columns, for many pairs of rows.

    Args:
        term: The function.
        left: Rows of its first column; preferably distinct.
        right: Rows of its second column.
        left_at: For each pair, its row of `left`.
        right_at: For each pair, its row of `right`.
    """
    if isinstance(term, VectorFunction):
        return vectors(term.function, left, right, left_at, right_at)
    if term.function == "levenshtein":
        return levenshtein(left, right, left_at, right_at, term.limit)
    return jaro_winkler(left, right, left_at, right_at)
