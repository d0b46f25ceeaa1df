"""What a streaming frame does before it reaches a join: Spark refuses some of it, and says so only at the start."""

from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from watersmeet.errors import DefinitionError
from watersmeet.spark.sql.catalyst import said

CHECKED = "spark.sql.streaming.unsupportedOperationCheck"
"""Spark's setting that turns its own check off."""
REASONS = {
    "streaming aggregations": "an aggregation needs a watermark, or none of its groups would ever be complete; put "
    ".withWatermark(time column, delay) before it, and group by that column or by a window of it",
    "dropDuplicatesWithinWatermark": "dropDuplicatesWithinWatermark needs a watermark; put .withWatermark(time column, "
    "delay) before it",
    "Stream-stream": "an outer join of two streams needs a watermark on each and a condition on how far apart their "
    "times may be; add them, or give both streams to wm.join",
    "Sorting": "a stream can't be sorted; leave out orderBy",
}
"""Why not and what to do, by words of Spark's refusal."""


def check_upstream(what: str, frame: DataFrame) -> None:
    """Refuse a streaming frame that Spark can't run in append mode, as a join runs its streams.

    Args:
        what: How an error calls it.
        frame: A frame; a static one is never refused.

    Raises:
        DefinitionError: If Spark would refuse it at the start of the query.
    """
    spark = frame.sparkSession
    if not frame.isStreaming or spark.conf.get(CHECKED, "true") != "true":
        return
    jvm: Any = spark._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), append)
    except AnalysisException as error:
        refusal = said(error)
        reason = next((reason for words, reason in REASONS.items() if words in refusal), refusal)
        raise DefinitionError(f"{what} can't be run as a stream: {reason}.") from None
