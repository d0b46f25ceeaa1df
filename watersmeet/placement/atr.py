"""ATR: one stream, the master, is cut into segments of time, each on one node; the other streams follow it.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 3. A segment of the
master goes to the least-loaded node (equation 1). A tuple of another stream, a slave, is kept by every node whose
segments it may join. One hop therefore leads to a result's node, where the rest of the result is (Figure 3).

A result belongs to the node of the master's tuple in it. Segments are assigned ahead of the data (footnote 3) and never
change once a tuple may depend on them: each batch notes its segments, and the next one extends them. A new segment
length, master or choice of nodes starts where they end.

The master changes from M to N at a time t_s. A result with `s_M < t_s` belongs to the node of s_M; any other to the
node of s_N, where all of N before t_s counts as one segment on the node of M's last. (The paper's marked tuples, read
literally, lose results whose members of M and N lie on different sides of t_s.)
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import repeat
from typing import Any, NamedTuple, Self

import numpy as np

from watersmeet.arguments import format_duration, microseconds
from watersmeet.arrays import Ints
from watersmeet.cost.cost_model import atr_cost, best_master
from watersmeet.cost.equations import atr_overhead
from watersmeet.errors import DefinitionError
from watersmeet.placement.base import Layout, Notes, Owners, Placement, check_switch, plan_moves, segment_length
from watersmeet.placement.priced_strategy import Basis, LoadBalanced, Options, Pricer, Quote
from watersmeet.placement.segments import ENDLESS, LOWEST, STEPS, Era, Leftover, SegmentRun, SegmentSearch
from watersmeet.state.chunks.chunk import Bucket, Chunk
from watersmeet.state.manifest.view import ANYWHERE, LONGEST_SLICE, MARGIN, StateView, StoredNotes

SEGMENT_FACTORS = (0.5, 1, 2, 4)
"""Segment lengths that are priced, in longest windows."""
MANY_NODES = 64
"""Enough nodes for equation 2 to apply: no tuple of a window of time is needed on this many."""
MOST_PLANNED = 1024
"""Segments that one plan assigns; those beyond repeat them."""


@dataclass(frozen=True, slots=True)
class AtrPlacement(Placement):
    """Segments of the master, and the owners and routes that follow from them.

    Attributes:
        nodes: How many nodes there are.
        eras: The master's segments; while the master changes, the old one's and then the new one's.
        windows: The window of each stream; None without limit.
        lengths: The longest slice of each stream; a slice ends early where the owners change.
        leftovers: Tuples of the first master that are on other nodes than their segments'.
        tracked: The masters.
    """

    nodes: int
    eras: tuple[Era, ...]
    windows: tuple[int | None, ...]
    lengths: tuple[int, ...]
    leftovers: tuple[Leftover, ...] = ()
    tracked: tuple[int, ...] = ()

    # -- where a tuple is kept

    def slice_length(self, stream: int) -> int:
        """Return the longest slice of the stream."""
        return self.lengths[stream]

    def starts(self, stream: int, ts: Ints) -> Ints:
        """Return starts such that owners are the same throughout a slice, so that no tuple has unneeded copies."""
        starts = ts // self.lengths[stream] * self.lengths[stream]
        for era in self.eras:
            for shift in self._shifts(stream, era):
                starts = np.maximum(starts, era.segment_starts(ts + shift) - shift)
        cuts = np.array([LOWEST, *sorted(self._cuts(stream))], np.int64)
        return np.maximum(starts, cuts[np.searchsorted(cuts, ts, "right") - 1])

    def _shifts(self, stream: int, era: Era) -> tuple[int, ...]:
        """Return the distances from a tuple to the first and last tuple of the master that it may join."""
        own, of_master = self.windows[stream], self.windows[era.master]
        if stream == era.master:
            return (0,)
        return () if own is None or of_master is None else (1 - of_master, own - 1)

    def _cuts(self, stream: int) -> Iterator[int]:
        """Yield the times at which a stream's owners change for other reasons than a segment's border."""
        own, of_master = self.windows[stream], self.windows[self.eras[0].master]
        for before, era in zip(self.eras, self.eras[1:], strict=False):
            yield era.start if stream == before.master else era.start - (own or 1) + 1
        if own is not None and of_master is not None and stream != self.eras[0].master:
            for low, high, _ in self.leftovers:
                yield from (low - own + 1, high + of_master)

    def owners(self, stream: int, start: int, bucket: Bucket) -> Owners:
        """Return the nodes of all segments that a tuple of the slice may join."""
        return self.nodes_between(stream, start, start)

    def nodes_between(self, stream: int, low: int, high: int) -> Owners:
        """Return the nodes that must keep a stream's tuples from `low` to `high`, those of the last master first."""
        nodes: dict[int, None] = {}
        for at in reversed(range(len(self.eras))):
            if at == 0 or self._outlives(stream, high, at):
                nodes |= dict.fromkeys(self._segment_nodes(stream, low, high, self.eras[at]))
        if stream != self.eras[0].master:
            nodes |= dict.fromkeys(self._leftover_nodes(stream, low, high))
        return tuple(nodes)

    def _outlives(self, stream: int, high: int, at: int) -> bool:
        """Return whether tuples up to `high` may be in a result that belongs to an era, not to the one before."""
        window = self.windows[stream]
        if stream == self.eras[at - 1].master:
            return high >= self.eras[at].start
        return window is None or high + window - 1 >= self.eras[at].start

    def _segment_nodes(self, stream: int, low: int, high: int, era: Era) -> Iterable[int]:
        """Return the nodes of a master's segments that tuples may join: S_M[t - W_i, t + T + W_M] of section 3."""
        shifts = self._shifts(stream, era)
        return era.nodes_between(low + shifts[0], high + shifts[-1]) if shifts else range(self.nodes)

    def _leftover_nodes(self, stream: int, low: int, high: int) -> Iterator[int]:
        """Yield the nodes of leftovers (the master's tuples off their segments) that tuples of these times may join."""
        own, of_master = self.windows[stream], self.windows[self.eras[0].master]
        if own is not None and of_master is not None:
            for leftover in self.leftovers:
                if leftover.low <= high + own - 1 and leftover.high >= low - of_master + 1:
                    yield leftover.node

    # -- which nodes a partial result visits

    def lead(self, origin: int) -> tuple[int, ...]:
        """Return the masters, which determine where a result belongs."""
        return tuple(master for master in self.tracked if master != origin)

    def groups(self, origin: int, moment: Ints, times: Mapping[int, Ints]) -> Ints:
        """Return the node of each result, or ANYWHERE while that depends on a master not yet joined."""
        nodes = np.full(len(moment), ANYWHERE)
        for era in self.eras:
            of_master = moment if era.master == origin else times.get(era.master)
            if of_master is not None:
                nodes = np.where(nodes == ANYWHERE, era.nodes_at(of_master), nodes)
        return nodes

    def visit(self, group: int, target: int, owners: Sequence[int], here: int) -> int:
        """Return where the partial result is if it has the chunk, else the result's node if that has it, else its home.

        While the result's node is undecided, it is the home: of a master's chunk, its segment's node.
        """
        if group == ANYWHERE:
            return owners[0]
        return here if here in owners else group if group in owners else owners[0]

    def stays_after(self) -> int | None:
        """Return how many masters there are: once they are joined, the rest of the result is on the same node."""
        return len(self.eras)


