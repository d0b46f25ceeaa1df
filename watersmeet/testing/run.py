"""Drives a join without Spark: the same plan, intake, probe and commit, task by task, in one process."""

import uuid
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from watersmeet.engine.operator import Operator
from watersmeet.engine.plan import GIVEN, BatchPlan
from watersmeet.engine.report import TaskReport
from watersmeet.errors import StateError
from watersmeet.exchange.stages import hops, inline
from watersmeet.exchange.tasks import CONTENT, STREAM
from watersmeet.model.query import Query
from watersmeet.ordering import Ordering
from watersmeet.placement import Strategy
from watersmeet.runtime.enact import Runtime
from watersmeet.runtime.protocol import Offered, Protocol, Publish, Published, Ran, Retract
from watersmeet.runtime.protocol import Run as RunJobs
from watersmeet.runtime.tree import Job, JoinTree
from watersmeet.state import manifest as manifests
from watersmeet.state.store import Store
from watersmeet.testing.stages import Here

TASKS = 2
Rows = Sequence[tuple[int, Mapping[str, Any]]]


def content_key(row: Mapping[str, Any]) -> int:
    """Return a hash of a row's content; the oracle is given the same as its order of arrival."""
    return zlib.crc32(repr(sorted(row.items())).encode())


@dataclass
class Run(Runtime):
    """The state of a join and everything it has emitted.

    Attributes:
        query: The join.
        store: Where its state is kept.
        results: How often each result was emitted: the ids of its members, and its time.
        progress: What each batch did.
        batch: The last batch.
        name: Unique to the run.
        sides: The rows of side outputs, by kind and stream, each with its batch.
        steady: Whether one start runs all batches; if not, each is run as if it were the first after a restart.
        purge_every: See `Operator`.
        remember: See `Operator`.
    """

    query: Query
    store: Store
    results: Counter[Any] = field(default_factory=Counter)
    progress: list[Mapping[str, Any]] = field(default_factory=list)
    batch: int = -1
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    sides: dict[tuple[str, str], list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    steady: bool = False
    purge_every: int = 1
    remember: int | None = None
    _protocol: Protocol | None = None
    _arrivals: Rows = ()
    _exchange: str = "local"

    def step(
        self,
        strategy: Strategy,
        arrivals: Rows,
        exchange: str = "local",
        ordering: Ordering = GIVEN,
        now: int | None = None,
    ) -> None:
        """Run one batch of (stream, row), committing through the stored manifest."""
        upkeep: dict[str, Any] = {"purge_every": self.purge_every, "remember": self.remember}
        tree = JoinTree(Operator(self.query, strategy, self.store, self.name, ordering, sides=True, **upkeep))
        before = tree.start() if self.batch < 0 else manifests.load(self.store, self.batch)
        if before is None:
            raise StateError(f"There is no manifest of batch {self.batch}.")
        if self._protocol is None or not self.steady:
            self._protocol = Protocol(tree, before, exchange=exchange)
        protocol = self._protocol
        protocol.tree, protocol.exchange = tree, exchange
        self._arrivals, self._exchange = arrivals, exchange
        self.offer(protocol, Offered(self.batch + 1, (now or 0) / 1e6, now))
        self.batch += 1
        self.progress.append(protocol.state.progress)

    def run(self, action: RunJobs) -> Ran:
        """Run the one join there is, task by task."""
        return Ran({path: Job(self.exchanged(plan)) for path, plan in action.plans.items()})

    def exchanged(self, plan: BatchPlan) -> list[TaskReport]:
        """Run the batch's job, its rows read by two tasks in turn."""
        given = Here([[blocks(self.query, self._arrivals[task::TASKS])] for task in range(TASKS)])
        if self._exchange == "shuffle":
            return hops(given, plan)
        return inline(given, plan, {1: 1, 2: 3}.get(plan.placement.nodes, TASKS))  # as many as nodes, more, or fewer

    def publish(self, action: Publish) -> Published:
        """Note the results, and the rows of side outputs by kind and stream."""
        for file in action.files:
            for rows in self._read(file).to_batches():
                self.add(rows)
        for kind, found in action.sides.items():
            for stream, files in found.items():
                told = self.sides.setdefault((kind, stream), [])
                told += [(action.batch, row) for file in files for row in _plain(self._read(file)).to_pylist()]
        self.store.remove(action.written)
        return Published()

    def _read(self, file: str) -> pa.Table:
        return pq.read_table(pa.BufferReader(self.store.read(file)))

    def retract(self, action: Retract) -> None:
        """Refuse a batch that was done already."""
        raise StateError(f"Batch {action.batch} has a manifest already.")

    def add(self, rows: pa.RecordBatch) -> None:
        """Note results by the ids of their members and their time; those of a SELECT list aren't."""
        if self.query.outputs:
            return
        ids = [pc.struct_field(rows.column(stream.name), "id").to_pylist() for stream in self.query.streams]
        times = rows.column("_time").cast(pa.int64()).to_pylist()
        self.results.update(zip(zip(*ids, strict=True), times, strict=True))


def _plain(rows: pa.Table) -> pa.Table:
    """Return rows with timestamps in microseconds: Python has no dates as far off as they may be."""
    kinds = [pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in rows.schema]
    return rows.cast(pa.schema(zip(rows.schema.names, kinds, strict=True)))


def blocks(query: Query, arrivals: Rows) -> pa.RecordBatch:
    """Return (stream, row) pairs as tasks read them: the stream, its columns by generated name, a content hash."""
    arrays: dict[str, pa.Array] = {STREAM: pa.array([stream for stream, _ in arrivals], pa.int8())}
    for stream, spec in enumerate(query.streams):
        mine = [row if at == stream else {} for at, row in arrivals]
        for at, column in enumerate(spec.schema):
            values = pa.array([row.get(column.name) for row in mine], pa.int64() if at == spec.time else column.type)
            arrays[f"s{stream}_{at}"] = values.cast(column.type)
    arrays[CONTENT] = pa.array([content_key(row) for _, row in arrivals], pa.int64())
    return pa.record_batch(arrays)
