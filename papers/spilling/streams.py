"""Streams with the thesis' join ratios: of each join's partitions a third joins once, a third more often, and so on.

Jbantova, section 5.2 and table 5.1, which give the ratios alone (D1: 1, 2, 3; D2: 1, 2, 4). Each join has a pool of
values for each window in each of its partitions, so few that a value comes as often as the partition's ratio says.
Values of a column that a join further up compares are drawn from that join's pool: of each partition some share goes to
one partition there and the rest anywhere, so that, as in table 5.2, most pairs of partitions are hardly correlated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from papers.spilling.plans import STREAM, TREES, Key, Shape, joins_of, leaves
from watersmeet.arrays import Ints
from watersmeet.predicate.numbers import bucket
from watersmeet.workload.tuples import SECOND, START, arrivals

VALUES = 150_000


@dataclass(frozen=True, slots=True)
class Setting:
    """What the streams of a run are like.

    Attributes:
        ratios: The join ratios of the thirds of partitions.
        fast: Milliseconds between two tuples of a stream in fast phases.
        slow: The same in slow ones.
        phase: Seconds of a phase; fast and slow ones take turns, a fast one first.
        phases: How many there are.
        size: Seconds of a window.
        step: Seconds from one window's start to the next one's.
        partitions: Into how many partitions each join is cut.
        correlated: The share of a partition's tuples that go to one and the same partition further up, of the partition
            of which most do; of the others, evenly less, down to none.
    """

    ratios: tuple[int, ...]
    fast: float
    slow: float = 6000.0
    phase: float = 240.0
    phases: int = 3
    size: float = 60.0
    step: float = 80.0
    partitions: int = 12
    correlated: float = 0.7

    @property
    def seconds(self) -> float:
        return self.phase * self.phases


def streams(shape: Shape, setting: Setting, seed: int) -> dict[str, pa.Table]:
    """Return all streams of a run, each in the order of time."""
    dice = np.random.default_rng(seed)
    pools = {join.path: _Pools(setting, dice) for join in joins_of(shape)}
    asks = {key: pools[join.path] for join in joins_of(shape) for key in join.keys}
    tables = {}
    for name in leaves(TREES[shape]):
        times = _times(setting, dice)
        own = dice.integers(0, setting.partitions, len(times))
        columns = {"id": np.arange(len(times)), "ts": times, "x": asks[Key(name, "x")].values(times, own, dice)}
        above = asks.get(Key(name, "y"))
        columns["y"] = np.zeros_like(times) if above is None else above.values(times, above.fed_by(own, dice), dice)
        tables[name] = pa.table({name: pa.array(values) for name, values in columns.items()}).cast(STREAM)
    return tables


def _times(setting: Setting, dice: np.random.Generator) -> Ints:
    """Return when the tuples of a stream come."""
    length = round(setting.phase * SECOND)
    rates = [1000 / (setting.slow if at % 2 else setting.fast) for at in range(setting.phases)]
    times = [arrivals(rate, setting.phase, dice, START + at * length) for at, rate in enumerate(rates)]
    return np.unique(np.concatenate(times))


class _Pools:
    """The values that tuples of a join may have, window by window and partition by partition."""

    def __init__(self, setting: Setting, dice: np.random.Generator) -> None:
        self._setting, parts = setting, setting.partitions
        partitions = bucket(pa.array(np.arange(1, VALUES + 1)), parts)
        values = [dice.permutation(np.flatnonzero(partitions == at) + 1) for at in range(parts)]
        self._values = np.array([some[: min(map(len, values))] for some in values])
        self._ratios = np.array(setting.ratios)[np.arange(parts) * len(setting.ratios) // parts]
        self._above, self._shares = dice.permutation(parts), dice.permutation(np.linspace(0, 1, parts))

    def values(self, times: Ints, partitions: Ints, dice: np.random.Generator) -> Ints:
        """Return a value of each tuple's window in a partition: each comes as often as the partition's ratio says."""
        setting = self._setting
        window = (times - START) // round(setting.step * SECOND)
        fast = (times - START) // round(setting.phase * SECOND) % 2 == 0
        tuples = 1000 * setting.size / np.where(fast, setting.fast, setting.slow)
        sizes = np.maximum(1, np.round(tuples / setting.partitions / self._ratios[partitions])).astype(np.int64)
        most = int(1000 * setting.size / setting.fast) + 1
        which = window * most + (dice.random(len(times)) * sizes).astype(np.int64)
        picks: Ints = self._values[partitions, which % self._values.shape[1]]
        return picks

    def fed_by(self, below: Ints, dice: np.random.Generator) -> Ints:
        """Return the partitions of tuples that are in some partitions of a join further down."""
        parts, most = self._setting.partitions, self._setting.correlated
        follows = dice.random(len(below)) < self._shares[below] * most
        return np.where(follows, self._above[below], dice.integers(0, parts, len(below)))
