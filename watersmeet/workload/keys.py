"""Tuples with two join attributes each, for chain joins such as `a.b = b.a AND b.b = c.a`: skewed or uniform."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.workload.poisson import START, TIME, arrivals

MOST = 3000
"""Keys range from 1 to this, as in the DSJ paper's synthetic streams."""


def zipf(
    rate: float,
    seconds: float,
    rng: np.random.Generator,
    *,
    alpha: float = 0.8,
    most: int = MOST,
    start: int = START,
) -> pa.Table:
    """A stream of skewed keys: `id`, `ts` (Poisson arrivals), `a` and `b`, key k as often as k^-alpha.

    >>> zipf(3, 1, np.random.default_rng(1)).column_names
    ['id', 'ts', 'a', 'b']
    """
    weights = np.arange(1, most + 1, dtype=float) ** -alpha
    return _keyed(arrivals(rate, seconds, rng, start), most, weights / weights.sum(), rng)


def gps(rate: float, seconds: float, rng: np.random.Generator, *, most: int = MOST, start: int = START) -> pa.Table:
    """A stream of reports spread evenly over a city: `id`, `ts`, and the cells `a` and `b` between which a car moved.

    >>> gps(3, 1, np.random.default_rng(1)).column_names
    ['id', 'ts', 'a', 'b']
    """
    return _keyed(arrivals(rate, seconds, rng, start), most, None, rng)


def _keyed(
    times: NDArray[np.int64], most: int, shares: NDArray[np.float64] | None, rng: np.random.Generator
) -> pa.Table:
    keys = {name: rng.choice(most, len(times), p=shares).astype(np.int32) + 1 for name in ("a", "b")}
    return pa.table(
        {
            "id": pa.array(np.arange(len(times), dtype=np.int64)),
            "ts": pa.array(times).cast(TIME),
            **{name: pa.array(found, pa.int32()) for name, found in keys.items()},
        }
    )