class Aim(NamedTuple):
    """The options that segments were planned for: a segment length, and whether to search for a better one."""

    length: int
    search: bool


@dataclass(frozen=True, slots=True)
class AtrNotes(Notes):
    """The segments that a stored tuple may depend on.

    Attributes:
        nodes: How many nodes there were.
        end: Where the segments end.
        eras: The segments.
        aim: The options for which they were planned.
        search: The state of the search for a segment length.
    """

    nodes: int
    end: int
    eras: tuple[Era, ...]
    aim: Aim
    search: SegmentSearch

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the notes from their fields."""
        eras = (
            Era(master, start, tuple(SegmentRun(at, length, tuple(nodes)) for at, length, nodes in runs))
            for master, start, runs in plain["eras"]
        )
        return cls(plain["nodes"], plain["end"], tuple(eras), Aim(*plain["aim"]), SegmentSearch(*plain["search"]))


@dataclass(frozen=True, slots=True)
class AtrLayout(Layout[AtrPlacement]):
    """Segments for a batch.

    Attributes:
        search: The state of the search for a segment length.
        aim: The options for which segments are planned.
        end_before: The end of the segments that tuples depended on before the batch; LOWEST if there were none.
    """

    search: SegmentSearch
    aim: Aim
    end_before: int = LOWEST

    def facts(self, state: StateView) -> dict[str, Any]:
        """Return the master, its segment length, and the copies of a tuple that equation 2 predicts."""
        master, length = self.placement.eras[-1].master, self.search.segment
        extra = overhead(state, length, master, self.placement.nodes)
        rate = sum(stream.rate for stream in state.streams)
        return {
            "master": state.names[master],
            "segmentSeconds": length / 1e6,
            "expectedCopies": round(1 + extra / rate, 3) if rate else None,
        }

    def keep(self, after: StateView) -> StoredNotes:
        """Return all segments that a stored tuple may depend on, as this batch had them; none before any tuple."""
        latest, all_eras = after.latest, self.placement.eras
        if latest is None:
            return StoredNotes()
        reach = latest + after.reach
        ends = [era.segment_end(reach) for era in all_eras if era.start <= reach]
        end = max(ends[-1], self.end_before)
        bounded = (chunk.low for chunk in after.chunks if after.streams[chunk.stream].window is not None)
        low = min(bounded, default=latest) - after.reach
        # An era that is over keeps its last segment: tuples from before the change may still arrive.
        lows = (*(min(low, era.start - 1) for era in all_eras[1:]), low)
        eras = tuple(era.trim(at, end) for era, at in zip(all_eras, lows, strict=True) if era.start < end)
        return AtrNotes(self.placement.nodes, end, eras, self.aim, self.search).kept()


def overhead(state: StateView, length: int, master: int, nodes: int) -> float:
    """Return the extra tuples a second that other streams store because of a master, by equation 2."""
    rates = [stream.rate for stream in state.streams]
    windows = [math.inf if stream.window is None else stream.window for stream in state.streams]
    return atr_overhead(rates if any(rates) else [1.0] * len(rates), windows, length, master, nodes)


# -- after another strategy


def find_leftovers(state: StateView, era: Era, nodes: int) -> tuple[Leftover, ...]:
    """Return where the master's chunks are on other nodes than their segments', with close neighbours combined."""
    masters = np.flatnonzero(state.column("stream") == era.master)
    masters = masters[np.argsort(state.column("low")[masters], kind="stable")]
    lows, highs = state.column("low")[masters], state.column("high")[masters]
    homes = np.array([state.chunks[at].owners[0] % nodes for at in masters.tolist()], np.int64)
    is_misplaced = (era.nodes_at(lows) != homes) | (era.segment_starts(lows) != era.segment_starts(highs))
    leftovers: list[Leftover] = []
    for node in dict.fromkeys(homes[is_misplaced].tolist()):
        on_node = is_misplaced & (homes == node)
        low, reach = lows[on_node], np.maximum.accumulate(highs[on_node])
        first = np.flatnonzero(np.append(True, low[1:] > reach[:-1] + era.runs[-1].length))
        last = np.append(first[1:], len(low)) - 1
        leftovers += map(Leftover, low[first].tolist(), reach[last].tolist(), repeat(node))
    return tuple(leftovers)


def adopt(chunk: Chunk, placement: AtrPlacement) -> Owners:
    """Return the owners of a chunk of an earlier strategy or number of nodes; the master's keep only the first one."""
    home = chunk.owners[0] % placement.nodes
    eras = placement.eras
    if chunk.stream == eras[0].master and (len(eras) == 1 or chunk.high < eras[1].start):
        return (home,)
    nodes = placement.nodes_between(chunk.stream, chunk.low, chunk.high)
    return tuple(dict.fromkeys((home, *nodes))) if home in nodes else nodes


