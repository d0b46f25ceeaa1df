"""Join many live streams at once, under any predicate, on Apache Spark."""

from watersmeet.errors import DefinitionError, PredicateError, SqlError, StateError, WatersmeetError
from watersmeet.placement import ATR, CTR, DSJ, PSP, Auto, Central, Hash
from watersmeet.predicate.python import predicate
from watersmeet.spark.advise import advise
from watersmeet.spark.join import Join, join, sql, stream
from watersmeet.spark.writer import JoinQuery
from watersmeet.windows import count, hopping

__all__ = [
    "ATR",
    "CTR",
    "DSJ",
    "PSP",
    "Auto",
    "Central",
    "DefinitionError",
    "Hash",
    "Join",
    "JoinQuery",
    "PredicateError",
    "SqlError",
    "StateError",
    "WatersmeetError",
    "advise",
    "count",
    "hopping",
    "join",
    "predicate",
    "sql",
    "stream",
]
