"""What the frames that users hand in must allow: to be run as streams, and columns that constraints can name.

Spark refuses some of what a streaming frame may do before it reaches a join, but says so only at the start.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from watersmeet.errors import DefinitionError
from watersmeet.metadata.spans import exact_type
from watersmeet.predicate.scope import same_name
from watersmeet.spark.run.frames import arrow_type, is_odd
from watersmeet.spark.sql.catalyst import error_sentence
from watersmeet.spark.sql.hoist import collation

CHECKED = "spark.sql.streaming.unsupportedOperationCheck"
"""Spark's setting that turns off its own check."""
REASONS = {
    "streaming aggregations": "an aggregation needs a watermark, or none of its groups would ever be complete; put "
    ".withWatermark(time column, delay) before it, and group by that column or by a window of it",
    "dropDuplicatesWithinWatermark": "dropDuplicatesWithinWatermark needs a watermark; put .withWatermark(time column, "
    "delay) before it",
    "Stream-stream": "an outer join of two streams needs a watermark on each and a condition on how far apart their "
    "times may be; add them, or give both streams to wm.join",
    "Sorting": "a stream can't be sorted; leave out orderBy",
}
"""Reason and remedy, by words in Spark's refusal."""


def check_upstream(what: str, frame: DataFrame) -> None:
    """Check that Spark can run a streaming frame in append mode, as joins run their streams.

    Args:
        what: How errors call the frame.
        frame: A frame; static ones always pass, as do all if the session has Spark's own check turned off.

    Raises:
        DefinitionError: If Spark would refuse it when the query starts.
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
        refusal = error_sentence(error)
        reason = next((reason for words, reason in REASONS.items() if words in refusal), refusal)
        raise DefinitionError(f"{what} can't be run as a stream: {reason}.") from None


@dataclass(frozen=True)
class NamedColumns:
    """The columns of a stream, or of a frame of punctuations, looked up by name as Spark does.

    Attributes:
        owner: How errors call the stream or frame.
        kind: The columns.
    """

    owner: str
    kind: T.StructType

    def at(self, what: object, name: str) -> int:
        """Return the position of a column.

        Args:
            what: What names it; for errors.
            name: Its name.

        Raises:
            DefinitionError: If no column, or more than one, has the name.
        """
        names = self.kind.names
        matches = [at for at, other in enumerate(names) if same_name(other, name)]
        if len(matches) > 1:
            alike = " and ".join(names[at] for at in matches)
            raise DefinitionError(f"{self.owner}, {what}: it has two columns called {alike}; rename one.")
        if not matches:
            close = get_close_matches(name, names, n=3) or names
            raise DefinitionError(f"{self.owner}, {what}: there is no column '{name}'; choose from {', '.join(close)}.")
        return matches[0]

    def type_of(self, at: int) -> T.DataType:
        """Return a column's type."""
        return self.kind.fields[at].dataType

    def comparable_at(self, what: object, name: str) -> int:
        """Return the position of a column whose values can be compared exactly; see `at`.

        Raises:
            DefinitionError: If they can't be, or no column has the name.
        """
        at = self.at(what, name)
        kind = self.type_of(at)
        if collation(kind):
            raise DefinitionError(
                f"{self.owner}, {what}: '{name}' is of type {kind.simpleString()}; only text that is compared byte by "
                "byte (UTF8_BINARY) can be constrained: cast the column to string."
            )
        if is_odd(kind) or exact_type(compared_as(kind)) is None:
            raise DefinitionError(
                f"{self.owner}, {what}: '{name}' is of type {kind.simpleString()}, whose values can't be constrained; "
                "booleans, numbers, texts, binaries, dates and timestamps can."
            )
        return at


def compared_as(kind: T.DataType) -> pa.DataType:
    """Return the Arrow type whose order decides comparisons; null for nested types."""
    is_nested = isinstance(kind, T.ArrayType | T.MapType | T.StructType | T.VariantType)
    return pa.null() if is_nested else arrow_type(kind)
