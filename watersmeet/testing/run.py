"""Drives a join without Spark: the same plan, intake, probe and commit, task by task, in one process."""

import pickle
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.fuse import output
from watersmeet.engine.intake import Intake, IntakeReport
from watersmeet.engine.operator import Operator
from watersmeet.engine.plan import GIVEN, BatchPlan
from watersmeet.engine.relay import Relay
from watersmeet.engine.report import TaskReport
from watersmeet.engine.task import JoinTask, Worker
from watersmeet.errors import StateError
from watersmeet.kernel.partials import Partials
from watersmeet.kernel.table import ChunkTable
from watersmeet.model.query import Query
from watersmeet.ordering import Ordering
from watersmeet.placement import Strategy
from watersmeet.runtime.enact import Runtime
from watersmeet.runtime.protocol import Offered, Protocol, Publish, Published, Ran, Retract
from watersmeet.runtime.protocol import Run as RunJobs
from watersmeet.runtime.tree import Job, JoinTree
from watersmeet.state import manifest as manifests
from watersmeet.state.store import Store

WORKER = Worker(time.perf_counter)
TASKS = 2
Rows = Sequence[tuple[int, Mapping[str, Any]]]


def content_key(row: Mapping[str, Any]) -> int:
    """Return a hash of a row's content; the oracle is given the same as its order of arrival."""
    return zlib.crc32(repr(sorted(row.items())).encode())


@dataclass
class Run(Runtime):
    """The state of a join and everything it has emitted; every batch is run as if it were the first after a restart."""

    query: Query
    store: Store
    results: Counter[Any] = field(default_factory=Counter)
    progress: list[Mapping[str, Any]] = field(default_factory=list)
    batch: int = -1
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
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
        tree = JoinTree(Operator(self.query, strategy, self.store, self.name, ordering))
        before = tree.start() if self.batch < 0 else manifests.load(self.store, self.batch)
        if before is None:
            raise StateError(f"There is no manifest of batch {self.batch}.")
        protocol = Protocol(tree, before, exchange=exchange)
        self._arrivals, self._exchange = arrivals, exchange
        self.offer(protocol, Offered(self.batch + 1, (now or 0) / 1e6, now))
        self.batch += 1
        self.progress.append(protocol.state.progress)

    def run(self, action: RunJobs) -> Ran:
        """Run the one join there is, task by task."""
        ran = {"local": self.local, "shuffle": self.shuffle}[self._exchange]
        return Ran({path: Job(ran(plan, self.intake(plan, self._arrivals))) for path, plan in action.plans.items()})

    def publish(self, action: Publish) -> Published:
        """Do nothing: results are noted as they are found."""
        return Published()

    def retract(self, action: Retract) -> None:
        """Refuse a batch that was done already."""
        raise StateError(f"Batch {action.batch} has a manifest already.")

    def intake(self, batch: BatchPlan, arrivals: Rows) -> list[IntakeReport]:
        """Store the rows of a batch, by two tasks in turn."""
        intakes = [Intake(batch, f"t{task}", task) for task in range(TASKS)]
        for task, intake in enumerate(intakes):
            for stream, rows in groupby(arrivals[task::TASKS], key=itemgetter(0)):
                intake.add(stream, record(self.query, stream, [row for _, row in rows]))
        return [intake.finish() for intake in intakes]

    def local(self, batch: BatchPlan, intakes: list[IntakeReport]) -> list[TaskReport]:
        """Run all hops of a share in one task, as many shares as nodes, more, or fewer."""
        done = []
        shares = {1: 1, 2: 3}.get(batch.placement.nodes, TASKS)  # as many as nodes, more, or fewer
        for share in range(shares):
            task = JoinTask(batch, intakes, WORKER)
            rows = sum(self.fuse(block, task.table) for block in task.results(share, shares))
            reports = task.reports(share, shares, f"p{share}")
            reports[0].rows = rows
            done += reports
        return done

    def shuffle(self, batch: BatchPlan, intakes: list[IntakeReport]) -> list[TaskReport]:
        """Hop by hop, the blocks between hops handed to their nodes as Spark's shuffle would."""
        nodes, last = range(batch.placement.nodes), batch.stages - 1
        bodies = pa.array([pickle.dumps(report) for report in intakes], pa.binary())
        told = [
            pa.record_batch([pa.array([node] * len(intakes), pa.int32()), bodies], ["node", "body"]) for node in nodes
        ]
        blocks, done = told, []
        for hop in range(last + 1):
            following: list[pa.RecordBatch] = []
            seen: Counter[Any] = Counter()
            for node in nodes:
                relay = Relay(batch, hop, node, f"h{hop}n{node}", WORKER)
                relay.take(block.filter(pa.array(block.column("node").to_numpy() == node)) for block in blocks)
                rows = 0
                for course, partials in relay.found():
                    seen.update(zip(*partials.rows.values(), strict=True))
                    if hop == last:
                        rows += self.fuse(partials, relay.task.table)
                    else:
                        following += relay.ship(course, partials)
                if hop < last:
                    following.append(relay.message(0.0, 0.0))
                else:
                    report = relay.closing()
                    report.rows = rows
                    done.append(report)
            # The invariant: after each hop every partial result exists on exactly one node.
            assert all(times == 1 for times in seen.values())
            blocks = following
        return done

    def fuse(self, block: Partials, table: ChunkTable) -> int:
        """Note complete results; return how many."""
        for part in output(self.query, block, table):
            self.add(part)
        return len(block)

    def add(self, rows: pa.RecordBatch) -> None:
        """Note results by the ids of their members and their time; those of a SELECT list aren't."""
        if self.query.outputs:
            return
        ids = [pc.struct_field(rows.column(stream.name), "id").to_pylist() for stream in self.query.streams]
        times = rows.column("_time").cast(pa.int64()).to_pylist()
        self.results.update(zip(zip(*ids, strict=True), times, strict=True))


def record(query: Query, stream: int, rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return rows as intake takes them: generated names, `ts`, `hash`."""
    spec = query.streams[stream]
    taken = list(rows)
    arrays: dict[str, pa.Array] = {}
    for at, column in enumerate(spec.schema):
        values = [row[column.name] for row in taken]
        if at == spec.time:
            arrays["ts"] = pa.array(values, pa.int64())
        else:
            arrays[f"s{stream}_{at}"] = pa.array(values, column.type)
    arrays["hash"] = pa.array([content_key(row) for row in taken], pa.int64())
    return pa.record_batch(arrays)
