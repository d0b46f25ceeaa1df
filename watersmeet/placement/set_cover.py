"""Covers: nodes that together hold all of a stream, by the greedy rule for weighted set cover.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 4.1. The sets are
what each node holds, the weights its load; the nodes of the previous hop are free.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from watersmeet.cost.load import NodeLoads
from watersmeet.placement.base import Owners, remap_owners
from watersmeet.state.manifest.view import StateView


class Holdings:
    """Which nodes hold which chunks and new segments, and which nodes together hold all of a stream.

    Attributes:
        sets: For each stream the distinct sets of owners, and how many chunks and new segments have each.
        copies: How many chunks and new segments each node holds.
    """

    def __init__(self, state: StateView, nodes: int) -> None:
        self.sets: list[Counter[Owners]] = [Counter() for _ in state.streams]
        self._covers: dict[tuple[int, Owners], tuple[Owners, int]] = {}
        self.copies = [0] * nodes
        for (stream, owners), count in Counter(map(attrgetter("stream", "owners"), state.chunks)).items():
            self.add(stream, owners if max(owners) < nodes else remap_owners(owners, nodes), count)

    def add(self, stream: int, owners: Owners, count: int = 1) -> None:
        """Add chunks or new segments with the same owners; forgets the covers found so far."""
        self.sets[stream][owners] += count
        self._covers.clear()
        for node in owners:
            self.copies[node] += count

    def cover(self, stream: int, before: Owners, node_loads: NodeLoads) -> tuple[Owners, int]:
        """Return V_k for a stream, and how many of its nodes are new (|V'_k|), given the nodes of the previous hop.

        V_k is empty if nothing of the stream is held. The first answer is remembered until something is added.

        What those nodes hold is covered first; the rest by the nodes of the least load per segment.
        """
        key = stream, before
        if key not in self._covers:
            visited = set(before)
            uncovered = {owners: count for owners, count in self.sets[stream].items() if visited.isdisjoint(owners)}
            new = tuple(greedy_cover(uncovered, node_loads.costs()))
            reused = visited.intersection(chain.from_iterable(self.sets[stream])) if before else ()
            self._covers[key] = (*(node for node in before if node in reused), *new), len(new)
        return self._covers[key]


def greedy_cover(sets: Mapping[Owners, int], costs: Sequence[float]) -> Iterator[int]:
    """Yield nodes that together hold all sets: each time that of the least cost per uncovered segment (section 4.1)."""
    gain: dict[int, int] = defaultdict(int)
    holding: dict[int, list[Owners]] = defaultdict(list)
    for owners, count in sets.items():
        for node in owners:
            gain[node] += count
            holding[node].append(owners)
    heap = [(costs[node] / covered, node) for node, covered in gain.items()]
    heapq.heapify(heap)
    uncovered = dict(sets)
    while uncovered:
        price, node = heapq.heappop(heap)
        if gain[node] and costs[node] / gain[node] > price:  # others have covered part of what it holds
            heapq.heappush(heap, (costs[node] / gain[node], node))
        elif gain[node]:
            yield node
            for owners in holding[node]:
                count = uncovered.pop(owners, 0)
                for other in owners if count else ():
                    gain[other] -= count
