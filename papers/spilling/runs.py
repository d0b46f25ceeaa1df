"""One run of a plan of joins under a limit of memory, by a clock of its own: what it puts out, spills and purges.

There is no Spark, and no clock but the stream's: a batch holds some seconds of stream time and is offered when they are
over. How long it takes does not count, so that a run depends on its seed alone.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from papers.spilling.plans import Shape, joins_of, queries
from papers.spilling.streams import Setting, streams
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.exchange.exchanges import run_local
from watersmeet.exchange.message import Attempt
from watersmeet.ordering import Ordering
from watersmeet.placement import Hash, Strategy
from watersmeet.query.windows import Hopping
from watersmeet.runtime.commit_protocol import Protocol
from watersmeet.spilling.controller import Controller
from watersmeet.spilling.options import Spill
from watersmeet.state.chunks.chunk import HOT
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Here, Rows, Run, attempt, blocks
from watersmeet.workload.tuples import SECOND, START

Measure = Literal["results", "spilled", "unspilled", "purged"]
MEASURES: tuple[Measure, ...] = ("results", "spilled", "unspilled", "purged")
CEILING = "no limit"
"""The name of runs without a limit."""
OLDEST = "1 day"
"""Debts of that age are paid, whatever the policy; longer than a run, as the thesis has nothing of the kind."""
NODE = Hash(1)
PARTITIONS = 32
"""About how many the thesis has."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run.

    Attributes:
        shape: The plan.
        setting: The streams.
        seed: What chance goes by.
        policy: What is spilled first; `CEILING` for nothing.
        interval: Units come back no more often than this, in seconds.
        correlation: A parent follows a child from which it gets at least this share, of as many partitions as the
            thesis has; of fewer, each gets more.
        batch: Seconds of stream time in a batch.
        limit: What may be hot, as a share of the most bytes that the same run takes without a limit.
    """

    shape: Shape
    setting: Setting
    seed: int
    policy: str = CEILING
    interval: float = 120.0
    correlation: float = 0.1
    batch: float = 10.0
    limit: float = 0.5

    @property
    def ceiling(self) -> Case:
        """The same without a limit."""
        return Case(self.shape, self.setting, self.seed, batch=self.batch)

    @property
    def batches(self) -> int:
        return round(self.setting.seconds / self.batch)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        series: By measure, how much there was in all after each batch.
        peak: The most bytes that hot state took.
        end: How many results there are once all that is owed is paid, and a checksum of them.
    """

    series: Mapping[Measure, NDArray[np.int64]]
    peak: int
    end: tuple[int, int]

    def total(self, measure: Measure) -> int:
        """Return how much there was at the end of the run, before what was owed then was paid."""
        return int(self.series[measure][-1])


class _Stages(Here):
    """Stages that watch no partial results."""

    def _attempt(self, at: int, counts: Counter[Any]) -> Attempt:
        return attempt(at, f"s{self._number}p{at}")


