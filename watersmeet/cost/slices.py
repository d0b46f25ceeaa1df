"""Equations 1 and 7 of the paper on DSJ: how much its buffers must hold, and how many slices there are to be.

Liu, Li, Fan and Chen, "Multi-Way Windowed Streams θ-Joins Using Cluster".
"""

from collections.abc import Iterable
from math import ceil


def buffer_bound(rate: float, kept: float, calculation: float = 0.0, transmission: float = 0.0) -> int:
    """Return how many tuples a stream's buffer must hold: equation 1 as theorem 1 proves it.

    Args:
        rate: The stream's tuples a second (r_i).
        kept: The longest window and the longest delay together, in seconds: 2|W|, the paper's delay being |W|.
        calculation: The longest that a tuple's join computes, in seconds (T_c).
        transmission: The longest that its partial results travel, in seconds (T_t).

    >>> buffer_bound(100, 20, 0.5, 0.25)
    2075
    """
    return ceil((calculation + transmission + kept) * rate)


def slices_needed(calculation: float, transmission: float, rates: Iterable[float], buffer: float, memory: float) -> int:
    """Return the least number of slices (m) by equation 7: enough nodes at work to keep up, enough memory in them.

    Args:
        calculation: What a tuple's whole join computes on one node, in seconds (Δt, and T_c).
        transmission: What its partial results take to travel, in seconds (T_t).
        rates: Each stream's tuples a second (r_i).
        buffer: The largest stream's buffer, in bytes (B).
        memory: A node's memory, in bytes (M).

    >>> slices_needed(0.01, 0.005, [100, 100], buffer=3e9, memory=4e9)
    3
    """
    every = list(rates)
    work = (calculation + transmission) * sum(every)  # (1 + T_t / T_c) Δt Σ r_i
    return max(1, ceil(round(max(work, buffer * len(every) / memory), 9)))
