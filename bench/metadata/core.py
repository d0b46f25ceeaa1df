"""The run of `bench.metadata.run` without Spark: the same plan, intake, probes, purge and commit in one process.

What it takes is what the join itself takes; Spark adds its own to each batch.

python -m bench.metadata.core metadata --files FOLDER --out FOLDER --seconds 600
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa

from bench import measurement
from bench.metadata.reference import STREAMS, batches
from bench.metadata.run import WHERE, Figures, Kind, figures
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.exchange.tasks import CONTENT, STREAM, join_share, take_in
from watersmeet.metadata.constraints import Constraint, FlaggedPunctuations, Key, Pattern
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Output, Query, StreamSpec
from watersmeet.query.windows import Sliding, Window
from watersmeet.runtime.commit_protocol import Publish, ResultsPublished
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Rows, Run, attempt
from watersmeet.workload.auctions import Batch
from watersmeet.workload.tuples import SECOND

TIME = 1
"""Position of the event time in each stream."""
IS_END = 4
CONSTRAINTS: tuple[tuple[Constraint, ...], ...] = (
    (Key((0,)),),
    (FlaggedPunctuations(IS_END, (Pattern(0, 0, 0),)),),
    (Key((0,)),),
)
OUTPUTS = {
    "auction": Column(0, 0),
    "seller": Column(0, 2),
    "bid_ts": Column(1, TIME),
    "price": Column(1, 2),
    "bidder": Column(1, 3),
    "amount": Column(2, 2),
}


def query_of(schemas: Sequence[pa.Schema], kind: Kind) -> Query:
    """Return the join of `bench.metadata.run.make_join`."""
    window = Sliding(3600 * SECOND) if kind == "windows" else Window()
    constraints = CONSTRAINTS if kind == "metadata" else ((),) * len(STREAMS)
    streams = tuple(
        StreamSpec(name, schema, TIME, window, 0, constraints=own)
        for name, schema, own in zip(STREAMS, schemas, constraints, strict=True)
    )
    conjuncts = parse_where(WHERE, [(stream.name, stream.schema) for stream in streams], (), Dialect())
    return Query(streams, conjuncts, WHERE, outputs=tuple(Output(*output) for output in OUTPUTS.items()))


def block_of(tables: Sequence[pa.Table]) -> pa.RecordBatch:
    """Return a batch as tasks read it: its streams one under the other, each with columns of its own."""
    counts = [table.num_rows for table in tables]
    columns = {STREAM: pa.array(np.repeat(np.arange(len(tables), dtype=np.int8), counts))}
    for stream, table in enumerate(tables):
        before, after = sum(counts[:stream]), sum(counts[stream + 1 :])
        for at, values in enumerate(table.columns):
            around = [pa.nulls(before, values.type), *values.chunks, pa.nulls(after, values.type)]
            columns[f"s{stream}_{at}"] = pa.concat_arrays(around)
    columns[CONTENT] = pa.array(np.zeros(sum(counts), np.int64))  # only count windows need it
    return pa.record_batch(columns)


@dataclass
class CoreRun(Run):
    """The state of the join; results are written as files."""

    results_to: Path = Path()
    block: pa.RecordBatch | None = None
    files: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def exchanged(self, plan: BatchPlan, rows: Rows) -> list[TaskReport]:
        """Run the batch's job as the driver's process does."""
        assert self.block is not None
        return join_share(plan, [take_in(plan, attempt(), [self.block])], attempt(), 0, 1)

    def publish(self, action: Publish) -> ResultsPublished:
        """Copy the results to where they are read."""
        for file in action.files:
            (self.results_to / f"{next(self.files):06d}.parquet").write_bytes(self.store.read(file) or b"")
        self.store.remove(action.temporary_files)
        return ResultsPublished()


def run(files: Path, out: Path, kind: Kind, seconds: float) -> Iterator[Figures]:
    """Run the join over finished files, for some seconds at most; yield each batch."""
    (out / "results").mkdir(parents=True)
    state, end = None, time.monotonic() + seconds
    for batch in batches(files):
        if kind != "metadata":
            batch = Batch(batch.auctions, batch.bids.filter(pa.compute.invert(batch.bids["is_end"])), batch.payments)
        if state is None:
            query = query_of([batch.tables[name].schema for name in STREAMS], kind)
            state = CoreRun(query, Store(str(out / "state")), steady=True, results_to=out / "results")
        start = time.perf_counter()
        state.block = block_of([batch.tables[name] for name in STREAMS])
        state.step(Central(), [])
        milliseconds = 1000 * (time.perf_counter() - start)
        yield figures({**state.progress[-1], "durationMs": {"total": milliseconds}, "process": "core"})
        if time.monotonic() > end:
            break


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run, write and print."""
    parser = measurement.arguments(__doc__)
    parser.add_argument("kind", choices=get_args(Kind))
    parser.add_argument("--seconds", type=float, required=True, help="of the clock, after which it is stopped")
    options = parser.parse_args(arguments)
    measurement.measure(
        options.out, lambda: [asdict(batch) for batch in run(options.files, options.out, options.kind, options.seconds)]
    )


if __name__ == "__main__":
    main()