@dataclass
class PlanRun(Run):
    """The state of a plan; of its results there is a checksum.

    Attributes:
        checksum: The number of results, and a sum of their hashes.
    """

    checksum: tuple[int, int] = (0, 0)

    def _prepare(self, strategy: Strategy, exchange: str, ordering: Ordering) -> Protocol:
        return self._protocol or super()._prepare(strategy, exchange, ordering)

    def exchanged(self, plan: BatchPlan, rows: Rows) -> list[TaskReport]:
        """Run the batch's job in one task."""
        return run_local(_Stages([[blocks(plan.query, rows, bool(plan.spilling.traced))]]), plan, 1)

    def add(self, rows: pa.RecordBatch) -> None:
        """Count results, whatever their order."""
        mixed = np.zeros(len(rows), np.uint64)
        for name in rows.schema.names:
            if name.endswith("_id"):
                mixed = (mixed ^ rows.column(name).to_numpy().astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= mixed >> np.uint64(29)
        count, summed = self.checksum
        self.checksum = count + len(rows), (summed + int(mixed.sum(dtype=np.uint64))) % 2**64


@dataclass
class _Spilled:
    """Counts tuples as they become cold and cease to be.

    Attributes:
        spilled: How many rows became part of a cold unit.
        unspilled: How many were part of one that is no more: it was read, paid, and came back or went for good.
    """

    spilled: int = 0
    unspilled: int = 0
    _cold: dict[tuple[str, int], int] = field(default_factory=dict)

    def note(self, state: Manifest) -> None:
        """Take in the state after a batch."""
        now: Counter[tuple[str, int]] = Counter()
        for path, own in _states("j", state):
            for chunk in own.chunks.values():
                if chunk.unit != HOT:
                    now[path, chunk.unit] += chunk.rows
        self.spilled += sum(max(0, rows - self._cold.get(unit, 0)) for unit, rows in now.items())
        self.unspilled += sum(max(0, rows - now.get(unit, 0)) for unit, rows in self._cold.items())
        self._cold = dict(now)


def _states(path: str, state: Manifest) -> Iterator[tuple[str, Manifest]]:
    yield path, state
    for at, inner in state.inner.items():
        yield from _states(f"{path}_{at}", inner)


def run(case: Case, peak: int | None = None) -> Outcome:
    """Run a case.

    Args:
        case: The case.
        peak: The most bytes that it takes without a limit; None if this is the run without.
    """
    feed = _Feed(case)
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
        plan = _plan_run(case, folder, peak)
        series = np.zeros((len(MEASURES), case.batches), np.int64)
        spilled, most, purged = _Spilled(), 0, 0
        for batch in range(case.batches):
            rows = feed.rows(batch)
            plan.step(NODE, rows.pop("j", []), now=feed.end(batch), within=rows)
            progress = plan.progress.pop()
            assert plan.state is not None
            spilled.note(plan.state)
            most, purged = max(most, progress["spilling"]["hotBytes"]), purged + _purged(progress)
            series[:, batch] = plan.checksum[0], spilled.spilled, spilled.unspilled, purged
        while plan.run_round(NODE, all=True, now=feed.end(case.batches)):
            plan.progress.clear()
    return Outcome(dict(zip(MEASURES, series, strict=True)), most, plan.checksum)


def _plan_run(case: Case, folder: str, peak: int | None) -> PlanRun:
    setting = case.setting
    joins = queries(case.shape, Hopping(round(setting.size * SECOND), round(setting.step * SECOND)))
    policy = "random" if peak is None else case.policy
    spill = Spill(
        memory="1 TB" if peak is None else max(1, round(case.limit * peak)),
        policy=policy,
        partitions=setting.partitions,
        interval=f"{case.interval:g} seconds",
        correlation=min(1.0, case.correlation * PARTITIONS / setting.partitions),
        oldest=OLDEST,
    )
    return PlanRun(
        joins.pop("j"),
        Store(folder),
        inner=joins,
        steady=True,
        partitions=setting.partitions,
        spilling=Controller(spill, str(case.seed)),
        traced=True,
    )


def _purged(progress: Mapping[str, Any]) -> int:
    """Return how many rows left, in all joins."""
    return int(progress["purgedRows"]) + sum(map(_purged, progress.get("inner", {}).values()))


class _Feed:
    """The rows of each batch, as a run takes them."""

    def __init__(self, case: Case) -> None:
        self._length = round(case.batch * SECOND)
        self._homes = {side: (join.path, at) for join in joins_of(case.shape) for at, side in enumerate(join.sides)}
        self._rows, self._cuts = {}, {}
        for name, table in streams(case.shape, case.setting, case.seed).items():
            times = table.column("ts").cast(pa.int64())
            self._rows[name] = table.set_column(1, "ts", times)
            ends = [self.end(batch) for batch in range(-1, case.batches)]
            self._cuts[name] = np.searchsorted(times.to_numpy(), ends)

    def end(self, batch: int) -> int:
        """Return when a batch is offered."""
        return START + (batch + 1) * self._length

    def rows(self, batch: int) -> dict[str, list[tuple[int, dict[str, Any]]]]:
        """Return a batch's rows by the join's path, each with its stream's position."""
        rows: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for name, table in self._rows.items():
            path, at = self._homes[name]
            first, end = self._cuts[name][batch : batch + 2]
            rows.setdefault(path, []).extend((at, row) for row in table.slice(first, end - first).to_pylist())
        return rows
