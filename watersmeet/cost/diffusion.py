"""Equations 2 and 3 of the paper on ATR and CTR: what keeping and sending tuples more than once costs.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 4.
"""

from collections.abc import Sequence
from math import inf


def atr_overhead(
    rates: Sequence[float], windows: Sequence[float], segment: float, master: int, nodes: float = inf
) -> float:
    """Return O_ATR of equation 2: the extra tuples a second that come from keeping slaves more than once.

    Args:
        rates: The tuples a second of each stream.
        windows: The window of each stream, in the unit of `segment`; infinite without limit.
        segment: The segment length T.
        master: The master stream.
        nodes: How many nodes there are: no tuple counts more copies.

    >>> atr_overhead([100, 50, 10], [10, 20, 30], 40, 0)
    47.5
    """
    slaves = [(rates[at], windows[at]) for at in range(len(rates)) if at != master and rates[at]]
    return sum(rate * min(nodes - 1, (window + windows[master]) / segment) for rate, window in slaves)


def ctr_overhead(tuples: float, first: int, moved: Sequence[int], found: Sequence[float]) -> float:
    """Return O_CTR,P of equation 3: the extra rows that the tuples of a segment make travel.

    Args:
        tuples: How many tuples the segment has (r_i T).
        first: How many nodes the first hop visits (|V_1|).
        moved: For each later hop the nodes that the hop before did not visit (|V'_k|).
        found: For each hop but the last, what one partial result becomes by it (σ r W).

    >>> ctr_overhead(10, 3, [2, 1], [0.5, 4.0])
    50.0
    """
    total, partial = first - 1.0, 1.0
    for hosts, matches in zip(moved, found, strict=True):
        partial *= matches
        total += partial * hosts
    return tuples * total
