"""The identity of results: an `_id` that is the same however often a result is written.

A batch that is run again gives the same results, as often each, whatever computes them. So a result is told by its
checkpoint, its join, its batch, the columns that the output shows or is computed from, and its number among those of
the batch that are alike in all of these. Which of them gets which number does not matter: they are interchangeable.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from watersmeet.spark.run.frames import hidden_name, quoted

ID = "_id"
DIGITS = 16
"""How many hexadecimal digits a half has."""
SMALL = 16 << 20
"""Up to how many bytes of results are numbered in one task; more are dealt out by their digests."""
SHARE = 64 << 20
"""How many bytes of results a task numbers otherwise."""


def identified(frame: DataFrame, content: Sequence[Column], origin: str, stored: bool) -> DataFrame:
    """Return results with their `_id`, which comes last: 32 hexadecimal digits.

    Args:
        frame: The results of one batch, all of them.
        content: What to hash of them; see `watersmeet.spark.run.content.parts`.
        origin: What they have in common, and no result of another batch, join or checkpoint has.
        stored: Whether they are in files, so that it is known how many bytes they have.
    """
    halves = [hidden_name("half0"), hidden_name("half1")]
    # [!] The origin is a text: for each new number, Spark would compile its code anew.
    digests = [F.xxhash64(F.lit(f"{at} {origin}"), *content).alias(half) for at, half in enumerate(halves)]
    shown = [F.col(quoted(name)) for name in frame.columns]
    digested = frame.select(*shown, *digests)
    alike = Window.partitionBy(*halves).orderBy(F.lit(1))
    number = F.row_number().over(alike).alias(hidden_name("number"))
    numbered = (_dealt(digested, halves) if stored else digested).select(*shown, *halves, number)
    one, two, number = map(F.col, (*halves, hidden_name("number")))
    return numbered.select(
        *shown, F.concat(*map(_hex, (F.xxhash64(one, two, number), F.xxhash64(two, number, one)))).alias(ID)
    )


def _hex(half: Column) -> Column:
    return F.lpad(F.lower(F.hex(half)), DIGITS, "0")


def _dealt(results: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return results in as few partitions as their bytes ask for, those that are alike in one."""
    plan: Any = results._jdf.queryExecution().analyzed()
    size = int(str(plan.collectLeaves().head().stats().sizeInBytes()))
    if size <= SMALL:
        return results.coalesce(1)
    slots = results.sparkSession.sparkContext.defaultParallelism
    return results.repartition(min(max(slots, size // SHARE + 1), 1 << 12), *by)
