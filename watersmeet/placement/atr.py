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
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from watersmeet.cost.diffusion import atr_overhead
from watersmeet.cost.load import loads, smoothed
from watersmeet.errors import DefinitionError
from watersmeet.placement.base import Placement, Strategy, moves
from watersmeet.placement.options import check_load, check_nodes, segment_length
from watersmeet.state.chunk import Bucket, Chunk
from watersmeet.state.view import ANYWHERE, LONGEST_SLICE, MARGIN, Ints, StateView

LOWEST, ENDLESS = -(1 << 61), 1 << 62
"""Earlier than any time, and longer than all time."""
MOST_PLANNED = 1024
"""Segments that one plan assigns; those beyond repeat them."""
STEPS, GAIN = 4, 0.02
"""The search for a segment length goes by a STEPS-th of the first length, as long as throughput gains this much."""


class Run(NamedTuple):
    """Segments of one length on a repeating list of nodes, up to the start of the next run."""

    start: int
    length: int
    nodes: tuple[int, ...]


class Leftover(NamedTuple):
    """Tuples of the master, from `low` to `high`, that an earlier strategy put on another node than the segment."""

    low: int
    high: int
    node: int


@dataclass(frozen=True, slots=True)
class Era:
    """A master and its segments.

    Attributes:
        master: The stream.
        start: From when on it is the master; its segments say what becomes of its earlier tuples.
        runs: Its segments for all time: the first reaches back, the last forward without end. A run on the node
            ANYWHERE begins where another stream takes over.
    """

    master: int
    start: int
    runs: tuple[Run, ...]

    def hosts(self, times: Ints) -> Ints:
        """Return the node of each time's segment."""
        run, segment = self._located(times)
        sizes = np.array([len(run.nodes) for run in self.runs])
        nodes = np.concatenate([np.array(run.nodes, np.int64) for run in self.runs])
        found: Ints = nodes[(np.cumsum(sizes) - sizes)[run] + segment % sizes[run]]
        return found

    def borders(self, times: Ints) -> Ints:
        """Return the start of each time's segment."""
        run, segment = self._located(times)
        starts, lengths = (np.array(ends, np.int64) for ends in list(zip(*self.runs, strict=True))[:2])
        return np.where(times < starts[0], LOWEST, starts[run] + segment * lengths[run])

    def _located(self, times: Ints) -> tuple[Ints, Ints]:
        """Return each time's run, and which segment of the run it lies in."""
        starts, lengths = (np.array(ends, np.int64) for ends in list(zip(*self.runs, strict=True))[:2])
        run = np.maximum(np.searchsorted(starts, times, "right") - 1, 0)
        return run, np.maximum(times - starts[run], 0) // lengths[run]

    def between(self, low: int, high: int) -> Iterator[int]:
        """Yield the nodes of all segments that hold a time from `low` to `high`."""
        low, high = max(low, self.runs[0].start), max(high, self.runs[0].start)
        at = bisect_right(self.runs, low, key=_start) - 1
        for run, end in self._spans(at):
            if run.start > high:
                return
            first, last = ((time - run.start) // run.length for time in (max(low, run.start), min(high, end - 1)))
            for segment in range(first, min(last + 1, first + len(run.nodes))):
                if run.nodes[segment % len(run.nodes)] != ANYWHERE:
                    yield run.nodes[segment % len(run.nodes)]

    def counts(self, low: int, high: int, nodes: int) -> list[int]:
        """Return how many segments from `low` to `high` each node has."""
        found = [0] * nodes
        for run, end in self._spans():
            first, last = ((t - run.start) // run.length for t in (max(low, run.start), min(high, end - 1)))
            for at, node in enumerate(run.nodes if last >= first else ()):
                rounds = [(segment - at) // len(run.nodes) for segment in (first - 1, last)]
                found[node] += rounds[1] - rounds[0] if node != ANYWHERE else 0
        return found

    def end_of(self, time: int) -> int:
        """Return the end of a time's segment."""
        at = max(0, bisect_right(self.runs, time, key=_start) - 1)
        run, end = next(self._spans(at))
        return min(end, run.start + (max(0, time - run.start) // run.length + 1) * run.length)

    def _spans(self, at: int = 0) -> Iterator[tuple[Run, int]]:
        ends = (*(run.start for run in self.runs[at + 1 :]), ENDLESS)
        return zip(self.runs[at:], ends, strict=True)

    def kept(self, low: int, end: int) -> "Era":
        """Return the era with the runs from `low` up to `end`, shortened to the nodes that they use."""
        first = max(0, bisect_right(self.runs, low, key=_start) - 1)
        spans = [(run, min(stop, end)) for run, stop in self._spans(first) if run.start < end]
        return replace(
            self, runs=tuple(run._replace(nodes=run.nodes[: -((run.start - e) // run.length)]) for run, e in spans)
        )


def _start(run: Run) -> int:
    return run.start


class Search(NamedTuple):
    """Where the search for the best segment length T* stands (section 3, segment length adaptation).

    Attributes:
        segment: The length that new segments get.
        since: The time from which on they have it.
        step: What the length is changed by next; 0 when the search is over.
        best: The best length so far.
        score: The throughput that it gave; 0 before it is known.
        rows: The rows of a batch, smoothed as the usage of nodes is.
    """

    segment: int
    since: int
    step: int
    best: int
    score: float = 0.0
    rows: float = 0.0

    def sampled(self, state: StateView, end: int) -> "Search":
        """Return the search after one more batch: the next length, once all state lies in segments of the last one.

        Throughput is counted in rows by the CPU time of the busiest node, which both copies and imbalance raise.
        """
        rows = smoothed(self.rows, sum(stream.rows for stream in state.streams))
        found = self._replace(rows=rows)
        busiest = max((used.cpu for used in state.usage), default=0.0)
        latest = state.latest
        settled = latest is not None and latest >= self.since + state.reach + self.segment
        return found if not self.step or not settled or not busiest else found._next(rows / busiest, end)

    def _next(self, score: float, end: int) -> "Search":
        if score > self.score * (1 + GAIN):
            better = self._replace(best=self.segment, score=score)
            return better._tries(self.step, end)
        return self._tries(-self.step if self.step > 0 else 0, end)

    def _tries(self, step: int, end: int) -> "Search":
        step = step if self.best + step > 0 else 0
        return self._replace(segment=self.best + step, since=end, step=step)


@dataclass(frozen=True, slots=True)
class AtrPlacement(Placement):
    """Segments of the master and what follows from them.

    Attributes:
        nodes: How many nodes there are.
        eras: The master's segments; while the master changes, the old one's and then the new one's.
        windows: The window of each stream; None without limit.
        lengths: The longest slice of each stream; a slice ends early where the owners change.
        search: Where the search for a segment length stands.
        leftovers: What the first master's tuples are on besides its segments.
        tracked: The masters.
    """

    nodes: int
    eras: tuple[Era, ...]
    windows: tuple[int | None, ...]
    lengths: tuple[int, ...]
    search: Search
    leftovers: tuple[Leftover, ...] = ()
    tracked: tuple[int, ...] = ()

    # -- where a tuple is kept

    def slice_length(self, stream: int) -> int:
        """See Placement."""
        return self.lengths[stream]

    def starts(self, stream: int, ts: Ints) -> Ints:
        """See Placement; owners are the same all through a slice, so that no tuple has a copy too many."""
        found = ts // self.lengths[stream] * self.lengths[stream]
        for era in self.eras:
            for shift in self._shifts(stream, era):
                found = np.maximum(found, era.borders(ts + shift) - shift)
        cuts = np.array([LOWEST, *sorted(self._cuts(stream))], np.int64)
        return np.maximum(found, cuts[np.searchsorted(cuts, ts, "right") - 1])

    def _shifts(self, stream: int, era: Era) -> tuple[int, ...]:
        """Return the distances from a tuple to the first and last tuple of the master that it may join."""
        mine, its = self.windows[stream], self.windows[era.master]
        if stream == era.master:
            return (0,)
        return () if mine is None or its is None else (1 - its, mine - 1)

    def _cuts(self, stream: int) -> Iterator[int]:
        """Yield the times at which a stream's owners change for other reasons than a segment's border."""
        mine, its = self.windows[stream], self.windows[self.eras[0].master]
        for before, era in zip(self.eras, self.eras[1:], strict=False):
            yield era.start if stream == before.master else era.start - (mine or 1) + 1
        if mine is not None and its is not None and stream != self.eras[0].master:
            for low, high, _ in self.leftovers:
                yield from (low - mine + 1, high + its)

    def owners(self, stream: int, start: int, bucket: Bucket) -> tuple[int, ...]:
        """See Placement."""
        return self.needed(stream, start, start)

    def needed(self, stream: int, low: int, high: int) -> tuple[int, ...]:
        """Return the nodes that must keep a stream's tuples from `low` to `high`, those of the last master first."""
        found: dict[int, None] = {}
        for at in reversed(range(len(self.eras))):
            if at == 0 or self._outlives(stream, high, at):
                found |= dict.fromkeys(self._aligned(stream, low, high, self.eras[at]))
        if stream != self.eras[0].master:
            found |= dict.fromkeys(self._joins_leftovers(stream, low, high))
        return tuple(found)

    def _outlives(self, stream: int, high: int, at: int) -> bool:
        """Tell whether tuples up to `high` may be in a result that an era's master decides, not the one before."""
        mine = self.windows[stream]
        if stream == self.eras[at - 1].master:
            return high >= self.eras[at].start
        return mine is None or high + mine - 1 >= self.eras[at].start

    def _aligned(self, stream: int, low: int, high: int, era: Era) -> Iterable[int]:
        """Return the nodes of a master's segments that tuples may join: S_M[t - W_i, t + T + W_M] of section 3."""
        shifts = self._shifts(stream, era)
        return era.between(low + shifts[0], high + shifts[-1]) if shifts else range(self.nodes)

    def _joins_leftovers(self, stream: int, low: int, high: int) -> Iterator[int]:
        mine, its = self.windows[stream], self.windows[self.eras[0].master]
        if mine is not None and its is not None:
            for left in self.leftovers:
                if left.low <= high + mine - 1 and left.high >= low - its + 1:
                    yield left.node

    # -- whom a partial result visits

    def lead(self, origin: int) -> tuple[int, ...]:
        """See Placement; the masters come first, since they say where a result belongs."""
        return tuple(master for master in self.tracked if master != origin)

    def groups(self, origin: int, moment: Ints, times: Mapping[int, Ints]) -> Ints:
        """See Placement; a group is the node of the result, or ANYWHERE while that depends on a master not joined."""
        found = np.full(len(moment), ANYWHERE)
        for era in self.eras:
            known = moment if era.master == origin else times.get(era.master)
            if known is not None:
                found = np.where(found == ANYWHERE, era.hosts(known), found)
        return found

    def visit(self, group: int, target: int, owners: Sequence[int], here: int) -> int:
        """See Placement; the home of a master's tuples is the node of their segment."""
        if group == ANYWHERE:
            return owners[0]
        return here if here in owners else group if group in owners else owners[0]

    def stays_after(self) -> int | None:
        """See Placement: as many hops as there are masters."""
        return len(self.eras)


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
