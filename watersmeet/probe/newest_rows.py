"""Tails: the newest rows among those that combinations look at in a chunk, if only the newest partner counts.

Most combinations find it among the last few. For the others, the search is repeated with longer tails.
"""

from dataclasses import dataclass, field

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.probe.candidates import AccessPath
from watersmeet.probe.chunk_probe import Probe, Times
from watersmeet.query.windows import NEVER
from watersmeet.state.chunks.rows import Rows

AT = "at"
"""The tag with the positions of combinations in their block, which assigns partners to them."""


@dataclass(slots=True)
class Tails:
    """The length of tails, and what they have left out of a search.

    Attributes:
        combinations: How many combinations there are.
        rows: How many rows of a run a tail has.
        incomplete: For each combination, by its position, whether rows were left out.
        beyond: The time of the newest of these rows.
    """

    combinations: int
    rows: int
    incomplete: Mask = field(init=False)
    beyond: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.incomplete = np.zeros(self.combinations, bool)
        self.beyond = np.full(self.combinations, NEVER)

    def of(self, path: AccessPath, rows: Rows, times: Times) -> AccessPath:
        """Return the tails of a path's runs up to the latest time looked for; runs must be in rising order of time.

        Args:
            path: The path.
            rows: The rows of its chunk.
            times: The times that each partial result looks for.
        """
        count = _up_to(path, rows.ts, times.high)
        return AccessPath(path.first + np.maximum(count - self.rows, 0), np.minimum(count, self.rows), path.order)

    def leave_out(self, probe: Probe, path: AccessPath, tails: AccessPath, times: Times) -> None:
        """Record which rows within `times` the tails of a path leave out."""
        nonempty = np.flatnonzero((tails.first > path.first) & (tails.count > 0))
        ts = probe.rows.ts[_rows(path, tails.first[nonempty] - 1)]
        is_wanted = ts >= times.low[nonempty]
        at = probe.block.tags[AT][nonempty[is_wanted]]
        self.incomplete[at] = True
        self.beyond[at] = np.maximum(self.beyond[at], ts[is_wanted])

    def unsettled(self, newest: Ints) -> Mask:
        """Return which combinations may have a partner among the rows left out that is as new as the newest one."""
        return self.incomplete & (self.beyond >= newest)


def _up_to(path: AccessPath, ts: Ints, latest: Ints) -> Ints:
    """Return how many rows of each run are not later than a time, by bisection."""
    low, high = path.first.copy(), path.first + path.count
    while (searching := low < high).any():
        middle = (low + high) // 2
        early = (
            ts[_rows(path, np.minimum(middle, len(ts) - 1 if path.order is None else len(path.order) - 1))] <= latest
        )
        low, high = np.where(searching & early, middle + 1, low), np.where(searching & ~early, middle, high)
    return low - path.first


def _rows(path: AccessPath, at: Ints) -> Ints:
    return at if path.order is None else path.order[at].astype(np.int64)
