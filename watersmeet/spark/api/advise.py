"""`wm.advise` and `join.check`: what a join will take, from its definition and from running it over a sample."""

import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from watersmeet.adapt.advice import Advice, build_advice, check_streams
from watersmeet.adapt.auto import Auto
from watersmeet.adapt.findings import Finding, check_definition, check_delay, check_predicate_costs, check_slots
from watersmeet.adapt.forecast import SampleMeasurements, Settings
from watersmeet.arguments import microseconds
from watersmeet.batch.measurements import batch_work
from watersmeet.batch.operator import Operator
from watersmeet.cost.equations import Goal
from watersmeet.cost.parameters import BatchWork, fit_pace
from watersmeet.errors import DefinitionError
from watersmeet.ordering import Ordering
from watersmeet.placement import Central
from watersmeet.query.query import Query
from watersmeet.runtime.commit_protocol import (
    BatchOffered,
    Commit,
    JobsFinished,
    Protocol,
    Publish,
    ResultsPublished,
    RunJobs,
)
from watersmeet.runtime.enact import Runtime
from watersmeet.runtime.tree import Job, JoinTree
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.api.samples import MOST_ROWS, SampleRows, SampleSource, sample_frame, sample_rows
from watersmeet.spark.run import spark_stages
from watersmeet.spark.run.frames import quote_name
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store

MOST_SECONDS = 10.0
"""No batch begins after this time."""
FIRST, LARGEST, LONG = 64, 8, 1.0
"""The first batch has one in 64 of the rows; batches double up to one in 8, until one takes a second.

So a costly predicate shows early, and a cheap join is measured on batches large enough to outweigh their overhead.
"""
QUIET = 2.0
"""Seconds after which progress is printed."""
STRATEGY = Central()


def advise(
    join: JoinDefinition,
    samples: Mapping[str, SampleSource] | None = None,
    rates: Mapping[str, float] | None = None,
    *,
    max_nodes: int = 16,
    goal: Goal | None = None,
    every: str = "1 second",
    slots: int | None = None,
    bandwidth: float | None = None,
) -> Advice:
    """Predict what a join takes, now and at 2, 5 and 10 times the rate, and recommend a strategy and a number of nodes.

    The join is run over a sample of its streams, in this process, for some ten seconds, with its state in a temporary
    folder; progress is printed. The recommendation is the fewest nodes that keep up; with `strategy=advice.strategy`,
    the join chooses them itself.

    Args:
        join: The join; it is not started.
        samples: What to read instead of a stream's input, by stream: a static frame, or the path of files or of a Delta
            table. By default, a streaming input is read as far as its source holds rows now.
        rates: Tuples a second of streams whose rate differs from the sample's.
        max_nodes: The most nodes to consider.
        goal: None for the fewest nodes that keep up; `latency` for the shortest batches, `throughput` for the least
            work of the busiest node, as for `Auto`.
        every: The time from one batch to the next.
        slots: How many tasks run at once; by default each node has a core of its own.
        bandwidth: The bytes a second that the network brings to a node, by default that of the join's own `Auto`;
            longer rings than it can feed aren't recommended, and the advice says so.

    Raises:
        DefinitionError: If a stream has no rows, its sample lacks a column, or a setting is invalid.
    """
    if not isinstance(join, JoinDefinition):
        raise DefinitionError(f"wm.advise takes a join made by wm.join or wm.sql; got {type(join).__name__}.")
    samples, rates = {} if samples is None else samples, {} if rates is None else rates
    check_streams("samples", samples, [stream.name for stream in join.query.streams])
    check_streams("rates", rates, [stream.name for stream in join.query.streams if not stream.table])
    own = join.strategy if isinstance(join.strategy, Auto) else None
    auto = own or Auto()
    settings = Settings(
        max_nodes,
        goal,
        microseconds(every, "every") / 1e6,
        inf if slots is None else slots,
        bandwidth=auto.bandwidth if bandwidth is None else bandwidth,
        rates=rates,
        among=auto.among,
        weights=auto.weights,
    )
    rows = sample_rows(join, samples)
    with TemporaryDirectory(prefix="watersmeet-") as folder:
        return build_advice(measure(join.query, join.ordering, rows, Store(folder)), settings, own)


# -- findings


def check_join(join: JoinDefinition, samples: Mapping[str, DataFrame] | None = None) -> list[Finding]:
    """Return what is worth knowing of a join before it starts; reads the samples by Spark jobs. See `Join.check`."""
    findings = list(_definition_findings(join))
    if samples:
        check_streams("samples", samples, [stream.name for stream in join.query.streams])
        findings += _sample_findings(join, samples)
    return findings


