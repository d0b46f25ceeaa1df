"""ATR's layout: the other streams follow the segments of the master.

The master's tuples are kept by their segment's node; a tuple of another stream by every node whose segments it may
join. A result belongs to the node of the master's tuple in it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, Self

import numpy as np

from watersmeet.arrays import Ints
from watersmeet.cost.equations import atr_overhead
from watersmeet.placement.base import Layout, Notes, Owners, Placement
from watersmeet.placement.segments import LOWEST, Era, Leftover, SegmentRun, SegmentSearch
from watersmeet.state.chunks.chunk import Bucket, Chunk
from watersmeet.state.manifest.view import ANYWHERE, StateView, StoredNotes


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
    """Return the owners of a chunk of an earlier strategy or number of nodes; the master's keep only their home."""
    home = chunk.owners[0] % placement.nodes
    eras = placement.eras
    if chunk.stream == eras[0].master and (len(eras) == 1 or chunk.high < eras[1].start):
        return (home,)
    nodes = placement.nodes_between(chunk.stream, chunk.low, chunk.high)
    return tuple(dict.fromkeys((home, *nodes))) if home in nodes else nodes
