"""`wm.advise`: runs a join over a sample in the driver's process and says what it would take for good."""

import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.adapt.advice import Advice, advice, check_streams
from watersmeet.adapt.auto import Auto
from watersmeet.adapt.forecast import Sample, Settings
from watersmeet.arguments.durations import microseconds
from watersmeet.batch.measurements import batch_work
from watersmeet.batch.operator import Operator
from watersmeet.cost.equations import Goal
from watersmeet.cost.pace import BatchWork, pace
from watersmeet.errors import DefinitionError
from watersmeet.exchange.tasks import STREAM
from watersmeet.ordering import Ordering
from watersmeet.placement import Central
from watersmeet.query.query import Query
from watersmeet.runtime.enact import Runtime
from watersmeet.runtime.protocol import BatchOffered, Commit, JobsFinished, Protocol, Publish, ResultsPublished, RunJobs
from watersmeet.runtime.tree import Job, JoinTree
from watersmeet.spark.api.join import Join
from watersmeet.spark.api.samples import MOST_BYTES, MOST_ROWS, PEEK, Given, samples_of
from watersmeet.spark.run import driver
from watersmeet.spark.run.frames import Computing, tagged, union
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store

MOST_SECONDS = 10.0
"""No batch begins after this time."""
FIRST, LARGEST, LONG = 64, 8, 1.0
"""The first batch is one in 64 of the rows; batches double up to one in 8, until one takes a second.

So a costly predicate shows itself early, and a cheap join is measured on batches whose own cost is a small part.
"""
MOST_TABLE_ROWS = 200_000
"""Of a larger table some rows are taken, each with the same chance."""
QUIET = 2.0
"""Seconds after which it says how far it has come."""
STRATEGY = Central()


def advise(
    join: Join,
    samples: Mapping[str, Given] | None = None,
    rates: Mapping[str, float] | None = None,
    *,
    max_nodes: int = 16,
    goal: Goal | None = None,
    every: str = "1 second",
    slots: int | None = None,
    bandwidth: float | None = None,
) -> Advice:
    """Predict what a join takes, now and at 2, 5 and 10 times the rate, and recommend a strategy and a number of nodes.

    The join is run over a sample of its streams, in this process, for some ten seconds. What is recommended are the
    fewest nodes that keep up; given `strategy=advice.strategy`, the join chooses them itself.

    Args:
        join: The join; it is not started.
        samples: By stream what to read instead of its input: a static frame, or the path of files or of a Delta table.
            Of a streaming input it is else what its source holds now.
        rates: Tuples a second of streams whose rate differs from the sample's.
        max_nodes: How many nodes there may be.
        goal: None for the fewest nodes that keep up; `latency` for the shortest batches, `throughput` for the least
            work of the busiest node, as for `Auto`.
        every: The time from one batch to the next.
        slots: How many tasks run at once; by default each node has a core of its own.
        bandwidth: The bytes a second that the network brings to a node, by default those that the join's own `Auto`
            was told; longer rings than it can feed aren't recommended, and the advice says so.

    Raises:
        DefinitionError: If a stream has no rows, its sample lacks a column, or a setting is none.
    """
    if not isinstance(join, Join):
        raise DefinitionError(f"wm.advise takes a join made by wm.join or wm.sql; got {type(join).__name__}.")
    samples, rates = {} if samples is None else samples, {} if rates is None else rates
    check_streams("samples", samples, [stream.name for stream in join.query.streams])
    check_streams("rates", rates, [stream.name for stream in join.query.streams if not stream.table])
    own = join.strategy if isinstance(join.strategy, Auto) else None
    asked = own or Auto()
    settings = Settings(
        max_nodes,
        goal,
        microseconds(every, "every") / 1e6,
        inf if slots is None else slots,
        bandwidth=asked.bandwidth if bandwidth is None else bandwidth,
        rates=rates,
        among=asked.among,
        weights=asked.weights,
    )
    rows = sample_rows(join, samples_of(join, samples))
    with TemporaryDirectory(prefix="watersmeet-") as folder:
        return advice(measure(join.query, join.ordering, rows, Store(folder)), settings, own)


# -- the sample


class TableRows(NamedTuple):
    """Rows of a table, as a batch brings them: all of them, or so many of a large one that some are tried.

    Attributes:
        rows: The rows.
        size: How many the table has.
    """

    rows: pa.Table
    size: int


class SampleRows(NamedTuple):
    """What a join is run over.

    Attributes:
        rows: The earliest rows of all streams, by event time.
        tables: The rows of its tables, by position.
    """

    rows: pa.Table
    tables: Mapping[int, TableRows]


