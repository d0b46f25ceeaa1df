"""The Spark jobs of a batch: one for each join of the tree, and one more where conditions are left to Spark.

The jobs are described in Spark's UI, and the figures of a batch appear in Spark's own progress, under
`observedMetrics`, where a `StreamingQueryListener` finds them. Spark gathers observed metrics from the plan of the
stream, which ends where a batch is handed to the join; metrics observed within the batch do not arrive. So the stream
observes columns that are always NULL, and once a batch is committed the driver adds one row with the batch's figures.

[!] That reaches into Spark's classes. It is done only if there are listeners, and errors in it are ignored: a batch
never fails for it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from watersmeet.batch.fuse import RESULTS
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.errors import PredicateError
from watersmeet.exchange.message import REPORT, read_reports
from watersmeet.exchange.tasks import decided_results
from watersmeet.metadata.constraints import MARKS
from watersmeet.query.cases import CANDIDATE, CASE, CONTENT, NEWEST, PAIR, ROLE, SOME, WHOLE
from watersmeet.query.query import Query
from watersmeet.runtime.tree import Job, inherit
from watersmeet.spark.checkpoint.paths import Location
from watersmeet.spark.run.frame_tree import FrameTree
from watersmeet.spark.run.frames import hidden_name, spark_schema
from watersmeet.spark.run.spark_stages import EXCHANGES, fetch_all
from watersmeet.spark.run.workers import is_death, retry_after_death, spark_task
from watersmeet.spark.sql.catalyst import error_sentence, items, kind_of, walk, without_error_log
from watersmeet.spark.sql.where import Where
from watersmeet.spilling import tallies
from watersmeet.state.chunks.chunk import CHUNKS

ATTEMPTS = 4
DECIDED = "decided"
"""Part of the names of files of results that Spark decided."""
CANNOT_ROLL_BACK = "A shuffle map stage with indeterminate output was failed and retried"
_CASE, _ROLE, _WHOLE, _SOME = (hidden_name(name) for name in (CASE, ROLE, WHOLE, "some"))
_NEWEST, _CONTENT, _PLACE = (hidden_name(name) for name in (NEWEST, CONTENT, "place"))
DESCRIPTION = "spark.job.description"
NAME = "watersmeet"
FIGURES = {
    **dict.fromkeys(("inputRows", "lateRows", "rejectedRows", "deniedRows", "outputRows", "stateRows"), "bigint"),
    **{"stateBytes": "bigint", "durationMs": "double", "watermark": "string", "heldBackBy": "string"},
}
"""The figures, and their types."""
PREFIX = "__watersmeet_"
QUERY = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class Jobs:
    """Runs the joins of a tree over one batch.

    Attributes:
        frames: The tree.
        batch: The batch.
        place: Where the store is.
        name: The store's unique name.
        exchange: How partial results travel.
        everything: Whether rows come with all columns, for side outputs.
        clock: Returns the time in seconds.
        after: Called after each join's job.
    """

    frames: FrameTree
    batch: DataFrame
    place: Location
    name: str
    exchange: str
    everything: bool
    clock: Callable[[], float]
    after: Callable[[], None]

    def run(self, plans: Mapping[str, BatchPlan]) -> dict[str, Job]:
        """Run all joins in the order of their plans, inner ones first: their results are rows of later ones.

        State and results are written to the store.

        Args:
            plans: The plans, by the paths of the joins.
        """
        nodes = {node.path: node for node in self.frames.walk()}
        jobs: dict[str, Job] = {}
        for path, plan in plans.items():
            jobs[path] = self._run_join(nodes[path], plan, jobs)
            self.after()
        return jobs

    def read(self, node: FrameTree, files: Sequence[str], number: int) -> DataFrame:
        """Return a frame of a join's results in the batch of that number, which are in files of the store."""
        places = [place.spark for place in self.places(files)]
        return node.read(self.batch, places, f"{self.name} {node.path} {number}")

    def places(self, files: Sequence[str]) -> list[Location]:
        """Return where files of the store are."""
        return [self.place.inside(file) for file in files]

    def _run_join(self, node: FrameTree, plan: BatchPlan, jobs: Mapping[str, Job]) -> Job:
        """Run the Spark jobs of one join in a batch, over the results of the joins inside it, which have run.

        First intake and hops, again from the start if a worker dies; then the conditions left to Spark.
        """
        results = {at: self.read(child, jobs[child.path].files, plan.batch) for at, child in node.inner.items()}
        rows = node.rows(self.batch, results, self.everything, plan.batch == 0)
        start = self.clock()
        streams = [stream.name for stream in plan.query.streams]
        title, hops = f"batch {plan.batch}, join of {', '.join(streams)}", len(streams) - 1
        session = self.batch.sparkSession
        with job_description(session, f"{title}: intake and {hops} {'hop' if hops == 1 else 'hops'}"):
            plan_with_marks = inherit(plan, {at: jobs[child.path] for at, child in node.inner.items()})
            reports = retry_after_death(lambda: self._run_exchange(rows, plan_with_marks), lambda: _clear(plan, ""))
        with job_description(session, f"{title}: conditions left to Spark"):
            self._decide(node, plan, reports)
        return Job(reports, self.clock() - start)

    def _run_exchange(self, rows: DataFrame, plan: BatchPlan) -> list[TaskReport]:
        """Run a join's job; start it again if Spark aborts it because it can't roll back a stage.

        [!] Reports name the files of the task attempt, so a stage that runs again (its shuffle files were lost) has
        another output than the first time. Spark sees that by checksum and, since it can't undo tasks that have
        finished meanwhile, aborts the whole job. A new attempt shares nothing with the old one: all file names are new.
        """
        for remaining in reversed(range(ATTEMPTS)):
            try:
                return EXCHANGES[self.exchange](rows, plan)
            except Exception as error:
                if not remaining or CANNOT_ROLL_BACK not in str(error):
                    raise
        raise AssertionError("unreachable")

    def _decide(self, node: FrameTree, plan: BatchPlan, reports: Sequence[TaskReport]) -> None:
        """Let Spark decide the combinations that tasks left to it, and remove their files.

        Those that are results are added to the first report, with their tallies.

        Raises:
            PredicateError: If a conjunct raises.
        """
        files = [file for report in reports for file in report.results.pending]
        if not files:
            return
        write = spark_task(decided_results(plan.store, node.query, f"{plan.name}-{DECIDED}"))
        try:
            with without_error_log():
                results = node.decide(self.batch, [place.spark for place in self.places(files)])
                bodies = results.mapInArrow(write, spark_schema(REPORT))
                table = retry_after_death(lambda: fetch_all(bodies), lambda: _clear(plan, DECIDED))
                parts = read_reports(table.to_batches())
        except (PySparkException, Py4JError) as error:
            if is_death(error):
                raise
            raise PredicateError(f"`where` raised {error_sentence(error)}; the batch was not written.") from None
        reports[0].results.rows += sum(rows for rows, _, _ in parts)
        reports[0].results.files += [file for _, names, _ in parts for file in names]
        tallies.add_spark_results(plan, reports, [codes for _, _, codes in parts])
        plan.store.remove(files)


