"""Runs joins without Spark: the same plan, intake, probe and commit, task by task, in one process."""

import random
import time
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from watersmeet.batch.operator import Operator
from watersmeet.batch.plan import GIVEN_ORDER, BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.batch.worker import Worker
from watersmeet.errors import StateError
from watersmeet.exchange.exchanges import Stage, run_local, run_ring, run_shuffle
from watersmeet.exchange.message import Attempt, Task
from watersmeet.exchange.tasks import CONTENT, STREAM, TRACED, join_share, take_in
from watersmeet.ordering import Ordering
from watersmeet.placement import Strategy
from watersmeet.probe.partials import Partials
from watersmeet.query.query import TRACE_TYPE, Query, Tracing
from watersmeet.runtime.commit_protocol import (
    BatchOffered,
    JobsFinished,
    Protocol,
    Publish,
    QuietPeriod,
    ResultsPublished,
    Retract,
    RunJobs,
)
from watersmeet.runtime.enact import Runtime
from watersmeet.runtime.tree import Job, JoinTree, inherit
from watersmeet.spilling.interface import Spilling
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest import rounds
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store

WORKER = Worker(time.perf_counter)


class Here(Stage):
    """Blocks in this process.

    Args:
        partitions: The blocks of each partition.
        number: The number of the stage within its job.
    """

    def __init__(self, partitions: Sequence[list[pa.RecordBatch]], number: int = 0) -> None:
        self._partitions, self._number = partitions, number

    def run(self, task: Task, schema: pa.Schema) -> Self:
        """Run a task over each partition, and return the next stage, which holds the output.

        Asserts that each hop finds every partial result on exactly one node.
        """
        counts: Counter[Any] = Counter()
        output = [list(task(self._attempt(at, counts), blocks)) for at, blocks in enumerate(self._partitions)]
        twice = [members for members, times in counts.items() if times > 1]
        assert not twice, f"found on more than one node: {twice[:3]}"
        assert all(block.schema == schema for blocks in output for block in blocks)
        return type(self)(output, self._number + 1)

    def _attempt(self, at: int, counts: Counter[Any]) -> Attempt:
        """Return a task attempt of this stage, which adds the partial results that it ships to `counts`."""

        def watch(course: int, partials: Partials) -> None:
            streams = sorted(partials.rows)
            members = zip(*(partials.rows[s] for s in streams), strict=True)
            counts.update((course, tuple(streams), *refs) for refs in members)

        return attempt(at, f"s{self._number}p{at}", watch)

    def partition_by_node(self, partitions: int) -> Self:
        """See `Stage`."""
        blocks = [(block, block.column("node").to_numpy()) for block in self.collect()]
        parts = [[block.filter(pa.array(nodes == at)) for block, nodes in blocks] for at in range(partitions)]
        return type(self)(parts, self._number)

    def collect(self) -> list[pa.RecordBatch]:
        """Return the blocks of all partitions."""
        return [block for blocks in self._partitions for block in blocks]


def attempt(
    partition: int = 0, name: str = "here", watch: Callable[[int, Partials], None] = lambda course, partials: None
) -> Attempt:
    """Return a task attempt in this process."""
    return Attempt(partition, name, partition, WORKER, time.process_time, time.time, watch)


