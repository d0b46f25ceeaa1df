"""Real numbers known up to a radius: value, and a bound of how far Spark's own value may lie from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.predicate.terms import Apply, Comparison, Leaf, Term, Vector

Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Ball:
    """Values of pairs, each with a bound of its error.

    Attributes:
        value: Our value per pair; one for all if a constant.
        radius: At most this far from it is Spark's; infinite where nothing is known: it may be NULL, NaN, or raise.
        valid: FALSE where the value is NULL for sure (unless the radius is infinite).
        finer: The same for some of the pairs, with smaller radii, where that would take longer.
    """

    value: Reals
    radius: Reals
    valid: Mask
    finer: Callable[[Rows], Ball] | None = None


def ball_of(values: pa.Array, error: float = 0.0) -> Ball:
    """The ball of a leaf, from its values as DuckDB gives them (Arrow, double, NULL as NULL)."""
    raise NotImplementedError


def decide(comparison: Comparison, balls: Mapping[Leaf | Vector, Ball]) -> tuple[Mask, Mask]:
    """For each pair, whether the comparison may be TRUE, and whether it is for sure; `balls` has its inputs'."""
    raise NotImplementedError
