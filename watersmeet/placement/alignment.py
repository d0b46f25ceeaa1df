"""ATR's layout: the other streams follow the segments of the master.

A tuple of the master is kept by its segment's node, a tuple of another stream by every node whose segments it may join;
a result belongs to the node of the master's tuple in it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, Self

import numpy as np

from watersmeet.arrays import Ints
from watersmeet.cost.diffusion import atr_overhead
from watersmeet.placement.base import Layout, Placement
from watersmeet.placement.segment_search import Search
from watersmeet.placement.segments import LOWEST, Era, Leftover, Run
from watersmeet.placement.strategy_notes import Notes
from watersmeet.state.chunks.chunk import Bucket, Chunk
from watersmeet.state.manifest.view import ANYWHERE, StateView, StoredNotes


@dataclass(frozen=True, slots=True)
class AtrPlacement(Placement):
    """Segments of the master and what follows from them.

    Attributes:
        nodes: How many nodes there are.
        eras: The master's segments; while the master changes, the old one's and then the new one's.
        windows: The window of each stream; None without limit.
        lengths: The longest slice of each stream; a slice ends early where the owners change.
        leftovers: What the first master's tuples are on besides its segments.
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
        """Return starts such that owners are the same all through a slice, so that no tuple has a copy too many."""
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
        """Return the nodes of all segments that a tuple of the slice may join."""
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
        """Return the masters: they say where a result belongs."""
        return tuple(master for master in self.tracked if master != origin)

    def groups(self, origin: int, moment: Ints, times: Mapping[int, Ints]) -> Ints:
        """Return the node of each result, or ANYWHERE while that depends on a master not joined."""
        found = np.full(len(moment), ANYWHERE)
        for era in self.eras:
            known = moment if era.master == origin else times.get(era.master)
            if known is not None:
                found = np.where(found == ANYWHERE, era.hosts(known), found)
        return found

    def visit(self, group: int, target: int, owners: Sequence[int], here: int) -> int:
        """Return where the result belongs; before that is known the home, which is the node of a master's segment."""
        if group == ANYWHERE:
            return owners[0]
        return here if here in owners else group if group in owners else owners[0]

    def stays_after(self) -> int | None:
        """Return how many masters there are: once they are joined, the rest of the result is there."""
        return len(self.eras)


class Aim(NamedTuple):
    """What the options ask for: a segment length, and whether to look for a better one."""

    length: int
    search: bool


@dataclass(frozen=True, slots=True)
class AtrNotes(Notes):
    """The segments that a tuple kept by now may depend on.

    Attributes:
        nodes: How many nodes there were.
        end: Where the segments end.
        eras: The segments.
        aim: What was aimed at when they were planned.
        search: Where the search for a segment length stands.
    """

    nodes: int
    end: int
    eras: tuple[Era, ...]
    aim: Aim
    search: Search

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the notes from their fields."""
        eras = (
            Era(master, start, tuple(Run(at, length, tuple(nodes)) for at, length, nodes in runs))
            for master, start, runs in plain["eras"]
        )
        return cls(plain["nodes"], plain["end"], tuple(eras), Aim(*plain["aim"]), Search(*plain["search"]))


@dataclass(frozen=True, slots=True)
class AtrLayout(Layout[AtrPlacement]):
    """Segments for a batch.

    Attributes:
        search: Where the search for a segment length stands.
        aim: What is aimed at.
        settled: Where the segments ended that tuples depended on before the batch; LOWEST if there were none.
    """

    search: Search
    aim: Aim
    settled: int = LOWEST

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
        """Return all segments that a tuple kept by now may depend on, as this batch had them."""
        latest, planned = after.latest, self.placement.eras
        if latest is None:
            return StoredNotes()
        reach = latest + after.reach
        ends = [era.end_of(reach) for era in planned if era.start <= reach]
        end = max(ends[-1], self.settled)
        bounded = (chunk.low for chunk in after.chunks if after.streams[chunk.stream].window is not None)
        low = min(bounded, default=latest) - after.reach
        # An era that is over keeps its last segment: tuples from before the change may still come.
        lows = (*(min(low, era.start - 1) for era in planned[1:]), low)
        eras = tuple(era.kept(at, end) for era, at in zip(planned, lows, strict=True) if era.start < end)
        return AtrNotes(self.placement.nodes, end, eras, self.aim, self.search).kept()


def overhead(state: StateView, length: int, master: int, nodes: int) -> float:
    """Return the extra tuples a second that a master makes others keep, by equation 2."""
    rates = [stream.rate for stream in state.streams]
    windows = [math.inf if stream.window is None else stream.window for stream in state.streams]
    return atr_overhead(rates if any(rates) else [1.0] * len(rates), windows, length, master, nodes)


# -- after another strategy


def leftovers(state: StateView, era: Era, nodes: int) -> tuple[Leftover, ...]:
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


def holders(chunk: Chunk, placement: AtrPlacement) -> tuple[int, ...]:
    """Return the owners of a chunk of an earlier strategy or number of nodes: of the master's, its home alone."""
    home = chunk.owners[0] % placement.nodes
    eras = placement.eras
    if chunk.stream == eras[0].master and (len(eras) == 1 or chunk.high < eras[1].start):
        return (home,)
    needed = placement.needed(chunk.stream, chunk.low, chunk.high)
    return tuple(dict.fromkeys((home, *needed))) if home in needed else needed
