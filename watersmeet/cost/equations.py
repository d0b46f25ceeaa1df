"""The equations of the papers, as published.

PSP: Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 5,
equations 1 to 6 and the heuristic for streams that differ, here for streams that differ in rate, window and
selectivity. `watersmeet.adapt.pricing` chooses strategies by `watersmeet.cost.cost_model`, which include the cost
of starting tasks; of PSP's equations it uses the state, the results, the bandwidth (equation 6) and the ring lengths
(section 5.4). The rest is the paper's prediction for a ring of N continuously running nodes, for comparison.

ATR and CTR: Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 4,
equations 2 and 3. DSJ: Liu, Li, Fan and Chen, "Multi-Way Windowed Streams θ-Joins Using Cluster", equations 1 and 7.

PSP's equation 1 as printed counts the time T_j for each match. Equation 2 follows from it only if T_j counts for each
pair looked at, as Table 1 says and as implemented here; equation 2 is then exact except for T_i and T_p.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, inf, isinf
from typing import Literal

from watersmeet.cost.parameters import Parameters

Goal = Literal["throughput", "latency"]


# -- PSP: one tuple


def central_work(p: Parameters, origin: int) -> float:
    """Return L_C of equation 1: the seconds of one node for a tuple."""
    return p.insert_seconds + p.purge_seconds + p.pair_seconds * sum(p.pairs[origin])


def ring_work(p: Parameters, origin: int, nodes: int) -> float:
    """Return L_PSP of equation 1: the seconds of all nodes of a ring together for a tuple."""
    return nodes * head_work(p, origin, equal_lengths(p, nodes))


def head_work(p: Parameters, origin: int, lengths: Sequence[int]) -> float:
    """Return the seconds of the head, the only node on the rings of all streams, for a tuple.

    This is equation 1 for rings of different lengths: a row is sent to each node of the ring of the stream that it
    probes, and meets that node's part of the stream there.

    Args:
        p: The parameters.
        origin: The tuple's stream.
        lengths: The length of each stream's ring.
    """
    storing = (p.insert_seconds + p.purge_seconds) / lengths[origin]
    pairs = sum(each / lengths[to] for each, to in zip(p.pairs[origin], p.orders[origin], strict=True))
    return storing + p.pair_seconds * pairs + p.row_seconds * sum(p.partials[origin][:-1])


def equal_lengths(p: Parameters, nodes: int) -> tuple[int, ...]:
    """Return ring lengths that are the same for all streams."""
    return (nodes,) * len(p.rates)


def ring_factor(p: Parameters, nodes: int) -> float:
    """Return L_PSP / L_C by equation 2, which holds for streams with the same parameters."""
    return 1 + p.row_seconds * nodes / (p.window_rows[0] * p.pair_seconds)


def average(p: Parameters, of: Callable[[int], float]) -> float:
    """Return the average over all tuples of a function of their stream."""
    total = sum(p.rates)
    return sum(rate * of(origin) for origin, rate in enumerate(p.rates)) / total if total else 0.0


def result_rate(p: Parameters) -> float:
    """Return the results a second at these rates."""
    return sum(rate * p.partials[origin][-1] for origin, rate in enumerate(p.rates))


# -- PSP: a ring of N nodes


def service_rate(p: Parameters, nodes: int) -> float:
    """Return μ of equation 3: the tuples a second of one node's time."""
    work = average(p, lambda origin: ring_work(p, origin, nodes))
    return 1 / work if work else 0.0


def output_rate(p: Parameters, nodes: int) -> float:
    """Return O_PSP of equation 4: the results a second while all nodes are busy; it rises with every node."""
    return nodes * average(p, lambda origin: p.partials[origin][-1]) * service_rate(p, nodes)


def latency(p: Parameters, nodes: int) -> float:
    """Return τ of equation 5: the average seconds from a tuple to its results, excluding T_i and T_p."""
    return ring_latency(p, equal_lengths(p, nodes))


def ring_latency(p: Parameters, lengths: Sequence[int]) -> float:
    """Return τ of equation 5 for rings of different lengths: a round of each, with the head as the busiest node."""
    without_storing = replace(p, insert_seconds=0.0, purge_seconds=0.0)
    work = average(p, lambda origin: head_work(without_storing, origin, lengths))
    return (max(lengths) - 1) / 2 * p.hop_seconds + max(work, sum(lengths) * p.hop_seconds)


def bandwidth(p: Parameters, nodes: int) -> float:
    """Return the bytes a second, by equation 6, with which no node waits for rows; infinite if pairs take no time."""
    busy = p.pair_seconds * min(p.window_rows) / nodes
    return p.row_bytes / busy if busy else inf


def longest_ring(p: Parameters, available: float) -> int | None:
    """Return the longest ring of which no node waits for rows, by equation 6; None if the network sets no limit.

    Args:
        p: The parameters.
        available: The bytes a second that the network can deliver to a node.
    """
    needed_bandwidth = bandwidth(p, 1)  # it rises with the length
    return None if isinf(available) or isinf(needed_bandwidth) else max(1, int(available / needed_bandwidth))


def state_rows(p: Parameters) -> float:
    """Return the tuples that a ring of any length stores, delay included; each is stored once (section 7)."""
    spans = [p.span(stream) for stream in p.streams]
    return sum(p.window_rows[at] if isinf(span) else p.rates[at] * span for at, span in enumerate(spans))


