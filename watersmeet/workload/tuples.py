"""Streams of small tuples with Poisson arrivals: one number each for band joins, or two keys each for chain joins.

A band join is one such as `abs(a.x - b.x) < 5`, a chain join one such as `a.b = b.a AND b.b = c.a`.
"""

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Floats, Ints

SECOND = 1_000_000
"""Event times are whole microseconds."""

START = 1_767_225_600 * SECOND
"""The default first moment of a workload: 2026-01-01 00:00:00 UTC."""

TIME = pa.timestamp("us", tz="UTC")
"""The Arrow type of an event time."""

MOST = 3000
"""Keys range from 1 to this, as in the DSJ paper's synthetic streams."""


def arrivals(rate: float, seconds: float, rng: np.random.Generator, start: int = START) -> Ints:
    """Event times of a Poisson process, ascending, in microseconds since the epoch.

    Args:
        rate: Mean number of arrivals a second.
        seconds: Length of the stretch of event time.
        rng: Source of randomness; the same state gives the same times.
        start: First moment of the stretch, in microseconds since the epoch; times lie less than `seconds` after it.

    Raises:
        ValueError: If the rate or the length is negative.

    >>> arrivals(2, 2, np.random.default_rng(1), start=0).tolist()
    [513984, 546338, 818398, 1287657, 1655405]
    """
    if not (rate >= 0 and seconds >= 0):
        raise ValueError(
            f"A Poisson process needs a rate and a length of at least 0, got {rate} a second, {seconds} s."
        )
    # Given their number, the arrivals of a Poisson process are independent and uniform.
    times = rng.integers(start, start + max(1, round(seconds * SECOND)), rng.poisson(rate * seconds))
    return np.sort(times)


def numbers(
    rate: float, seconds: float, rng: np.random.Generator, *, high: float = 1000.0, start: int = START
) -> pa.Table:
    """A stream of numbers: `id` (int64, from 0), `ts` (Poisson arrivals) and `x`, uniform in [0, high).

    The other parameters and errors are those of `arrivals`.

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

    Keys go from 1 to `most`. The other parameters and errors are those of `arrivals`.

    >>> zipf(3, 1, np.random.default_rng(1)).column_names
    ['id', 'ts', 'a', 'b']
    """
    weights = np.arange(1, most + 1, dtype=float) ** -alpha
    return _with_keys(arrivals(rate, seconds, rng, start), most, weights / weights.sum(), rng)


def gps(rate: float, seconds: float, rng: np.random.Generator, *, most: int = MOST, start: int = START) -> pa.Table:
    """A stream of reports spread evenly over a city: `id`, `ts`, and the cells `a` and `b` between which a car moved.

    >>> gps(3, 1, np.random.default_rng(1)).column_names
    ['id', 'ts', 'a', 'b']
    """
    return _with_keys(arrivals(rate, seconds, rng, start), most, None, rng)


def _with_keys(times: Ints, most: int, shares: Floats | None, rng: np.random.Generator) -> pa.Table:
    """Return tuples with a running `id`, their times, and random keys `a` and `b` from 1 to `most`.

    Key k has the (k - 1)-th of the shares; without shares, all keys are as likely.
    """
    keys = {name: rng.choice(most, len(times), p=shares).astype(np.int32) + 1 for name in ("a", "b")}
    return pa.table(
        {
            "id": pa.array(np.arange(len(times), dtype=np.int64)),
            "ts": pa.array(times).cast(TIME),
            **{name: pa.array(values, pa.int32()) for name, values in keys.items()},
        }
    )
