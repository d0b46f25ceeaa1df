"""Which delays would have kept rows that came late, and quantiles of what was counted."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from watersmeet.arguments import LONGEST


def quantile(weighted: Iterable[tuple[float, int]], share: float) -> float | None:
    """Return the least value that covers a share of all weights; None if there are no weights.

    >>> quantile([(3.0, 90), (1.0, 10)], 0.05), quantile([(3.0, 90), (1.0, 10)], 0.5), quantile([], 0.5)
    (1.0, 3.0, None)
    """
    ordered, seen = sorted((value, weight) for value, weight in weighted if weight), 0
    total = sum(weight for _, weight in ordered)
    for value, weight in ordered:
        seen += weight
        if seen >= share * total:
            return value
    return None


def delays(latest: int, times: NDArray[np.int64]) -> Counter[int]:
    """Return how many rows each delay would have kept that shorter ones would not, to two digits.

    [!] Not each delay by itself: streams of broken clocks have as many as rows.

    Args:
        latest: The latest event time that the stream had shown before, in microseconds.
        times: The event times of its late rows.

    >>> delays(100_000_000, np.array([65_800_000, 65_200_000, 99_000_000]))
    Counter({35000000: 2, 1000000: 1})
    """
    behind = np.maximum(latest - times.astype(np.float64), 1)  # [!] whole numbers might overflow
    digit = np.maximum(10 ** np.floor(np.log10(behind) - 1), 1)
    lengths, counts = np.unique(np.minimum(np.ceil(behind / digit) * digit, LONGEST), return_counts=True)
    return Counter(dict(zip(map(int, lengths), counts.tolist(), strict=True)))
