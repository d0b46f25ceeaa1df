"""The figures of a batch in Spark's own progress: what a `StreamingQueryListener` finds under `observedMetrics`.

Spark gathers observed metrics from the plan of the stream, which ends where a batch is handed to the join; what is
observed within the batch does not arrive. So the stream observes columns that are always NULL, and once a batch is
committed the driver adds one row to what was observed, which says what the batch did.

[!] That reaches into Spark's classes. It is done only where somebody listens, and whatever goes wrong is left out: a
batch never fails for it.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

NAME = "watersmeet"
FIGURES = {
    **dict.fromkeys(("inputRows", "lateRows", "rejectedRows", "deniedRows", "outputRows", "stateRows"), "bigint"),
    **{"stateBytes": "bigint", "durationMs": "double", "watermark": "string", "heldBackBy": "string"},
}
"""The figures, and their types."""
PREFIX = "__watersmeet_"
QUERY = "sql.streaming.queryId"


def is_listened(session: SparkSession) -> bool:
    """Tell whether somebody listens to the streaming queries of a session."""
    return len(session._jsparkSession.streams().listListeners()) > 0


def observing(frame: DataFrame) -> DataFrame:
    """Return a stream's frame, with room for the figures of its batches among what Spark observes."""
    room = {f"{PREFIX}{name}": F.lit(None).cast("string") for name in FIGURES}
    metrics = [F.max(f"{PREFIX}{name}").cast(kind).alias(name) for name, kind in FIGURES.items()]
    return frame.withColumns(room).observe(NAME, *metrics).drop(*room)


def figures(progress: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of a batch, as text, of what `query.progress` tells; without those that it lacks."""
    found = {**progress, "inputRows": sum(progress["inputRows"].values())}
    found["durationMs"] = progress["durationMs"]["total"]
    return {name: str(found[name]) for name in FIGURES if found.get(name) is not None}


def tell(session: SparkSession, progress: Mapping[str, Any]) -> None:
    """Add the figures of a batch to what Spark observed of it; to be called by the thread that runs the batch."""
    try:
        _add(session, figures(progress))
    except Exception as error:
        logging.getLogger("watersmeet").debug("No observed metrics: %s", error)


def _add(session: SparkSession, told: Mapping[str, str]) -> None:
    context: Any = session.sparkContext
    gateway, jvm = context._gateway, context._jvm
    query = session._jsparkSession.streams().get(context.getLocalProperty(QUERY)).streamingQuery()
    for node in _nodes(query.lastExecution().executedPlan()):
        if node.getClass().getSimpleName() != "CollectMetricsExec" or node.name() != NAME:
            continue
        output = node.child().output()
        names = [output.apply(at).name() for at in range(output.size())]
        row = gateway.new_array(jvm.java.lang.Object, len(names))
        for name, text in told.items():
            row[names.index(f"{PREFIX}{name}")] = jvm.org.apache.spark.unsafe.types.UTF8String.fromString(text)
        method = node.getClass().getDeclaredMethod("accumulator", gateway.new_array(jvm.java.lang.Class, 0))
        method.setAccessible(True)
        gathered = method.invoke(node, gateway.new_array(jvm.java.lang.Object, 0))
        gathered.add(jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(row))


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for at in range(children.size()):
        yield from _nodes(children.apply(at))