def sample_rows(join: Join, frames: Sequence[DataFrame]) -> SampleRows:
    """Return the earliest rows of all streams together, by event time, and the rows of tables, as a batch brings them.

    Raises:
        DefinitionError: If a stream has no rows, or none in the stretch of time that is read, or a table has none.
    """
    query, computed = join.query, join.computed()
    widths = [_width(query, at, frame, computed[at]) for at, frame in enumerate(frames)]
    moment = F.coalesce(*(F.col(f"s{at}_{stream.time}") for at, stream in enumerate(query.streams)))
    most = min(MOST_ROWS, int(MOST_BYTES // max(widths)))
    moving = [None if query.streams[at].table else frame for at, frame in enumerate(frames)]
    rows = union(query, moving, False, computed).where(moment.isNotNull()).orderBy(moment).limit(most).toArrow()
    there = set(pc.unique(rows.column(STREAM)).to_pylist())
    absent = [stream.name for at, stream in enumerate(query.streams) if at not in there and not stream.table]
    if absent:
        raise DefinitionError(
            f"No rows of stream '{absent[0]}' are among the first {rows.num_rows:,} of all samples by event time: "
            "give samples that cover the same period."
        )
    tables = [at for at, stream in enumerate(query.streams) if stream.table]
    read = {at: _table_rows(query, at, frames[at], computed[at], widths[at]) for at in tables}
    return SampleRows(_nullable(rows), {at: TableRows(_nullable(table), size) for at, (table, size) in read.items()})


def _nullable(rows: pa.Table) -> pa.Table:
    """Return rows whose columns may all be NULL, so that those of streams and tables make one batch."""
    return rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))


def _table_rows(query: Query, at: int, frame: DataFrame, computed: Computing, width: float) -> TableRows:
    """Return the rows of a table, each with the same chance if there are too many."""
    size, most = frame.count(), min(MOST_TABLE_ROWS, int(MOST_BYTES // width))
    rows = tagged(query, at, frame if size <= most else frame.sample(fraction=most / size, seed=0), False, computed)
    return TableRows(rows.toArrow(), size)


def _width(query: Query, at: int, frame: DataFrame, computed: Computing) -> float:
    """Return the bytes of a stream's row."""
    rows = tagged(query, at, frame, False, computed).limit(PEEK).toArrow()
    if not rows.num_rows:
        stream = query.streams[at]
        raise DefinitionError(f"The sample of {stream.what} '{stream.name}' has no rows.")
    return max(1.0, float(rows.nbytes / rows.num_rows))


# -- the run


def measure(query: Query, ordering: Ordering, sample: SampleRows, store: Store) -> Sample:
    """Run a join over rows in the order of their time, batch by batch, and return what it measured.

    Args:
        query: The join.
        ordering: In which order streams are probed.
        sample: The rows, as `sample_rows` gives them.
        store: An empty store.

    Raises:
        DefinitionError: If all are of one moment.
    """
    rows = sample.rows
    times = pc.coalesce(*(rows.column(f"s{at}_{stream.time}") for at, stream in enumerate(query.streams)))
    micros = times.cast(pa.int64()).to_numpy()
    operator = Operator(query, STRATEGY, store, uuid.uuid4().hex, ordering)  # [!] what is cached outlives the store
    protocol, trial, first, end = Protocol(JoinTree(operator), operator.start()), Trial(store, rows, []), 0, 0
    predicates: dict[str, Counter[str]] = defaultdict(Counter)
    for first, end in cuts(rows.num_rows, time.perf_counter):
        read = [table.rows for at, table in sample.tables.items() if not first or query.streams[at].refreshed]
        trial.rows = pa.concat_tables([*read, rows.slice(first, end - first)])
        trial.offer(protocol, BatchOffered(protocol.state.batch + 1))
        for name, cost in protocol.state.progress["predicates"].items():
            predicates[name].update(cost)
    begin, middle, last = micros[0], (micros[first] + micros[end - 1]) / 2, micros[end - 1]
    if last == begin:
        raise DefinitionError("All sampled rows have the same event time; give samples that span several seconds.")
    return Sample(
        operator.view(protocol.state),
        end,
        seconds=(last - begin) / 1e6,
        filled=(middle - begin) / 1e6,
        predicates=predicates,
        counted=query.counted,
        pace=pace(trial.batches),
        tables={at: table.size for at, table in sample.tables.items()},
    )


def cuts(rows: int, clock: Callable[[], float]) -> Iterator[tuple[int, int]]:
    """Yield where batches begin and end; a batch takes until the next one is asked for."""
    at, size, began = 0, max(1, rows // FIRST), clock()
    while at < rows and clock() - began < MOST_SECONDS:
        end = rows if rows - at < 2 * size else at + size
        started = clock()
        yield at, end
        if clock() - started < LONG:
            size = min(2 * size, max(1, rows // LARGEST))
        at = end
        _tell(at / rows, clock() - began)
    _tell(at / rows, clock() - began, "\n")


@dataclass
class Trial(Runtime):
    """Runs batches in this process, writes no manifests and keeps no results.

    Attributes:
        store: Where state is kept meanwhile.
        rows: The rows of the batch that is offered.
        batches: What each batch did.
    """

    store: Store
    rows: pa.Table
    batches: list[BatchWork]

    def run(self, action: RunJobs) -> JobsFinished:
        """Run the one join there is; what Spark would have to decide is left undecided."""
        done = {path: Job(driver.run_rows(self.rows, plan)) for path, plan in action.plans.items()}
        self.batches += [batch_work(job.reports, self.rows.num_rows) for job in done.values()]
        self.store.remove(file for job in done.values() for report in job.reports for file in report.results.pending)
        return JobsFinished(done)

    def publish(self, action: Publish) -> ResultsPublished:
        """Throw the results away."""
        self.store.remove(action.written)
        return ResultsPublished()

    def commit(self, action: Commit) -> Manifest:
        """Go on with the state."""
        return action.manifest


def _tell(part: float, seconds: float, end: str = "") -> None:
    """Say how far a long run has come, on one line."""
    if seconds > QUIET:
        print(f"\rmeasured {part:.0%} of the sample in {seconds:.0f} s", end=end, file=sys.stderr, flush=True)
