"""The time of a tuple and of a pair, fitted to batches of different sizes, each with a fixed cost.

A sample is small. If all of its time were attributed to its pairs, as `parameters.measure` does for a running join, the
prediction for a hundred times the pairs would include a hundred times the fixed cost of a batch.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from watersmeet.arrays import Floats

BATCH_SECONDS, TUPLE_SECONDS = 0.015, 5e-6
"""Seconds of a batch and of a tuple where batches don't determine them; the prior's deviation is as large."""
JITTER, NOISE = 0.1, 2e-3
"""The deviation of a batch's time: a part of the time, and a number of seconds."""


class BatchWork(NamedTuple):
    """The work of a batch: its seconds, its new tuples, and the pairs that were close enough in time."""

    seconds: float
    tuples: int
    pairs: int


class Pace(NamedTuple):
    """The seconds of a batch, of a tuple and of a pair (T_j)."""

    batch_seconds: float
    tuple_seconds: float
    pair_seconds: float


def fit_pace(batches: Sequence[BatchWork]) -> Pace:
    """Return the non-negative times that fit the batches best; the first batch, a warm-up, counts only if it is alone.

    Where batches are too similar to separate tuples from pairs, a tuple takes about TUPLE_SECONDS, and pairs the rest.

    >>> fit_pace([BatchWork(0.02 + n * 1e-5 + n * 1e-3, n, 1000 * n) for n in (10, 10, 20, 40, 80)]).pair_seconds < 2e-6
    True
    """
    work = np.array(batches[1:] or batches, float)
    deviation = NOISE + JITTER * work[:, 0]
    rows = np.column_stack([np.ones(len(work)), work[:, 1:]]) / deviation[:, None]
    prior = np.array([[1 / BATCH_SECONDS, 0, 0], [0, 1 / TUPLE_SECONDS, 0]])
    return Pace(
        *_least_squares(np.vstack([rows, prior]), np.concatenate([work[:, 0] / deviation, [1.0, 1.0]])).tolist()
    )


def _least_squares(rows: Floats, values: Floats) -> Floats:
    """Return the best solution without a negative part, trying every choice of the parts that aren't 0."""
    scale = np.maximum(np.abs(rows).max(axis=0), np.finfo(float).tiny)
    width, best, least = rows.shape[1], np.zeros(rows.shape[1]), np.inf
    for columns in (list(choice) for size in range(1, width + 1) for choice in combinations(range(width), size)):
        solution = np.zeros(width)
        solution[columns] = np.linalg.lstsq(rows[:, columns] / scale[columns], values)[0] / scale[columns]
        error = float(np.square(rows @ solution - values).sum())
        if solution.min() >= 0 and error < least:
            best, least = solution, error
    return best
