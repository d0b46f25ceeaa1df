"""ATR: one stream, the master, is cut into segments of time, each on one node; the other streams follow it.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 3. A segment of the
master goes to the least-loaded node (equation 1). A tuple of another stream, a slave, is kept by every node whose
segments it may join, so that one hop finds a result's node and the rest of the result is there (Figure 3).

Segments are assigned ahead of the data (footnote 3) and never change once a tuple may depend on them: those that a
batch notes, the next one extends. A new segment length, a new master or a new choice of nodes starts where they end.

The master changes from M to N at a time t_s. A result with `s_M < t_s` belongs to the node of s_M; any other to the
node of s_N, where all of N before t_s counts as one segment on the node of M's last. (The paper's marked tuples, read
literally, lose results whose members of M and N lie on different sides of t_s.)
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from watersmeet.arguments import fields_to_python, format_duration, microseconds
from watersmeet.cost.load import loads
from watersmeet.cost.model import atr, best_master
from watersmeet.errors import DefinitionError
from watersmeet.placement.alignment import (
    Aim,
    AtrLayout,
    AtrNotes,
    AtrPlacement,
    holders,
    leftovers,
    overhead,
)
from watersmeet.placement.options import check_load, check_nodes, check_switch, segment_length
from watersmeet.placement.owners import moves
from watersmeet.placement.priced import Basis, Options, Priced, Pricer, Quote, Terms
from watersmeet.placement.segment_search import STEPS, Search
from watersmeet.placement.segments import ENDLESS, LOWEST, Era, Run
from watersmeet.state.manifest.view import ANYWHERE, LONGEST_SLICE, MARGIN, StateView

TRIED = (0.5, 1, 2, 4)
"""Segment lengths that are priced, in longest windows."""
MANY_NODES = 64
"""As many as let equation 2 speak: no tuple of a window of time is needed on so many."""
MOST_PLANNED = 1024
"""Segments that one plan assigns; those beyond repeat them."""


class Segments(NamedTuple):
    """The segments that a plan goes on from.

    Attributes:
        eras: Those of the master; while the master changes, of the old one and then of the new one.
        end: Where they end, and new ones begin.
        search: Where the search for a segment length stands.
    """

    eras: tuple[Era, ...]
    end: int
    search: Search


@dataclass(frozen=True, slots=True)
class ATR(Priced):
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
        fields_to_python(self)
        check_nodes(self.nodes)
        segment_length(self.segment)
        if self.master is not None and (isinstance(self.master, bool) or not isinstance(self.master, int | str)):
            raise DefinitionError(f"master={self.master!r}: say which stream by its name, or by its position from 0.")
        check_switch("search", self.search)
        check_load(self.nodes, self.weights, self.capacities)

    def describe(self) -> str:
        """Return the strategy with its segment length."""
        return f"ATR(nodes={self.nodes}, segment={self.segment or 'by windows'})"

    def named(self, streams: Sequence[str]) -> "ATR":
        """Return the strategy with its master by position."""
        if not isinstance(self.master, str) or self.master not in streams:
            return self
        return replace(self, master=streams.index(self.master))

    def refusal(self, state: StateView) -> str | None:
        """Return why not, if the master is none of the streams."""
        if self.master is None or self.master in range(len(state.streams)):
            return None
        return f"master={self.master!r} is none of the streams; they are {', '.join(state.names)}."

    # -- prices

    @classmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return the cost with the master as on many nodes: but for few, where all is everywhere, it is the same."""
        reach = (basis.state.reach or LONGEST_SLICE) / 1e6
        master = best_master(basis.parameters(None), MANY_NODES, reach)
        led = basis.parameters(master)
        return lambda nodes, options: Quote(led, atr(led, nodes, master, microseconds(options["segment"]) / 1e6))

    @classmethod
    def chosen(cls, nodes: int, options: Options, terms: Terms) -> "ATR":
        """Return segments of the length that was priced, which go by the load of nodes as it is weighed."""
        return cls(nodes, options["segment"], weights=terms.weights, capacities=terms.capacities[:nodes])

    @classmethod
    def variants(cls, state: StateView) -> list[Options]:
        """Return segments from half of the longest window to four of them."""
        reach = state.reach or LONGEST_SLICE
        return [{"segment": format_duration(max(1, round(part * reach)))} for part in TRIED]

    # -- planning

    def plan(self, state: StateView) -> AtrLayout:
        """Return the segments that tuples may depend on as they were, and new ones from where those end.

        Chunks move only after a change of strategy or of the number of nodes.
        """
        notes = AtrNotes.read(state.kept)
        segments = self._first(state) if notes is None else self._next(state, notes)
        placement = self._placement(state, segments)
        stay = notes is not None and notes.nodes == self.nodes
        return AtrLayout(
            placement,
            segments.search,
            Aim(self._length(state), self.search),
            notes.end if notes else LOWEST,
            moves={} if stay else moves(state.chunks, (holders(chunk, placement) for chunk in state.chunks)),
        )

    def _first(self, state: StateView) -> Segments:
        """Return the segments after another strategy, or none."""
        length = self._length(state)
        master = self.master if isinstance(self.master, int) else _best(state, length, self.nodes)
        latest = state.latest
        end = 0 if latest is None else (latest // length + 1) * length
        turn = length * self.nodes
        eras = (Era(master, LOWEST, (Run(LOWEST // turn * turn, length, tuple(range(self.nodes))),)),)
        return Segments(eras, end, self._search(length, end))

    def _next(self, state: StateView, notes: AtrNotes) -> Segments:
        """Return the segments that go on from a batch before."""
        length, end = self._length(state), notes.end
        same = notes.aim == Aim(length, self.search)
        search = (notes.search if same else self._search(length, end)).sampled(state, end)
        eras = tuple(era.on(self.nodes) for era in notes.eras)
        eras = eras[1:] if len(eras) > 1 and _settled(state, eras) else eras
        return Segments(self._switched(state, eras, end, search.segment), end, search)

    def _placement(self, state: StateView, segments: Segments) -> AtrPlacement:
        """Return the placement whose last master has new segments from where the known ones end."""
        eras, end, search = segments
        ahead = Run(end, search.segment, self._least_loaded(state, eras[-1], end, search.segment))
        eras = (*eras[:-1], eras[-1]._replace(runs=(*eras[-1].runs, ahead)))
        windows = tuple(stream.window for stream in state.streams)
        return AtrPlacement(
            nodes=self.nodes,
            eras=eras,
            windows=windows,
            lengths=tuple(min(stream.slice, search.segment) for stream in state.streams),
            leftovers=() if windows[eras[0].master] is None else leftovers(state, eras[0], self.nodes),
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
        old = eras[0]._replace(runs=(*eras[0].runs, Run(end, ENDLESS, (ANYWHERE,))))
        last = int(eras[0].hosts(np.array([end - 1]))[0])
        return old, Era(wanted, end, (Run(LOWEST, ENDLESS, (last,)),))

    def _wanted(self, state: StateView, now: int, length: int) -> int:
        """Return the master to have; a master without limit in time stays, since its last tuples never go."""
        if isinstance(self.master, int):
            return self.master
        best = _best(state, length, self.nodes)
        less = overhead(state, length, best, self.nodes) < (1 - MARGIN) * overhead(state, length, now, self.nodes)
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


def _best(state: StateView, length: int, nodes: int) -> int:
    """Return the master with the least overhead."""
    return min(range(len(state.streams)), key=lambda master: overhead(state, length, master, nodes))


def _settled(state: StateView, eras: Sequence[Era]) -> bool:
    """Tell whether a change of master is over: nothing is left from before it."""
    old, new = eras[0].master, eras[1]
    latest = state.streams[new.master].latest
    waiting = (c.low for c in state.chunks if c.stream == old or state.streams[c.stream].window is not None)
    return latest is not None and latest >= new.start and all(low >= new.start for low in waiting)
