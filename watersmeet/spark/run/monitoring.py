"""What Spark itself shows of a join: descriptions of its jobs in the UI, and figures of batches in its progress.

Spark gathers observed metrics from the plan of the stream, which ends where a batch is handed to the join; metrics
observed within the batch do not arrive. So the stream observes columns that are always NULL, and once a batch is
committed the driver adds one row with the batch's figures to what was observed. A `StreamingQueryListener` finds them
under `observedMetrics`.

[!] That reaches into Spark's classes. It is done only if there are listeners, and errors in it are ignored: a batch
never fails for it.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.spark.sql.catalyst import items, kind_of, walk

DESCRIPTION = "spark.job.description"
NAME = "watersmeet"
FIGURES = {
    **dict.fromkeys(("inputRows", "lateRows", "rejectedRows", "deniedRows", "outputRows", "stateRows"), "bigint"),
    **{"stateBytes": "bigint", "durationMs": "double", "watermark": "string", "heldBackBy": "string"},
}
"""The figures, and their types."""
PREFIX = "__watersmeet_"
QUERY = "sql.streaming.queryId"


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
    """Add the figures of a batch to its observed metrics; must be called by the thread that runs the batch."""
    try:
        _add_row(session, figures(progress))
    except Exception as error:
        logging.getLogger("watersmeet").debug("No observed metrics: %s", error)


def _add_row(session: SparkSession, values: Mapping[str, str]) -> None:
    """Put values into the metrics that Spark observes in the running batch, by means of its private classes."""
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