def _clear(plan: BatchPlan, part: str) -> None:
    """Remove the files of a job that failed; the next start removes what its tasks that still run write.

    Args:
        plan: The plan of the join's batch.
        part: What follows the plan's name in the names of the job's files.
    """
    names = (name for folder in (CHUNKS, MARKS, RESULTS, "sides") for name in plan.store.names(folder))
    plan.store.remove([name for name in names if name.partition("/")[2].startswith(f"{plan.name}-{part}")])


# -- cases: claims of optional results that depend on pairs which only Spark can decide; see `query/cases.py`


def case_columns(query: Query) -> list[SparkColumn]:
    """Return the columns that say which case a combination belongs to, under names that no user's column has."""
    names = (CASE, ROLE, WHOLE, *((NEWEST, CONTENT) if query.as_of_streams else ()))
    return [F.col(name).alias(hidden_name(name)) for name in names]


def decide_cases(where: Where, query: Query, frame: DataFrame) -> DataFrame:
    """Return the combinations that are results: claims that hold and whose pairs hold, or don't, as they claim.

    With as-of streams, it is the newest candidate of each case that holds, or the case's claim if none does.

    [!] Functions of the user's see no combination that lacks what they read: those without a tuple of the optional
    stream are decided apart.

    Args:
        where: The condition.
        query: The join.
        frame: Combinations, including those of no case, with `case_columns`.
    """
    every = [conjunct.clause for conjunct in query.deferred_conjuncts]
    required = [conjunct.clause for conjunct in query.deferred_conjuncts if conjunct.streams.isdisjoint(query.optional)]
    whole = where.decide(frame.where(_WHOLE), every).select(frame.columns)
    lacking = frame.where(f"NOT {_WHOLE}")
    if required:
        lacking = where.decide(lacking, required).select(frame.columns)
    own = -1 - F.monotonically_increasing_id()  # a combination of no case is a case of its own
    rows = whole.union(lacking).withColumn(_CASE, F.coalesce(_CASE, own))
    by_case = rows.repartition(frame.sparkSession.sparkContext.defaultParallelism, _CASE)
    if query.as_of_streams:
        return _newest_candidates(by_case)
    some = F.max(F.col(_ROLE) == PAIR).over(Window.partitionBy(_CASE))
    claims = by_case.withColumn(_SOME, some).where(F.col(_ROLE) != PAIR)
    return claims.where(F.col(_SOME) == (F.col(_ROLE) == SOME))


