"""A checkpoint as a query leaves it, made without Spark, by a clock that is told what time it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.placement import PSP, Strategy
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding, Window
from watersmeet.runtime.commit_protocol import BatchOffered, JobsFinished, Publish, ResultsPublished, RunJobs
from watersmeet.state.manifest.claim import claim
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64())])
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
WHERE = "abs(a.x - b.x) < 2"


@dataclass
class Timed(Run):
    """A join whose batches take some time, by a clock of their own.

    Attributes:
        clock: Seconds since the epoch.
        took: What a batch takes.
        due: What it may take.
    """

    clock: float = START / SECOND
    took: float = 0.5
    due: float | None = 1.0

    def run(self, action: RunJobs) -> JobsFinished:
        finished = super().run(action)
        return JobsFinished(finished.jobs, self.clock + self.took * 0.1, self.clock + self.took * 0.8)

    def publish(self, action: Publish) -> ResultsPublished:
        super().publish(action)
        return ResultsPublished(self.clock + self.took, self.clock + self.took)

    def bring(self, rows: list[tuple[int, dict[str, Any]]], strategy: Strategy | None = None) -> None:
        """Run the next batch, two seconds after the one before."""
        self.clock += 2
        protocol = self._prepare(strategy or PSP(nodes=2), "local", GIVEN_ORDER)
        protocol.due = self.due
        self._arrivals = {protocol.tree.path: rows}
        self._offer(protocol, BatchOffered(protocol.state.offered + 1, self.clock, int(self.clock * SECOND)))


def query(where: str = WHERE, windows: tuple[Window, ...] = (Sliding(10 * SECOND),) * 2, names: str = "ab") -> Query:
    pairs = zip(names, windows, strict=True)
    streams = tuple(StreamSpec(name, SCHEMA, 1, window, delay=SECOND) for name, window in pairs)
    return Query(streams, parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect()), where)


def recorded(folder: Path, batches: int = 6, **options: Any) -> Timed:
    """Make a checkpoint: ten rows of each stream a batch, `b` three seconds behind; a late row in the last batch."""
    join = query(**options)
    store = Store(f"{folder}/watersmeet")
    claim(store, join.description())
    run = Timed(join, store, steady=True, near_misses=2)
    for batch in range(batches):
        now = int(run.clock * SECOND) + 2 * SECOND
        behind = (0, 3 * SECOND)
        rows = [
            (at, {"id": 100 * batch + n, "ts": now - behind[at] - n * SECOND // 10, "x": float(n)})
            for at in range(2)
            for n in range(10)
        ]
        if batch == batches - 1 and batches > 1:
            rows.append((0, {"id": -1, "ts": START - 100 * SECOND, "x": 0.0}))
        run.bring(rows)
    return run
