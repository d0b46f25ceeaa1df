"""Tuples that carry one number, for band joins such as `abs(a.x - b.x) < 5`."""

import numpy as np
import pyarrow as pa

from watersmeet.workload.poisson import START, TIME, arrivals


def numbers(
    rate: float, seconds: float, rng: np.random.Generator, *, high: float = 1000.0, start: int = START
) -> pa.Table:
    """A stream of numbers: `id` (int64, from 0), `ts` (Poisson arrivals) and `x`, uniform in [0, high).

    >>> numbers(3, 1, np.random.default_rng(1)).column_names
    ['id', 'ts', 'x']
    """
    times = arrivals(rate, seconds, rng, start)
    return pa.table(
        {
            "id": pa.array(np.arange(len(times), dtype=np.int64)),
            "ts": pa.array(times).cast(TIME),
            "x": pa.array(rng.uniform(0.0, high, len(times))),
        }
    )