def _newest_candidates(rows: DataFrame) -> DataFrame:
    """Return the newest candidate of each case; its claim if it has no candidate."""
    newest = [F.col(name).desc() for name in (_NEWEST, _CONTENT)]
    by_age = Window.partitionBy(_CASE).orderBy(F.col(_ROLE) != CANDIDATE, *newest)
    return rows.withColumn(_PLACE, F.row_number().over(by_age)).where(F.col(_PLACE) == 1)


@contextmanager
def job_description(session: SparkSession, text: str) -> Iterator[None]:
    """Describe the Spark jobs that run within the context, below Spark's own description of its streaming query."""
    context = session.sparkContext
    before = context.getLocalProperty(DESCRIPTION)
    context.setLocalProperty(DESCRIPTION, f"{before}<br/>{text}" if before else text)
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]  # None removes it


def has_listeners(session: SparkSession) -> bool:
    """Tell whether a session's streaming queries have listeners."""
    return len(session._jsparkSession.streams().listListeners()) > 0


def observe_figures(frame: DataFrame) -> DataFrame:
    """Return a stream's frame, with room for the figures of its batches among the observed metrics."""
    room = {f"{PREFIX}{name}": F.lit(None).cast("string") for name in FIGURES}
    metrics = [F.max(f"{PREFIX}{name}").cast(kind).alias(name) for name, kind in FIGURES.items()]
    return frame.withColumns(room).observe(NAME, *metrics).drop(*room)


def figures(progress: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures in a batch's progress (as `query.progress` has it), as text; without those that it lacks."""
    values = {**progress, "inputRows": sum(progress["inputRows"].values())}
    values["durationMs"] = progress["durationMs"]["total"]
    return {name: str(values[name]) for name in FIGURES if values.get(name) is not None}


def report_figures(session: SparkSession, progress: Mapping[str, Any]) -> None:
    """Add the figures of a batch to its observed metrics; must be called by the thread that runs the batch.

    Whatever fails is only logged, for debugging: no batch depends on it.
    """
    try:
        _add_row(session, figures(progress))
    except Exception as error:
        logging.getLogger("watersmeet").debug("No observed metrics: %s", error)


def _add_row(session: SparkSession, values: Mapping[str, str]) -> None:
    """Put values into the metrics that Spark observes in the running batch, by its private classes, which may raise."""
    context: Any = session.sparkContext
    gateway, jvm = context._gateway, context._jvm
    query = session._jsparkSession.streams().get(context.getLocalProperty(QUERY)).streamingQuery()
    for node in walk(query.lastExecution().executedPlan()):
        if kind_of(node) != "CollectMetricsExec" or node.name() != NAME:
            continue
        names = [attribute.name() for attribute in items(node.child().output())]
        row = gateway.new_array(jvm.java.lang.Object, len(names))
        for name, text in values.items():
            row[names.index(f"{PREFIX}{name}")] = jvm.org.apache.spark.unsafe.types.UTF8String.fromString(text)
        method = node.getClass().getDeclaredMethod("accumulator", gateway.new_array(jvm.java.lang.Class, 0))
        method.setAccessible(True)
        accumulator = method.invoke(node, gateway.new_array(jvm.java.lang.Object, 0))
        accumulator.add(jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(row))
