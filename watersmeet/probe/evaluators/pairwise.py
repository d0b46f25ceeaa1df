"""Functions of two columns that are evaluated for many pairs of rows at a time."""

import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.predicate.terms import TextFunction, VectorFunction
from watersmeet.probe.evaluators.balls import Ball
from watersmeet.probe.evaluators.texts import jaro_winkler, levenshtein
from watersmeet.probe.evaluators.vectors import vectors


def pairwise(
    term: TextFunction | VectorFunction, left: pa.Array, right: pa.Array, left_at: Ints, right_at: Ints
) -> Ball:
    """The ball of a function of two columns.

    Args:
        term: The function.
        left: Rows of its first column; each once, best.
        right: Rows of its second column.
        left_at: For each pair, its row of `left`.
        right_at: For each pair, its row of `right`.
    """
    if isinstance(term, VectorFunction):
        return vectors(term.function, left, right, left_at, right_at)
    if term.function == "levenshtein":
        return levenshtein(left, right, left_at, right_at, term.limit)
    return jaro_winkler(left, right, left_at, right_at)