class Loop:
    """The links of a ring in one process; frames of different links arrive in any order, by dice."""

    def __init__(self, dice: random.Random) -> None:
        self._dice, self._frames = dice, dict[int, deque[bytes]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def send(self, node: int, frame: bytes) -> None:
        """Send a frame to a node, which has one neighbour that does."""
        self._frames.setdefault(node, deque()).append(frame)

    def receive(self) -> tuple[int, bytes]:
        """Return the next frame of some link."""
        node = self._dice.choice([node for node, frames in self._frames.items() if frames])
        return node, self._frames[node].popleft()


TASKS = 2
Rows = Sequence[tuple[int, Mapping[str, Any]]]


def content_key(row: Mapping[str, Any]) -> int:
    """Return a hash of a row's content, by which the oracle orders arrivals too."""
    return zlib.crc32(repr(sorted(row.items())).encode())


@dataclass
class Run(Runtime):
    """A running join: its state and everything it has emitted. Its streams may be joins with flat output columns.

    Attributes:
        query: The join.
        store: Holds its state.
        results: How often each result was emitted: the ids of its members, and its time.
        progress: The progress of each batch.
        batch: The last batch.
        name: Unique to the run.
        sides: The rows of side outputs, by kind and stream, each with its batch.
        steady: Whether all batches run in one start of the query; if not, each is the first after a restart.
        purge_every: See `Operator`.
        remember: See `Operator`.
        near_misses: See `Operator`.
        samples: See `Operator`.
        spilling: Decides what is spilled and paid; None if the join never spills.
        partitions: See `Operator`.
        inner: The inner joins, by path: `j_0` is its first stream, `j_0_1` the second stream of that.
        traced: Whether tasks count by groups of chunks, and inner results carry the groups that they came from.
        within: The output of each inner join: the batch, and the row.
        state: The state after the last batch.
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
    near_misses: int = 0
    samples: frozenset[str] | None = None
    spilling: Spilling | None = None
    partitions: int = 1
    inner: Mapping[str, Query] = field(default_factory=dict)
    traced: bool = False
    within: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    state: Manifest | None = None
    _protocol: Protocol | None = None
    _arrivals: Mapping[str, Rows] = field(default_factory=dict)
    _exchange: str = "local"

    def step(
        self,
        strategy: Strategy,
        arrivals: Rows,
        exchange: str = "local",
        ordering: Ordering = GIVEN_ORDER,
        now: int | None = None,
        within: Mapping[str, Rows] | None = None,
    ) -> None:
        """Run and commit one batch of (stream, row) pairs, and record what it emits.

        `within` has the pairs of inner joins, by path. `now` is the driver's clock, in microseconds; with None no event
        time is too far ahead.
        """
        protocol = self._prepare(strategy, exchange, ordering)
        self._arrivals = {**(within or {}), protocol.tree.path: arrivals}
        rows = any(self._arrivals.values())
        self._offer(protocol, BatchOffered(protocol.state.offered + 1, (now or 0) / 1e6, now, rows=rows))

    def run_round(
        self,
        strategy: Strategy,
        exchange: str = "local",
        ordering: Ordering = GIVEN_ORDER,
        all: bool = False,
        now: int = 0,
    ) -> bool:
        """Run a round, which makes owed probes, with `all` every one; return whether there was one to run.

        `now` is the driver's clock, in microseconds.
        """
        protocol = self._prepare(strategy, exchange, ordering)
        self._arrivals = {}
        return self._offer(protocol, QuietPeriod(now / 1e6, all))

    def finish(self, strategy: Strategy, exchange: str = "local", ordering: Ordering = GIVEN_ORDER) -> bool:
        """Make all owed probes and close everything for good; return whether there was anything to do."""
        self._arrivals, rounds = {}, 0
        while self._offer(self._prepare(strategy, exchange, ordering), QuietPeriod(final=True)):
            rounds += 1
        return rounds > 0

    def _prepare(self, strategy: Strategy, exchange: str, ordering: Ordering) -> Protocol:
        """Return the protocol, with this strategy, exchange and order, in the state that the store holds.

        It is a new one, or always the same if the run is steady.

        Raises:
            StateError: If the manifest of the last batch is missing.
        """
        tree = self._tree("j", strategy, ordering)
        before = tree.start() if self.batch < 0 else manifests.load(self.store, self.batch)
        if before is None:
            raise StateError(f"There is no manifest of batch {self.batch}.")
        if self._protocol is None or not self.steady:
            self._protocol = Protocol(tree, before, spilling=self.spilling)
            self._protocol.begun = rounds.read_intent(self.store, self.batch + 1)
        protocol = self._protocol
        protocol.tree, protocol.exchange, self._exchange = tree, exchange, exchange
        return protocol

    def _offer(self, protocol: Protocol, event: BatchOffered | QuietPeriod) -> bool:
        """Offer a batch or a round; record its state and progress, and return whether it ran."""
        self.offer(protocol, event)
        if protocol.state.batch == self.batch:
            return False
        self.batch = protocol.state.batch
        self.state = protocol.state
        self.progress.append(protocol.state.progress)
        return True

    def _tree(self, path: str, strategy: Strategy, ordering: Ordering) -> JoinTree:
        """Return the tree of a join and its inner joins, with their operators."""
        inner = {at: self._tree(f"{path}_{at}", strategy, ordering) for at in self._inner_positions(path)}
        tracing: Tracing = "none" if not self.traced else "results" if path in self.inner else "pending"
        query = replace(self.inner.get(path, self.query), tracing=tracing)
        own = (query, strategy, self.store, f"{self.name}{path}", ordering)
        join = Operator(*own, sides=True, purge_every=self.purge_every, remember=self.remember, tallies=self.traced)
        join = replace(join, samples=self.samples, near_misses=self.near_misses)
        if self.spilling is not None:
            join = replace(join, exempt=frozenset(inner), tallies=True, partitions=self.partitions)
        return JoinTree(join, inner, path)

    def _inner_positions(self, path: str) -> list[int]:
        """Return the positions of a join's streams that are joins."""
        streams = self.inner.get(path, self.query).streams
        return [at for at in range(len(streams)) if f"{path}_{at}" in self.inner]

    def run(self, action: RunJobs) -> JobsFinished:
        """Run the jobs task by task, those of inner joins first, whose results are also kept in `within`."""
        jobs: dict[str, Job] = {}
        for path, plan in action.plans.items():
            inner = {at: jobs[f"{path}_{at}"] for at in self._inner_positions(path)}
            results = [(at, row) for at, job in inner.items() for row in self._rows(job, self.inner[f"{path}_{at}"])]
            rows = [*self._arrivals.get(path, ()), *results]
            jobs[path] = Job(self.exchanged(inherit(plan, inner), rows))
            if path in self.inner:
                output = [(plan.batch, without_trace(row)) for row in self._rows(jobs[path], self.inner[path])]
                self.within.setdefault(path, []).extend(output)
        return JobsFinished(jobs)

    def _rows(self, job: Job, query: Query) -> list[dict[str, Any]]:
        """Return the results of a join's job, with their traces if they are traced."""
        read = [row for file in job.files for row in _to_plain_rows(self._read(file)).to_pylist()]
        names = [*([TRACED] if self.traced else []), *query.output_schema.names]
        return [dict(zip(names, row.values(), strict=True)) for row in read]

    def exchanged(self, plan: BatchPlan, rows: Rows) -> list[TaskReport]:
        """Run the batch's job by the exchange chosen, and return its reports; two intake tasks read every other row."""
        parts = [blocks(plan.query, rows[task::TASKS], bool(plan.spilling.traced)) for task in range(TASKS)]
        if self._exchange == "driver":
            return join_share(plan, [take_in(plan, attempt(), parts)], attempt(), 0, 1)
        input = Here([[part] for part in parts])
        if self._exchange == "shuffle":
            return run_shuffle(input, plan)
        if self._exchange == "ring":
            return run_ring(input, plan, 1, lambda attempt, nodes: Loop(random.Random(plan.batch)))
        return run_local(input, plan, {1: 1, 2: 3}.get(plan.placement.nodes, TASKS))  # as many as nodes, more, or fewer

    def publish(self, action: Publish) -> ResultsPublished:
        """Record the results, and the rows of side outputs by kind and stream; removes the temporary files."""
        for file in action.files:
            for rows in self._read(file).to_batches():
                self.add(rows)
        for kind, streams in action.sides.items():
            for stream, files in streams.items():
                side = self.sides.setdefault((kind, stream), [])
                side += [(action.batch, row) for file in files for row in _to_plain_rows(self._read(file)).to_pylist()]
        self.store.remove(action.temporary_files)
        return ResultsPublished()

    def _read(self, file: str) -> pa.Table:
        return pq.read_table(pa.BufferReader(self.store.read(file)))

    def retract(self, action: Retract) -> None:
        """Raise, since no other run may have committed the batch."""
        raise StateError(f"Batch {action.batch} has a manifest already.")

    def add(self, rows: pa.RecordBatch) -> None:
        """Record results by the ids of their members, None for missing ones, and by time; nothing for a SELECT list."""
        if self.query.outputs:
            return
        hidden = {self.query.streams[at].name for at in self.query.hidden_streams}
        ids = [
            [None] * len(rows) if stream.name in hidden else pc.struct_field(rows.column(stream.name), "id").to_pylist()
            for stream in self.query.streams
        ]
        times = rows.column("_time").cast(pa.int64()).to_pylist()
        self.results.update(zip(zip(*ids, strict=True), times, strict=True))


def _to_plain_rows(rows: pa.Table) -> pa.Table:
    """Return rows with timestamps as microseconds, which may lie outside the range of Python's dates."""
    kinds = [pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in rows.schema]
    return rows.cast(pa.schema(zip(rows.schema.names, kinds, strict=True)))


def without_trace(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without its trace."""
    return {name: value for name, value in row.items() if name != TRACED}


def blocks(query: Query, arrivals: Rows, traced: bool = False) -> pa.RecordBatch:
    """Return (stream, row) pairs as intake reads them: the stream, its columns by generated name, a content hash.

    Args:
        query: The join.
        arrivals: The rows.
        traced: Whether some rows have traces.
    """
    arrays: dict[str, pa.Array] = {STREAM: pa.array([stream for stream, _ in arrivals], pa.int8())}
    for stream, spec in enumerate(query.streams):
        mine = [row if at == stream else {} for at, row in arrivals]
        for at, column in enumerate(spec.schema):
            values = pa.array([row.get(column.name) for row in mine], pa.int64() if at == spec.time else column.type)
            arrays[f"s{stream}_{at}"] = values.cast(column.type)
    arrays[CONTENT] = pa.array([content_key(without_trace(row)) for _, row in arrivals], pa.int64())
    if traced:
        arrays[TRACED] = pa.array([row.get(TRACED) for _, row in arrivals], TRACE_TYPE)
    return pa.record_batch(arrays)