class Segments(NamedTuple):
    """The segments that a plan extends.

    Attributes:
        eras: Those of the master; while the master changes, of the old one and then of the new one.
        end: Where they end, and new ones begin.
        search: The state of the search for a segment length.
    """

    eras: tuple[Era, ...]
    end: int
    search: SegmentSearch


@dataclass(frozen=True, slots=True)
class ATR(LoadBalanced):
    """Aligned tuple routing.

    Args:
        nodes: How many nodes there are.
        segment: The segment length T; None for twice the longest window, so that a slave has two copies at most on
            average.
        master: The master stream, by its name or position; None for the one with the least overhead, which may change.
        search: Whether to search for a better segment length as the join runs.
        weights: What CPU, memory and network count in a node's load.
        capacities: The capacity of each node, relative to the others; empty if all are alike.

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
        """Check the options.

        Raises:
            DefinitionError: If one is out of range or of the wrong type.
        """
        LoadBalanced.__post_init__(self)
        segment_length(self.segment)
        if self.master is not None and (isinstance(self.master, bool) or not isinstance(self.master, int | str)):
            raise DefinitionError(f"master={self.master!r}: say which stream by its name, or by its position from 0.")
        check_switch("search", self.search)

    def describe(self) -> str:
        """Return the strategy with its segment length."""
        return f"ATR(nodes={self.nodes}, segment={self.segment or 'by windows'})"

    def resolve_streams(self, streams: Sequence[str]) -> "ATR":
        """Return the strategy with its master by position; an unknown name stays, for `refusal` to reject."""
        if not isinstance(self.master, str) or self.master not in streams:
            return self
        return replace(self, master=streams.index(self.master))

    def refusal(self, state: StateView) -> str | None:
        """Return a sentence if the master is none of the streams; None if it is one, or is still to be chosen."""
        if self.master is None or self.master in range(len(state.streams)):
            return None
        return f"master={self.master!r} is none of the streams; they are {', '.join(state.names)}."

    # -- prices

    @classmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return a pricer with the master of many nodes: it differs on few only if every node keeps everything."""
        reach = (basis.state.reach or LONGEST_SLICE) / 1e6
        master = best_master(basis.parameters(None), MANY_NODES, reach)
        p = basis.parameters(master)
        return lambda nodes, options: Quote(p, atr_cost(p, nodes, master, microseconds(options["segment"]) / 1e6))

    @classmethod
    def variants(cls, state: StateView) -> list[Options]:
        """Return segments of half the longest window to four times its length."""
        reach = state.reach or LONGEST_SLICE
        return [{"segment": format_duration(max(1, round(factor * reach)))} for factor in SEGMENT_FACTORS]

    # -- planning

    def plan(self, state: StateView) -> AtrLayout:
        """Return the segments that tuples may depend on, unchanged, and new ones after them.

        Chunks move only after a change of strategy or of the number of nodes.
        """
        notes = AtrNotes.read(state.notes)
        segments = self._first_segments(state) if notes is None else self._next_segments(state, notes)
        placement = self._placement(state, segments)
        stay = notes is not None and notes.nodes == self.nodes
        return AtrLayout(
            placement,
            segments.search,
            Aim(self._length(state), self.search),
            notes.end if notes else LOWEST,
            moves={} if stay else plan_moves(state.chunks, (adopt(chunk, placement) for chunk in state.chunks)),
        )

    def _first_segments(self, state: StateView) -> Segments:
        """Return the segments to start from when there are no notes: round-robin up to the next segment's start."""
        length = self._length(state)
        master = self.master if isinstance(self.master, int) else _least_overhead(state, length, self.nodes)
        latest = state.latest
        end = 0 if latest is None else (latest // length + 1) * length
        turn = length * self.nodes
        eras = (Era(master, LOWEST, (SegmentRun(LOWEST // turn * turn, length, tuple(range(self.nodes))),)),)
        return Segments(eras, end, self._start_search(length, end))

    def _next_segments(self, state: StateView, notes: AtrNotes) -> Segments:
        """Return the segments of the batch before, with a new master from their end on if one is better."""
        length, end = self._length(state), notes.end
        same = notes.aim == Aim(length, self.search)
        search = (notes.search if same else self._start_search(length, end)).observe(state, end)
        eras = tuple(era.remap(self.nodes) for era in notes.eras)
        eras = eras[1:] if len(eras) > 1 and _is_master_change_over(state, eras) else eras
        return Segments(self._change_master(state, eras, end, search.segment), end, search)

    def _placement(self, state: StateView, segments: Segments) -> AtrPlacement:
        """Return the placement in which the last master's segments are extended beyond the coming batch."""
        eras, end, search = segments
        ahead = SegmentRun(end, search.segment, self._assign(state, eras[-1], end, search.segment))
        eras = (*eras[:-1], eras[-1]._replace(runs=(*eras[-1].runs, ahead)))
        windows = tuple(stream.window for stream in state.streams)
        return AtrPlacement(
            nodes=self.nodes,
            eras=eras,
            windows=windows,
            lengths=tuple(min(stream.slice, search.segment) for stream in state.streams),
            leftovers=() if windows[eras[0].master] is None else find_leftovers(state, eras[0], self.nodes),
            tracked=tuple(era.master for era in eras),
        )

    def _length(self, state: StateView) -> int:
        return segment_length(self.segment) or 2 * state.reach or LONGEST_SLICE

    def _start_search(self, length: int, end: int) -> SegmentSearch:
        return SegmentSearch(length, end, max(1, length // STEPS) if self.search else 0, length)

    def _change_master(self, state: StateView, eras: tuple[Era, ...], end: int, length: int) -> tuple[Era, ...]:
        """Return the eras with a new master from `end` on, if another one is better; one change at a time."""
        master = self._best_master(state, eras[-1].master, length)
        if len(eras) > 1 or master == eras[0].master:
            return eras
        old = eras[0]._replace(runs=(*eras[0].runs, SegmentRun(end, ENDLESS, (ANYWHERE,))))
        last = int(eras[0].nodes_at(np.array([end - 1]))[0])
        return old, Era(master, end, (SegmentRun(LOWEST, ENDLESS, (last,)),))

    def _best_master(self, state: StateView, now: int, length: int) -> int:
        """Return the master to have; one without limit in time remains, since its last tuples never expire."""
        if isinstance(self.master, int):
            return self.master
        best = _least_overhead(state, length, self.nodes)
        less = overhead(state, length, best, self.nodes) < (1 - MARGIN) * overhead(state, length, now, self.nodes)
        return best if less and state.streams[now].window is not None else now

    def _assign(self, state: StateView, era: Era, end: int, length: int) -> Owners:
        """Return a node for each segment from `end` to beyond what the next batch may need: always the least loaded.

        Segments that are assigned but still empty count as if they were full.
        """
        latest = state.latest
        planned_until = (latest or 0) + state.advance + state.reach + length
        lows = state.column("low")[state.column("stream") == era.master]
        live = 1 if latest is None else max(1, -(-(latest - int(lows.min(initial=latest))) // length))
        node_loads = self.node_loads(state, live)
        node_loads.add_counts(era.segment_counts(end if latest is None else latest, end - 1, self.nodes))
        return tuple(node_loads.assign(min(MOST_PLANNED, max(self.nodes, -(-(planned_until - end) // length)))))


def _least_overhead(state: StateView, length: int, nodes: int) -> int:
    """Return the master with the least overhead."""
    return min(range(len(state.streams)), key=lambda master: overhead(state, length, master, nodes))


def _is_master_change_over(state: StateView, eras: Sequence[Era]) -> bool:
    """Return whether no state is left from before a change of master."""
    old, new = eras[0].master, eras[1]
    latest = state.streams[new.master].latest
    lows = (c.low for c in state.chunks if c.stream == old or state.streams[c.stream].window is not None)
    return latest is not None and latest >= new.start and all(low >= new.start for low in lows)
