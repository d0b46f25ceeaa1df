"""Results of joins with an optional stream that only Spark can tell: claims that hang on pairs, `model/cases.py`."""

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from watersmeet.query.cases import CANDIDATE, CASE, CONTENT, NEWEST, PAIR, ROLE, SOME, WHOLE
from watersmeet.query.query import Query
from watersmeet.spark.run.frames import hidden_name
from watersmeet.spark.sql.where import Where

_CASE, _ROLE, _WHOLE, _SOME = (hidden_name(name) for name in (CASE, ROLE, WHOLE, "some"))
_NEWEST, _CONTENT, _PLACE = (hidden_name(name) for name in (NEWEST, CONTENT, "place"))


def case_columns(query: Query) -> list[SparkColumn]:
    """Return the columns that say of which case a combination is, by names that no user has."""
    names = (CASE, ROLE, WHOLE, *((NEWEST, CONTENT) if query.as_of_streams else ()))
    return [F.col(name).alias(hidden_name(name)) for name in names]


def results(where: Where, query: Query, frame: DataFrame) -> DataFrame:
    """Keep the claims that hold and of whose pairs none holds, or some does, as they claim; and the newest candidates.

    [!] Functions of the user's see no combination that lacks what they read: those without a tuple of the optional
    stream are decided apart.

    Args:
        where: The condition.
        query: The join.
        frame: Combinations, those that are of no case among them, with `case_columns`.
    """
    every = [conjunct.clause for conjunct in query.deferred_conjuncts]
    required = [conjunct.clause for conjunct in query.deferred_conjuncts if conjunct.streams.isdisjoint(query.optional)]
    whole = where.decide(frame.where(_WHOLE), every).select(frame.columns)
    lacking = frame.where(f"NOT {_WHOLE}")
    if required:
        lacking = where.decide(lacking, required).select(frame.columns)
    own = -1 - F.monotonically_increasing_id()  # what is of no case is one of its own
    held = whole.union(lacking).withColumn(_CASE, F.coalesce(_CASE, own))
    together = held.repartition(frame.sparkSession.sparkContext.defaultParallelism, _CASE)
    if query.as_of_streams:
        return _newest(together)
    some = F.max(F.col(_ROLE) == PAIR).over(Window.partitionBy(_CASE))
    told = together.withColumn(_SOME, some)
    return told.where((F.col(_ROLE) != PAIR) & (F.col(_SOME) == (F.col(_ROLE) == SOME)))


def _newest(held: DataFrame) -> DataFrame:
    """Return of each case the newest candidate that holds; without one, its claim."""
    newest = [F.col(name).desc() for name in (_NEWEST, _CONTENT)]
    by_age = Window.partitionBy(_CASE).orderBy(F.col(_ROLE) != CANDIDATE, *newest)
    return held.withColumn(_PLACE, F.row_number().over(by_age)).where(F.col(_PLACE) == 1)
