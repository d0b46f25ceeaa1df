"""ATR: one stream, the master, is cut into segments of time, each on one node; the other streams follow it.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 3. A segment of the
master goes to the least-loaded node (equation 1). A tuple of another stream, a slave, is kept by every node whose
segments it may join. One hop therefore leads to a result's node, where the rest of the result is (Figure 3).

Segments are assigned ahead of the data (footnote 3) and never change once a tuple may depend on them: each batch notes
its segments, and the next one extends them. A new segment length, master or choice of nodes starts where they end.

The master changes from M to N at a time t_s. A result with `s_M < t_s` belongs to the node of s_M; any other to the
node of s_N, where all of N before t_s counts as one segment on the node of M's last. (The paper's marked tuples, read
literally, lose results whose members of M and N lie on different sides of t_s.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from watersmeet.arguments import format_duration, microseconds
from watersmeet.cost.cost_model import atr_cost, best_master
from watersmeet.errors import DefinitionError
from watersmeet.placement.alignment import Aim, AtrLayout, AtrNotes, AtrPlacement, adopt, find_leftovers, overhead
from watersmeet.placement.base import Owners, check_switch, plan_moves, segment_length
from watersmeet.placement.priced_strategy import Basis, LoadBalanced, Options, Pricer, Quote
from watersmeet.placement.segments import ENDLESS, LOWEST, STEPS, Era, SegmentRun, SegmentSearch
from watersmeet.state.manifest.view import ANYWHERE, LONGEST_SLICE, MARGIN, StateView

SEGMENT_FACTORS = (0.5, 1, 2, 4)
"""Segment lengths that are priced, in longest windows."""
MANY_NODES = 64
"""Enough nodes for equation 2 to apply: no tuple of a window of time is needed on this many."""
MOST_PLANNED = 1024
"""Segments that one plan assigns; those beyond repeat them."""


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
        """Return why not if the master is none of the streams; None if it can serve."""
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
