"""Covers: nodes that together hold all of a stream, by the greedy rule for weighted set cover.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 4.1. The sets are
what each node holds, the weights its load; the nodes of the hop before come for nothing.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from watersmeet.placement.owners import Owners, remapped
from watersmeet.state.manifest.view import StateView

IDLE = 0.1
"""What a node costs in a cover at the least, relative to the average load: another hop's copy is never free."""


class Load:
    """The load of each node (equation 1), with what is given to it while a batch is planned."""

    def __init__(self, known: Sequence[float], copies: Sequence[int], capacities: Sequence[float]) -> None:
        self._load = list(known)
        share = sum(known) / max(1, sum(copies)) or 1.0
        self._unit = [share / capacity for capacity in capacities or [1.0] * len(known)]

    def add(self, owners: Owners) -> None:
        """Count one more segment on some nodes."""
        for node in owners:
            self._load[node] += self._unit[node]

    def least_first(self) -> list[int]:
        """Return the nodes, the least loaded first."""
        return sorted(range(len(self._load)), key=self._load.__getitem__)

    def costs(self) -> list[float]:
        """Return what each node costs in a cover."""
        least = IDLE * sum(self._load) / len(self._load) or 1.0
        return [max(load, least) for load in self._load]


class Held:
    """Who holds what, and which nodes together hold all of it.

    Attributes:
        sets: For each stream the distinct sets of owners, and how many chunks and new segments have each.
        copies: How many chunks and new segments each node holds.
    """

    def __init__(self, state: StateView, nodes: int) -> None:
        self.sets: list[Counter[Owners]] = [Counter() for _ in state.streams]
        self._known: dict[tuple[int, Owners], tuple[Owners, int]] = {}
        self.copies = [0] * nodes
        for (stream, owners), count in Counter(map(attrgetter("stream", "owners"), state.chunks)).items():
            self.add(stream, owners if max(owners) < nodes else remapped(owners, nodes), count)

    def add(self, stream: int, owners: Owners, count: int = 1) -> None:
        """Note chunks or a new segment."""
        self.sets[stream][owners] += count
        self._known.clear()
        for node in owners:
            self.copies[node] += count

    def cover(self, stream: int, before: Owners, load: Load) -> tuple[Owners, int]:
        """Return V_k for a stream, and how many of its nodes are new (|V'_k|), given the nodes of the hop before.

        What those hold is taken out; the rest is covered by the node of the least load per segment, again and again.
        """
        key = stream, before
        if key not in self._known:
            there = set(before)
            missing = {owners: count for owners, count in self.sets[stream].items() if there.isdisjoint(owners)}
            added = tuple(greedy_cover(missing, load.costs()))
            reused = there.intersection(chain.from_iterable(self.sets[stream])) if before else ()
            self._known[key] = (*(node for node in before if node in reused), *added), len(added)
        return self._known[key]


def greedy_cover(sets: Mapping[Owners, int], costs: Sequence[float]) -> Iterator[int]:
    """Yield nodes that together hold all: always that of the least cost per segment not yet covered (section 4.1)."""
    gain: dict[int, int] = defaultdict(int)
    holding: dict[int, list[Owners]] = defaultdict(list)
    for owners, count in sets.items():
        for node in owners:
            gain[node] += count
            holding[node].append(owners)
    heap = [(costs[node] / covered, node) for node, covered in gain.items()]
    heapq.heapify(heap)
    left = dict(sets)
    while left:
        price, node = heapq.heappop(heap)
        if gain[node] and costs[node] / gain[node] > price:  # others have covered part of what it holds
            heapq.heappush(heap, (costs[node] / gain[node], node))
        elif gain[node]:
            yield node
            for owners in holding[node]:
                count = left.pop(owners, 0)
                for other in owners if count else ():
                    gain[other] -= count
