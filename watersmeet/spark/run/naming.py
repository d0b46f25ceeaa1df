"""What Spark's own screens call the jobs of a join."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"


@contextmanager
def named(session: SparkSession, says: str) -> Iterator[None]:
    """Name the Spark jobs that are run within, below what Spark itself says of its streaming query."""
    context = session.sparkContext
    before = context.getLocalProperty(DESCRIPTION)
    context.setLocalProperty(DESCRIPTION, f"{before}<br/>{says}" if before else says)
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]  # None takes it away
