"""The load of a node: a weighted sum of the resources its tasks used.

`w = w1 * cpu + w2 * memory + w3 * network`: equation 1 of the paper on ATR and CTR, equation 2 of the one on DSJ. Each
resource counts as the node's share of what all nodes used, which makes the weights comparable.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence

from watersmeet.state.manifest.view import Usage

ROW_SECONDS = 2e-6
"""Seconds to send and receive a row, as a shuffle on one host takes; used only for estimates."""
DECAY = 0.5
"""Weight of the remembered usage after one more batch."""
LEAST_COST = 0.1
"""Lowest cost of a node in a cover, relative to the average load: another hop's copy is never free."""


def loads(
    usage: Sequence[Usage], nodes: int, weights: Sequence[float] = (1, 1, 1), capacities: Sequence[float] = ()
) -> list[float]:
    """Return the load of each node, relative to its capacity; 0 for nodes without measurements.

    Args:
        usage: What each node used; it may have been on more nodes, which count in the totals.
        nodes: How many nodes there are.
        weights: What CPU, memory and network count.
        capacities: The capacity of each node, relative to the others; empty if all are alike.

    >>> loads([Usage(3, 10, 0), Usage(1, 10, 0)], 3)
    [1.25, 0.75, 0.0]
    """
    totals = [sum(getattr(node, name) for node in usage) or 1.0 for name in ("cpu", "memory", "network")]
    by_node = [0.0] * nodes
    for node, resources in enumerate(usage[:nodes]):
        parts = zip(weights, (resources.cpu, resources.memory, resources.network), totals, strict=True)
        load = sum(weight * part / total for weight, part, total in parts)
        by_node[node] = load / (capacities or [1.0] * nodes)[node]
    return by_node


class NodeLoads:
    """The load of each node, including the segments that a plan has assigned to it so far.

    Args:
        by_node: The measured load of each node.
        segment_load: The load that one more segment adds to a node of capacity 1.
        capacities: The capacity of each node, relative to the others; empty if all are alike.
    """

    def __init__(self, by_node: Sequence[float], segment_load: float, capacities: Sequence[float] = ()) -> None:
        self._loads = list(by_node)
        self._segment_loads = [segment_load / capacity for capacity in capacities or [1.0] * len(by_node)]

    def add(self, nodes: Iterable[int]) -> None:
        """Add the load of one segment to each of the nodes."""
        for node in nodes:
            self._loads[node] += self._segment_loads[node]

    def add_counts(self, segments: Sequence[int]) -> None:
        """Add the load of a number of segments to each node."""
        for node, count in enumerate(segments):
            self._loads[node] += count * self._segment_loads[node]

    def assign(self, count: int, apart: int = 0, before: Sequence[int] = ()) -> list[int]:
        """Assign segments one after another, each to the least-loaded node, and add their load to it.

        Args:
            count: How many segments.
            apart: How many preceding segments must be on other nodes than the next one; fewer than there are nodes.
            before: The nodes of the segments that precede these.

        >>> NodeLoads([0.5, 0.0, 2.0], 1.0).assign(4), NodeLoads([0.0, 0.0, 9.0], 1.0).assign(3, apart=2, before=[0])
        ([1, 0, 1, 0], [1, 2, 0])
        """
        recent = deque(before[-apart:] if apart else ())
        heap = [(load, node) for node, load in enumerate(self._loads) if node not in recent]
        heapq.heapify(heap)
        nodes: list[int] = []
        for _ in range(count):
            _, node = heapq.heappop(heap)
            self._loads[node] += self._segment_loads[node]
            nodes.append(node)
            recent.append(node)
            free = recent.popleft() if len(recent) > apart else None
            if free is not None and free not in recent:
                heapq.heappush(heap, (self._loads[free], free))
        return nodes

    def least_first(self) -> list[int]:
        """Return the nodes, the least loaded first."""
        return sorted(range(len(self._loads)), key=self._loads.__getitem__)

    def costs(self) -> list[float]:
        """Return the cost of each node in a cover: its load, but not less than a part of the average."""
        least = LEAST_COST * sum(self._loads) / len(self._loads) or 1.0
        return [max(load, least) for load in self._loads]


def smooth(old: float | None, new: float) -> float:
    """Return an exponentially smoothed figure; the new one if there is no old one.

    >>> smooth(None, 3), smooth(1, 3)
    (3, 2.0)
    """
    return new if old is None else DECAY * old + (1 - DECAY) * new


def smooth_usage(before: Sequence[Usage], now: Sequence[Usage]) -> list[Usage]:
    """Return the smoothed usage of each node; the total of all nodes stays smooth even if nodes come or go.

    >>> smooth_usage([Usage(8.0)], [Usage(2.0), Usage(2.0)])
    [Usage(cpu=5.0, memory=0.0, network=0.0), Usage(cpu=1.0, memory=0.0, network=0.0)]
    """
    if not before:
        return list(now)
    columns = [_smooth_all([getattr(u, n) for u in before], [getattr(u, n) for u in now]) for n in Usage.__slots__]
    return [Usage(*values) for values in zip(*columns, strict=True)]


def _smooth_all(before: Sequence[float], now: Sequence[float]) -> list[float]:
    padded = [*before, *[0.0] * (len(now) - len(before))]
    by_node = [smooth(old, new) for old, new in zip(padded, now, strict=False)]
    scale = smooth(sum(before), sum(now)) / (sum(by_node) or 1.0)
    return [scale * value for value in by_node]
