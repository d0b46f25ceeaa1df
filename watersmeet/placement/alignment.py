"""ATR's placement: the other streams follow the segments of the master.

A tuple of the master is kept by its segment's node, a tuple of another stream by every node whose segments it may join;
a result belongs to the node of the master's tuple in it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.placement.base import Placement
from watersmeet.placement.search import Search
from watersmeet.placement.segments import LOWEST, Era, Leftover
from watersmeet.state.chunk import Bucket
from watersmeet.state.view import ANYWHERE, Ints


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
