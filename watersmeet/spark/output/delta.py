"""Delta as a sink: each batch is one transaction, identified by the checkpoint's name and the batch's number."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from watersmeet.errors import DefinitionError, StateError
from watersmeet.spark.output.sinks import Results, Sink
from watersmeet.spark.run.versions import SPARK
from watersmeet.state.manifest.delivery import Delivery

LOG = "org.apache.spark.sql.delta.DeltaLog"


@dataclass(frozen=True, slots=True)
class DeltaSink(Sink):
    """A Delta table, exactly once: Delta skips a transaction that it already has.

    Attributes:
        spark: The session.
        path: Where the table is; it is created if missing.
        options: Delta's own options.
        partition_by: The columns by which files are partitioned.
        owner: The checkpoint to which the batches belong.
    """

    spark: SparkSession
    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    owner: str = ""

    @property
    def output(self) -> str:
        """See Sink."""
        return self.path

    def for_run(self, owner: str, run: str, durable: bool) -> "DeltaSink":
        """See Sink."""
        return replace(self, owner=f"watersmeet-{owner}")

    def write(self, results: Results) -> tuple[Delivery, ...]:
        """See Sink."""
        once = {"txnAppId": self.owner, "txnVersion": str(results.batch)}
        writer = results.read().write.format("delta").mode("append").options(**self.options, **once)
        writer.partitionBy(*self.partition_by).save(self.path)
        return ()

    def on_start(self, batch: int, check: Callable[[], None]) -> None:
        """Reject a table that is ahead of the checkpoint: Delta would skip new results under old batch numbers.

        Raises:
            StateError: If it is.
        """
        last = self._last_batch()
        if last is not None and last > batch:
            raise StateError(
                f"The Delta table at {self.path} has this query's results up to batch {last}, and the checkpoint is at "
                f"batch {batch}: it is an older copy. Restore a newer one, or write to a new table from a new "
                "checkpoint."
            )

    def _last_batch(self) -> int | None:
        """Return the last batch in the table; None if it has none, or Delta isn't loaded."""
        jvm: Any = self.spark._jvm
        if _load_log_class(self.spark) is None:
            return None
        table = jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(self.spark._jsparkSession, self.path)
        last = table._2().transactions().get(self.owner)
        return int(last.get()) if last.isDefined() else None


def check_jars(spark: SparkSession) -> None:
    """Check that Delta's jars are for this version of Spark: others fail in the middle of a batch.

    Raises:
        DefinitionError: If they aren't.
    """
    kind = _load_log_class(spark)
    source = kind.getProtectionDomain().getCodeSource() if kind is not None else None
    check_jar(str(source.getLocation().getPath()) if source is not None else "")


def check_jar(path: str) -> None:
    """Check that the name of a jar names no other version of Spark.

    >>> check_jar("/jars/delta-spark_2.13-4.4.0.jar")  # the name doesn't say

    Raises:
        DefinitionError: If it does.
    """
    match = re.search(r"delta-spark_(\d+)\.(\d+)_\d[^/]*\.jar$", path)
    if match is not None and (int(match[1]), int(match[2])) != SPARK:
        raise DefinitionError(
            f"format('delta'): {match[0]} is for Spark {match[1]}.{match[2]}, and this is Spark {pyspark.__version__}. "
            "Use versions that go together: docs/versions.md lists them."
        )


def _load_log_class(spark: SparkSession) -> Any:
    """Return the class of Delta's log, if the session has Delta's open-source jars; else None."""
    jvm: Any = spark._jvm
    try:
        return jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(LOG)
    except Py4JError:
        return None
