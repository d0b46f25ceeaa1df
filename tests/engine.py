"""Drives the engine without Spark: the same plan, intake, probe and commit, task by task, in one process."""

import time
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.engine.commit import next_manifest
from watersmeet.engine.fuse import output
from watersmeet.engine.intake import Intake
from watersmeet.engine.plan import plan, start
from watersmeet.engine.probe import Probe, Worker, finished
from watersmeet.placement import Strategy
from watersmeet.query import Query
from watersmeet.state import manifest as manifests
from watersmeet.state.store import Store

WORKER = Worker(time.perf_counter)


def content_key(row: Mapping[str, Any]) -> int:
    """A content hash of a row; the tests give the same to the engine and, as the order key, to the oracle."""
    return zlib.crc32(repr(sorted(row.items())).encode())


@dataclass
class Run:
    """The state of a join and everything it has emitted."""

    query: Query
    store: Store
    results: Counter[Any] = field(default_factory=Counter)
    progress: list[dict[str, Any]] = field(default_factory=list)
    batch: int = -1

    def step(
        self, strategy: Strategy, arrivals: Sequence[tuple[int, Mapping[str, Any]]], tasks: int = 2, now: int = 0
    ) -> None:
        """Run one batch of (stream, row) on some intake tasks, committing through the stored manifest."""
        before = start(self.query) if self.batch < 0 else manifests.load(self.store, self.batch)
        assert before is not None
        batch = plan(self.query, before, strategy, self.store, uuid.uuid4().hex)
        intakes = [Intake(batch, f"t{task}") for task in range(tasks)]
        for at, (stream, row) in enumerate(arrivals):
            intakes[at % tasks].add(stream, record(self.query, stream, [row]))
        reports = [intake.finish() for intake in intakes]
        fresh = [chunk for report in reports for chunk in report.chunks]
        done = []
        for node in range(batch.placement.nodes):
            probe = Probe(batch, fresh, WORKER)
            rows = 0
            for block in probe.results(node, batch.placement.nodes):
                for part in output(self.query, block, probe.table.gather):
                    self.add(part)
                    rows += part.num_rows
            done.append(finished(probe.report(node, f"p{node}", node == 0), rows, [], 0.0))
        after = next_manifest(before, batch, reports, done, now)
        assert manifests.publish(self.store, after, before)
        self.batch = after.batch
        self.progress.append(dict(after.progress))
        self.store.remove(before.files - after.files)

    def add(self, rows: pa.RecordBatch) -> None:
        for row in rows.to_pylist():
            ids = tuple(row[stream.name]["id"] for stream in self.query.streams)
            self.results[ids, _micros(row["_time"])] += 1


def _micros(value: Any) -> int:
    return int(pa.scalar(value, pa.timestamp("us", "UTC")).value)


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
