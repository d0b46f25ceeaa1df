"""The identity of results: an `_id` that is the same however often a result is written.

A batch that is run again gives the same results, each as often as before, whatever computes them. So a result is
identified by its checkpoint, its join, its batch, the columns that the output shows or is computed from, and its number
among the results of the batch that are equal in all of these. Those are interchangeable, so any of them may get any of
the numbers.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from watersmeet.spark.run.frames import hidden_name, quote_name

ID = "_id"
DIGITS = 16
"""The hexadecimal digits of each half of an id."""
SMALL = 16 << 20
"""Results of up to as many bytes are numbered in one task; more are partitioned by their digests."""
SHARE = 64 << 20
"""The bytes of results that each task numbers otherwise."""


def add_identity(frame: DataFrame, content: Sequence[Column], origin: str, stored: bool) -> DataFrame:
    """Return results with a last column `_id` of 32 hexadecimal digits.

    Args:
        frame: The results of one batch, all of them.
        content: The columns to hash; see `watersmeet.spark.run.frames.hash_input`.
        origin: A text that distinguishes their checkpoint, join and batch from all others.
        stored: Whether they are in files, whose size is then known.
    """
    halves = [hidden_name("half0"), hidden_name("half1")]
    # [!] The origin is a text: Spark would compile new code for each new number.
    digests = [F.xxhash64(F.lit(f"{at} {origin}"), *content).alias(half) for at, half in enumerate(halves)]
    columns = [F.col(quote_name(name)) for name in frame.columns]
    digested = frame.select(*columns, *digests)
    alike = Window.partitionBy(*halves).orderBy(F.lit(1))
    number = F.row_number().over(alike).alias(hidden_name("number"))
    numbered = (_repartition(digested, halves) if stored else digested).select(*columns, *halves, number)
    one, two, number = map(F.col, (*halves, hidden_name("number")))
    return numbered.select(
        *columns, F.concat(*map(_hex, (F.xxhash64(one, two, number), F.xxhash64(two, number, one)))).alias(ID)
    )


def _hex(half: Column) -> Column:
    return F.lpad(F.lower(F.hex(half)), DIGITS, "0")


def _repartition(results: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return results in as few partitions as the size of their files allows, with equal ones in the same partition."""
    plan: Any = results._jdf.queryExecution().analyzed()
    size = int(str(plan.collectLeaves().head().stats().sizeInBytes()))
    if size <= SMALL:
        return results.coalesce(1)
    slots = results.sparkSession.sparkContext.defaultParallelism
    return results.repartition(min(max(slots, size // SHARE + 1), 1 << 12), *by)