def network_bytes(p: Parameters, nodes: int) -> float:
    """Return the bytes that tuples and partial results send round the ring in a second (section 4.3)."""
    rows = sum(rate * sum(p.partials[origin][:-1]) for origin, rate in enumerate(p.rates))
    return nodes * rows * p.row_bytes


def best_nodes(p: Parameters, most: int, goal: Goal = "throughput", available: float = inf) -> int:
    """Return the ring's best length (section 5.2), the shortest of equals; 1 if the network can feed no ring.

    Args:
        p: The parameters.
        most: The longest ring there may be.
        goal: Whether to maximise the output rate (equation 4) or to minimise the latency (equation 5).
        available: The bytes a second that the network can deliver to a node; longer rings are excluded (equation 6).
    """
    measure = {"throughput": lambda nodes: -output_rate(p, nodes), "latency": lambda nodes: latency(p, nodes)}[goal]
    enough = [nodes for nodes in range(1, most + 1) if isinf(available) or bandwidth(p, nodes) <= available]
    return min(enough or [1], key=measure)


def ring_lengths(p: Parameters, most: int, goal: Goal = "throughput") -> tuple[int, ...]:
    """Return a good length for the ring of each stream, by the heuristic of section 5.4.

    It chooses the best length stream by stream, in ascending order of the weight λ_i W_i S̄_i, assuming that all
    streams not yet decided have the same length. Of equally good lengths the shortest wins.

    Args:
        p: The parameters.
        most: The longest ring there may be.
        goal: Whether to relieve the busiest node (equation 4) or to minimise the latency (equation 5).
    """
    best: dict[int, int] = {}

    def measure(length: int) -> float:
        lengths = [best.get(at, length) for at in p.streams]
        return (
            ring_latency(p, lengths) if goal == "latency" else average(p, lambda origin: head_work(p, origin, lengths))
        )

    for stream in sorted(p.streams, key=lambda at: p.window_rows[at] * _selectivity(p, at)):
        best[stream] = min(range(1, most + 1), key=measure)
    return tuple(best[stream] for stream in p.streams)


def _selectivity(p: Parameters, stream: int) -> float:
    """Return S̄_i: the average selectivity of the steps that probe a stream, of which there must be one."""
    steps = [
        matching
        for order, row in zip(p.orders, p.selectivities, strict=True)
        for to, matching in zip(order, row, strict=True)
        if to == stream
    ]
    return sum(steps) / len(steps)


# -- ATR and CTR


def atr_overhead(
    rates: Sequence[float], windows: Sequence[float], segment: float, master: int, nodes: float = inf
) -> float:
    """Return O_ATR of equation 2: the extra tuples a second because slaves are stored more than once.

    Args:
        rates: The tuples a second of each stream.
        windows: The window of each stream, in the unit of `segment`; infinite without limit.
        segment: The segment length T.
        master: The master stream.
        nodes: How many nodes there are: a tuple has at most that many copies.

    >>> atr_overhead([100, 50, 10], [10, 20, 30], 40, 0)
    47.5
    """
    slaves = [(rates[at], windows[at]) for at in range(len(rates)) if at != master and rates[at]]
    return sum(rate * min(nodes - 1, (window + windows[master]) / segment) for rate, window in slaves)


def ctr_overhead(tuples: float, first: int, new: Sequence[int], matches: Sequence[float]) -> float:
    """Return O_CTR,P of equation 3: the extra rows that the tuples of a segment make travel.

    Args:
        tuples: How many tuples the segment has (r_i T).
        first: How many nodes the first hop visits (|V_1|).
        new: For each later hop the number of nodes that the hop before did not visit (|V'_k|).
        matches: For each hop but the last the expected matches of one partial result (σ r W).

    >>> ctr_overhead(10, 3, [2, 1], [0.5, 4.0])
    50.0
    """
    total, partials = first - 1.0, 1.0
    for nodes, per_partial in zip(new, matches, strict=True):
        partials *= per_partial
        total += partials * nodes
    return tuples * total


# -- DSJ


def buffer_bound(rate: float, retention: float, calculation: float = 0.0, transmission: float = 0.0) -> int:
    """Return how many tuples a stream's buffer must hold: equation 1 as theorem 1 proves it.

    Args:
        rate: The stream's tuples a second (r_i).
        retention: The longest window and the longest delay together, in seconds: 2|W|, the paper's delay being |W|.
        calculation: The longest computation of a tuple's join, in seconds (T_c).
        transmission: The longest transmission of its partial results, in seconds (T_t).

    >>> buffer_bound(100, 20, 0.5, 0.25)
    2075
    """
    return ceil((calculation + transmission + retention) * rate)


def slices_needed(calculation: float, transmission: float, rates: Sequence[float], buffer: float, memory: float) -> int:
    """Return the least number of slices (m) by equation 7, for which nodes keep up and their memory suffices.

    Args:
        calculation: The computation of a tuple's whole join on one node, in seconds (Δt and T_c).
        transmission: The transmission of its partial results, in seconds (T_t).
        rates: Each stream's tuples a second (r_i).
        buffer: The largest stream's buffer, in bytes (B).
        memory: A node's memory, in bytes (M).

    >>> slices_needed(0.01, 0.005, [100, 100], buffer=3e9, memory=4e9)
    3
    """
    work = (calculation + transmission) * sum(rates)  # (1 + T_t / T_c) Δt Σ r_i
    return max(1, ceil(round(max(work, buffer * len(rates) / memory), 9)))
