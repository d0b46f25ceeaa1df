"""How long a tuple and a pair take, from batches of different sizes: a batch costs something even if it is empty.

A sample is small. If all of its time were put down to its pairs, as `parameters.measured` does for a running join, a
hundred times the pairs would seem to take a hundred times what a batch takes before it does anything.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BATCH_SECONDS, TUPLE_SECONDS = 0.015, 5e-6
"""What a batch and a tuple take where batches don't tell; each may well be twice that, or nothing."""
JITTER, NOISE = 0.1, 2e-3
"""By which part of its time, and by how many seconds, a batch is off."""


class BatchWork(NamedTuple):
    """What a batch did: the seconds that it took, its new tuples, and the pairs in time that they met."""

    seconds: float
    tuples: int
    pairs: int


class Pace(NamedTuple):
    """The seconds that a batch, a tuple and a pair take (T_j)."""

    batch_seconds: float
    tuple_seconds: float
    pair_seconds: float


def pace(batches: Sequence[BatchWork]) -> Pace:
    """Return what fits the batches best, none of it below 0; the first, which warms up, counts only if it is alone.

    Where batches are too alike to tell tuples from pairs, a tuple takes about what tuples do, and pairs the rest.

    >>> pace([BatchWork(0.02 + n * 1e-5 + n * 1e-3, n, 1000 * n) for n in (10, 10, 20, 40, 80)]).pair_seconds < 2e-6
    True
    """
    work = np.array(batches[1:] or batches, float)
    off = NOISE + JITTER * work[:, 0]
    rows = np.column_stack([np.ones(len(work)), work[:, 1:]]) / off[:, None]
    known = np.array([[1 / BATCH_SECONDS, 0, 0], [0, 1 / TUPLE_SECONDS, 0]])
    return Pace(*_least_squares(np.vstack([rows, known]), np.concatenate([work[:, 0] / off, [1.0, 1.0]])).tolist())


def _least_squares(rows: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the solution without a negative part that is off by the least: of all choices of parts that aren't 0."""
    scale = np.maximum(np.abs(rows).max(axis=0), np.finfo(float).tiny)
    width, best, least = rows.shape[1], np.zeros(rows.shape[1]), np.inf
    for columns in (list(chosen) for size in range(1, width + 1) for chosen in combinations(range(width), size)):
        solution = np.zeros(width)
        solution[columns] = np.linalg.lstsq(rows[:, columns] / scale[columns], values)[0] / scale[columns]
        off = float(np.square(rows @ solution - values).sum())
        if solution.min() >= 0 and off < least:
            best, least = solution, off
    return best
