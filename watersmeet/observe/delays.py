"""The delays that would have kept late rows, and quantiles of counts."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from watersmeet.arguments import LONGEST


def quantile(weighted: Iterable[tuple[float, int]], share: float) -> float | None:
    """Return the least value up to which values have a share of all weights; None if all weights are 0.

    >>> quantile([(3.0, 90), (1.0, 10)], 0.05), quantile([(3.0, 90), (1.0, 10)], 0.5), quantile([], 0.5)
    (1.0, 3.0, None)
    """
    ordered, weight_so_far = sorted((value, weight) for value, weight in weighted if weight), 0
    total = sum(weight for _, weight in ordered)
    for value, weight in ordered:
        weight_so_far += weight
        if weight_so_far >= share * total:
            return value
    return None


def lost_by_delay(latest: int, times: NDArray[np.int64]) -> Counter[int]:
    """Return how many rows each delay would have kept that shorter ones would not.

    Delays are in microseconds, rounded up to two digits, at most `LONGEST`.

    [!] Rounding bounds their number: with broken clocks, every row would need a delay of its own.

    Args:
        latest: The latest event time of the stream before, in microseconds.
        times: The event times of its late rows.

    >>> lost_by_delay(100_000_000, np.array([65_800_000, 65_200_000, 99_000_000]))
    Counter({35000000: 2, 1000000: 1})
    """
    behind = np.maximum(latest - times.astype(np.float64), 1)  # [!] whole numbers might overflow
    digit = np.maximum(10 ** np.floor(np.log10(behind) - 1), 1)
    lengths, counts = np.unique(np.minimum(np.ceil(behind / digit) * digit, LONGEST), return_counts=True)
    return Counter(dict(zip(map(int, lengths), counts.tolist(), strict=True)))
