"""Equations 1 to 6 of the paper on PSP, and its heuristic for streams that differ.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 5, here for
streams that differ in rate, window and selectivity.

Strategies are chosen by `watersmeet.adapt.pricing`, whose costs also know what it takes to start tasks; what is used of
this are the state, the results, the bandwidth (equation 6) and the ring lengths (section 5.4). The rest is the paper's
prediction for a ring of N nodes that run all the time, to compare with.

Equation 1 as printed counts the time T_j for each match. Equation 2 follows from it only if T_j counts for each pair
looked at, as Table 1 says, so that is what is done here; then equation 2 is exact but for T_i and T_p.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, isinf
from typing import Literal, get_args

from watersmeet.cost.parameters import Parameters
from watersmeet.errors import DefinitionError

Goal = Literal["throughput", "latency"]


def check_goal(goal: object) -> None:
    """Refuse what is no goal."""
    if goal not in get_args(Goal):
        raise DefinitionError(f"goal={goal!r} is unknown; use one of {', '.join(get_args(Goal))}.")


# -- one tuple


def central_work(p: Parameters, origin: int) -> float:
    """Return L_C of equation 1: the seconds that a tuple takes on one node."""
    return p.insert_seconds + p.purge_seconds + p.pair_seconds * sum(p.pairs[origin])


def ring_work(p: Parameters, origin: int, nodes: int) -> float:
    """Return L_PSP of equation 1: the seconds that a tuple takes of all nodes of a ring together."""
    return nodes * head_work(p, origin, every(p, nodes))


def head_work(p: Parameters, origin: int, lengths: Sequence[int]) -> float:
    """Return the seconds that a tuple takes of the head, the one node that is on the rings of all streams.

    That is equation 1 for rings of different lengths: a row is sent to each node of the ring of the stream that it
    probes, and meets there that node's part of the stream.

    Args:
        p: The parameters.
        origin: The tuple's stream.
        lengths: The length of each stream's ring.
    """
    kept = (p.insert_seconds + p.purge_seconds) / lengths[origin]
    looked_at = sum(each / lengths[to] for each, to in zip(p.pairs[origin], p.orders[origin], strict=True))
    return kept + p.pair_seconds * looked_at + p.row_seconds * sum(p.become[origin][:-1])


def every(p: Parameters, nodes: int) -> tuple[int, ...]:
    """Return the lengths of rings that are all alike."""
    return (nodes,) * len(p.rates)


def ring_factor(p: Parameters, nodes: int) -> float:
    """Return L_PSP / L_C by equation 2, which holds for streams that are all alike."""
    return 1 + p.row_seconds * nodes / (p.held[0] * p.pair_seconds)


def average(p: Parameters, of: Callable[[int], float]) -> float:
    """Return what a function of the stream is for a tuple on average."""
    total = sum(p.rates)
    return sum(rate * of(origin) for origin, rate in enumerate(p.rates)) / total if total else 0.0


def result_rate(p: Parameters) -> float:
    """Return the results a second at the rates given."""
    return sum(rate * p.become[origin][-1] for origin, rate in enumerate(p.rates))


# -- a ring of N nodes


def service_rate(p: Parameters, nodes: int) -> float:
    """Return μ of equation 3: the tuples a second of one node's time."""
    work = average(p, lambda origin: ring_work(p, origin, nodes))
    return 1 / work if work else 0.0


def output_rate(p: Parameters, nodes: int) -> float:
    """Return O_PSP of equation 4: the results a second while all nodes are busy; it rises with every node."""
    return nodes * average(p, lambda origin: p.become[origin][-1]) * service_rate(p, nodes)


def latency(p: Parameters, nodes: int) -> float:
    """Return τ of equation 5: the seconds from a tuple to its results, on average; T_i and T_p are left out of it."""
    return ring_latency(p, every(p, nodes))


def ring_latency(p: Parameters, lengths: Sequence[int]) -> float:
    """Return τ of equation 5 for rings of different lengths: a round for each, and the head as the busiest node."""
    lean = replace(p, insert_seconds=0.0, purge_seconds=0.0)
    work = average(p, lambda origin: head_work(lean, origin, lengths))
    return (max(lengths) - 1) / 2 * p.hop_seconds + max(work, sum(lengths) * p.hop_seconds)


def bandwidth(p: Parameters, nodes: int) -> float:
    """Return the bytes a second by equation 6 with which no node waits for rows."""
    busy = p.pair_seconds * min(p.held) / nodes
    return p.row_bytes / busy if busy else inf


def longest_ring(p: Parameters, available: float) -> int | None:
    """Return the longest ring of which no node waits for rows, by equation 6; None if the network sets no limit.

    Args:
        p: The parameters.
        available: The bytes a second that the network brings to a node.
    """
    needed = bandwidth(p, 1)  # it rises with the length
    return None if isinf(available) or isinf(needed) else max(1, int(available / needed))


def state_rows(p: Parameters) -> float:
    """Return the tuples that a ring of any length keeps, delay included; each is kept once (section 7)."""
    spans = [p.span(stream) for stream in p.streams]
    return sum(p.held[at] if isinf(span) else p.rates[at] * span for at, span in enumerate(spans))


def network_bytes(p: Parameters, nodes: int) -> float:
    """Return the bytes that tuples and partial results send round the ring in a second (section 4.3)."""
    rows = sum(rate * sum(p.become[origin][:-1]) for origin, rate in enumerate(p.rates))
    return nodes * rows * p.row_bytes


def best_nodes(p: Parameters, most: int, goal: Goal = "throughput", available: float = inf) -> int:
    """Return the ring's best length (section 5.2), the shortest of equals.

    Args:
        p: The parameters.
        most: The longest ring there may be.
        goal: Whether to maximise the output rate (equation 4) or to minimise the latency (equation 5).
        available: The bytes a second that the network has for it; a ring that needs more is left out (equation 6).
    """
    measure = {"throughput": lambda nodes: -output_rate(p, nodes), "latency": lambda nodes: latency(p, nodes)}[goal]
    enough = [nodes for nodes in range(1, most + 1) if isinf(available) or bandwidth(p, nodes) <= available]
    return min(enough or [1], key=measure)


def ring_lengths(p: Parameters, most: int, goal: Goal = "throughput") -> tuple[int, ...]:
    """Return a good length for the ring of each stream, by the heuristic of section 5.4.

    Streams of less weight λ_i W_i S̄_i come first; each is given its best length while those that are still to come are
    taken to have the same. Of equally good ones the shortest.

    Args:
        p: The parameters.
        most: The longest ring there may be.
        goal: Whether to relieve the busiest node (equation 4) or to minimise the latency (equation 5).
    """
    found: dict[int, int] = {}

    def measure(length: int) -> float:
        tried = [found.get(at, length) for at in p.streams]
        return ring_latency(p, tried) if goal == "latency" else average(p, lambda origin: head_work(p, origin, tried))

    for stream in sorted(p.streams, key=lambda at: p.held[at] * _selectivity(p, at)):
        found[stream] = min(range(1, most + 1), key=measure)
    return tuple(found[stream] for stream in p.streams)


def _selectivity(p: Parameters, stream: int) -> float:
    """Return S̄_i: the average selectivity of the steps in which a stream is probed."""
    steps = [
        matching
        for order, row in zip(p.orders, p.selectivities, strict=True)
        for to, matching in zip(order, row, strict=True)
        if to == stream
    ]
    return sum(steps) / len(steps)
