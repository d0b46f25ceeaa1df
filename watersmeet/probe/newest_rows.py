"""Tails: the newest rows of what combinations look at in a chunk, where only the newest partner counts.

Most combinations find it among the last few. For those that don't, the search is repeated with longer tails.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.probe.candidates import Path
from watersmeet.probe.chunk_probe import Probe, Times
from watersmeet.query.windows import NEVER
from watersmeet.state.chunks.rows import Rows

AT = "at"
"""What a block notes the positions of its combinations by, so that partners are known to be theirs."""


@dataclass(slots=True)
class Tails:
    """How many rows a search looks at, and what it leaves out.

    Attributes:
        combinations: How many there are.
        rows: How many rows of a run a tail has.
        cut: For each combination, by the position it notes, whether rows were left out.
        beyond: The time of the newest of these.
    """

    combinations: int
    rows: int
    cut: NDArray[np.bool_] = field(init=False)
    beyond: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.cut = np.zeros(self.combinations, bool)
        self.beyond = np.full(self.combinations, NEVER)

    def of(self, path: Path, rows: Rows, times: Times) -> Path:
        """Return the tails of a path's runs up to the latest time asked for; each run must be in rising order of time.

        Args:
            path: The path.
            rows: The rows of its chunk.
            times: The times that each partial result asks for.
        """
        count = _up_to(path, rows.ts, times.high)
        return Path(path.first + np.maximum(count - self.rows, 0), np.minimum(count, self.rows), path.order)

    def leave_out(self, probe: Probe, path: Path, tails: Path, times: Times) -> None:
        """Take note of what the tails of a path leave out that is asked for, in place."""
        some = np.flatnonzero((tails.first > path.first) & (tails.count > 0))
        ts = probe.rows.ts[_rows(path, tails.first[some] - 1)]
        asked = ts >= times.low[some]
        at = probe.block.noted[AT][some[asked]]
        self.cut[at] = True
        self.beyond[at] = np.maximum(self.beyond[at], ts[asked])

    def unsettled(self, newest: Ints) -> NDArray[np.bool_]:
        """Tell which combinations may have a partner among the rows left out that is as new as the newest found."""
        return self.cut & (self.beyond >= newest)


def _up_to(path: Path, ts: Ints, latest: Ints) -> Ints:
    """Return how many rows of each run are not later than a time, by bisection."""
    low, high = path.first.copy(), path.first + path.count
    while (searching := low < high).any():
        middle = (low + high) // 2
        early = (
            ts[_rows(path, np.minimum(middle, len(ts) - 1 if path.order is None else len(path.order) - 1))] <= latest
        )
        low, high = np.where(searching & early, middle + 1, low), np.where(searching & ~early, middle, high)
    return low - path.first


def _rows(path: Path, at: Ints) -> Ints:
    return at if path.order is None else path.order[at].astype(np.int64)