def _definition_findings(join: JoinDefinition) -> Iterator[Finding]:
    """Yield what the definitions of a join, and of those inside it, give reason to change."""
    yield from check_definition(join.query)
    if not isinstance(join.strategy, Auto):  # which takes no more nodes than are worth while
        yield from check_slots(getattr(join.strategy, "nodes", None), join.spark.sparkContext.defaultParallelism)
    for inner in join.inner.values():
        yield from _definition_findings(inner)


def _sample_findings(join: JoinDefinition, samples: Mapping[str, DataFrame]) -> Iterator[Finding]:
    """Yield what samples of streams give reason to change: a delay that is too short, a predicate that is too slow.

    Runs Spark jobs over the samples. Calls the user's predicates only if every stream has a sample.
    """
    for at, stream in enumerate(join.query.streams):
        if stream.name in samples and stream.nested is None and not stream.table:
            column = sample_frame(join, at, samples[stream.name]).select(
                quote_name(stream.schema.field(stream.time).name)
            )
            times = column.limit(MOST_ROWS).toArrow().column(0).drop_null()
            yield from check_delay(stream, times.cast(pa.int64()).to_numpy().astype(np.int64))
    sampled_streams = {stream.name for stream in join.query.streams if not stream.table}
    if not join.query.predicates or not sampled_streams <= set(samples):
        return
    rows = sample_rows(join, samples)
    with TemporaryDirectory(prefix="watersmeet-") as folder:
        began = time.perf_counter()
        measured = measure(join.query, join.ordering, rows, Store(folder))
        yield from check_predicate_costs(measured.predicates, time.perf_counter() - began)


# -- the run


def measure(query: Query, ordering: Ordering, sample: SampleRows, store: Store) -> SampleMeasurements:
    """Run a join over rows in the order of their time, batch by batch, and return the measurements.

    Calls the user's predicates. After some ten seconds no batch begins, so rows may be left; progress is printed.

    Args:
        query: The join.
        ordering: In which order streams are probed.
        sample: The rows.
        store: An empty store, to which state is written.

    Raises:
        DefinitionError: If all rows have the same event time.
    """
    rows = sample.rows
    times = pc.coalesce(*(rows.column(f"s{at}_{stream.time}") for at, stream in enumerate(query.streams)))
    micros = times.cast(pa.int64()).to_numpy()
    operator = Operator(
        query, STRATEGY, store, uuid.uuid4().hex, ordering
    )  # [!] caches, which are by run, outlive the store
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
    return SampleMeasurements(
        operator.view(protocol.state),
        end,
        seconds=(last - begin) / 1e6,
        fill_seconds=(middle - begin) / 1e6,
        predicates=predicates,
        count_windows=query.counted_streams,
        pace=fit_pace(trial.batches),
        tables={at: table.size for at, table in sample.tables.items()},
    )


def cuts(rows: int, clock: Callable[[], float]) -> Iterator[tuple[int, int]]:
    """Yield the rows at which batches begin and end, until all are used or time is over; prints progress.

    A batch is taken to run until the next one is requested: sizes depend on how long that takes.

    Args:
        rows: How many rows there are.
        clock: Returns the time in seconds.
    """
    at, size, began = 0, max(1, rows // FIRST), clock()
    while at < rows and clock() - began < MOST_SECONDS:
        end = rows if rows - at < 2 * size else at + size
        started = clock()
        yield at, end
        if clock() - started < LONG:
            size = min(2 * size, max(1, rows // LARGEST))
        at = end
        _print_progress(at / rows, clock() - began)
    _print_progress(at / rows, clock() - began, "\n")


@dataclass
class Trial(Runtime):
    """Runs batches in this process, without manifests, and discards the results.

    Attributes:
        store: Holds the state meanwhile.
        rows: The rows of the batch that is offered.
        batches: The work of each batch.
    """

    store: Store
    rows: pa.Table
    batches: list[BatchWork]

    def run(self, action: RunJobs) -> JobsFinished:
        """Run the join in this process, and add its work to `batches`; combinations left to Spark are dropped."""
        jobs = {path: Job(spark_stages.run_rows(self.rows, plan)) for path, plan in action.plans.items()}
        self.batches += [batch_work(job.reports, self.rows.num_rows) for job in jobs.values()]
        self.store.remove(file for job in jobs.values() for report in job.reports for file in report.results.pending)
        return JobsFinished(jobs)

    def publish(self, action: Publish) -> ResultsPublished:
        """Discard the results."""
        self.store.remove(action.temporary_files)
        return ResultsPublished()

    def commit(self, action: Commit) -> Manifest:
        """Continue with the state."""
        return action.manifest


def _print_progress(part: float, seconds: float, end: str = "") -> None:
    """Print how far a long run has come, on one line."""
    if seconds > QUIET:
        print(f"\rmeasured {part:.0%} of the sample in {seconds:.0f} s", end=end, file=sys.stderr, flush=True)
