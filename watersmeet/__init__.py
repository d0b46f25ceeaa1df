"""Join many live streams at once, under any predicate, on Apache Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from watersmeet.adapt.auto import Auto
from watersmeet.errors import DefinitionError, DefinitionWarning, PredicateError, SqlError, StateError, WatersmeetError
from watersmeet.metadata.declarations import between, clustered, foreign_key, key, ordered, punctuations
from watersmeet.placement import ATR, CTR, DSJ, PSP, Central, Hash
from watersmeet.predicate.python import predicate
from watersmeet.query.optional_streams import asof
from watersmeet.query.windows import count, hopping, tumbling
from watersmeet.spilling.options import Spill

if TYPE_CHECKING:
    from watersmeet.spark.api.advise import advise
    from watersmeet.spark.api.define import Join, join
    from watersmeet.spark.api.join_query import JoinQuery
    from watersmeet.spark.api.stream import stream, table
    from watersmeet.spark.sql.sql_statement import sql

__version__ = "0.1.0"

__all__ = [
    "ATR",
    "CTR",
    "DSJ",
    "PSP",
    "Auto",
    "Central",
    "DefinitionError",
    "DefinitionWarning",
    "Hash",
    "Join",
    "JoinQuery",
    "PredicateError",
    "Spill",
    "SqlError",
    "StateError",
    "WatersmeetError",
    "advise",
    "asof",
    "between",
    "clustered",
    "count",
    "foreign_key",
    "hopping",
    "join",
    "key",
    "ordered",
    "predicate",
    "punctuations",
    "sql",
    "stream",
    "table",
    "tumbling",
]

_ON_SPARK = {
    "Join": "api.define",
    "JoinQuery": "api.join_query",
    "advise": "api.advise",
    "join": "api.define",
    "sql": "sql.sql_statement",
    "stream": "api.stream",
    "table": "api.stream",
}
"""What needs Spark, and where it is: imported when it is first named, so that the core can do without."""


def __getattr__(name: str) -> Any:
    if name not in _ON_SPARK:
        raise AttributeError(f"module 'watersmeet' has no attribute '{name}'")
    return getattr(import_module(f"watersmeet.spark.{_ON_SPARK[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
