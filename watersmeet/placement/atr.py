"""ATR: one stream, the master, is cut into segments of time, each on one node; the other streams follow it.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 3. A segment of the
master goes to the least-loaded node (equation 1). A tuple of another stream, a slave, is kept by every node whose
segments it may join, so that one hop finds a result's node and the rest of the result is there (Figure 3).

Segments are assigned ahead of the data (footnote 3) and never change once a tuple may depend on them: what a batch
leaves frozen, the next one extends. A new segment length, a new master or a new choice of nodes starts where the frozen
stretch ends.

The master changes from M to N at a time t_s. A result with `s_M < t_s` belongs to the node of s_M; any other to the
node of s_N, where all of N before t_s counts as one segment on the node of M's last. (The paper's marked tuples, read
literally, lose results whose members of M and N lie on different sides of t_s.)
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import repeat
from typing import Any

import numpy as np

from watersmeet.cost.diffusion import atr_overhead
from watersmeet.cost.load import loads
from watersmeet.errors import DefinitionError
from watersmeet.placement.alignment import AtrPlacement
from watersmeet.placement.base import Placement, Strategy
from watersmeet.placement.options import check_load, check_nodes, segment_length
from watersmeet.placement.owners import moves
from watersmeet.placement.search import STEPS, Search
from watersmeet.placement.segments import ENDLESS, LOWEST, Era, Leftover, Run
from watersmeet.state.chunk import Chunk
from watersmeet.state.view import ANYWHERE, LONGEST_SLICE, MARGIN, StateView

MOST_PLANNED = 1024
"""Segments that one plan assigns; those beyond repeat them."""


@dataclass(frozen=True, slots=True)
class ATR(Strategy):
    """Aligned tuple routing.

    Args:
        nodes: How many nodes there are.
        segment: The segment length T; None for twice the longest window, so that a slave has two copies at the most
            on average.
        master: The master stream, by its name or position; None for the one with the least overhead, again and again.
        search: Whether to look for a better segment length as the join runs.
        weights: What CPU, memory and network count in a node's load.
        capacities: What each node can do, relative to the others; all alike if not given.

    >>> ATR(nodes=4, segment="10 seconds").describe()
    'ATR(nodes=4, segment=10 seconds)'
    """

    nodes: int = 4
    segment: str | timedelta | None = "20 seconds"
    master: int | str | None = None
    search: bool = False
    weights: tuple[float, float, float] = (1, 1, 1)
    capacities: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_nodes(self.nodes)
        segment_length(self.segment)
        if self.master is not None and (isinstance(self.master, bool) or not isinstance(self.master, int | str)):
            raise DefinitionError(f"master={self.master!r}: say which stream by its name, or by its position from 0.")
        check_load(self.nodes, self.weights, self.capacities)

    def describe(self) -> str:
        """See Strategy."""
        return f"ATR(nodes={self.nodes}, segment={self.segment or 'by windows'})"

    def named(self, streams: Sequence[str]) -> Strategy:
        """See Strategy."""
        if not isinstance(self.master, str) or self.master not in streams:
            return self
        return replace(self, master=streams.index(self.master))

    def refusal(self, state: StateView) -> str | None:
        """See Strategy."""
        if self.master is None or self.master in range(len(state.streams)):
            return None
        return f"master={self.master!r} is none of the streams; they are {', '.join(state.names)}."

    # -- planning

    def plan(self, state: StateView) -> Placement:
        """See Strategy."""
        length = self._length(state)
        if not state.frozen:
            return self._first(state, length)
        eras, end = _thawed(state.frozen, self.nodes), int(state.frozen["end"])
        asked = state.frozen["asked"] == [length, self.search]
        search = (Search(*state.frozen["search"]) if asked else self._search(length, end)).sampled(state, end)
        eras = eras[1:] if len(eras) > 1 and _settled(state, eras) else eras
        return self._placement(state, self._switched(state, eras, end, search.segment), end, search)

    def _first(self, state: StateView, length: int) -> Placement:
        """Return the placement after another strategy's, or none."""
        master = self.master if isinstance(self.master, int) else _best(state, length, self.nodes)
        latest = state.latest
        end = 0 if latest is None else (latest // length + 1) * length
        turn = length * self.nodes
        eras = (Era(master, LOWEST, (Run(LOWEST // turn * turn, length, tuple(range(self.nodes))),)),)
        return self._placement(state, eras, end, self._search(length, end))

    def _placement(self, state: StateView, eras: tuple[Era, ...], end: int, search: Search) -> Placement:
        """Return the placement whose last master has new segments from `end` on."""
        ahead = Run(end, search.segment, self._least_loaded(state, eras[-1], end, search.segment))
        eras = (*eras[:-1], replace(eras[-1], runs=(*eras[-1].runs, ahead)))
        windows = tuple(stream.window for stream in state.streams)
        return AtrPlacement(
            nodes=self.nodes,
            eras=eras,
            windows=windows,
            lengths=tuple(min(stream.slice, search.segment) for stream in state.streams),
            search=search,
            leftovers=() if windows[eras[0].master] is None else _leftovers(state, eras[0], self.nodes),
            tracked=tuple(era.master for era in eras),
        )

    def _length(self, state: StateView) -> int:
        return segment_length(self.segment) or 2 * state.reach or LONGEST_SLICE

    def _search(self, length: int, end: int) -> Search:
        return Search(length, end, max(1, length // STEPS) if self.search else 0, length)

    def _switched(self, state: StateView, eras: tuple[Era, ...], end: int, length: int) -> tuple[Era, ...]:
        """Return the eras with a new master from `end` on, if another one is wanted; one change at a time."""
        wanted = self._wanted(state, eras[-1].master, length)
        if len(eras) > 1 or wanted == eras[0].master:
            return eras
        old = replace(eras[0], runs=(*eras[0].runs, Run(end, ENDLESS, (ANYWHERE,))))
        last = int(eras[0].hosts(np.array([end - 1]))[0])
        return old, Era(wanted, end, (Run(LOWEST, ENDLESS, (last,)),))

    def _wanted(self, state: StateView, now: int, length: int) -> int:
        """Return the master to have; a master without limit in time stays, since its last tuples never go."""
        if isinstance(self.master, int):
            return self.master
        best = _best(state, length, self.nodes)
        less = _overhead(state, length, best, self.nodes) < (1 - MARGIN) * _overhead(state, length, now, self.nodes)
        return best if less and state.streams[now].window is not None else now

    def _least_loaded(self, state: StateView, era: Era, end: int, length: int) -> tuple[int, ...]:
        """Return a node for each segment from `end` to beyond what the next batch may need: always the least loaded.

        Segments that are assigned and have seen no data yet count as if they had.
        """
        known, latest = loads(state.usage, self.nodes, self.weights, self.capacities), state.latest
        needed = (latest or 0) + state.advance + state.reach + length
        lows = state.column("low")[state.column("stream") == era.master]
        live = 1 if latest is None else max(1, -(-(latest - int(lows.min(initial=latest))) // length))
        share = sum(known) / live or 1.0
        unit = [share / capacity for capacity in self.capacities or [1.0] * self.nodes]
        waiting = era.counts(end if latest is None else latest, end - 1, self.nodes)
        heap = [(known[node] + waiting[node] * unit[node], node) for node in range(self.nodes)]
        heapq.heapify(heap)
        chosen = []
        for _ in range(min(MOST_PLANNED, max(self.nodes, -(-(needed - end) // length)))):
            load, node = heap[0]
            chosen.append(node)
            heapq.heapreplace(heap, (load + unit[node], node))
        return tuple(chosen)

    # -- between batches

    def move(self, state: StateView, placement: Placement) -> dict[str, tuple[int, ...]]:
        """See Strategy; only after a change of strategy or of the number of nodes."""
        assert isinstance(placement, AtrPlacement)
        if state.frozen.get("nodes") == self.nodes:
            return {}
        return moves(state.chunks, (_holders(chunk, placement) for chunk in state.chunks))

    def freeze(self, placement: Placement, after: StateView) -> dict[str, Any]:
        """See Strategy: all segments that a tuple kept by now may depend on, as this batch had them."""
        assert isinstance(placement, AtrPlacement)
        latest = after.latest
        if latest is None:
            return {}
        reach = latest + after.reach
        ends = [era.end_of(reach) for era in placement.eras if era.start <= reach]
        end = max(ends[-1], after.frozen.get("end", LOWEST))
        bounded = (chunk.low for chunk in after.chunks if after.streams[chunk.stream].window is not None)
        low = min(bounded, default=latest) - after.reach
        # An era that is over keeps its last segment: tuples from before the change may still come.
        lows = (*(min(low, era.start - 1) for era in placement.eras[1:]), low)
        kept = [era.kept(at, end) for era, at in zip(placement.eras, lows, strict=True) if era.start < end]
        eras = [[era.master, era.start, [list(run) for run in era.runs]] for era in kept]
        found = {"nodes": self.nodes, "end": end, "eras": eras}
        return found | {"asked": [self._length(after), self.search], "search": list(placement.search)}

    def facts(self, placement: Placement, state: StateView) -> dict[str, Any]:
        """See Strategy; the copies of a tuple are those that equation 2 predicts."""
        assert isinstance(placement, AtrPlacement)
        master, length = placement.eras[-1].master, placement.search.segment
        extra = _overhead(state, length, master, self.nodes)
        rate = sum(stream.rate for stream in state.streams)
        return {
            "master": state.names[master],
            "segmentSeconds": length / 1e6,
            "expectedCopies": round(1 + extra / rate, 3) if rate else None,
        }


def _overhead(state: StateView, length: int, master: int, nodes: int) -> float:
    rates = [stream.rate for stream in state.streams]
    windows = [math.inf if stream.window is None else stream.window for stream in state.streams]
    return atr_overhead(rates if any(rates) else [1.0] * len(rates), windows, length, master, nodes)


def _best(state: StateView, length: int, nodes: int) -> int:
    """Return the master with the least overhead."""
    return min(range(len(state.streams)), key=lambda master: _overhead(state, length, master, nodes))


def _thawed(frozen: Mapping[str, Any], nodes: int) -> tuple[Era, ...]:
    """Return the eras that were frozen; nodes that are gone by now hand their segments on as chunks are."""
    return tuple(
        Era(master, start, tuple(Run(at, length, _remapped(hosts, nodes)) for at, length, hosts in runs))
        for master, start, runs in frozen["eras"]
    )


def _remapped(hosts: Iterable[int], nodes: int) -> tuple[int, ...]:
    return tuple(host if host == ANYWHERE else host % nodes for host in hosts)


def _settled(state: StateView, eras: Sequence[Era]) -> bool:
    """Tell whether a change of master is over: nothing is left from before it."""
    old, new = eras[0].master, eras[1]
    latest = state.streams[new.master].latest
    waiting = (c.low for c in state.chunks if c.stream == old or state.streams[c.stream].window is not None)
    return latest is not None and latest >= new.start and all(low >= new.start for low in waiting)


def _leftovers(state: StateView, era: Era, nodes: int) -> tuple[Leftover, ...]:
    """Return where the master's chunks are on other nodes than its segments say, close neighbours as one."""
    masters = np.flatnonzero(state.column("stream") == era.master)
    masters = masters[np.argsort(state.column("low")[masters], kind="stable")]
    lows, highs = state.column("low")[masters], state.column("high")[masters]
    homes = np.array([state.chunks[at].owners[0] % nodes for at in masters.tolist()], np.int64)
    strays = (era.hosts(lows) != homes) | (era.borders(lows) != era.borders(highs))
    found: list[Leftover] = []
    for node in dict.fromkeys(homes[strays].tolist()):
        mine = strays & (homes == node)
        low, reach = lows[mine], np.maximum.accumulate(highs[mine])
        first = np.flatnonzero(np.append(True, low[1:] > reach[:-1] + era.runs[-1].length))
        last = np.append(first[1:], len(low)) - 1
        found += map(Leftover, low[first].tolist(), reach[last].tolist(), repeat(node))
    return tuple(found)


def _holders(chunk: Chunk, placement: AtrPlacement) -> tuple[int, ...]:
    """Return the owners of a chunk of an earlier strategy or number of nodes: of the master's, its home alone."""
    home = chunk.owners[0] % placement.nodes
    eras = placement.eras
    if chunk.stream == eras[0].master and (len(eras) == 1 or chunk.high < eras[1].start):
        return (home,)
    needed = placement.needed(chunk.stream, chunk.low, chunk.high)
    return tuple(dict.fromkeys((home, *needed))) if home in needed else needed
